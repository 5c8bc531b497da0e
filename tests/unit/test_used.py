"""Entries of the usage store: each piece of work once, and none that could cost the work itself."""

import logging

import pytest

from helix_temporal.activities import Payloads, ToolRunner
from helix_temporal.activities._used import UsageLog
from helix_temporal.agents import ToolOutcome, tool
from helix_temporal.models.messages import ToolCall, Usage
from helix_temporal.models.records import EMPTY
from helix_temporal.models.slices import SliceState
from helix_temporal.models.steps import EndTurnInput, StepInput, ToolInput
from helix_temporal.stores.alone import HotThreads
from helix_temporal.stores.memory import MemoryPayloads, MemoryThreads
from helix_temporal.stores.memory.usage import MemoryUsage


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


async def test_a_name_that_no_store_takes_costs_no_turn(caplog: pytest.LogCaptureFixture) -> None:
    """Models make names up; the call failed, and its turn goes on."""
    usage = MemoryUsage()
    results = tuple(
        StepInput(id=f"m1.{at}", text="no such tool", call="c", name=name, is_error=True)
        for at, name in enumerate(("good", "b\0d", "x" * 300))
    )
    ends = EndTurnInput(session_id="s", epoch=1, head=EMPTY, inputs=results)
    with caplog.at_level(logging.WARNING):
        await UsageLog(usage).results(ends, SliceState(agent="a"))
    assert [entry.id for entry in await usage.get_entries("s")] == ["tool/m1.0"]
    assert caplog.text.count("is not recorded") == 2
