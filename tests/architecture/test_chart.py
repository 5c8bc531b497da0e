"""The Helm chart without Helm: its schema, and the manifests that it is committed with.

`make chart` shows that the chart renders to these manifests; here they are read.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from helix_temporal.cli._lazy import LazyCommand
from helix_temporal.cli.commands import app
from helix_temporal.health import HealthServer
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from tests.architecture._chart import (
    CHART,
    EXAMPLES,
    HELM,
    WORKERS,
    Manifest,
    chart_yaml,
    defaults,
    golden,
    pods,
    schema,
    schema_of_settings,
    secret_variables,
    values_of,
)
from tests.architecture._project import ROOT

OLDEST, NEWEST = "1.27", kubernetes_validate.latest_version()
"""Kubernetes: the oldest is that of the chart."""
OF_OTHERS = {"WorkerDeployment", "WorkerResourceTemplate", "PodMonitor"}
"""Kinds that controllers bring; Kubernetes has no schema of them."""
BUILT_IN = [
    pytest.param(manifest, id=f"{example}-{manifest['kind']}-{manifest['metadata']['name']}")
    for example in EXAMPLES
    for manifest in golden(example)
    if manifest["kind"] not in OF_OTHERS
]
RUNNING = [
    pytest.param(spec, id=f"{example}-{component}")
    for example in EXAMPLES
    for component, spec in pods(golden(example)).items()
]
SERVERS = [each for each in yaml.safe_load_all((HELM / "servers.yaml").read_text()) if each]
SECRETS = {"HELIX_REDIS_URL": "rediss://redis/0", "HELIX_POSTGRES_DSN": "postgresql://postgres/helix"}


def named(example: str, kind: str) -> Manifest:
    """The one manifest of a kind."""
    (found,) = (each for each in golden(example) if each["kind"] == kind)
    return found


def variables_of(example: str, component: str = "sessions") -> dict[str, str]:
    """The variables that one kind of pod has from ConfigMaps."""
    (container,) = pods(golden(example))[component]["containers"]
    names = [each["configMapRef"]["name"] for each in container["envFrom"] if "configMapRef" in each]
    maps = {each["metadata"]["name"]: each for each in golden(example) if each["kind"] == "ConfigMap"}
    return {name: value for each in names for name, value in maps[each]["data"].items()}


def settings_of(example: str) -> Settings:
    """What the workers of a set of values read."""
    return Settings.from_env({**SECRETS, **variables_of(example)})


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a selector takes a pod with these labels."""
    wanted = selector.get("matchLabels", {})
    among = selector.get("matchExpressions", [])
    return wanted.items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] for each in among
    )


def labels_of(example: str) -> dict[str, dict[str, str]]:
    """Labels of the workers' pods, by component."""
    templates = [each["spec"]["template"] for each in golden(example) if "template" in each.get("spec", {})]
    found = [template["metadata"]["labels"] for template in templates if "metadata" in template]
    component = "app.kubernetes.io/component"
    return {labels[component]: labels for labels in found if labels[component] in WORKERS}


# --- values ----------------------------------------------------------------------------------------


def test_the_schema_has_every_setting() -> None:
    """A setting that it lacks cannot be set, and one that is gone stops the pods: `make chart WRITE=1`."""
    assert schema()["properties"]["settings"] == schema_of_settings()


def test_no_secret_is_a_value() -> None:
    """Values are stored with each release, and printed by `helm get values`."""
    known = schema()["properties"]["settings"]["properties"]
    assert secret_variables() & known.keys() == set()
    assert {"HELIX_POSTGRES_DSN", "HELIX_REDIS_URL", "HELIX_TEMPORAL_API_KEY"} <= secret_variables()


def test_the_readme_names_each_secret() -> None:
    """Whoever makes the Secret has no schema that says what belongs in it."""
    text = (CHART / "README.md").read_text()
    assert [variable for variable in sorted(secret_variables()) if f"`{variable}`" not in text] == []


def test_every_object_of_the_schema_is_closed_or_kubernetes_own() -> None:
    """A misspelt value would be ignored silently."""
    opened: list[str] = []

    def walk(place: str, part: Any) -> None:
        if isinstance(part, dict):
            if "properties" in part and part.get("additionalProperties") is not False:
                opened.append(place)
            for name, each in part.items():
                walk(f"{place}/{name}", each)

    walk("", schema())
    assert sorted(opened) == ["/properties/podSecurityContext", "/properties/securityContext"]


def test_every_default_is_in_the_schema_and_the_other_way_round() -> None:
    """values.yaml is the list that people read."""
    assert {*defaults(), "global"} == schema()["properties"].keys()
    for group in ("sessions", "maintenance", "migration", "image", "serviceAccount"):
        assert defaults()[group].keys() == schema()["properties"][group]["properties"].keys()


def test_options_of_maintenance_are_those_of_its_command() -> None:
    """An unknown one ends the worker when it starts."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    command = group.commands["maintenance"]
    assert isinstance(command, LazyCommand)
    options = {each.opts[0].removeprefix("--") for each in command.load().params}
    taken = schema()["properties"]["maintenance"]["properties"]["options"]["properties"].keys()
    assert options - {"help"} == taken


# --- manifests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("manifest", BUILT_IN)
def test_a_manifest_follows_the_schema_of_kubernetes(manifest: Manifest, version: str) -> None:
    """Strictly: a field that is none would be dropped silently."""
    kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("manifest", SERVERS, ids=[each["kind"] for each in SERVERS])
def test_the_servers_follow_the_schema_of_kubernetes(manifest: Manifest) -> None:
    """They are the first thing that is applied to an empty cluster."""
    kubernetes_validate.validate(manifest, NEWEST, strict=True)


def test_a_manifest_with_a_field_that_is_none_is_refused() -> None:
    """The check above can fail."""
    manifest = named("minimal", "ServiceAccount") | {"automountToken": False}
    with pytest.raises(kubernetes_validate.ValidationError, match="automountToken"):
        kubernetes_validate.validate(manifest, NEWEST, strict=True)


def test_the_chart_asks_for_the_oldest_kubernetes_that_is_checked() -> None:
    """Its word and the check are one number."""
    assert chart_yaml()["kubeVersion"] == f">={OLDEST}.0-0"


@pytest.mark.parametrize("example", EXAMPLES)
def test_settings_are_read_by_settings(example: str) -> None:
    """Numbers above all: Helm reads 1048576 as a float."""
    given = values_of(example)["settings"]
    settings = settings_of(example)
    assert settings.temporal_address == given["HELIX_TEMPORAL_ADDRESS"]
    assert settings.health_port == defaults()["settings"]["HELIX_HEALTH_PORT"]


def test_large_and_broken_numbers_come_as_they_are() -> None:
    """As Helm prints a number it would be 2.097152e+06."""
    data = variables_of("production")
    assert (data["HELIX_LIMIT_MESSAGE_BYTES"], data["HELIX_TIMEOUT_STORE_RETRY_INITIAL"]) == (
        "2097152",
        "0.5",
    )


@pytest.mark.parametrize("example", EXAMPLES)
def test_kubernetes_waits_longer_than_a_worker_drains(example: str) -> None:
    """A worker that is killed first has its model call made, and paid for, again."""
    drain = HelixPlugin(settings_of(example)).longest_step.total_seconds()
    running = {name: spec for name, spec in pods(golden(example)).items() if name in WORKERS}
    assert {name for name, spec in running.items() if spec["terminationGracePeriodSeconds"] <= drain} == set()


def test_the_time_to_stop_follows_the_settings_and_the_tools() -> None:
    """Twenty minutes of a model call, an hour that was asked for, and the defaults."""
    graces = {
        example: pods(golden(example))["sessions"]["terminationGracePeriodSeconds"] for example in EXAMPLES
    }
    assert (graces["minimal"], graces["production"], graces["own-program"]) == (630, 1230, 3600)


@pytest.mark.parametrize("example", EXAMPLES)
def test_probes_ask_what_a_worker_answers(example: str) -> None:
    """A path that is none is 404, and a worker is restarted for it for ever."""
    served = HealthServer.__doc__ or ""
    for spec in (spec for name, spec in pods(golden(example)).items() if name in WORKERS):
        (container,) = spec["containers"]
        paths = {
            kind: container[f"{kind}Probe"]["httpGet"]["path"]
            for kind in ("startup", "liveness", "readiness")
        }
        assert paths == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
        assert [path for path in paths.values() if f"``{path}``" not in served.replace("GET ", "")] == []
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["health"] == settings_of(example).health_port


@pytest.mark.parametrize("spec", RUNNING)
def test_a_pod_has_no_rights_that_it_does_not_use(spec: Manifest) -> None:
    """What a tool is talked into doing, it does with these."""
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        own = container["securityContext"]
        assert own == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"].keys() == {"requests", "limits"}


@pytest.mark.parametrize("spec", RUNNING)
def test_variables_of_other_services_are_no_settings(spec: Manifest) -> None:
    """Kubernetes gives each pod variables of every service, and names of some begin with HELIX_."""
    assert spec["enableServiceLinks"] is False


@pytest.mark.parametrize("spec", RUNNING)
def test_an_image_has_the_version_of_the_application(spec: Manifest) -> None:
    """``latest`` of next year is another program."""
    (container,) = spec["containers"]
    repository, separator, tag = re.split(r"([:@])", container["image"], maxsplit=1)
    assert repository.startswith("registry.example.invalid/")
    assert separator == "@" or tag.split("-")[0] == chart_yaml()["appVersion"]


def test_the_chart_has_the_version_of_the_package() -> None:
    """The chart's default image is the one that was released with it."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart_yaml()["version"], chart_yaml()["appVersion"]) == (version, version)


@pytest.mark.parametrize("example", [each for each in EXAMPLES if "migrate" in pods(golden(each))])
def test_tables_are_brought_up_to_date_before_anything_of_the_release_is_there(example: str) -> None:
    """Workers refuse older tables; and what runs before an install brings its ConfigMap along."""
    job = named(example, "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    spec = pods(golden(example))["migrate"]
    (container,) = spec["containers"]
    assert (container["command"], container["args"]) == (["helix-temporal"], ["migrate"])
    assert "serviceAccountName" not in spec
    (own,) = (each for each in container["envFrom"] if "configMapRef" in each)
    (settings,) = (
        each
        for each in golden(example)
        if each["metadata"]["name"] == own["configMapRef"]["name"] and each["kind"] == "ConfigMap"
    )
    hooks = settings["metadata"]["annotations"]
    assert hooks["helm.sh/hook"] == job["metadata"]["annotations"]["helm.sh/hook"]
    assert int(hooks["helm.sh/hook-weight"]) < int(
        job["metadata"]["annotations"].get("helm.sh/hook-weight", 0)
    )


@pytest.mark.parametrize("example", [each for each in EXAMPLES if "migrate" in pods(golden(each))])
def test_migrations_and_workers_read_a_variable_that_stands_twice_alike(example: str) -> None:
    """In the settings and in the Secret: a job with another table prefix migrates what nobody reads."""
    running = pods(golden(example))
    (job,), (worker,) = running["migrate"]["containers"], running["maintenance"]["containers"]
    assert [[*each] for each in job["envFrom"]] == [[*each] for each in worker["envFrom"]]
    assert job.get("env", []) == worker.get("env", [])
    assert variables_of(example, "migrate") == variables_of(example, "maintenance")


def test_both_kinds_of_workers_run_their_commands() -> None:
    """A renamed command would be found at the first install."""
    running = pods(golden("production"))
    assert running["sessions"]["containers"][0]["args"] == ["worker"]
    assert running["maintenance"]["containers"][0]["args"] == [
        "maintenance",
        "--audit",
        "--delete-after=365",
        "--sweep=30",
    ]
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    assert {"worker", "maintenance", "migrate"} <= group.commands.keys()


def test_agents_and_keys_of_providers_reach_the_session_workers_alone() -> None:
    """Maintenance calls no models."""
    running = pods(golden("production"))
    env = {each["name"]: each for each in running["sessions"]["containers"][0]["env"]}
    assert env["HELIX_AGENTS"]["value"] == "support.agents,support.billing:agent"
    assert env["ANTHROPIC_API_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "providers"
    assert "env" not in running["maintenance"]["containers"][0]


def test_a_program_of_ones_own_runs_in_place_of_the_command() -> None:
    """Its HelixWorker has whatever options it likes."""
    running = pods(golden("own-program"))
    assert running.keys() == {"sessions", "test"}
    (container,) = running["sessions"]["containers"]
    assert container["command"] == ["python", "/program/main.py"]
    assert "args" not in container
    assert running["sessions"]["serviceAccountName"] == "default"


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_selector_takes_its_own_workers_and_no_others(example: str) -> None:
    """Two deployments that take each other's pods scale each other."""
    labels = labels_of(example)
    for deployment in (each for each in golden(example) if each["kind"] == "Deployment"):
        own = deployment["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        taken = {name for name, each in labels.items() if selects(deployment["spec"]["selector"], each)}
        assert taken == {own}


def test_what_names_other_manifests_finds_them() -> None:
    """An autoscaler, a budget, a policy and a monitor of nothing are accepted, and do nothing."""
    labels = labels_of("production")
    scaled = named("production", "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    deployments = {
        each["metadata"]["name"]: each for each in golden("production") if each["kind"] == "Deployment"
    }
    assert "replicas" not in deployments[scaled["name"]]["spec"]
    budget = named("production", "PodDisruptionBudget")["spec"]
    assert {name for name, each in labels.items() if selects(budget["selector"], each)} == {"sessions"}
    policy = named("production", "NetworkPolicy")["spec"]
    assert {name for name, each in labels.items() if selects(policy["podSelector"], each)} == WORKERS
    monitor = named("production", "PodMonitor")["spec"]
    assert {name for name, each in labels.items() if selects(monitor["selector"], each)} == WORKERS
    ports = {port["name"] for port in pods(golden("production"))["sessions"]["containers"][0]["ports"]}
    assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports
    account = named("production", "ServiceAccount")["metadata"]["name"]
    assert pods(golden("production"))["sessions"]["serviceAccountName"] == account


def test_a_closed_network_lets_out_what_the_settings_name() -> None:
    """DNS, Temporal, and each store; everything else is refused."""
    policy = named("production", "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    ports = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert ports == {53, 443, 5432, 6379, 7233}
    (restricted,) = (rule for rule in policy["egress"] if "to" in rule)
    assert [port["port"] for port in restricted["ports"]] == [5432]
    (entry,) = policy["ingress"]
    assert {port["port"] for port in entry["ports"]} == {8086, 9464}


def test_spread_pods_are_told_from_others() -> None:
    """A constraint without a selector counts no pods, and spreads nothing."""
    (constraint,) = pods(golden("production"))["sessions"]["topologySpreadConstraints"]
    assert selects(constraint["labelSelector"], labels_of("production")["sessions"])
    assert not selects(constraint["labelSelector"], labels_of("production")["maintenance"])


def test_versions_are_made_by_the_controller() -> None:
    """Names and fields of its custom resources, version v1alpha1."""
    resource = named("versioned", "WorkerDeployment")
    assert resource["apiVersion"] == "temporal.io/v1alpha1"
    # An autoscaler has them.
    assert resource["spec"].keys() == {"workerOptions", "rollout", "sunset", "template"}
    assert resource["spec"]["workerOptions"] == {
        "connectionRef": {"name": "temporal"},
        "temporalNamespace": Settings().temporal_namespace,
    }
    assert resource["spec"]["rollout"]["strategy"] == "Progressive"
    scaling = named("versioned", "WorkerResourceTemplate")["spec"]
    assert scaling["workerDeploymentRef"]["name"] == resource["metadata"]["name"]
    # The controller fills in what is empty.
    assert scaling["template"]["spec"]["scaleTargetRef"] == {}


def test_what_the_controller_is_given_is_a_pod_and_an_autoscaler_of_kubernetes() -> None:
    """It checks neither before it makes them."""
    resource, scaling = named("versioned", "WorkerDeployment"), named("versioned", "WorkerResourceTemplate")
    deployment = named("minimal", "ServiceAccount") | {"apiVersion": "apps/v1", "kind": "Deployment"}
    deployment.pop("automountServiceAccountToken")
    template = resource["spec"]["template"]
    deployment["spec"] = {"template": template, "selector": {"matchLabels": template["metadata"]["labels"]}}
    kubernetes_validate.validate(deployment, NEWEST, strict=True)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a-version"}
    autoscaler = scaling["spec"]["template"] | {"metadata": {"name": "a-version"}}
    autoscaler["spec"] = autoscaler["spec"] | {"scaleTargetRef": target}
    kubernetes_validate.validate(autoscaler, NEWEST, strict=True)


# --- the servers to try it on ----------------------------------------------------------------------


def server(kind: str) -> Manifest:
    """What runs the servers, or says how they are reached."""
    found: Manifest
    (found,) = (each for each in SERVERS if each["kind"] == kind)
    return found


def test_the_servers_are_those_of_the_compose_file() -> None:
    """One set of images and options, said in two places."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    containers = server("Deployment")["spec"]["template"]["spec"]["containers"]
    here = {each["name"]: (each["image"], each.get("args")) for each in containers}
    there = {name: (compose[name]["image"], compose[name].get("command")) for name in here}
    # Parts of one process in a pod find each other at its loopback, whatever the service is called.
    there["seaweedfs"] = (
        there["seaweedfs"][0],
        [each.replace("-ip=seaweedfs", "-ip=127.0.0.1") for each in there["seaweedfs"][1]],
    )
    database = "--db-filename=/home/temporal/temporal.db"
    there["temporal"] = (there["temporal"][0], [each for each in there["temporal"][1] if each != database])
    assert here == there


def test_the_trial_reaches_the_servers() -> None:
    """Three commands lead to an answer, or the first impression is an error."""
    secret, service = server("Secret"), server("Service")
    assert values_of("trial")["existingSecret"] == secret["metadata"]["name"]
    settings = Settings.from_env({**secret["stringData"], **variables_of("trial")})
    host, ports = service["metadata"]["name"], {each["port"] for each in service["spec"]["ports"]}
    urls = " ".join(map(str, (settings.s3_endpoint, *secret["stringData"].values())))
    named_there = [settings.temporal_address, *re.findall(r"//(?:[^@/ ]*@)?([^/ ]+)", urls)]
    assert {each.partition(":")[0] for each in named_there} == {host}
    assert {int(each.partition(":")[2]) for each in named_there} <= ports
    assert settings.has_cold_tier
