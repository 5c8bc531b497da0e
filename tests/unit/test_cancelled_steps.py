"""A cancel that meets a step which fails: nothing more is paid for."""

import asyncio
from typing import Any

import pytest

from helix_temporal.errors import FencedError
from helix_temporal.models.agents import AgentFacts
from helix_temporal.models.sessions import CallPolicy, OpenHandle, UserMessage
from helix_temporal.models.steps import OpenSessionInput, OpenSessionResult, RunStepInput, RunStepResult
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.workflows.opening import CurrentThread
from helix_temporal.workflows.turn import Turn

FACTS = AgentFacts(name="a", max_steps=3)


class Cancelled:
    """`Calls` whose first step fails in the very workflow task in which it is cancelled."""

    def __init__(self) -> None:
        self.steps: list[RunStepInput] = []

    def new_id(self) -> str:
        """Any."""
        return "0123456789abcdef0123"

    def patched(self, change: str, /) -> bool:
        """A run that began with this version."""
        return bool(change)

    async def open(self, request: OpenSessionInput) -> OpenSessionResult:
        """It is there."""
        handle = OpenHandle(epoch=2, head=EMPTY)
        return OpenSessionResult(handle=handle, facts=FACTS, policy=CallPolicy())

    async def run_step(self, request: RunStepInput) -> RunStepResult:
        """The SDK gives an activity's outcome to a task that was cancelled, and not the cancel."""
        self.steps.append(request)
        task = asyncio.current_task()
        assert task is not None
        if len(self.steps) == 1:
            task.cancel()
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                raise FencedError("another open has it") from None
        return RunStepResult(head=EMPTY, text="paid for")


async def test_no_model_is_called_for_a_turn_that_was_cancelled() -> None:
    """`abort` says at once; the step that failed is not made again."""
    calls: Any = Cancelled()
    request = OpenSessionInput(session_id="s", thread_id="s", agent="a", owner="o")
    thread = CurrentThread(request, OpenHandle(epoch=1, head=EMPTY), FACTS)
    turn = Turn(calls, thread, number=1, max_steps=3)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(turn.run([UserMessage(id="m", text="go")]))
    assert len(calls.steps) == 1
