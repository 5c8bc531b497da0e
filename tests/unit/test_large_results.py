"""Results of tools travel through histories up to a limit, in bytes."""

import asyncio

import pytest
from temporalio.exceptions import ApplicationError

from helix_temporal.activities import Payloads, ToolRunner
from helix_temporal.agents import ToolOutcome, tool
from helix_temporal.models.messages import ToolCall, ToolResult
from helix_temporal.models.steps import ToolInput
from helix_temporal.stores.memory import MemoryPayloads, MemoryThreads
from helix_temporal.stores.threads.hot_only import HotThreads

BOOK = "書" * 700
"""2,100 bytes in 700 characters."""


@pytest.mark.parametrize("content", [BOOK, [{"type": "text", "text": BOOK}]], ids=["a text", "parts"])
async def test_what_is_longer_is_put_aside_whatever_its_letters(content: str) -> None:
    """Parts once counted as the characters of their representation."""

    @tool
    def read() -> ToolOutcome:
        """Read a book."""
        return ToolOutcome(content)

    runner = ToolRunner(HotThreads(MemoryThreads()), Payloads(MemoryPayloads()), inline_result=2_048)
    call = ToolCall(id="c1", name="read")
    result = await runner.run(
        read,
        ToolInput(
            session_id="s", thread_id="s", agent="a", tool="read", call=call, key="s/m1/0", turn=1, position=2
        ),
    )
    assert (result.text, result.parts) == ("", None)
    assert result.ref


async def test_what_no_thread_could_hold_is_refused_as_the_tools_own_mistake() -> None:
    """The model is told, and the session goes on; put aside it would fail the turn, and each one after it."""

    @tool
    def read() -> str:
        """Read a book."""
        return "." * 100_000

    payloads = MemoryPayloads()
    runner = ToolRunner(HotThreads(MemoryThreads()), Payloads(payloads), max_result=64 * 1024)
    call = ToolCall(id="c1", name="read")
    result = await runner.run(
        read,
        ToolInput(
            session_id="s", thread_id="s", agent="a", tool="read", call=call, key="s/m1/0", turn=1, position=2
        ),
    )
    assert result == ToolResult(text=result.text, is_error=True)
    assert result.text.startswith("The tool failed: result of tool 'read', which may return a part of it")


async def test_a_plain_function_that_raises_stop_iteration_ends() -> None:
    """No future takes one: whoever waited for the thread would wait for ever."""

    @tool
    def find() -> str:
        """Find an order."""
        return next(each for each in [""] if each)

    runner = ToolRunner(HotThreads(MemoryThreads()), Payloads(MemoryPayloads()))
    call = ToolCall(id="c1", name="find")
    given = ToolInput(
        session_id="s", thread_id="s", agent="a", tool="find", call=call, key="s/m1/0", turn=1, position=2
    )
    with pytest.raises(ApplicationError, match="find raised StopIteration"):
        await asyncio.wait_for(runner.run(find, given), 10)
