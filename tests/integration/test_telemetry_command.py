"""``helix-temporal telemetry backfill`` on real stores, to a collector that listens."""

import asyncio
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from helix_temporal.backends import Backends
from helix_temporal.cli import telemetry
from helix_temporal.cli.commands import app
from helix_temporal.errors import StoreCorruptError, StoreUnavailableError
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus
from helix_temporal.models.states import CreateSession
from helix_temporal.models.traces import TurnTrace
from helix_temporal.models.usage import TokenCounts, TokenUsageEntry, ToolUsageEntry
from helix_temporal.settings import Settings
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.telemetry.ids import SpanRef, derive_span_id, derive_trace_id
from tests._collector import Collector


@pytest.fixture
def variables(empty_store: dict[str, str], collector: Collector) -> dict[str, str]:
    """A store of the test's own, with two turns that ended and one under way."""
    asyncio.run(fill(Settings.from_env(empty_store)))
    return empty_store | {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "2"}


async def fill(settings: Settings) -> None:
    """What workers leave in the stores."""
    backends = Backends(settings)
    try:
        for session_id, ended in (("one", True), ("two", True), ("three", False)):
            await record_turn(backends, session_id, ended=ended)
    finally:
        await backends.close()


async def record_turn(backends: Backends, session_id: str, *, ended: bool) -> None:
    """A turn of one model call and one tool."""
    store, now = backends.sessions, await backends.sessions.now()
    root = SpanRef(derive_trace_id(session_id, "r"), derive_span_id(session_id, "r", "turn"))
    await store.create_session(session_id, CreateSession())
    trace = TurnTrace(root=root.traceparent, agent="main", started=now)
    await store.start_run(session_id, NewRun(run_id="r", trace=trace))
    about = {"session_id": session_id, "timestamp": now + 5, "run_id": "r", "agent_type": "main"}
    await backends.usage.record_entry(
        TokenUsageEntry(
            id="step/m", model="claude", tokens=TokenCounts(prompt=7, completion=2), duration_ms=4, **about
        )
    )
    await backends.usage.record_entry(
        ToolUsageEntry(id="tool/m.0", tool_name="look", tool_call_id="c", duration_ms=1, **about)
    )
    if ended:
        await store.update_run(session_id, "r", RunChange(status=RunStatus.COMPLETED))


def break_reads_of(session_id: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the store fail wherever the runs of a session are read."""
    whole = RowSessions.list_runs

    async def list_runs(self: RowSessions, asked: str, **page: Any) -> Any:
        if asked == session_id:
            raise error
        return await whole(self, asked, **page)

    monkeypatch.setattr(RowSessions, "list_runs", list_runs)


def backfill(variables: dict[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(app, ["telemetry", "backfill", *arguments], env=variables)


def table(found: Result) -> dict[str, int]:
    """The numbers that were printed."""
    rows = [line.rsplit(None, 1) for line in found.stdout.splitlines()]
    return {name.strip(): int(number.replace(",", "")) for name, number in rows}


def test_it_exports_all_turns_that_ended(variables: dict[str, str], collector: Collector) -> None:
    """Under the ids that their workers gave them."""
    found = backfill(variables, "--since", "2h")
    assert found.exit_code == 0, found.output
    assert table(found) == {
        "sessions": 3,
        "turns told": 2,
        "of them abandoned": 0,
        "turns under way": 1,
        "turns without a trace": 0,
        "sessions that failed": 0,
        "spans": 6,
        "of them not sampled": 0,
    }
    traces = {int.from_bytes(each.trace_id, "big") for each in collector.spans}
    assert traces == {derive_trace_id("one", "r"), derive_trace_id("two", "r")}
    assert sorted(each.name for each in collector.spans) == [
        "chat claude", "chat claude", "execute_tool look", "execute_tool look",
        "invoke_agent main", "invoke_agent main",
    ]  # fmt: skip
    (chat, _) = (each for each in collector.spans if each.name == "chat claude")
    assert chat.end_time_unix_nano - chat.start_time_unix_nano == 4_000_000


def test_a_second_time_has_the_same_ids(variables: dict[str, str], collector: Collector) -> None:
    """A backend that has a span already has nothing new."""
    for _ in range(2):
        assert backfill(variables, "--since", "2h").exit_code == 0
    assert len(collector.spans) == 12
    assert len({each.span_id for each in collector.spans}) == 6


def test_it_can_be_asked_for_one_session(variables: dict[str, str], collector: Collector) -> None:
    """Of which somebody misses a trace."""
    found = backfill(variables, "--since", "2h", "--session", "two")
    assert table(found)["turns told"] == 1
    assert {int.from_bytes(each.trace_id, "big") for each in collector.spans} == {derive_trace_id("two", "r")}


def test_turns_that_ended_before_are_left_alone(variables: dict[str, str], collector: Collector) -> None:
    """A time that is asked for is kept to."""
    found = backfill(variables, "--since", "1ms")
    assert found.exit_code == 0
    assert table(found)["turns told"] == 0
    assert collector.spans == []


def test_a_collector_that_refuses_is_a_failure(variables: dict[str, str], collector: Collector) -> None:
    """Whoever runs it must not believe that all is there."""
    collector.status = 400
    found = backfill(variables, "--since", "2h")
    assert found.exit_code == 7
    assert "0 of 6 spans" in found.output


def test_a_damaged_session_stops_no_other(
    variables: dict[str, str], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, and the command fails at its end."""
    break_reads_of("one", StoreCorruptError("its rows make no sense"), monkeypatch)
    found = backfill(variables, "--since", "2h")
    assert found.exit_code == 3
    assert "one: its rows make no sense" in found.stderr
    assert (table(found)["turns told"], table(found)["sessions that failed"]) == (1, 1)
    assert {int.from_bytes(each.trace_id, "big") for each in collector.spans} == {derive_trace_id("two", "r")}


def test_what_was_told_before_a_store_goes_away_is_exported(
    variables: dict[str, str], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run has less to tell."""
    break_reads_of("two", StoreUnavailableError("the store is away"), monkeypatch)
    found = backfill(variables, "--since", "2h")
    assert found.exit_code == 7
    assert "the store is away" in found.stderr
    assert {int.from_bytes(each.trace_id, "big") for each in collector.spans} == {derive_trace_id("one", "r")}


def test_a_collector_that_takes_nothing_ends_it_soon(
    variables: dict[str, str], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch may wait for its time-out: to tell everything to nobody would take hours."""
    monkeypatch.setattr(telemetry, "_AT_ONCE", 3)
    collector.status = 400
    found = backfill(variables, "--since", "2h")
    assert found.exit_code == 7
    assert "0 of 3 spans" in found.stderr


def test_spans_that_its_sampler_drops_are_no_failure(variables: dict[str, str], collector: Collector) -> None:
    """Whoever samples wants just that."""
    found = backfill(variables | {"OTEL_TRACES_SAMPLER": "always_off"}, "--since", "2h")
    assert found.exit_code == 0, found.output
    assert (table(found)["spans"], table(found)["of them not sampled"]) == (6, 6)
    assert collector.spans == []


def test_a_time_that_is_none_is_refused(variables: dict[str, str]) -> None:
    """With what may be written."""
    found = backfill(variables, "--since", "yesterday")
    assert found.exit_code == 2
    assert "30, 1.5s, 200ms, 24h, 7d" in found.output
