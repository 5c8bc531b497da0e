"""Sub-agents that wait for people: seen at the root, and answered from there."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from helix_temporal.activities import sessions as activities
from helix_temporal.activities.sub_agents import recover_sub_agent_calls
from helix_temporal.agents import Agent
from helix_temporal.errors import InvalidRequestError, SessionInterruptedError, SessionTerminatedError
from helix_temporal.models.sessions import AskResult, AskStatus
from helix_temporal.models.steps import OpenSessionInput
from helix_temporal.models.waiting import PendingCall, ToolApproval
from helix_temporal.stores.protocols.threads import ThreadStore
from tests.workflows._team import HURRIED, ask
from tests.workflows.conftest import Crew
from tests.workflows.test_children_ends import check_sound, ended, lineage, reset, task_ends
from tests.workflows.test_children_exit import state_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def asked(crew: Crew, sid: str, text: str = "colour?", agent: str = "asks") -> PendingCall:
    """An ask that ends at a question of a sub-agent."""
    result = await crew.sessions.ask(sid, text, agent=agent, message_id="m", timeout=30)
    assert result.status is AskStatus.SUSPENDED
    return result.pending[0]


async def once_more(crew: Crew, sid: str) -> AskResult:
    """The end of the ask."""
    return await crew.sessions.ask(sid, "again", message_id="m", timeout=30)


async def test_who_asks_the_root_is_told_what_a_sub_agent_waits_for(crew: Crew, sid: str) -> None:
    """Nobody sees the sub-agent; its question must come to where the person is."""
    call = await asked(crew, sid)
    assert (call.name, call.arguments) == ("ask_user", {"question": "colour?"})
    assert call.route == (await crew.child(sid),)
    status = await crew.sessions.session(sid).get_status()
    assert (status.status, status.pending) == ("suspended", (call,))


async def test_an_answer_at_the_root_goes_on_with_the_sub_agent(crew: Crew, sid: str) -> None:
    """And the turn ends as if nobody had waited."""
    call = await asked(crew, sid)
    reply = await crew.sessions.session(sid).submit_tool_result(call, "blue", wait=True, timeout=30)
    assert reply.submission.status == "submitted"
    assert reply.result is not None
    assert reply.result.text == "they said blue"
    assert (await crew.sessions.session(sid).get_status()).pending == ()
    assert (await once_more(crew, sid)).text == "they said blue"


async def test_a_question_from_two_levels_below_is_answered_at_the_root(crew: Crew, sid: str) -> None:
    """The way to its owner is known there."""
    call = await asked(crew, sid, agent="asks-below")
    assert call.route == tuple(await lineage(crew, sid))
    reply = await crew.sessions.session(sid).submit_tool_result(call.id, "red", wait=True, timeout=30)
    assert reply.result is not None
    assert reply.result.text == "they said red"


async def test_the_session_store_knows_whose_a_question_is(crew: Crew, sid: str) -> None:
    """Any program can find the owner from the root, and sees who waits for whom."""
    sessions = crew.served.plugin.backends.sessions
    assert sessions is not None
    call = await asked(crew, sid, agent="asks-below")
    middle, owner = await lineage(crew, sid)
    assert await sessions.resolve_tool_call_owner(sid, call.id) == owner
    waiting = await sessions.load_state(middle)
    assert waiting is not None
    (wait,) = waiting.suspended_awaiting_children
    assert (wait.sub_session_id, wait.tool_call_id, wait.since) == (owner, call.id, call.since)
    await crew.sessions.session(sid).submit_tool_result(call, "blue", wait=True, timeout=30)
    ended = await sessions.load_state(middle)
    assert ended is not None
    assert ended.suspended_awaiting_children == ()
    assert await sessions.resolve_tool_call_owner(sid, call.id) == owner


async def test_an_answer_may_be_given_to_the_sub_agent_itself(crew: Crew, sid: str) -> None:
    """Whoever looks at that session sees the same call."""
    call = await asked(crew, sid)
    await crew.sessions.session(call.route[-1]).submit_tool_result(call.id, "green", timeout=30)
    assert (await once_more(crew, sid)).text == "they said green"


async def test_a_sub_agent_that_waits_is_stopped_with_its_root(crew: Crew, sid: str) -> None:
    """Its caller's turn is what waits; to start the sub-agent by itself would leave that waiting."""
    call = await asked(crew, sid)
    with pytest.raises(InvalidRequestError, match=f"stop session '{sid}'"):
        await crew.sessions.session(call.route[-1]).stop()
    assert await crew.sessions.session(sid).stop()
    assert (await once_more(crew, sid)).status is AskStatus.INTERRUPTED


async def test_a_repeated_answer_is_told_so_at_the_root(crew: Crew, sid: str) -> None:
    """Also when the sub-agent's session has ended by then."""
    call = await asked(crew, sid)
    first = await crew.sessions.session(sid).submit_tool_result(call, "blue", submission_id="one", wait=True)
    again = await crew.sessions.session(sid).submit_tool_result(call, "blue", submission_id="one")
    other = await crew.sessions.session(sid).submit_tool_result(call, "red", submission_id="two")
    unknown = await crew.sessions.session(sid).submit_tool_result("nothing", "red")
    replies = (first, again, other, unknown)
    assert [each.status for each in replies] == [
        "submitted",
        "submitted",
        "already_completed",
        "not_pending",
    ]


async def test_of_two_answers_at_once_one_counts(crew: Crew, sid: str) -> None:
    """Two people press two buttons."""
    call = await asked(crew, sid)
    replies = await asyncio.gather(
        *(
            crew.sessions.session(sid).submit_tool_result(call, colour, timeout=30)
            for colour in ("blue", "red")
        )
    )
    statuses = sorted(each.status for each in replies)
    assert statuses == ["already_completed", "submitted"]


async def test_questions_of_one_step_are_answered_one_by_one(crew: Crew, sid: str) -> None:
    """After the first the root still waits, and says for what."""
    await asked(crew, sid, "colour? size?")
    first, second = await crew.sessions.session(sid).get_pending_calls()
    reply = await crew.sessions.session(sid).submit_tool_result(first, "blue", wait=True, timeout=30)
    assert reply.result is not None
    assert reply.result.status is AskStatus.SUSPENDED
    assert [each.id for each in reply.result.pending] == [second.id]
    last = await crew.sessions.session(sid).submit_tool_result(second, "small", wait=True, timeout=30)
    assert last.result is not None
    assert last.result.text == "they said blue small"


async def test_sub_agents_side_by_side_wait_each_for_its_own(crew: Crew, sid: str) -> None:
    """An answer reaches the one that asked."""
    crew.team.leads[sid] = lambda request: (
        ask("colour?", "size?")
        if request.messages[-1].role == "user"
        else " / ".join(each.text for each in request.messages[-2:])
    )
    await asked(crew, sid)
    async with asyncio.timeout(20):
        while len(pending := await crew.sessions.session(sid).get_pending_calls()) < 2:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
    answers = {"colour?": "blue", "size?": "small"}
    for call in pending:
        assert call.arguments is not None
        said = answers[str(call.arguments["question"])]
        await crew.sessions.session(sid).submit_tool_result(call, said, timeout=30)
    assert (await once_more(crew, sid)).text == "they said blue / they said small"


async def test_a_long_answer_reaches_the_sub_agent_whole(crew: Crew, sid: str) -> None:
    """It was put aside for the root's thread."""
    call = await asked(crew, sid)
    text = "z" * 200_000
    reply = await crew.sessions.session(sid).submit_tool_result(call, text, wait=True, timeout=30)
    assert reply.result is not None
    assert (await crew.messages(call.route[-1]))[2].text == text
    assert (await crew.messages(sid))[2].text == f"they said {text}"


async def test_an_interrupt_ends_what_waits_below(crew: Crew, sid: str) -> None:
    """Every call on every level has a result, and nobody waits any longer."""
    await asked(crew, sid, agent="asks-below")
    sessions = [sid, *await lineage(crew, sid)]
    assert await crew.sessions.session(sid).stop()
    result = await once_more(crew, sid)
    assert (result.status, result.exit_reason) == (AskStatus.INTERRUPTED, "interrupted")
    for each in sessions:
        assert [message.role for message in await crew.messages(each)] == ["user", "assistant", "tool"]


async def test_a_message_supersedes_what_waits_below_where_the_session_is_set_so(
    crew: Crew, sid: str
) -> None:
    """The person goes on without answering."""
    client = crew.client(while_suspended="supersede")
    assert (await client.ask(sid, "colour?", agent="asks", timeout=30)).status is AskStatus.SUSPENDED
    crew.team.leads[sid] = lambda request: "fine"
    assert (await client.ask(sid, "never mind", timeout=30)).text == "fine"
    roles = [each.role for each in await crew.messages(sid)]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]


async def test_a_call_of_a_sub_agent_may_have_to_be_approved(crew: Crew, sid: str) -> None:
    """It costs, or does what nobody wants undone."""
    result = await crew.sessions.ask(sid, "dear", agent="approved", timeout=30)
    (call,) = result.pending
    assert (call.kind, call.route) == ("approval", ())
    leave = ToolApproval(approval_id=call.id, approved=True)
    reply = await crew.sessions.session(sid).submit_approval(leave, wait=True, timeout=30)
    assert reply.result is not None
    assert reply.result.text == "1: dear"
    assert [each.status for each in await crew.children(sid)] == ["completed"]


async def test_a_call_that_is_denied_has_no_session(crew: Crew, sid: str) -> None:
    """Nobody looks for one that was never there."""
    result = await crew.sessions.ask(sid, "dear", agent="approved", timeout=30)
    no = ToolApproval(approval_id=result.pending[0].id, approved=False, reason="too dear")
    reply = await crew.sessions.session(sid).submit_approval(no, wait=True, timeout=30)
    assert reply.result is not None
    assert "too dear" in (reply.result.text or "")
    assert await crew.children(sid) == []


async def test_an_abort_ends_what_waits_below_without_a_trace_above(crew: Crew, sid: str) -> None:
    """The person takes the question back; the session serves on."""
    call = await asked(crew, sid)
    assert await crew.sessions.session(sid).stop(abort=True)
    async with asyncio.timeout(20):
        while (await state_of(crew, sid)).suspended_awaiting_children:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
    crew.team.leads[sid] = lambda request: "fine"
    assert (await crew.sessions.ask(sid, "never mind")).text == "fine"
    assert await crew.texts(sid) == ["never mind", "fine"]
    assert (await crew.sessions.session(sid).get_status()).pending == ()
    assert [each.role for each in await crew.messages(call.route[-1])] == ["user", "assistant", "tool"]


async def test_a_cancel_ends_what_waits_below(crew: Crew, sid: str) -> None:
    """Nothing is left that waits for a person for ever."""
    call = await asked(crew, sid)
    await crew.handle(sid).cancel()
    with pytest.raises(SessionInterruptedError):
        await crew.sessions.session(sid).result()
    assert [each.role for each in await crew.messages(call.route[-1])] == ["user", "assistant", "tool"]
    await check_sound(crew, sid, call.route[-1])


@pytest.mark.parametrize("agent", ["asks", "asks-below"])
async def test_a_sub_agent_that_waits_has_ended(crew: Crew, sid: str, agent: str) -> None:
    """The root alone stays open while a person thinks; it is told by results, not by signals."""
    call = await asked(crew, sid, agent=agent)
    for each in call.route:
        assert await ended(crew, each) is WorkflowExecutionStatus.COMPLETED
    assert (await crew.handle(sid).describe()).status is WorkflowExecutionStatus.RUNNING
    events = (await crew.handle(sid).fetch_history()).events
    assert not any(each.HasField("workflow_execution_signaled_event_attributes") for each in events)


async def test_a_terminated_root_finds_at_its_next_start_who_waits(crew: Crew, sid: str) -> None:
    """The question is still the person's."""
    call = await asked(crew, sid)
    await crew.handle(sid).terminate()
    reply = await crew.sessions.session(sid).submit_tool_result(call, "blue", wait=True, timeout=30)
    assert reply.result is not None
    assert reply.result.text == "they said blue"


async def test_an_answer_reaches_a_sub_agent_that_works_on_another(crew: Crew, sid: str) -> None:
    """Two approvals, one after the other: the second tool does not wait for the first."""
    crew.team.leads[sid] = lambda request: (
        ask("first second") if request.messages[-1].role == "user" else request.messages[-1].text
    )
    call = await asked(crew, sid, agent="leads-careful")
    first, second = await crew.sessions.session(sid).get_pending_calls()
    gate = crew.team.gates["first"]
    leave = ToolApproval(approval_id=first.id, approved=True)
    await crew.sessions.session(sid).submit_approval(leave, timeout=30)
    await gate.reached.wait()
    leave = ToolApproval(approval_id=second.id, approved=True)
    reply = await crew.sessions.session(sid).submit_approval(leave, timeout=30)
    assert reply.submission.status == "submitted"
    await crew.team.gates["second"].reached.wait()
    for each in ("first", "second"):
        crew.team.gates[each].opened.set()
    assert (await once_more(crew, sid)).text == "hold first, hold second"
    await check_sound(crew, sid, call.route[-1])


@pytest.mark.parametrize("suspend", ["wait", "exit"])
async def test_an_answer_in_time_counts_although_the_sub_agent_is_started_late(
    crew: Crew, sid: str, suspend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person was told "submitted": what passes on the way down is not the person's fault."""

    async def slow(threads: ThreadStore, agent: Agent, request: OpenSessionInput, *rest: Any) -> Any:
        if request.parent is not None and request.mode == "continue":
            await asyncio.sleep(HURRIED + 0.5)
        return await recover_sub_agent_calls(threads, agent, request, *rest)

    monkeypatch.setattr(activities, "recover_sub_agent_calls", slow)
    client = crew.client(suspend=suspend)
    result = await client.ask(sid, "colour?", agent="asks-hurried", message_id="m", timeout=30)
    (call,) = result.pending
    reply = await client.session(sid).submit_tool_result(call, "blue", timeout=30)
    assert reply.submission.status == "submitted"
    while (
        result := await client.ask(sid, "again", message_id="m", timeout=30)
    ).status is AskStatus.SUSPENDED:
        continue
    assert result.text == "they said blue"


async def test_a_time_out_while_a_person_thinks_is_an_error_for_the_model(crew: Crew, sid: str) -> None:
    """The sub-agent's time counts on; the turn does not hang."""
    await asked(crew, sid, agent="asks-shortly")
    assert (await once_more(crew, sid)).text == "The sub-agent had no answer within 8 s."
    assert (await crew.sessions.session(sid).get_status()).pending == ()


async def test_a_question_whose_deadline_passes_is_told_to_the_sub_agent(crew: Crew, sid: str) -> None:
    """It goes on without an answer, and the root waits no more."""
    await asked(crew, sid, agent="asks-hurried")
    assert (await once_more(crew, sid)).text == "they said No answer in time."


@pytest.mark.parametrize("back", [1, 2, 3])
async def test_a_reset_of_the_root_while_below_waits_loses_no_question(
    crew: Crew, sid: str, back: int
) -> None:
    """The person may still answer, and the answer counts once."""
    await asked(crew, sid)
    await reset(crew, sid, (await task_ends(crew, sid))[-back])
    async with asyncio.timeout(40):
        reply = None
        while reply is None or reply.status != "submitted":
            pending = await crew.sessions.session(sid).get_pending_calls()
            with suppress(SessionTerminatedError, IndexError):
                reply = await crew.sessions.session(sid).submit_tool_result(pending[0], "blue", timeout=20)
            await asyncio.sleep(0.2)
    assert (await once_more(crew, sid)).text == "they said blue"
    await check_sound(crew, sid, await crew.child(sid))
