"""Trees of sessions that end while a sub-agent waits for people, and are started again by the answer."""

import asyncio

import pytest
from redis.asyncio import Redis
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.sessions import AskResult, AskStatus, ExitReason, SubmitReply
from helix_temporal.models.states import ClientToolResponse, SessionState, SessionStatus, ToolResultSubmission
from helix_temporal.models.waiting import PendingCall, ToolApproval
from tests.workflows._team import HURRIED, ask, ask_both
from tests.workflows.conftest import Crew
from tests.workflows.test_children_ends import check_sound, lineage
from tests.workflows.test_waits_exit import until_said

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


def leaving(crew: Crew, **options: object) -> SessionClient:
    """A client whose sessions end while they wait."""
    return crew.client(suspend="exit", **options)


async def left(crew: Crew, sid: str, text: str = "colour?", agent: str = "asks") -> tuple[PendingCall, ...]:
    """Ask, and wait until nothing of the tree runs."""
    client = leaving(crew)
    result = await client.ask(sid, text, agent=agent, message_id="m", timeout=30)
    assert result.status is AskStatus.SUSPENDED
    assert (await client.session(sid).result()).exit_reason is ExitReason.SUSPENDED
    for each in [sid, *await lineage(crew, sid)]:
        assert (await crew.handle(each).describe()).status is WorkflowExecutionStatus.COMPLETED
    return await client.session(sid).get_pending_calls()


async def answer(crew: Crew, sid: str, call: PendingCall | str, text: str) -> SubmitReply:
    """Answer at the root, and wait for what comes of it."""
    return await leaving(crew).session(sid).submit_tool_result(call, text, wait=True, timeout=30)


async def once_more(crew: Crew, sid: str) -> AskResult:
    """The end of the ask."""
    return await leaving(crew).ask(sid, "again", message_id="m", timeout=30)


async def state_of(crew: Crew, session_id: str) -> SessionState:
    """What the session store says."""
    sessions = crew.served.plugin.backends.sessions
    assert sessions is not None
    state: SessionState | None = await sessions.load_state(session_id)
    assert state is not None
    return state


async def test_an_answer_at_the_root_starts_the_tree_again(crew: Crew, sid: str) -> None:
    """Nothing runs while a person thinks; the turn goes on where it stood, and no step is paid for twice."""
    (call,) = await left(crew, sid)
    child = await crew.child(sid)
    assert call.route == (child,)
    reply = await answer(crew, sid, call, "blue")
    assert reply.status == "submitted"
    assert reply.result is not None
    assert (reply.result.status, reply.result.text) == (AskStatus.ANSWERED, "they said blue")
    assert (len(crew.team.heard[sid]), len(crew.team.heard[child])) == (2, 2)
    assert await crew.texts(sid) == ["colour?", "", "they said blue", "they said blue"]
    assert await crew.texts(child) == ["colour?", "", "blue", "they said blue"]
    assert (await crew.sessions.session(sid).get_status()).pending == ()
    assert [each.status for each in await crew.children(sid)] == ["completed"]
    await check_sound(crew, sid, child)


async def test_all_levels_end_and_come_back(crew: Crew, sid: str) -> None:
    """The session in the middle waits for nobody itself."""
    (call,) = await left(crew, sid, agent="asks-below")
    middle, owner = await lineage(crew, sid)
    assert call.route == (middle, owner)
    reply = await answer(crew, sid, call.id, "red")
    assert reply.result is not None
    assert reply.result.text == "they said red"
    assert [len(crew.team.heard[each]) for each in (sid, middle, owner)] == [2, 2, 2]
    await check_sound(crew, sid, middle, owner)


async def test_questions_side_by_side_are_answered_one_by_one(crew: Crew, sid: str) -> None:
    """Each answer starts the sub-agent that asked; the other sleeps on."""
    crew.team.leads[sid] = lambda request: (
        ask("colour?", "size?")
        if request.messages[-1].role == "user"
        else " / ".join(each.text for each in request.messages[-2:])
    )
    colour, size = await left(crew, sid)
    reply = await answer(crew, sid, size, "small")
    assert reply.result is not None
    assert [each.id for each in reply.result.pending] == [colour.id]
    assert (await leaving(crew).session(sid).result()).exit_reason is ExitReason.SUSPENDED
    reply = await answer(crew, sid, colour, "blue")
    assert reply.result is not None
    assert reply.result.text == "they said blue / they said small"
    assert [each.status for each in await crew.children(sid)] == ["completed", "completed"]


async def test_a_sub_agent_that_asks_again_ends_the_tree_again(crew: Crew, sid: str) -> None:
    """Two questions of one step: each answer is kept until both are there."""
    first, second = await left(crew, sid, "colour? size?")
    reply = await answer(crew, sid, first, "blue")
    assert reply.result is not None
    assert [each.id for each in reply.result.pending] == [second.id]
    assert (await leaving(crew).session(sid).result()).exit_reason is ExitReason.SUSPENDED
    reply = await answer(crew, sid, second, "small")
    assert reply.result is not None
    assert reply.result.text == "they said blue small"


async def test_the_parent_stays_while_another_sub_agent_works(crew: Crew, sid: str) -> None:
    """An answer that comes meanwhile does not wait for that one."""
    crew.team.leads[sid] = lambda request: (
        ask_both("colour?", f"hold {sid}")
        if request.messages[-1].role == "user"
        else " / ".join(each.text for each in request.messages[-2:])
    )
    client = leaving(crew)
    asked = await client.ask(sid, "go", agent="mixed", message_id="m", timeout=30)
    (call,) = asked.pending
    await asyncio.wait_for(crew.team.gates[sid].reached.wait(), 20)
    await crew.handle(call.route[0]).result()
    assert (await client.session(sid).get_status()).pending == (call,)
    assert (await client.session(sid).submit_tool_result(call, "blue", timeout=30)).status == "submitted"
    await crew.handle(call.route[0]).result()
    assert (await client.session(sid).get_status()).pending == ()
    crew.team.gates[sid].opened.set()
    assert (await once_more(crew, sid)).text == f"they said blue / 1: hold {sid}"


async def test_a_call_that_was_approved_sleeps_as_others_do(crew: Crew, sid: str) -> None:
    """First somebody lets it run, then somebody answers what it asks."""
    (approval,) = await left(crew, sid, agent="asks-approved")
    leave = ToolApproval(approval_id=approval.id, approved=True)
    reply = await leaving(crew).session(sid).submit_approval(leave, wait=True, timeout=30)
    assert reply.result is not None
    (call,) = reply.result.pending
    assert call.name == "ask_user"
    assert (await leaving(crew).session(sid).result()).exit_reason is ExitReason.SUSPENDED
    again = await leaving(crew).session(sid).submit_approval(leave, timeout=30)
    assert again.status == "already_completed"
    reply = await answer(crew, sid, call, "blue")
    assert reply.result is not None
    assert reply.result.text == "they said blue"


async def test_a_wiped_redis_loses_nothing_of_a_tree_that_was_left(
    crew: Crew, sid: str, redis_url: str
) -> None:
    """What waits on each level is in the archive."""
    (call,) = await left(crew, sid, agent="asks-below")
    redis = Redis.from_url(redis_url)
    prefix = crew.served.plugin.settings.redis_prefix
    keys = [key async for key in redis.scan_iter(match=f"{prefix}*{sid}*")]
    if keys:
        await redis.delete(*keys)
    await redis.aclose()
    reply = await answer(crew, sid, call, "blue")
    assert reply.result is not None
    assert reply.result.text == "they said blue"


async def test_an_answer_to_the_sub_agents_own_session_wakes_the_tree(crew: Crew, sid: str) -> None:
    """It is a call of those above it: by itself it would answer nobody."""
    (call,) = await left(crew, sid, agent="asks-below")
    reply = await answer(crew, call.route[-1], call.id, "z" * 100_000)
    assert reply.result is not None
    assert (await crew.messages(sid))[2].text == f"they said {'z' * 100_000}"
    assert (await crew.sessions.session(sid).get_status()).pending == ()


async def test_a_sub_agent_that_temporal_has_forgotten_is_answered_all_the_same(crew: Crew, sid: str) -> None:
    """The namespace's retention is over for it: its state says whose it is."""
    (call,) = await left(crew, sid)
    client, child = crew.served.client, call.route[-1]
    gone = WorkflowExecution(workflow_id=workflow_id(child))
    await client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=gone)
    )
    async with asyncio.timeout(30):
        while True:
            try:
                await crew.handle(child).describe()
            except RPCError:
                break
            await asyncio.sleep(0.1)
    reply = await answer(crew, child, call.id, "blue")
    assert reply.result is not None
    assert reply.result.text == "they said blue"


async def test_an_answer_that_the_session_store_has_is_taken_by_whoever_resumes_the_root(
    crew: Crew, sid: str
) -> None:
    """A program without Temporal has answered; each level looks."""
    (call,) = await left(crew, sid, agent="asks-below")
    sessions = crew.served.plugin.backends.sessions
    assert sessions is not None
    owner = await sessions.resolve_tool_call_owner(sid, call.id)
    assert owner == call.route[-1]
    blue = ToolResultSubmission(tool_call_id=call.id, response=ClientToolResponse(result="blue"))
    assert (await sessions.submit_tool_result(owner, blue)).status == "submitted"
    await leaving(crew).session(sid).resume()
    assert (await once_more(crew, sid)).text == "they said blue"


async def test_resuming_a_tree_that_is_about_to_end_counts(crew: Crew, sid: str) -> None:
    """Whoever asked is told of the call before anything of the tree has ended."""
    client = leaving(crew)
    asked = await client.ask(sid, "colour?", agent="asks-below", message_id="m", timeout=30)
    (call,) = asked.pending
    sessions = crew.served.plugin.backends.sessions
    assert sessions is not None
    blue = ToolResultSubmission(tool_call_id=call.id, response=ClientToolResponse(result="blue"))
    assert (await sessions.submit_tool_result(call.route[-1], blue)).status == "submitted"
    await client.session(sid).resume(timeout=30)
    await until_said(crew, sid, "they said blue")


async def test_late_and_repeated_answers_are_told_apart(crew: Crew, sid: str) -> None:
    """At the root, also after it has ended once more."""
    (call,) = await left(crew, sid)
    client = leaving(crew)
    await client.session(sid).submit_tool_result(call, "blue", submission_id="one", wait=True, timeout=30)
    await client.session(sid).close()
    await client.session(sid).result()
    again = await client.session(sid).submit_tool_result(call, "blue", submission_id="one")
    other = await client.session(sid).submit_tool_result(call, "red", submission_id="two")
    unknown = await client.session(sid).submit_tool_result("nothing", "red")
    assert [each.status for each in (again, other, unknown)] == [
        "submitted",
        "already_completed",
        "not_pending",
    ]


async def test_of_two_answers_at_once_one_counts(crew: Crew, sid: str) -> None:
    """Two people press two buttons, and both start the tree."""
    (call,) = await left(crew, sid)
    replies = await asyncio.gather(*(answer(crew, sid, call, colour) for colour in ("blue", "red")))
    assert sorted(each.status for each in replies) == ["already_completed", "submitted"]


async def test_a_deadline_that_has_passed_meanwhile_counts(crew: Crew, sid: str) -> None:
    """Whoever resumes the root lets the sub-agent go on without an answer."""
    (call,) = await left(crew, sid, agent="asks-hurried")
    assert call.until is not None
    await asyncio.sleep(HURRIED + 0.1)
    await leaving(crew).session(sid).resume()
    assert (await once_more(crew, sid)).text == "they said No answer in time."


async def test_the_time_of_a_call_counts_on(crew: Crew, sid: str) -> None:
    """It is the model's to go on without the sub-agent, whose turn is ended."""
    (call,) = await left(crew, sid, agent="asks-shortly")
    await asyncio.sleep(8.1)
    late = await answer(crew, sid, call, "blue")
    assert late.status != "submitted"
    assert (await once_more(crew, sid)).text == "The sub-agent had no answer within 8 s."
    assert [each.role for each in await crew.messages(call.route[0])] == ["user", "assistant", "tool"]


async def test_the_session_store_says_what_a_tree_waits_for(crew: Crew, sid: str) -> None:
    """Any program sees it, on each level; afterwards nothing of it is left."""
    (call,) = await left(crew, sid, agent="asks-below")
    middle, owner = await lineage(crew, sid)
    sessions = crew.served.plugin.backends.sessions
    assert sessions is not None
    assert await sessions.resolve_tool_call_owner(sid, call.id) == owner
    for session_id, below in ((sid, middle), (middle, owner)):
        state = await state_of(crew, session_id)
        assert state.status is SessionStatus.PAUSED
        assert [each.sub_session_id for each in state.suspended_awaiting_children] == [below]
        assert state.suspension_context is not None
        assert state.suspension_context.kind == "awaiting_children"
        assert state.current_run_id is not None
        run = await sessions.get_run(session_id, state.current_run_id)
        assert run is not None
        assert run.status is RunStatus.SUSPENDED_AWAITING_CHILDREN
    await answer(crew, sid, call, "blue")
    for session_id in (sid, middle, owner):
        state = await state_of(crew, session_id)
        assert (state.suspended_awaiting_children, state.suspension_context) == ((), None)
        assert state.pending_client_tool_calls == {}
