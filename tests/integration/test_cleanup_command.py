"""``helix-temporal cleanup`` on real stores."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner, Result

from helix_temporal.activities.executions import TemporalExecutions
from helix_temporal.backends import Backends
from helix_temporal.cli.commands import app
from helix_temporal.cli.outputs import CleanupReport
from helix_temporal.models.states import CreateSession, SessionState, SessionStatus, WorkspaceRef
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.worker import connect_without_metrics

R = TypeVar("R")
LATE = CreateSession(expires_at=1)
TWO_SECONDS = "0.000024"
"""In days."""


@pytest.fixture
def variables(empty_store: dict[str, str], temporal_address: str) -> dict[str, str]:
    """A store of the test's own, empty."""
    return empty_store | {"HELIX_TEMPORAL_ADDRESS": temporal_address}


def with_store(variables: dict[str, str], use: Callable[[SessionStore], Awaitable[R]]) -> R:
    """Use the store as a worker would."""

    async def run() -> R:
        backends = Backends(Settings.from_env(variables))
        try:
            return await use(backends.sessions)
        finally:
            await backends.close()

    return asyncio.run(run())


def create(variables: dict[str, str], **sessions: CreateSession) -> None:
    async def each(store: SessionStore) -> None:
        for session_id, options in sessions.items():
            await store.create_session(session_id, options)

    with_store(variables, each)


def load(variables: dict[str, str], session_id: str) -> SessionState | None:
    return with_store(variables, lambda store: store.load_state(session_id))


def cleanup(variables: dict[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(app, ["cleanup", *arguments], env=variables)


def table(found: Result) -> dict[str, int]:
    """The numbers that were printed."""
    rows = [line.rsplit(None, 1) for line in found.stdout.splitlines()]
    return {name.strip(): int(number.replace(",", "")) for name, number in rows}


def test_it_ends_what_is_past_its_time_and_nothing_else(variables: dict[str, str]) -> None:
    """Sessions that nobody comes back to must not look alive for ever."""
    finished = CreateSession(expires_at=1, status=SessionStatus.COMPLETED)
    create(variables, late=LATE, done=finished, live=CreateSession(expires_at=2**52), plain=CreateSession())
    found = cleanup(variables)
    assert found.exit_code == 0, found.output
    assert table(found) == {
        "sessions past their time": 2,
        "had finished before": 1,
        "used meanwhile, left alone": 0,
        "run, and were asked to end": 0,
        "ended now": 1,
        "workspace snapshots deleted": 0,
        "operations forgotten": 0,
    }
    late, live = load(variables, "late"), load(variables, "live")
    assert late is not None
    assert live is not None
    assert (late.status, late.failure_reason) == (SessionStatus.FAILED, "session_expired")
    assert live.status == SessionStatus.ACTIVE


def test_a_dry_run_counts_and_changes_nothing(variables: dict[str, str]) -> None:
    """One looks before one deletes."""
    create(variables, late=LATE, old=CreateSession())
    before = [load(variables, "late"), load(variables, "old")]
    found = cleanup(variables, "--dry-run", "--expired", "--older-than", "0.1")
    assert found.exit_code == 0, found.output
    assert (table(found)["would be ended"], table(found)["would be deleted"]) == (1, 0)
    assert [load(variables, "late"), load(variables, "old")] == before


def test_temporal_is_connected_to_once(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session is asked for: ten thousand would be as many handshakes."""
    create(variables, one=LATE, two=LATE, three=LATE)
    connected = []

    async def connect_and_count(settings: Settings) -> Any:
        connected.append(settings)
        return await connect_without_metrics(settings)

    monkeypatch.setattr("helix_temporal.cli.cleanup.connect_without_metrics", connect_and_count)
    assert table(cleanup(variables, "--expired"))["ended now"] == 3
    assert len(connected) == 1


def test_a_dry_run_leaves_out_sessions_that_run(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what a real run would do."""

    async def runs(self: object, session_id: str) -> bool:
        return session_id == "live"

    monkeypatch.setattr(TemporalExecutions, "is_running", runs)
    create(variables, live=LATE, late=LATE)
    found = table(cleanup(variables, "--expired", "--dry-run"))
    assert (found["would be ended"], found["run, and would be asked to end"]) == (1, 1)


def test_what_nobody_changed_for_long_is_deleted(variables: dict[str, str]) -> None:
    """Retention is a promise to the people whose words these are."""
    create(variables, one=CreateSession(), two=CreateSession())
    assert table(cleanup(variables, "--older-than", "1"))["deleted"] == 0
    with_store(variables, past(2000))
    found = cleanup(variables, "--older-than", TWO_SECONDS)
    assert found.exit_code == 0, found.output
    assert table(found) == {
        "old sessions": 2,
        "used meanwhile, left alone": 0,
        "run, left alone": 0,
        "deleted": 2,
        "workspace snapshots deleted": 0,
    }
    assert load(variables, "one") is None


def past(milliseconds: int) -> Callable[[SessionStore], Awaitable[None]]:
    """Wait until so much has passed by the store's own clock."""

    async def wait(store: SessionStore) -> None:
        until = await store.now() + milliseconds + 100
        while await store.now() < until:  # noqa: ASYNC110 (the clock is the store's)
            await asyncio.sleep(0.05)

    return wait


def test_progress_is_told_apart_from_the_numbers(variables: dict[str, str]) -> None:
    """A long run shows that it goes on; the numbers alone go into a file."""
    create(variables, late=LATE)
    assert cleanup(variables, "--expired").stderr == "  looked at 1 past their time\n"


def test_snapshots_that_cannot_be_deleted_from_here_are_named_and_fail(variables: dict[str, str]) -> None:
    """Their provider lives in the maintenance worker: the mark stays for it, and cron sends a mail."""
    workspace = WorkspaceRef(provider_id="disk", workspace_id="w1")
    create(variables, late=LATE.model_copy(update={"workspaces": (workspace,)}))
    found = cleanup(variables, "--expired")
    assert found.exit_code == 3
    assert "late: snapshots: no provider 'disk' was given" in found.stderr
    late = load(variables, "late")
    assert late is not None
    assert (late.status, late.cleanup_pending) == (SessionStatus.FAILED, True)


@pytest.mark.parametrize(
    ("given", "arguments", "message", "status"),
    [
        ({}, [], "InvalidConfigError: there is no session store that this command can reach", 2),
        (
            {"HELIX_SESSION_STORE": "none"},
            [],
            "InvalidConfigError: there is no session store that this command can reach",
            2,
        ),
        ({}, ["--older-than", "0"], "InvalidConfigError: --older-than: 0.0 days; at least a second", 2),
        (
            {"HELIX_POSTGRES_DSN": "postgresql://u:hunter2@127.0.0.1:1/db"},
            [],
            "StoreUnavailableError: PostgreSQL at",
            7,
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    given: dict[str, str], arguments: list[str], message: str, status: int
) -> None:
    """No stack trace, and no password, in the log of a nightly run."""
    clear: dict[str, Any] = dict.fromkeys(("HELIX_POSTGRES_DSN", "HELIX_REDIS_URL", "HELIX_DATA_DIRECTORY"))
    failed = CliRunner().invoke(app, ["cleanup", *arguments], env={**clear, **given})
    assert failed.exit_code == status
    assert failed.output.startswith(message)
    assert "hunter2" not in failed.output
    assert len(failed.output.splitlines()) == 1


def test_tables_of_another_version_are_one_line(postgres_dsn: str, table_prefix: str) -> None:
    """Somebody forgot to migrate: it says so."""
    made = {"HELIX_POSTGRES_DSN": postgres_dsn, "HELIX_TABLE_PREFIX": table_prefix}
    failed = cleanup(made)
    assert failed.exit_code == 1
    assert failed.output.startswith("SchemaVersionError: ")
    assert "helix-temporal migrate" in failed.output


def test_sessions_that_may_run_are_not_ended_unasked(variables: dict[str, str]) -> None:
    """Temporal knows which sessions run; where it does not answer, only one who knows better goes on."""
    create(variables, late=LATE)
    away = variables | {"HELIX_TEMPORAL_ADDRESS": "127.0.0.1:1"}
    refused = cleanup(away, "--expired")
    assert refused.exit_code == 7
    assert "--without-temporal" in refused.output
    assert cleanup(away, "--expired", "--without-temporal").exit_code == 0
    late = load(variables, "late")
    assert late is not None
    assert late.status is SessionStatus.FAILED


def test_with_json_the_counts_are_data(variables: dict[str, str]) -> None:
    """What was not asked for is null, and not 0."""
    create(variables, late=LATE)
    found = CleanupReport.model_validate_json(cleanup(variables, "--expired", "--json").stdout)
    assert found.expired is not None
    assert (found.expired.marked, found.old, found.operations_forgotten) == (1, None, None)
