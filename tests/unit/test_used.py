"""Entries of the usage store: each piece of work once, and none that could cost the work itself."""

import logging
from typing import Any

import pytest

from helix_temporal.activities import Payloads, ToolRunner
from helix_temporal.activities import usage as _used
from helix_temporal.activities.usage import UsageLog
from helix_temporal.agents import ToolOutcome, tool
from helix_temporal.backends import Backends
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.messages import ToolCall, Usage
from helix_temporal.models.steps import EndTurnInput, StepInput, ToolInput
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.models.usage import ToolUsageEntry, UsageEntry
from helix_temporal.session.record import SessionRecord
from helix_temporal.settings import Settings
from helix_temporal.stores.memory import MemoryPayloads, MemoryThreads
from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.stores.threads.hot_only import HotThreads


@tool
def look() -> ToolOutcome:
    """Look around."""
    return ToolOutcome("seen", usage=Usage(input_tokens=5))


async def test_attempts_of_a_tool_call_are_one_call() -> None:
    """Its worker was lost after it had recorded, and the next one runs the tool again."""
    usage = MemoryUsage()
    runner = ToolRunner(HotThreads(MemoryThreads()), Payloads(MemoryPayloads()), used=UsageLog(usage))
    call = ToolCall(id="c1", name="look")
    request = ToolInput(
        session_id="s", thread_id="s", agent="a", tool="look", call=call, key="s/m1/0", turn=1, position=2
    )
    for _ in range(2):
        await runner.run(look, request)
    assert [entry.id for entry in await usage.get_entries("s")] == ["tool-tokens/m1.0", "tool/m1.0"]


async def test_attempts_before_the_one_that_worked_are_counted() -> None:
    """A tool that fails twice of three times looked as well as any other."""
    usage = MemoryUsage()
    runner = ToolRunner(HotThreads(MemoryThreads()), Payloads(MemoryPayloads()), used=UsageLog(usage))
    call = ToolCall(id="c1", name="look")
    request = ToolInput(
        session_id="s", thread_id="s", agent="a", tool="look", call=call, key="s/m1/0", turn=1, position=2
    )
    await runner.run(look, request, number=3)
    entries = await usage.get_entries("s", kinds=["tool"])
    assert [each.attempts for each in entries if isinstance(each, ToolUsageEntry)] == [3]


async def test_a_name_that_no_store_takes_costs_no_turn(caplog: pytest.LogCaptureFixture) -> None:
    """Models make names up; the call failed, and its turn goes on."""
    usage = MemoryUsage()
    results = tuple(
        StepInput(id=f"m1.{at}", text="no such tool", call="c", name=name, is_error=True)
        for at, name in enumerate(("good", "b\0d", "x" * 300))
    )
    ends = EndTurnInput(session_id="s", epoch=1, head=EMPTY, inputs=results)
    with caplog.at_level(logging.WARNING):
        await UsageLog(usage).record_results(ends, SessionRecord(agent="a"))
    assert [entry.id for entry in await usage.get_entries("s")] == ["tool/m1.0"]
    assert caplog.text.count("is not recorded") == 2


class Down(MemoryUsage):
    """Takes nothing until it is up again, or has refused so often."""

    def __init__(self, refuses: int) -> None:
        super().__init__()
        self.refuses = refuses

    async def record_entry(self, entry: UsageEntry) -> Any:
        """Refuse, or take it."""
        self.refuses -= 1
        if self.refuses >= 0:
            raise StoreUnavailableError("down")
        return await super().record_entry(entry)


async def one_call(used: UsageLog) -> None:
    """A tool call that has come to its end."""
    result = StepInput(id="m1.0", text="no", call="c", name="good", is_error=True)
    ends = EndTurnInput(session_id="s", epoch=1, head=EMPTY, inputs=(result,))
    await used.record_results(ends, SessionRecord(agent="a"))


async def test_a_worker_that_stops_waits_for_what_is_not_recorded_yet() -> None:
    """A deploy is no crash: what the store takes a moment later is counted."""
    usage = Down(refuses=6)
    backends = Backends(Settings(), usage=usage)
    await one_call(backends._used)
    assert await usage.get_entries("s") == []
    await backends.close()
    assert [entry.id for entry in await usage.get_entries("s")] == ["tool/m1.0"]


async def test_a_worker_that_stops_does_not_wait_for_ever(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that stays away: what is lost is in the log."""
    monkeypatch.setattr(_used, "_LAST_PATIENCE", 0.3)
    used = UsageLog(Down(refuses=10**6))
    await one_call(used)
    with caplog.at_level(logging.WARNING):
        await used.close()
    assert "lost" in caplog.text
