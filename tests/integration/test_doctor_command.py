"""``helix-temporal doctor`` on real servers: what is well, what is wrong, and what is away."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest
from temporalio.client import Client
from typer.testing import CliRunner, Result

from helix_temporal.backends import Backends
from helix_temporal.cli.commands import app
from helix_temporal.devstack import Valkey
from helix_temporal.doctor import Check, CheckReport, check_deployment
from helix_temporal.errors import ThreadNotFoundError
from helix_temporal.maintenance import MaintenancePlan, ensure_schedules, maintenance_queue, name_schedules
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker, connect

NOWHERE = "127.0.0.1:9"
RARELY = MaintenancePlan(
    sweep=timedelta(days=1), evict=timedelta(days=1), keep=timedelta(days=1), wake=timedelta(days=1)
)


@pytest.fixture
def variables(
    own_valkey: Valkey, postgres_dsn: str, s3_variables: dict[str, str], temporal_address: str, unique: str
) -> dict[str, str]:
    """All servers, with tables, keys and a task queue of the test's own."""
    found = {
        "HELIX_TEMPORAL_ADDRESS": temporal_address,
        "HELIX_TASK_QUEUE": unique,
        "HELIX_REDIS_URL": own_valkey.url,
        "HELIX_POSTGRES_DSN": postgres_dsn,
        "HELIX_TABLE_PREFIX": f"{unique}_",
        **s3_variables,
    }
    assert CliRunner().invoke(app, ["migrate"], env=found).exit_code == 0
    return found


@pytest.fixture
async def deployment(variables: dict[str, str]) -> AsyncIterator[Client]:
    """Workers of sessions and of maintenance, with schedules."""
    settings = Settings.from_env(variables)
    client, helix = await connect(settings)
    keeper, keeping = await connect(settings)
    await ensure_schedules(client, settings.task_queue, RARELY)
    async with (
        HelixWorker(client, helix),
        HelixWorker(keeper, keeping, task_queue=maintenance_queue(settings.task_queue)),
    ):
        yield client


def doctor(variables: dict[str, str], *arguments: str) -> Result:
    """The command."""
    return CliRunner().invoke(app, ["doctor", *arguments], env=variables)


def find_wrong(report: CheckReport) -> list[Check]:
    """What is not well."""
    return [each for each in report.checks if each.status != "ok"]


async def test_a_deployment_that_is_well_has_nothing_wrong(
    variables: dict[str, str], deployment: Client
) -> None:
    """Who sees warnings each time reads none; and each kind of server has been asked."""
    report = await check_deployment(variables, writes=True)
    assert (find_wrong(report), report.status, report.away) == ([], "ok", False)
    assert {each.about for each in report.checks} == {
        "versions", "settings", "redis", "postgres", "archive", "temporal", "workers", "maintenance",
    }  # fmt: skip
    clocks = [each.about for each in report.checks if each.name == "clock"]
    assert sorted(clocks) == ["archive", "postgres", "redis"]


async def test_nothing_is_written_unless_it_is_asked_for(variables: dict[str, str]) -> None:
    """A check of a deployment that is sick must not change what others will look at."""
    settings = Settings.from_env(variables)

    async def list_everything() -> tuple[object, list[str]]:
        backends = Backends(settings)
        assert backends.blobs is not None
        keys = await backends.find_server("redis")._connection.send_command("DBSIZE")
        objects = [each.key async for each in backends.blobs.list(settings.s3_prefix)]
        await backends.close()
        return keys, objects

    before = await list_everything()
    await check_deployment(variables)
    assert await list_everything() == before == (0, [])


def test_without_workers_there_are_warnings(variables: dict[str, str]) -> None:
    """Stores are well; sessions would wait, and nothing would be archived after a crash."""
    found = doctor(variables, "--json")
    wrong = find_wrong(CheckReport.model_validate_json(found.stdout))
    assert found.exit_code == 3
    names = [(each.about, each.name, each.status) for each in wrong]
    assert names == [
        ("workers", "task queue", "warning"),
        ("maintenance", "task queue", "warning"),
        ("maintenance", "schedules", "warning"),
    ]
    assert "helix-temporal worker" in wrong[0].says
    assert "helix-temporal maintenance" in wrong[1].says


async def test_a_paused_schedule_is_named_with_what_to_do(
    variables: dict[str, str], deployment: Client
) -> None:
    """Somebody paused it in an incident, and forgot."""
    name = name_schedules(deployment, variables["HELIX_TASK_QUEUE"])["keep"]
    await deployment.get_schedule_handle(name).pause(note="incident 7")
    (wrong,) = find_wrong(await check_deployment(variables))
    assert (wrong.about, wrong.name) == ("maintenance", "keep")
    assert wrong.says.startswith("is paused (incident 7)")


@pytest.mark.parametrize(
    ("changed", "about"),
    [
        ({"HELIX_REDIS_URL": f"redis://:sesame@{NOWHERE}/0"}, "redis"),
        ({"HELIX_POSTGRES_DSN": f"postgresql://me:sesame@{NOWHERE}/x"}, "postgres"),
        ({"HELIX_S3_ENDPOINT": f"http://{NOWHERE}"}, "archive"),
        ({"HELIX_TEMPORAL_ADDRESS": NOWHERE}, "temporal"),
    ],
)
def test_a_server_that_is_away_is_named_and_the_others_are_checked(
    variables: dict[str, str], changed: dict[str, str], about: str
) -> None:
    """It is one failure among answers; its password is in none of them."""
    found = doctor({**variables, **changed}, "--json")
    report = CheckReport.model_validate_json(found.stdout)
    assert found.exit_code == 7
    away = {each.about for each in report.checks if each.away}
    # The backlog and the mark of the archive are read from Redis.
    assert about in away <= {about, *(["archive"] if about == "redis" else [])}
    well = {each.about for each in report.checks if each.status == "ok"}
    assert {"redis", "postgres", "archive", "temporal"} - {about} <= well
    assert "sesame" not in found.output


async def test_a_server_that_says_nothing_holds_nobody_up(variables: dict[str, str]) -> None:
    """It takes the connection, and no answer comes: each check has its own time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        report = await check_deployment(
            {**variables, "HELIX_REDIS_URL": f"redis://127.0.0.1:{port}/0"}, within=2.0
        )
    said = [each.says for each in report.checks if each.about == "redis"]
    assert said == ["no answer within 2 s; is the address right, and is it reachable from here?"]
    assert "ok" in {each.status for each in report.checks if each.about == "postgres"}


def test_tables_that_are_not_there_fail_with_the_command_that_makes_them(variables: dict[str, str]) -> None:
    """The most frequent mistake of a roll-out."""
    found = doctor({**variables, "HELIX_TABLE_PREFIX": "other_"})
    assert found.exit_code == 1
    assert "version 0 found" in found.stdout
    assert "run: helix-temporal migrate" in found.stdout


def test_a_wrong_key_of_the_archive_fails(variables: dict[str, str]) -> None:
    """The server is there; it refuses."""
    found = doctor({**variables, "HELIX_S3_SECRET_KEY": "wrong-sesame"}, "--json")
    (wrong,) = [
        each for each in find_wrong(CheckReport.model_validate_json(found.stdout)) if each.about == "archive"
    ]
    assert (found.exit_code, wrong.status, wrong.away) == (1, "failed", False)
    assert "what the credentials may do" in wrong.says
    assert "sesame" not in found.output


def test_another_archive_than_the_threads_go_to_fails(variables: dict[str, str]) -> None:
    """Conversations would read as empty."""

    async def remember() -> None:
        backends = Backends(Settings.from_env(variables))
        with suppress(ThreadNotFoundError):
            await backends.threads.read_facts("x")
        await backends.close()

    asyncio.run(remember())
    found = doctor({**variables, "HELIX_S3_PREFIX": "another"})
    assert found.exit_code == 1
    assert "ForeignDeploymentError: the threads of this store go to archive" in found.stdout


def test_wrong_variables_are_one_failed_check() -> None:
    """All that is wrong with them is told at once, as an issue should have it."""
    found = doctor({"HELIX_REDIS_URL": "nonsense", "HELIX_HEALTH_PORT": "-1"}, "--json")
    report = json.loads(found.stdout)
    assert found.exit_code == 1
    assert [each["name"] for each in report["checks"]] == ["installed", "read"]
    assert "HELIX_HEALTH_PORT" in report["checks"][1]["says"]


def test_without_variables_it_says_which(temporal_address: str) -> None:
    """A shell without them must not be told that all is well."""
    found = doctor({"HELIX_TEMPORAL_ADDRESS": temporal_address})
    assert found.exit_code == 1
    assert "no store of threads is set" in found.stdout


async def test_a_cluster_is_asked_at_each_of_its_primaries(redis_cluster: str, unique: str) -> None:
    """One that is full, or has another policy, is enough to lose a conversation."""
    report = await check_deployment(
        {"HELIX_REDIS_URL": redis_cluster, "HELIX_REDIS_CLUSTER": "true", "HELIX_REDIS_PREFIX": f"{unique}:"},
        temporal=False,
    )
    (server,) = [each for each in report.checks if (each.about, each.name) == ("redis", "server")]
    assert "3 primaries" in server.says
    assert not report.away
