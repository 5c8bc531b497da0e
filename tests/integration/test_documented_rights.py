"""Commands of production, by their variables alone, with exactly the rights of `docs/operations.md`."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from redis.asyncio import Redis
from temporalio.client import Client, WorkflowExecutionStatus

from helix_temporal.client import SessionClient
from helix_temporal.devstack import S3Endpoint, seaweedfs
from helix_temporal.devstack.programs import free_port
from helix_temporal.settings import Settings
from helix_temporal.worker import connect
from tests._collector import Collector
from tests._commands import running, start
from tests.docs._pages import ROOT

pytestmark = pytest.mark.slow

PASSWORD: Final = "only-for-this-test"
AGENTS: Final = """
from helix_temporal.agents import Agent, ModelRequest, ModelResponse


class Talks:
    async def generate(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse("so it is " * 30_000)


clerk = Agent(name="clerk", model=Talks())
"""
"""Answers are long enough to be offloaded, compacted and cleared away."""
JOBS: Final = {"helix.sweep", "helix.keep", "helix.cleanup", "helix.wake"}
REFUSED: Final = re.compile(
    r"NOPERM|Access ?Denied|permission denied|Forbidden|ERROR|Traceback", re.IGNORECASE
)
PLACES: Final = {
    "redis": {"redis"},
    "redis and postgres": {"redis", "postgres"},
    "postgres": {"postgres"},
}


def replace_user(url: str, user: str) -> str:
    """The address, as another user's."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{PASSWORD}@{parts.netloc.rpartition('@')[2]}"))


def read_acl() -> list[str]:
    """The rules of the page, without user, password and keys."""
    page = (ROOT / "docs/operations.md").read_text()
    (rules,) = re.findall(r"ACL SETUSER helix on >SECRET ~helix:\* (-@all [^`]*)```", page)
    return str(rules).split()


def read_table_rights() -> tuple[str, str]:
    """Rights on the tables, and the one that `migrate` needs in the schema beside them."""
    page = (ROOT / "docs/operations.md").read_text()
    ((tables, schema),) = re.findall(
        r"\*\*Rights\*\*: (.*?) on the tables; for `migrate` also `(\w+)` in the schema", page
    )
    return tables.replace("`", ""), schema


@pytest.fixture
async def redis_user(redis_url: str, unique: str) -> AsyncIterator[dict[str, str]]:
    """Variables of a user of Redis that has what the page lists."""
    async with Redis.from_url(redis_url) as made:
        admin: Any = made
        rules = ["on", f">{PASSWORD}", f"~{unique}:*", *read_acl()]
        await admin.execute_command("ACL", "SETUSER", unique, *rules)
        yield {
            "HELIX_REDIS_URL": replace_user(redis_url, unique),
            "HELIX_REDIS_PREFIX": f"{unique}:",
            "HELIX_ALLOW_PLAINTEXT": "true",
        }
        await admin.execute_command("ACL", "DELUSER", unique)


@pytest.fixture
async def postgres_users(
    postgres_dsn: str, unique: str
) -> AsyncIterator[tuple[dict[str, str], dict[str, str]]]:
    """Variables of whoever migrates, and of whoever serves."""
    tables, schema = read_table_rights()
    owner, server = f"{unique}_owner", f"{unique}_server"
    connection = await asyncpg.connect(postgres_dsn)
    try:
        for each in (owner, server):
            await connection.execute(f"CREATE ROLE {each} LOGIN PASSWORD '{PASSWORD}'")
            await connection.execute(f"GRANT USAGE ON SCHEMA public TO {each}")
        await connection.execute(f"GRANT {schema} ON SCHEMA public TO {owner}")
        await connection.execute(
            f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA public GRANT {tables} ON TABLES TO {server}"
        )
        common = {"HELIX_TABLE_PREFIX": f"{unique}_"}
        yield (
            {**common, "HELIX_POSTGRES_DSN": replace_user(postgres_dsn, owner)},
            {**common, "HELIX_POSTGRES_DSN": replace_user(postgres_dsn, server)},
        )
        for each in (owner, server):
            await connection.execute(f"DROP OWNED BY {each} CASCADE")
        await connection.execute(f"DROP ROLE {owner}, {server}")
    finally:
        await connection.close()


@pytest.fixture
def common(temporal_address: str, s3: S3Endpoint, unique: str, tmp_path: Path) -> dict[str, str]:
    """Variables of all: keys that may read and write below one prefix."""
    (tmp_path / "desk.py").write_text(AGENTS)
    return {
        "HELIX_TEMPORAL_ADDRESS": temporal_address,
        "HELIX_TASK_QUEUE": unique,
        "HELIX_HEALTH_PORT": str(free_port()),
        "HELIX_S3_ENDPOINT": s3.endpoint,
        "HELIX_S3_BUCKET": s3.bucket,
        "HELIX_S3_REGION": s3.region,
        "HELIX_S3_ACCESS_KEY": seaweedfs.PREFIX_ACCESS_KEY,
        "HELIX_S3_SECRET_KEY": seaweedfs.PREFIX_SECRET_KEY,
        "HELIX_S3_PREFIX": f"{seaweedfs.PREFIX}/{unique}",
    }


def run(directory: Path, variables: dict[str, str], *arguments: str) -> str:
    """A command that ends well by itself; what it said."""
    process = start(directory, variables, *arguments)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert not REFUSED.search(output), output
    return output


async def count_jobs(client: Client, queue: str) -> Counter[str]:
    """How often each job of maintenance has ended well."""
    found = [each async for each in client.list_workflows(f"TaskQueue = '{queue}-maintenance'")]
    ended = [each for each in found if each.status is not WorkflowExecutionStatus.RUNNING]
    for each in ended:
        result = await client.get_workflow_handle(each.id, run_id=each.run_id).result()
        assert not result.get("failures"), (each.workflow_type, result)
    return Counter(each.workflow_type for each in ended)


async def until_jobs_ended(client: Client, queue: str) -> None:
    """Each job once at least; upkeep alone has 256 parts."""
    counted = Counter[str]()
    for _ in range(240):
        counted = await count_jobs(client, queue)
        if counted.keys() >= JOBS:
            return
        await asyncio.sleep(1)
    raise AssertionError(f"some jobs did not end: {counted}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stores", PLACES)
async def test_every_command_has_enough_with_what_the_page_lists(
    stores: str,
    common: dict[str, str],
    redis_user: dict[str, str],
    postgres_users: tuple[dict[str, str], dict[str, str]],
    collector: Collector,
    tmp_path: Path,
) -> None:
    """With keys for one prefix of the bucket no worker started, and no test had noticed."""
    owner, server = postgres_users
    variables = {**common, **(redis_user if "redis" in PLACES[stores] else {})}
    if "postgres" in PLACES[stores]:
        run(tmp_path, {**common, **owner}, "migrate")
        variables |= server
    queue = variables["HELIX_TASK_QUEUE"]
    session_id = f"{queue}-clerk"
    of_maintenance = {**variables, "HELIX_HEALTH_PORT": str(free_port())}
    often = ("--sweep", "1", "--evict", "2", "--keep", "2", "--cleanup", "2", "--wake", "2", "--audit")
    client, _ = await connect(
        Settings.from_env({"HELIX_TEMPORAL_ADDRESS": variables["HELIX_TEMPORAL_ADDRESS"]})
    )
    sessions = SessionClient(client, task_queue=queue)
    with (
        running(tmp_path, variables, "worker", "desk", until="Starting a worker for"),
        running(tmp_path, of_maintenance, "maintenance", *often, until=queue),
    ):
        for text in ("one", "two", "three"):
            await sessions.ask(session_id, text, agent="clerk")
            await sessions.session(session_id).close()
            await sessions.session(session_id).result()
        await sessions.session(session_id).fork(f"{session_id}-fork")
        run(tmp_path, variables, "health", "ready")
        await until_jobs_ended(client, queue)
        assert len(await sessions.session(session_id).get_messages()) == 6
        await sessions.session(f"{session_id}-fork").delete()
    run(tmp_path, variables, "sweep", "--evict")
    assert "wrong" not in run(tmp_path, variables, "thread", "verify", session_id)
    run(tmp_path, variables, "thread", "show", session_id)
    run(tmp_path, variables, "cleanup", "--expired", "--operations")
    exported = {**variables, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    run(tmp_path, exported, "telemetry", "backfill", "--since", "1h")
