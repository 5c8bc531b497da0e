"""Answers of the wrong kind: a result approves nothing, and an approval is no result."""

from typing import Any

import pytest

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.sessions import ExitReason
from helix_temporal.models.states import ClientToolResponse, ToolResultSubmission
from helix_temporal.models.waiting import DENIED, ToolApproval
from helix_temporal.settings import Settings
from tests.workflows import test_children_exit
from tests.workflows._desk import Desk
from tests.workflows._team import ask
from tests.workflows.conftest import Crew, Stand
from tests.workflows.test_states import place, served
from tests.workflows.test_waits import LOCATE, WIPE, asks_once, suspended
from tests.workflows.test_waits_exit import left

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["place"]

APPROVE = "submit_approval"
GIVE_RESULT = "submit_tool_result"
ASK = ("ask_user", {"question": "colour?"})
WORDS: list[dict[str, Any]] = [
    {"result": "NO, DO NOT PAY"},
    {"result": "yes"},
    {"result": False},
    {"result": {"approved": False}},
    {"result": ""},
    {"result": None},
    {"error": "declined"},
    {"parts": [{"type": "text", "text": "no"}]},
    {"result": "no " * 10_000},
]


@pytest.mark.parametrize("said", WORDS, ids=lambda said: repr(said)[:30])
async def test_no_result_approves_a_call(stand: Stand, desk: Desk, sid: str, said: dict[str, Any]) -> None:
    """Whatever it says: who wrote "no" there saw the tool run."""
    desk.scripts[sid] = asks_once(WIPE)
    (call,) = (await suspended(stand, sid)).pending
    with pytest.raises(InvalidRequestError, match=APPROVE):
        await stand.sessions.session(sid).submit_tool_result(call, **said)
    assert (await stand.sessions.session(sid).get_pending_calls(), desk.contexts[sid]) == ((call,), [])
    approval = ToolApproval(approval_id=call.id, approved=True)
    reply = await stand.sessions.session(sid).submit_approval(approval, wait=True)
    assert reply.result is not None
    assert (reply.status, reply.result.text) == ("submitted", "wiped disk")


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("what", [LOCATE, ASK], ids=lambda what: what[0])
async def test_an_approval_answers_no_question(
    stand: Stand, desk: Desk, sid: str, what: tuple[str, dict[str, Any]], *, approved: bool
) -> None:
    """The model was given an empty result, as if the user had said nothing."""
    desk.scripts[sid] = asks_once(what)
    (call,) = (await suspended(stand, sid)).pending
    with pytest.raises(InvalidRequestError, match=GIVE_RESULT):
        await stand.sessions.session(sid).submit_approval(
            ToolApproval(approval_id=call.id, approved=approved)
        )
    reply = await stand.sessions.session(sid).submit_tool_result(call, "Bonn", wait=True)
    assert reply.result is not None
    assert (reply.status, reply.result.text) == ("submitted", "Bonn")


async def test_a_session_that_is_started_for_it_refuses_it_too(stand: Stand, desk: Desk, sid: str) -> None:
    """It knows its calls only once it is open; then it ends again, and the right answer counts."""
    desk.scripts[sid] = asks_once(LOCATE, WIPE)
    locate, wipe = await left(stand, sid)
    client = stand.client(suspend="exit")
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match=APPROVE):
            await client.session(sid).submit_tool_result(wipe, "no")
        assert (await client.session(sid).result()).exit_reason is ExitReason.SUSPENDED
    with pytest.raises(InvalidRequestError, match=GIVE_RESULT):
        await client.session(sid).submit_approval(ToolApproval(approval_id=locate.id, approved=True))
    assert (await client.session(sid).result()).exit_reason is ExitReason.SUSPENDED
    assert (await client.session(sid).get_pending_calls(), desk.contexts[sid]) == ((locate, wipe), [])
    await client.session(sid).submit_tool_result(locate, "Bonn")
    reply = await client.session(sid).submit_approval(
        ToolApproval(approval_id=wipe.id, approved=True), wait=True
    )
    assert reply.result is not None
    assert reply.result.text == "Bonn | wiped disk"


async def test_a_call_that_was_answered_is_said_to_be(stand: Stand, desk: Desk, sid: str) -> None:
    """Nothing is wanted any more, of whichever kind."""
    desk.scripts[sid] = asks_once(LOCATE, WIPE)
    locate, wipe = (await suspended(stand, sid)).pending
    await stand.sessions.session(sid).submit_tool_result(locate, "Bonn")
    approval = ToolApproval(approval_id=locate.id, approved=True)
    assert (await stand.sessions.session(sid).submit_approval(approval)).status == "already_completed"
    approval = ToolApproval(approval_id=wipe.id, approved=False)
    await stand.sessions.session(sid).submit_approval(approval, wait=True)
    assert (await stand.sessions.session(sid).submit_tool_result(wipe, "yes")).status == "already_completed"


async def test_the_store_takes_no_result_for_an_approval(place: Settings, sid: str) -> None:
    """A program without Temporal says what it means: approved, or denied."""
    desk = Desk()
    desk.scripts[sid] = asks_once(WIPE, WIPE)
    async with served(place, desk) as stand:
        first, second = await left(stand, sid)
        store = stand.served.plugin.backends.sessions
        assert store is not None
        no = ToolResultSubmission(tool_call_id=first.id, response=ClientToolResponse(result="NO"))
        with pytest.raises(InvalidRequestError, match=APPROVE):
            await store.submit_tool_result(sid, no)
        yes = ToolResultSubmission(tool_call_id=first.id, response=ClientToolResponse(outcome="approved"))
        assert (await store.submit_tool_result(sid, yes)).status == "submitted"
        denied = ClientToolResponse(outcome="denied", error="too bold")
        no = ToolResultSubmission(tool_call_id=second.id, response=denied)
        assert (await store.submit_tool_result(sid, no)).status == "submitted"
        client = stand.client(suspend="exit")
        await client.session(sid).resume()
        assert (await client.ask(sid, "go", agent="people", message_id="m-go")).text == (
            f"wiped disk | {DENIED} too bold"
        )
        assert len(desk.contexts[sid]) == 1
        assert (await client.session(sid).submit_tool_result(first, "NO")).status == "already_completed"


# -- sub-agents


async def test_no_result_approves_a_call_of_a_sub_agent(crew: Crew, sid: str) -> None:
    """Nor is it made."""
    asked = await crew.sessions.ask(sid, "colour?", agent="approved", message_id="m", timeout=30)
    (call,) = asked.pending
    with pytest.raises(InvalidRequestError, match=APPROVE):
        await crew.sessions.session(sid).submit_tool_result(call, "NO")
    assert await crew.children(sid) == []
    approval = ToolApproval(approval_id=call.id, approved=True)
    reply = await crew.sessions.session(sid).submit_approval(approval, wait=True, timeout=30)
    assert reply.result is not None
    assert reply.result.text == "1: colour?"


@pytest.mark.parametrize("suspend", ["wait", "exit"])
@pytest.mark.parametrize("by_route", [True, False])
async def test_an_answer_of_the_wrong_kind_is_refused_at_the_root(
    crew: Crew, sid: str, suspend: str, *, by_route: bool
) -> None:
    """Whose call it is matters to nobody who answers; the owner's rule holds all the same."""
    crew.team.leads[sid] = lambda request: (
        ask("go on") if request.messages[-1].role == "user" else request.messages[-1].text
    )
    client = crew.client(suspend=suspend)
    asked = await client.ask(sid, "go", agent="approved-below", message_id="m", timeout=30)
    (call,) = asked.pending
    assert (call.kind, len(call.route)) == ("approval", 1)
    if suspend == "exit":
        assert (await client.session(sid).result()).exit_reason is ExitReason.SUSPENDED
    with pytest.raises(InvalidRequestError, match=APPROVE):
        await client.session(sid).submit_tool_result(call if by_route else call.id, "NO", timeout=30)
    approval = ToolApproval(approval_id=call.id, approved=True)
    reply = await client.session(sid).submit_approval(approval, wait=True, timeout=30)
    assert reply.result is not None
    assert reply.result.text == "1: go on"


async def test_an_approval_answers_no_question_of_a_sub_agent(crew: Crew, sid: str) -> None:
    """Neither at the root, nor at the session whose question it is."""
    (call,) = (await crew.sessions.ask(sid, "colour?", agent="asks", message_id="m", timeout=30)).pending
    approval = ToolApproval(approval_id=call.id, approved=True)
    for session_id in (sid, call.route[-1]):
        with pytest.raises(InvalidRequestError, match=GIVE_RESULT):
            await crew.sessions.session(session_id).submit_approval(approval, timeout=30)
    reply = await crew.sessions.session(sid).submit_tool_result(call, "blue", wait=True, timeout=30)
    assert reply.result is not None
    assert reply.result.text == "they said blue"


async def test_a_tree_that_has_ended_refuses_an_approval_of_a_question(crew: Crew, sid: str) -> None:
    """The root is started for it, and knows of the question from those who asked it."""
    (call,) = await test_children_exit.left(crew, sid, agent="asks-below")
    client = crew.client(suspend="exit")
    with pytest.raises(InvalidRequestError, match=GIVE_RESULT):
        await client.session(sid).submit_approval(
            ToolApproval(approval_id=call.id, approved=True), timeout=30
        )
    reply = await client.session(sid).submit_tool_result(call, "blue", wait=True, timeout=30)
    assert reply.result is not None
    assert reply.result.text == "they said blue"
