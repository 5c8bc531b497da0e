"""Files that other programs read: the compose file, the image of the workers, CI.

No container engine may be there, so they are checked against the published schemas that check-jsonschema
carries, and for what a schema can't say.
"""

import re
import subprocess
import sys
from typing import Any

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from helix_temporal.cli.commands import app
from helix_temporal.devstack import seaweedfs, temporal
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from tests.architecture._project import ROOT

SERVERS = {"temporal", "postgres", "valkey", "seaweedfs"}
WORKERS = {"session-worker", "maintenance-worker"}
WATCHERS = {"prometheus", "grafana", "otel-collector", "tempo"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The parsed compose file."""
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return parsed


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("docker-compose.yml", "vendor.compose-spec"),
        (".github/workflows/ci.yml", "vendor.github-workflows"),
        (".github/workflows/release.yml", "vendor.github-workflows"),
    ],
)
def test_a_file_follows_its_published_schema(file: str, schema: str) -> None:
    """A wrong key is ignored or refused only where the file is used."""
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, file],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_compose_offers_the_servers_of_the_dev_command(compose: dict[str, Any]) -> None:
    """The same stack, with or without containers."""
    without_profile = {name for name, service in compose["services"].items() if "profiles" not in service}
    assert without_profile == SERVERS


def test_workers_have_longer_to_stop_than_they_drain(compose: dict[str, Any]) -> None:
    """As in the chart: what is killed in the middle of a model call is paid for again."""
    drain = HelixPlugin(Settings()).longest_step.total_seconds()
    given = {compose["services"][name]["stop_grace_period"] for name in WORKERS}
    assert given == {f"{drain + 30:.0f}s"}


def test_every_server_has_a_health_check(compose: dict[str, Any]) -> None:
    """Workers wait for servers that are ready, not only started."""
    checked = {name for name, each in compose["services"].items() if "test" in each.get("healthcheck", {})}
    assert checked == SERVERS


def test_every_server_keeps_its_data_in_a_declared_volume(compose: dict[str, Any]) -> None:
    """``docker compose down`` loses nothing."""
    used = {name: compose["services"][name]["volumes"][0].split(":")[0] for name in SERVERS}
    assert set(used.values()) == set(compose["volumes"])


def test_ports_are_open_to_this_machine_only(compose: dict[str, Any]) -> None:
    """The passwords are known to everyone."""
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_what_watches_finds_its_files(compose: dict[str, Any]) -> None:
    """Docker makes a folder of a file that is missing."""
    mounts = [each for name in WATCHERS for each in compose["services"][name]["volumes"]]
    assert [each for each in mounts if not (ROOT / each.split(":")[0]).exists()] == []
    address = compose["services"]["session-worker"]["environment"]["HELIX_METRICS_PROMETHEUS"]
    scraped = yaml.safe_load((ROOT / "deploy/telemetry/prometheus/prometheus.yml").read_text())
    workers = next(each for each in scraped["scrape_configs"] if each["job_name"] == "helix")
    assert workers["dns_sd_configs"] == [
        {"names": ["session-worker", "maintenance-worker"], "type": "A", "port": int(address.split(":")[1])}
    ]
    assert workers["honor_labels"]


def test_workers_come_by_profile_and_wait_for_all_servers(compose: dict[str, Any]) -> None:
    """One asks for them; by default one runs the worker one is writing."""
    asked_for = {name: service for name, service in compose["services"].items() if "profiles" in service}
    assert asked_for.keys() == {*WORKERS, "migrate", *WATCHERS}
    profiles = {name: service["profiles"] for name, service in asked_for.items()}
    assert {name for name, each in profiles.items() if each == ["workers"]} == {*WORKERS, "migrate"}
    assert {name for name, each in profiles.items() if each == ["telemetry"]} == WATCHERS
    ready = {name: {"condition": "service_healthy"} for name in SERVERS}
    ready["migrate"] = {"condition": "service_completed_successfully"}
    assert all(asked_for[name]["depends_on"] == ready for name in WORKERS)


def test_tables_are_made_once_before_the_workers(compose: dict[str, Any]) -> None:
    """Workers refuse to start on tables of an older version, also at the second ``up``."""
    migrate, worker = compose["services"]["migrate"], compose["services"]["session-worker"]
    assert migrate["command"] == ["migrate"]
    assert migrate["environment"] == worker["environment"]
    assert migrate["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    # A job: started again it would run for ever.
    assert migrate["restart"] == "no"
    # No worker answers in it: the image's check would call it unhealthy after two minutes.
    assert migrate["healthcheck"] == {"disable": True}


@pytest.mark.parametrize(
    ("extras", "built", "installed"),
    [
        ("", "/wheels .", "/wheels helix-temporal"),
        ("anthropic,web", "/wheels .[anthropic,web]", "/wheels helix-temporal[anthropic,web]"),
    ],
)
def test_the_worker_image_takes_extras(extras: str, built: str, installed: str) -> None:
    """An agent that uses a provider's library is otherwise served by an image that nobody can build."""
    dockerfile = (ROOT / "workers" / "Dockerfile").read_text().replace("\\\n", " ")
    commands = [line.replace("&&", ";") for line in re.findall(r"^RUN .*$", dockerfile, re.MULTILINE)]
    # What the shell makes of the lines, without running any program of them.
    shown = [re.sub(r"^RUN (--mount=\S+ )?", "echo ", command).split(" ;")[0] for command in commands]
    ran = subprocess.run(
        ["sh", "-c", ";".join(shown)],
        env={"EXTRAS": extras},
        capture_output=True,
        text=True,
        check=True,
    )
    wheel, install = ran.stdout.splitlines()
    assert wheel.endswith(built)
    assert install.replace("=/wheels", " /wheels").endswith(installed)
    assert dockerfile.count("ARG EXTRAS") == 2  # an argument ends with its stage


def test_the_environment_of_the_workers_is_read_by_settings(compose: dict[str, Any]) -> None:
    """A misspelt variable would be ignored silently."""
    environment = compose["services"]["session-worker"]["environment"]
    known = {f"HELIX_{name.upper()}" for name in Settings.model_fields}
    assert environment.keys() <= known
    assert Settings.from_env(environment).has_cold_tier


def test_compose_tunes_temporal_as_the_dev_command_does(compose: dict[str, Any]) -> None:
    """Without the dispatch settings each step of a workflow waits 30 ms."""
    assert set(temporal.dynamic_config_arguments()) <= set(compose["services"]["temporal"]["command"])


def test_compose_has_the_keys_that_workers_use(compose: dict[str, Any]) -> None:
    """One pair of keys, said in two places."""
    identities = compose["configs"]["identities"]["content"]
    environment = compose["services"]["session-worker"]["environment"]
    assert environment["HELIX_S3_ACCESS_KEY"] == seaweedfs.ACCESS_KEY
    assert environment["HELIX_S3_SECRET_KEY"] == seaweedfs.SECRET_KEY
    assert seaweedfs.SECRET_KEY in identities


def test_images_have_versions(compose: dict[str, Any]) -> None:
    """``latest`` of next year is another server."""
    images = [service["image"] for service in compose["services"].values() if "image" in service]
    assert [image for image in images if not re.search(r":v?[0-9]", image)] == []


def test_what_the_worker_image_copies_is_there_and_let_through() -> None:
    """The ignore file lets through a few names only; a forgotten one fails the build."""
    dockerfile = (ROOT / "workers" / "Dockerfile").read_text()
    copied = [
        name for line in re.findall(r"^COPY (.*)$", dockerfile, re.MULTILINE) for name in line.split()[:-1]
    ]
    allowed = set(re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert set(copied) == allowed
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_commands_of_the_workers_are_there(compose: dict[str, Any]) -> None:
    """A renamed worker would be found at its first deployment."""
    commands = {compose["services"][name]["command"][0] for name in WORKERS}
    assert commands == {"worker", "maintenance"}
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    assert commands <= group.commands.keys()


def test_actions_of_ci_are_pinned_by_commit_and_have_no_rights_by_default() -> None:
    """A tag can be moved to other code."""
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    used = re.findall(r"uses: (\S+)", text)
    assert [action for action in used if not re.search(r"@[0-9a-f]{40}$", action)] == []
    assert yaml.safe_load(text)["permissions"] == {}
