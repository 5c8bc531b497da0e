"""Sub-agents that sleep beside other calls of their step: a question of the session's own, a tool behind."""

import pytest

from helix_temporal.agents import ModelRequest, ModelResponse
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import ExitReason
from helix_temporal.models.waiting import PendingCall
from tests.workflows.conftest import Crew
from tests.workflows.test_children_ends import check_sound
from tests.workflows.test_children_exit import answer, leaving, left

pytestmark = pytest.mark.asyncio(loop_scope="session")


def both(request: ModelRequest) -> ModelResponse:
    """Ask the user, and have a sub-agent ask; then say what came of it."""
    if request.messages[-1].role == "tool":
        return ModelResponse(" / ".join(each.text for each in request.messages[-2:]))
    return ModelResponse(
        tool_calls=(
            ToolCall(id="call_0", name="ask_user", arguments={"question": "size?"}),
            ToolCall(id="call_1", name="helper", arguments={"task": "colour?"}),
        )
    )


def own_and_below(calls: tuple[PendingCall, ...]) -> tuple[PendingCall, PendingCall]:
    """The session's own question, and that of its sub-agent."""
    own, below = sorted(calls, key=lambda each: len(each.route))
    return own, below


@pytest.mark.parametrize("first", ["below", "own"])
async def test_a_question_beside_a_sub_agents_may_be_answered_before_it_or_after(
    crew: Crew, sid: str, first: str
) -> None:
    """Each answer counts in an execution of its own; what was answered is asked for no more."""
    crew.team.leads[sid] = both
    own, below = own_and_below(await left(crew, sid, agent="asks-too"))
    order = [(below, "blue"), (own, "small")]
    (call, text), (other, other_text) = order if first == "below" else order[::-1]
    reply = await answer(crew, sid, call, text)
    assert reply.result is not None
    assert [each.id for each in reply.result.pending] == [other.id]
    assert (await leaving(crew).session(sid).result()).exit_reason is ExitReason.SUSPENDED
    assert [each.id for each in await leaving(crew).session(sid).get_pending_calls()] == [other.id]
    reply = await answer(crew, sid, other, other_text)
    assert reply.result is not None
    assert reply.result.text == "small / they said blue"
    await check_sound(crew, sid, below.route[0])


@pytest.mark.parametrize("how", ["message", "interrupt"])
async def test_a_tool_behind_a_sub_agent_that_sleeps_does_not_run_once_nobody_wants_it(
    crew: Crew, sid: str, how: str
) -> None:
    """The person went on without answering: what was to follow the answer must not be done."""

    def then_act(request: ModelRequest) -> ModelResponse:
        if [each.role for each in request.messages].count("user") > 1:
            return ModelResponse("fine")
        return ModelResponse(
            tool_calls=(
                ToolCall(id="call_0", name="helper", arguments={"task": "colour?"}),
                ToolCall(id="call_1", name="act", arguments={"what": "the deed"}),
            )
        )

    crew.team.leads[sid] = then_act
    await left(crew, sid, agent="asks-in-order")
    client = leaving(crew, while_suspended="supersede")
    if how == "interrupt":
        assert await client.session(sid).stop()
    assert (await client.ask(sid, "never mind", agent="asks-in-order", timeout=30)).text == "fine"
    assert "the deed" not in await crew.texts(sid)
