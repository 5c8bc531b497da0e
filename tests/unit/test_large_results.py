"""Results of tools travel through histories up to a limit, in bytes."""

import pytest

from helix_temporal.activities import Payloads, ToolRunner
from helix_temporal.agents import ToolOutcome, tool
from helix_temporal.models.messages import ToolCall
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
