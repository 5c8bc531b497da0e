"""Who answers a call and waits is told of the turn whose call it was, and of no other one."""

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from helix_temporal.agents import ModelRequest
from helix_temporal.models.sessions import AskStatus, ExitReason
from helix_temporal.models.waiting import PendingCall, ToolApproval
from tests.workflows._desk import Desk, Gate
from tests.workflows.conftest import Stand
from tests.workflows.test_failures import permanent
from tests.workflows.test_inbox import until_waiting
from tests.workflows.test_waits import ACT, LOCATE, WIPE, asks, asks_once
from tests.workflows.test_waits_ends import held

pytestmark = pytest.mark.asyncio(loop_scope="session")


def said_last(request: ModelRequest) -> str:
    """What the newest message of a user says."""
    return next(each.text for each in reversed(request.messages) if each.role == "user")


@pytest.mark.parametrize("tool", ["locate", "wipe"])
@pytest.mark.parametrize("options", [{}, {"max_turns_per_run": 1}], ids=["one run", "continues as new"])
async def test_who_answers_is_told_of_that_turn_while_another_message_waits(
    stand: Stand, desk: Desk, sid: str, tool: str, options: dict[str, Any]
) -> None:
    """The next turn begins at once; its answer is somebody else's, and may take its time."""
    gate, once = Gate(), asks_once(LOCATE if tool == "locate" else WIPE)

    async def script(request: ModelRequest) -> Any:
        if said_last(request) == "go":
            return once(request)
        await gate.passing()
        return "for the other one"

    desk.scripts[sid] = script
    client = stand.client(**options)
    (call,) = (await client.ask(sid, "go", agent="people", timeout=30)).pending
    other = asyncio.create_task(client.ask(sid, "and?", timeout=60))
    await until_waiting(client, sid, 1)
    reply = await answered(stand, sid, call)
    assert not other.done()
    gate.opened.set()
    assert reply.status == "submitted"
    assert reply.result is not None
    assert (reply.result.status, reply.result.text) == (
        AskStatus.ANSWERED,
        "Bonn" if tool == "locate" else "wiped disk",
    )
    assert (await other).text == "for the other one"


async def test_who_answers_is_not_told_what_the_next_turn_waits_for(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Those calls, with their arguments, are for whoever asked there."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await stand.sessions.ask(sid, "go", agent="people")).pending
    other = asyncio.create_task(stand.sessions.ask(sid, "and?"))
    await until_waiting(stand.sessions, sid, 1)
    reply = await answered(stand, sid, call)
    assert reply.result is not None
    assert (reply.result.status, reply.result.text) == (AskStatus.ANSWERED, "Bonn")
    assert (await other).status is AskStatus.SUSPENDED


@pytest.mark.parametrize("ends", ["is cancelled", "fails", "is aborted"])
async def test_who_answers_is_told_how_that_turn_ended_as_its_asker_is(
    stand: Stand, desk: Desk, sid: str, ends: str
) -> None:
    """It was told the answer of the turn before: the last one that this execution had."""
    gate = held(desk, sid)

    def script(request: ModelRequest) -> Any:
        if said_last(request) == "before":
            return "an old answer"
        if request.messages[-1].role == "user":
            return asks(LOCATE)
        return permanent(request) if request.messages[-1].text == "here" else asks(ACT)

    desk.scripts[sid] = script
    await stand.sessions.ask(sid, "before", agent="people")
    (call,) = (await stand.sessions.ask(sid, "go", message_id="m")).pending
    asked = asyncio.create_task(stand.sessions.ask(sid, "go", message_id="m"))
    await stand.accepted(sid, 3)
    submitted = asyncio.create_task(answered(stand, sid, call))
    await gate.reached.wait()
    if ends == "is cancelled":
        await stand.handle(sid).cancel()
    elif ends == "is aborted":
        assert await stand.sessions.session(sid).stop(abort=True)
    gate.opened.set()
    reply, told = await submitted, await asked
    assert reply.status == "submitted"
    assert reply.result == told
    if ends == "fails":
        assert told.status is AskStatus.FAILED
    else:
        why = ExitReason.CANCELLED if ends == "is cancelled" else ExitReason.INTERRUPTED
        assert (told.status, told.exit_reason) == (AskStatus.INTERRUPTED, why)
    if ends != "is aborted":
        with pytest.raises(WorkflowFailureError):
            await stand.handle(sid).result()


async def test_an_answer_sent_again_after_its_turn_is_told_of_it(stand: Stand, desk: Desk, sid: str) -> None:
    """Whoever lost the reply asks for it under the same id, whatever the session did since."""
    desk.scripts[sid] = lambda request: (
        asks_once(LOCATE)(request) if said_last(request) == "go" else "another answer"
    )
    (call,) = (await stand.sessions.ask(sid, "go", agent="people")).pending
    first = await answered(stand, sid, call, submission_id="a")
    await stand.sessions.ask(sid, "and?")
    again = await answered(stand, sid, call, submission_id="a")
    assert again.status == "submitted"
    assert again.result == first.result


async def answered(stand: Stand, sid: str, call: PendingCall, **options: Any) -> Any:
    """Answer the call, and wait for its turn."""
    options = {"wait": True, "timeout": 30} | options
    if call.kind == "approval":
        return await stand.sessions.session(sid).submit_approval(
            ToolApproval(approval_id=call.id, approved=True), **options
        )
    return await stand.sessions.session(sid).submit_tool_result(call, "Bonn", **options)
