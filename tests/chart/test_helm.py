"""What Helm makes of the chart: `make chart` brings it, and runs these.

Without a cluster this is what can be known: the chart is well formed, values that cannot work are refused
with a reason, and the manifests are those that were read and committed.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture._chart import CHART, EXAMPLES, HELM, path_of_golden
from tests.chart._helm import render, run_helm

MINIMAL = HELM / "values" / "minimal.yaml"


def refusal(tmp_path: Path, values: dict[str, Any]) -> str:
    """Why Helm renders nothing of these beside the least values."""
    own = tmp_path / "values.json"
    own.write_text(json.dumps(values))
    ran = run_helm("template", "refused", str(CHART), f"--values={MINIMAL}", f"--values={own}")
    assert ran.returncode != 0
    return ran.stderr


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_chart_passes_a_strict_lint(example: str) -> None:
    """Warnings are what a later Helm refuses."""
    values = HELM / "values" / f"{example}.yaml"
    ran = run_helm("lint", "--strict", str(CHART), f"--values={values}")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("example", EXAMPLES)
def test_values_render_to_the_committed_manifests(example: str) -> None:
    """A change of a template is read as the change of manifests that it is; `make chart WRITE=1`."""
    assert render(example) == path_of_golden(example).read_text()


def test_the_chart_packs_with_what_it_reads(tmp_path: Path) -> None:
    """A file that the package leaves out is missing only where the package is installed."""
    packed = run_helm("package", str(CHART), f"--destination={tmp_path}")
    assert packed.returncode == 0, packed.stderr
    (package,) = tmp_path.glob("helix-temporal-*.tgz")
    values = HELM / "values" / "production.yaml"
    ran = run_helm("template", "helix-temporal", str(package), f"--values={values}")
    assert ran.stdout == path_of_golden("production").read_text()


REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("a value that is none", {"workers": {}}, ["workers", "not allowed"]),
    ("a value within a group that is none", {"sessions": {"replica": 2}}, ["replica", "not allowed"]),
    ("a misspelt setting", {"settings": {"HELIX_REDIS_URI": "x"}}, ["HELIX_REDIS_URI", "not allowed"]),
    ("a secret among the settings", {"settings": {"HELIX_POSTGRES_DSN": "x"}}, ["HELIX_POSTGRES_DSN"]),
    ("a key among the settings", {"settings": {"HELIX_S3_SECRET_KEY": "x"}}, ["HELIX_S3_SECRET_KEY"]),
    ("a choice that is none", {"settings": {"HELIX_FLUSH": "never"}}, ["HELIX_FLUSH", "'step', 'exit'"]),
    ("a number out of bounds", {"settings": {"HELIX_HEALTH_PORT": 99999}}, ["HELIX_HEALTH_PORT", "65,535"]),
    ("a duration that is none", {"settings": {"HELIX_STREAM_TTL": "a day"}}, ["HELIX_STREAM_TTL"]),
    ("text for a switch", {"settings": {"HELIX_TEMPORAL_TLS": "yes"}}, ["HELIX_TEMPORAL_TLS", "boolean"]),
    ("no port of probes", {"settings": {"HELIX_HEALTH_PORT": None}}, ["HELIX_HEALTH_PORT is not set"]),
    ("no image", {"image": {"repository": ""}}, ["image.repository is not set", "workers/Dockerfile"]),
    ("an image with its tag", {"image": {"repository": "team/agents:1"}}, ["repository"]),
    ("half a digest", {"image": {"digest": "sha256:0f1e"}}, ["digest"]),
    ("a file in place of a module", {"sessions": {"agents": ["my_agents.py:support/x"]}}, ["agents"]),
    (
        "less time to stop than a model call may take",
        {"sessions": {"terminationGracePeriodSeconds": 60}},
        ["sessions.terminationGracePeriodSeconds is 60", "600 s", "at least 630"],
    ),
    (
        "the same of maintenance",
        {"maintenance": {"terminationGracePeriodSeconds": 629}},
        ["maintenance.terminationGracePeriodSeconds is 629"],
    ),
    (
        "less time than a tool's own time-out",
        {"sessions": {"longestStep": "1h", "terminationGracePeriodSeconds": 3600}},
        ["3600 s", "at least 3630"],
    ),
    (
        "a time-out where the time to stop does not follow it",
        {"env": [{"name": "HELIX_TIMEOUT_MODEL_START_TO_CLOSE", "value": "1800"}]},
        ["is in env", "settings.HELIX_TIMEOUT_MODEL_START_TO_CLOSE"],
    ),
    (
        "the same for all workers",
        {"commonEnv": [{"name": "HELIX_TIMEOUT_TOOL_START_TO_CLOSE", "value": "1800"}]},
        ["is in env or commonEnv", "settings.HELIX_TIMEOUT_TOOL_START_TO_CLOSE"],
    ),
    (
        "a store that only session workers would have",
        {
            "env": [
                {"name": "HELIX_POSTGRES_DSN", "valueFrom": {"secretKeyRef": {"name": "db", "key": "dsn"}}}
            ]
        },
        ["HELIX_POSTGRES_DSN is in env", "maintenance", "existingSecret", "commonEnv"],
    ),
    (
        "a setting that the chart would not see",
        {"commonEnv": [{"name": "HELIX_HEALTH_PORT", "value": "9000"}]},
        ["HELIX_HEALTH_PORT is in commonEnv", "settings.HELIX_HEALTH_PORT"],
    ),
    (
        "a build that nobody makes current",
        {"settings": {"HELIX_BUILD_ID": "b1"}},
        ["HELIX_BUILD_ID is set", "no work", "sessions.workerDeployment", "byHand"],
    ),
    (
        "a build beside those of the controller",
        {
            "settings": {"HELIX_BUILD_ID": "b1"},
            "sessions": {"workerDeployment": {"enabled": True, "connection": "temporal"}},
        },
        ["HELIX_BUILD_ID is set beside sessions.workerDeployment", "take it out"],
    ),
    (
        "an archive that the network policy does not let through",
        {"settings": {"HELIX_S3_ENDPOINT": "https://minio:9000"}, "networkPolicy": {"enabled": True}},
        ["port 9000 of settings.HELIX_S3_ENDPOINT", "networkPolicy.egress"],
    ),
    (
        "a collector of metrics that it does not let through",
        {"settings": {"HELIX_METRICS_OTLP": "http://collector:4317"}, "networkPolicy": {"enabled": True}},
        ["port 4317 of settings.HELIX_METRICS_OTLP"],
    ),
    (
        "a collector of traces that it does not let through",
        {
            "commonEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318/v1"}],
            "networkPolicy": {"enabled": True},
        },
        ["port 4318 of OTEL_EXPORTER_OTLP_ENDPOINT"],
    ),
    (
        "a Temporal that it does not let through",
        {
            "settings": {"HELIX_TEMPORAL_ADDRESS": "temporal:17233"},
            "networkPolicy": {"enabled": True},
        },
        ["port 17233 of settings.HELIX_TEMPORAL_ADDRESS"],
    ),
    ("root", {"podSecurityContext": {"runAsUser": 0}}, ["runAsUser"]),
    ("privileges", {"securityContext": {"privileged": True}}, ["privileged"]),
    (
        "an autoscaler that measures nothing",
        {"sessions": {"autoscaling": {"enabled": True, "cpu": 0}}},
        ["measures nothing", "sessions.autoscaling.cpu"],
    ),
    (
        "more workers at least than at most",
        {"sessions": {"autoscaling": {"enabled": True, "minReplicas": 20}}},
        ["minReplicas is 20", "maxReplicas 10"],
    ),
    (
        "a monitor of no port",
        {"metrics": {"podMonitor": {"enabled": True}}},
        ["metrics.podMonitor is enabled", "metrics.port"],
    ),
    (
        "versions without a connection",
        {"sessions": {"workerDeployment": {"enabled": True}}},
        ["sessions.workerDeployment.connection is not set"],
    ),
    (
        "a ramp to everybody",
        {
            "sessions": {
                "workerDeployment": {"rollout": {"steps": [{"rampPercentage": 100, "pauseDuration": "1m"}]}}
            }
        },
        ["rampPercentage"],
    ),
    ("an option of maintenance that is none", {"maintenance": {"options": {"sweeep": 30}}}, ["sweeep"]),
    ("a peer without ports", {"networkPolicy": {"egress": {"models": {"to": []}}}}, ["ports"]),
    (
        "a budget that lets nobody go",
        {"sessions": {"disruptionBudget": {"maxUnavailable": 0}}},
        ["maxUnavailable"],
    ),
]


@pytest.mark.parametrize(
    ("values", "told"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED]
)
def test_values_that_cannot_work_are_refused_with_a_reason(
    tmp_path: Path, values: dict[str, Any], told: list[str]
) -> None:
    """Otherwise they are found by pods that do not start, or by a roll-out that repeats paid calls."""
    text = refusal(tmp_path, values)
    assert [word for word in told if word not in text] == [], text


def rendering(tmp_path: Path, values: dict[str, Any]) -> str:
    """What Helm renders of these beside the least values."""
    own = tmp_path / "values.json"
    own.write_text(json.dumps(values))
    ran = run_helm("template", "taken", str(CHART), f"--values={MINIMAL}", f"--values={own}")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_ports_that_the_network_policy_opens_are_not_refused(tmp_path: Path) -> None:
    """By an entry of one's own; also those of schemes, and of the pod itself, which no policy stops."""
    settings = {
        "HELIX_S3_ENDPOINT": "https://minio:9000",
        "HELIX_METRICS_OTLP": "https://collector/v1/metrics",
    }
    traces = [{"name": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "value": "http://localhost:4318"}]
    policy = {"enabled": True, "egress": {"minio": {"ports": [9000]}}}
    found = rendering(tmp_path, {"settings": settings, "env": traces, "networkPolicy": policy})
    assert "port: 9000 }" in found


def test_a_common_variable_reaches_all_pods(tmp_path: Path) -> None:
    """Session workers, maintenance and migrations must not go by different stores."""
    secret = {"secretKeyRef": {"name": "db", "key": "dsn"}}
    found = rendering(tmp_path, {"commonEnv": [{"name": "HELIX_POSTGRES_DSN", "valueFrom": secret}]})
    pods = [each for each in found.split("---\n") if "HELIX_POSTGRES_DSN" in each]
    kinds = [line for each in pods for line in each.splitlines() if line.startswith("kind:")]
    assert sorted(kinds) == ["kind: Deployment", "kind: Deployment", "kind: Job", "kind: Pod"]


def test_releases_of_one_installation_may_share_a_job(tmp_path: Path) -> None:
    """One release for each build: workers of the old one are not missed where those of the new one serve."""
    monitor = {"enabled": True, "job": "agents"}
    values = {"settings": {"HELIX_METRICS_PROMETHEUS": "0.0.0.0:9464"}, "metrics": {"podMonitor": monitor}}
    found = [yaml.safe_load(each) for each in rendering(tmp_path, values).split("---\n")]
    (taken,) = (each["spec"] for each in found if each and each["kind"] == "PodMonitor")
    (endpoint,) = taken["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "agents"}]


def test_versions_by_hand_are_taken_and_the_notes_say_what_to_do(tmp_path: Path) -> None:
    """Who installs a release of the chart for each build is told how to make it current."""
    chart, own = tmp_path / "chart", tmp_path / "values.json"
    shutil.copytree(CHART, chart)
    # Without a cluster Helm shows no notes: here they are comments of a manifest.
    notes = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "notes.yaml").write_text("".join(f"# {each}\n" for each in notes.splitlines()))
    values = {"settings": {"HELIX_BUILD_ID": "b1"}, "sessions": {"workerDeployment": {"byHand": True}}}
    own.write_text(json.dumps(values))
    ran = run_helm("template", "by-hand", str(chart), f"--values={MINIMAL}", f"--values={own}")
    assert ran.returncode == 0, ran.stderr
    assert "get no work before build" in ran.stdout
    assert "set-current-version --deployment-name helix --build-id b1" in ran.stdout


def test_a_shorter_step_allows_a_shorter_stop(tmp_path: Path) -> None:
    """The refusal above is of the relation, not of the number."""
    own = tmp_path / "values.json"
    timeouts = {"HELIX_TIMEOUT_MODEL_START_TO_CLOSE": "1.5m", "HELIX_TIMEOUT_TOOL_START_TO_CLOSE": 45}
    own.write_text(json.dumps({"settings": timeouts, "sessions": {"terminationGracePeriodSeconds": 120}}))
    ran = run_helm("template", "short", str(CHART), f"--values={MINIMAL}", f"--values={own}")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("terminationGracePeriodSeconds: 120") == 2
