"""Which call of a conversation waits, where providers give several the same id."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helix_temporal.models.states import (
    CompletedClientToolCall,
    PendingClientToolCall,
    SessionStatus,
    SubSessionRef,
)
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


ENDS = [
    (SessionStatus.COMPLETED, "done", True),
    (SessionStatus.FAILED, "failed", True),
    (SessionStatus.ACTIVE, "running", False),
]


@pytest.mark.parametrize(("status", "told", "due"), ENDS)
async def test_a_sub_agent_that_ended_while_another_call_waits_is_told_so(
    scene: Scene, status: SessionStatus, told: str, *, due: bool
) -> None:
    """Its session is completed in the list and on the tree; no step has recorded the call's end yet."""
    writer = await scene.begin("s1")
    run = await writer.start()
    asked = (call(0, name="research"), call(1, name="ask_user"))
    await writer.append(user("u1"), answer("a1", "", *asked), commits=False)
    ref = SubSessionRef(sub_session_id="c1", tool="research", run_id=run.run_id, parent_tool_call_id="call_0")
    await scene.sessions.add_sub_session_refs("s1", [ref])
    await scene.begin("c1", parent_session_id="s1")
    child = await scene.sessions.load_state("c1")
    assert child is not None
    await scene.sessions.save_state("c1", child.model_copy(update={"status": status}))
    (turn,) = (await scene.views.read_turns("s1")).turns
    research = turn.messages[-1].calls[0]
    assert (research.status, research.result_due, research.sub_session_id) == (told, due, "c1")
    assert turn.failed_calls == (told == "failed")


async def test_an_earlier_end_of_a_sub_agent_is_not_that_of_its_new_call(scene: Scene) -> None:
    """Its thread goes on: it was completed when it was called again, and works now."""
    writer = await scene.begin("s1")
    run = await writer.start()
    await writer.append(user("u1"), answer("a1", "", call(0, name="research")), commits=False)
    await scene.begin("c1", parent_session_id="s1")
    child = await scene.sessions.load_state("c1")
    assert child is not None
    await scene.sessions.save_state("c1", child.model_copy(update={"status": SessionStatus.COMPLETED}))
    ended = await scene.sessions.load_state("c1")
    assert ended is not None
    ref = SubSessionRef(
        sub_session_id="c1",
        tool="research",
        run_id=run.run_id,
        parent_tool_call_id="call_0",
        updated_at=ended.updated_at + 1,
    )
    await scene.sessions.add_sub_session_refs("s1", [ref])
    (turn,) = (await scene.views.read_turns("s1")).turns
    assert turn.messages[-1].calls[0].status == "running"
