"""Callers that are terminated when a sub-agent has ended, since it waits, and before they could say so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from temporalio.client import WorkflowExecutionStatus

from helix_temporal.activities import sessions as activities
from helix_temporal.activities.suspended_turns import save_suspension
from helix_temporal.agents import ModelRequest
from helix_temporal.client import workflow_id
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.sessions import AskResult, AskStatus, ExitReason, SessionInput, SessionOptions
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.steps import SaveValuesInput
from helix_temporal.models.waiting import PendingCall
from helix_temporal.stores.protocols.threads import ThreadStore
from helix_temporal.testing.serving import session_worker
from tests.workflows._desk import Answer, Desk
from tests.workflows._team import Team, ask_both
from tests.workflows.conftest import Crew, make_settings
from tests.workflows.test_children_ends import check_sound, ended, lineage
from tests.workflows.test_children_exit import answer, leaving, left, once_more, state_of

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


@dataclass(slots=True)
class Window:
    """The save by which a session would say that sub-agents sleep: it is begun, and comes to nothing."""

    session_id: str
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def save(self, threads: ThreadStore, request: SaveValuesInput) -> int:
        """As `save_suspension` for all but this session."""
        if request.thread_id != self.session_id or self.over.is_set():
            return await save_suspension(threads, request)
        self.reached.set()
        await self.over.wait()
        raise InvalidRequestError("its execution has been terminated")


@asynccontextmanager
async def terminated_in_the_window(
    crew: Crew, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """What is done within leads to the save of this session, which is terminated in it."""
    window = Window(session_id)
    monkeypatch.setattr(activities, "save_suspension", window.save)
    yield
    await asyncio.wait_for(window.reached.wait(), 20)
    await crew.handle(session_id).terminate()
    window.over.set()


async def asked_once(crew: Crew, sid: str, agent: str) -> AskResult:
    """The ask, again and again: it is told what the tree waits for."""
    return await leaving(crew).ask(sid, "colour?", agent=agent, message_id="m", timeout=30)


async def open_again(crew: Crew, sid: str, agent: str) -> tuple[PendingCall, ...]:
    """Ask again after the terminate: what the session waits for."""
    again = await asked_once(crew, sid, agent)
    assert (again.status, again.in_thread) == (AskStatus.SUSPENDED, True)
    assert (await leaving(crew).session(sid).result()).exit_reason is ExitReason.SUSPENDED
    return again.pending


@pytest.mark.parametrize("agent", ["asks", "asks-on", "asks-below"])
async def test_a_root_that_is_terminated_before_its_save_waits_on(
    crew: Crew, sid: str, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has been shown the question: the answer counts, and no step is paid for twice."""
    async with terminated_in_the_window(crew, sid, monkeypatch):
        (call,) = (await asked_once(crew, sid, agent)).pending
    assert await open_again(crew, sid, agent) == (call,)
    assert await leaving(crew).session(sid).get_pending_calls() == (call,)
    below = await lineage(crew, sid)
    assert [len(crew.team.heard[each]) for each in (sid, *below)] == [1] * (1 + len(below))
    reply = await answer(crew, sid, call, "blue")
    assert reply.result is not None
    assert reply.result.text == "they said blue"
    assert [len(crew.team.heard[each]) for each in (sid, *below)] == [2] * (1 + len(below))
    assert await crew.texts(sid) == ["colour?", "", "they said blue", "they said blue"]
    assert [each.status for each in await crew.children(sid)] == [SessionStatus.COMPLETED]
    await check_sound(crew, sid, *below)


async def test_an_answer_may_be_what_starts_it_again(
    crew: Crew, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person who saw the question knows nothing of a terminate."""
    async with terminated_in_the_window(crew, sid, monkeypatch):
        (call,) = (await asked_once(crew, sid, "asks-below")).pending
    reply = await answer(crew, sid, call, "blue")
    assert (reply.status, reply.result and reply.result.text) == ("submitted", "they said blue")
    assert (await once_more(crew, sid)).text == "they said blue"


async def test_the_session_store_says_again_what_it_waits_for(
    crew: Crew, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs look there, and not into threads."""
    async with terminated_in_the_window(crew, sid, monkeypatch):
        (call,) = (await asked_once(crew, sid, "asks")).pending
    await open_again(crew, sid, "asks")
    state, below = await state_of(crew, sid), await state_of(crew, call.route[0])
    assert (state.status, below.status) == (SessionStatus.PAUSED, SessionStatus.PAUSED)
    assert [each.sub_session_id for each in state.suspended_awaiting_children] == [call.route[0]]
    assert list(below.pending_client_tool_calls) == [call.id]
    assert [each.status for each in await crew.children(sid)] == [SessionStatus.ACTIVE]


async def test_a_root_that_is_terminated_while_others_of_the_step_work_waits_on(crew: Crew, sid: str) -> None:
    """Those end with it, and are called again, in the same sessions, at the next start."""
    crew.team.leads[sid] = lambda request: (
        ask_both("colour?", f"hold {sid}")
        if request.messages[-1].role == "user"
        else " / ".join(each.text for each in request.messages[-2:])
    )
    client = leaving(crew)
    (call,) = (await client.ask(sid, "go", agent="mixed", message_id="m", timeout=30)).pending
    await crew.handle(call.route[0]).result()
    await asyncio.wait_for(crew.team.gates[sid].reached.wait(), 20)
    await crew.handle(sid).terminate()
    (helper,) = [each.sub_session_id for each in await crew.children(sid) if "helper" in each.sub_session_id]
    assert await ended(crew, helper) is WorkflowExecutionStatus.CANCELED
    crew.team.gates[sid].opened.set()
    assert (await client.ask(sid, "anew", agent="mixed", timeout=30)).status is AskStatus.SUSPENDED
    reply = await answer(crew, sid, call, "blue")
    assert reply.result is not None
    assert reply.result.text == f"they said blue / 1: hold {sid}"
    assert {each.status for each in await crew.children(sid)} == {SessionStatus.COMPLETED}
    assert len(crew.team.heard[call.route[0]]) == 2
    await check_sound(crew, sid, call.route[0], helper)


async def test_a_sub_agent_that_has_answered_meanwhile_is_not_waited_for(crew: Crew, sid: str) -> None:
    """The caller was terminated with the answer in its hands; its slice still says that it waits."""
    (call,) = await left(crew, sid)

    async def held(request: ModelRequest) -> Answer:
        await crew.team.gates[sid].passing()
        return request.messages[-1].text

    crew.team.leads[sid] = held
    await leaving(crew).session(sid).submit_tool_result(call, "blue", timeout=30)
    await crew.handle(call.route[0]).result()
    await asyncio.wait_for(crew.team.gates[sid].reached.wait(), 20)
    await crew.handle(sid).terminate()
    del crew.team.leads[sid]
    assert (await asked_once(crew, sid, "asks")).pending == ()
    assert (await asked_once(crew, sid, "asks")).text == "they said blue"
    crew.team.gates[sid].opened.set()
    assert len(crew.team.heard[call.route[0]]) == 2


async def called_again(crew: Crew, sid: str) -> bool:
    """Whether the session has tried to start a sub-agent."""
    events = await crew.events(sid)
    return any(each.HasField("start_child_workflow_execution_initiated_event_attributes") for each in events)


async def test_a_sub_agent_that_an_execution_has_is_not_taken_for_one_that_sleeps(
    crew: Crew, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of a caller that was ended is being ended with it: its question is gone in a moment."""
    async with terminated_in_the_window(crew, sid, monkeypatch):
        (call,) = (await asked_once(crew, sid, "asks")).pending
    child = call.route[0]
    held = await crew.served.client.start_workflow(
        "helix.session",
        SessionInput(session_id=child, agent="asker", mode="continue"),
        id=workflow_id(child),
        task_queue=crew.served.plugin.settings.task_queue,
    )
    await crew.sessions.session(child).get_status()
    crew.team.leads[sid] = lambda request: "fine"
    asked = asyncio.create_task(leaving(crew).ask(sid, "anew", agent="asks", timeout=30))
    async with asyncio.timeout(20):
        while not await called_again(crew, sid):  # noqa: ASYNC110 (a history tells nobody)
            await asyncio.sleep(0.05)
    await held.cancel()
    assert (await asked).text == "fine"
    gone = "The sub-agent was interrupted before it had an answer."
    assert await crew.texts(sid) == ["colour?", "", gone, "fine", "anew", "fine"]
    assert [each.status for each in await crew.children(sid)] == [SessionStatus.INTERRUPTED]


async def test_a_rewind_ends_what_was_found_asleep(
    crew: Crew, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to answer first to be rid of the turn."""
    async with terminated_in_the_window(crew, sid, monkeypatch):
        (call,) = (await asked_once(crew, sid, "asks-below")).pending
    below = await lineage(crew, sid)
    assert await leaving(crew).session(sid).stop(abort=True)
    await leaving(crew).session(sid).close()
    await leaving(crew).session(sid).result()
    assert await crew.texts(sid) == []
    for each in below:
        state = await state_of(crew, each)
        assert (state.pending_client_tool_calls, state.suspended_awaiting_children) == ({}, ())
    assert [each.status for each in await crew.children(sid)] == [SessionStatus.INTERRUPTED]
    assert call.id not in [each.id for each in await leaving(crew).session(sid).get_pending_calls()]


async def test_who_waits_below_one_that_was_terminated_waits_for_nobody(
    crew: Crew, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller's caller is told of the end, and goes on: the question is nobody's any more."""
    asked = asyncio.create_task(asked_once(crew, sid, "asks-below"))
    async with asyncio.timeout(20):
        while not (below := await lineage(crew, sid)):  # noqa: ASYNC110 (the store has no event)
            await asyncio.sleep(0.02)
    async with terminated_in_the_window(crew, below[0], monkeypatch):
        pass
    assert (await asked).text == "The sub-agent was terminated."
    middle, owner = await lineage(crew, sid)
    state = await state_of(crew, owner)
    assert (state.status, state.pending_client_tool_calls) == (SessionStatus.INTERRUPTED, {})
    assert [each.status for each in await crew.children(middle)] == [SessionStatus.INTERRUPTED]
    assert (await state_of(crew, sid)).suspended_awaiting_children == ()


async def test_it_takes_no_session_store(
    temporal_address: str, redis_url: str, s3: S3Endpoint, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads say all that there is to know."""
    team = Team()
    settings = make_settings(temporal_address, redis_url, s3, f"{sid}-q", session_store="none")
    async with session_worker(settings, team.agents(), options=SessionOptions(idle_timeout=60)) as served:
        crew = Crew(served, Desk(), team)
        async with terminated_in_the_window(crew, sid, monkeypatch):
            (call,) = (await asked_once(crew, sid, "asks")).pending
        assert await open_again(crew, sid, "asks") == (call,)
        reply = await answer(crew, sid, call, "blue")
        assert reply.result is not None
        assert reply.result.text == "they said blue"
