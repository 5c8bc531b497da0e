"""Which call of a conversation waits, where providers give several the same id."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helix_temporal.models.states import CompletedClientToolCall, PendingClientToolCall
from helix_temporal.stores.memory.usage import MemoryUsage
from tests._sessions import memory_place
from tests.unit.views._scene import Scene, answer, call, scene_over, user


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """Empty stores in memory."""
    async with memory_place()() as place:
        yield scene_over(place, MemoryUsage())


async def find_waits(scene: Scene, *names: str) -> list[str | None]:
    """Under which id each of three calls waits that have one id, two of them of the same tool."""
    writer = await scene.begin("s1")
    await writer.start()
    calls = (call(), call(), call(name="wipe"))
    await writer.append(user("u1"), answer("a1", "", *calls), commits=False)
    state = await scene.sessions.load_state("s1")
    assert state is not None
    tools = {"call_0_a1": "look", "call_0_a1_1": "look", "call_0_a1_2": "wipe"}
    pending = {each: PendingClientToolCall(tool_call_id=each, tool_name=tools[each]) for each in names}
    await scene.sessions.save_state("s1", state.model_copy(update={"pending_client_tool_calls": pending}))
    (turn,) = (await scene.views.read_turns("s1")).turns
    waits = [each.waiting for each in turn.messages[-1].calls]
    return [None if each is None else each.call_id for each in waits]


WAITS = [
    (("call_0_a1", "call_0_a1_1", "call_0_a1_2"), ["call_0_a1", "call_0_a1_1", "call_0_a1_2"]),
    (("call_0_a1_1",), [None, "call_0_a1_1", None]),
    (("call_0_a1",), ["call_0_a1", None, None]),
    (("call_0_a1", "call_0_a1_2"), ["call_0_a1", None, "call_0_a1_2"]),
]


@pytest.mark.parametrize(("names", "waits"), WAITS)
async def test_each_call_has_its_own_form(
    scene: Scene, names: tuple[str, ...], waits: list[str | None]
) -> None:
    """A form at the wrong call approves what somebody else is shown."""
    assert await find_waits(scene, *names) == waits


ANSWERS = [
    ("denied", "denied", True),
    ("expired", "expired", True),
    ("result", "done", True),
    ("error", "failed", True),
    ("approved", "running", False),
]


@pytest.mark.parametrize(("outcome", "status", "due"), ANSWERS)
async def test_an_answer_is_shown_before_the_step_that_takes_it(
    scene: Scene, outcome: Any, status: str, *, due: bool
) -> None:
    """Somebody has denied it, and another call waits: "running" would contradict them."""
    writer = await scene.begin("s1")
    await writer.start()
    await writer.append(user("u1"), answer("a1", "", call(), call()), commits=False)
    state = await scene.sessions.load_state("s1")
    assert state is not None
    known = {
        "completed_client_tool_calls": {
            "call_0_a1": CompletedClientToolCall(tool_call_id="call_0_a1", outcome=outcome)
        },
        "pending_client_tool_calls": {
            "call_0_a1_1": PendingClientToolCall(tool_call_id="call_0_a1_1", tool_name="look")
        },
    }
    await scene.sessions.save_state("s1", state.model_copy(update=known))
    (turn,) = (await scene.views.read_turns("s1")).turns
    first, second = turn.messages[-1].calls
    assert (first.status, first.result_due) == (status, due)
    assert (second.status, second.result_due) == ("waiting", False)
    assert turn.failed_calls == (status in {"failed", "expired"})
