"""Sessions that ended while they waited for people are started once a deadline has passed."""

import asyncio
import dataclasses
import uuid
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.maintenance import WakingActivities
from helix_temporal.client import workflow_id
from helix_temporal.models.sessions import AskStatus, ExitReason
from helix_temporal.models.states import CreateSession, PendingClientToolCall, SessionStatus
from helix_temporal.models.waiting import NO_ANSWER, WakeInput, WakeResult
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.workflows import WakeWorkflow
from tests.workflows._desk import Desk, Gate
from tests.workflows.conftest import Crew, Stand
from tests.workflows.test_children_exit import left as left_above
from tests.workflows.test_children_exit import once_more
from tests.workflows.test_states import PAIRINGS, damaged, place, served, state_of
from tests.workflows.test_waits import ACT, LOCATE, asks_once
from tests.workflows.test_waits_exit import left

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]

SOON = ("soon", {"what": "ever"})


def store_of(stand: Stand) -> SessionStore:
    """The session store of the worker."""
    found: SessionStore | None = stand.served.plugin.backends.sessions
    assert found is not None
    return found


async def wake(stand: Stand, **fields: Any) -> WakeResult:
    """One run of the maintenance worker."""
    queue = stand.served.plugin.settings.task_queue
    return await stand.served.client.execute_workflow(
        WakeWorkflow.run, WakeInput(**fields), id=f"wake-{uuid.uuid4().hex}", task_queue=queue
    )


async def due(stand: Stand, count: int = 1) -> None:
    """Wait until the deadlines of so many sessions have passed by the store's clock."""
    while len((await store_of(stand).list_due()).items) < count:  # noqa: ASYNC110 (the store has no event)
        await asyncio.sleep(0.02)


async def answer(stand: Stand, sid: str) -> str | None:
    """What the turn comes to: who asks again before it goes on is told that it waits."""
    while True:
        result = await stand.client().ask(sid, "go", agent="people", message_id="m-go")
        if result.status is not AskStatus.SUSPENDED:
            return result.text


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_a_session_whose_deadline_passed_tells_its_model_so_and_goes_on(
    place: Settings, sid: str
) -> None:
    """Nobody answers, nobody asks again: without the maintenance worker the turn would wait for ever."""
    desk = Desk()
    desk.scripts[sid] = asks_once(SOON)
    async with served(place, desk) as stand:
        await left(stand, sid)
        await due(stand)
        first = await wake(stand)
        assert (first.due, first.woken, first.failures) == (1, 1, 0)
        assert await answer(stand, sid) == NO_ANSWER
        assert [(each.text, each.is_error) for each in await stand.messages(sid)][2] == (NO_ANSWER, True)
        assert (await state_of(stand, sid)).pending_client_tool_calls == {}
        assert await wake(stand) == WakeResult()
        await stand.finish(sid)


async def test_a_session_that_runs_is_left_to_its_own_timers(place: Settings, sid: str) -> None:
    """The maintenance worker may come at any moment: a second execution would end the first one's turn."""
    desk, gate = Desk(), Gate()
    desk.scripts[sid] = asks_once(SOON, ACT)
    desk.acts[sid] = lambda what, context: gate.passing()
    async with served(place, desk, suspend="exit") as stand:
        await stand.sessions.send(sid, "go", agent="people")
        await gate.reached.wait()
        await due(stand)
        found = await wake(stand)
        assert (found.due, found.running, found.woken) == (1, 1, 0)
        gate.opened.set()
        assert (await stand.sessions.session(sid).result()).exit_reason is ExitReason.SUSPENDED
        assert (await wake(stand)).woken == 1


async def test_an_execution_that_was_terminated_while_it_waited_is_woken(place: Settings, sid: str) -> None:
    """Its timer went with it."""
    desk = Desk()
    desk.scripts[sid] = asks_once(("later", {"what": "ever"}))
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "go", agent="people", message_id="m-go")
        await stand.handle(sid).terminate()
        await due(stand)
        assert (await wake(stand)).woken == 1
        assert await answer(stand, sid) == NO_ANSWER


async def test_a_session_is_woken_with_the_thread_that_it_had(place: Settings, sid: str) -> None:
    """A session's thread may have another name."""
    desk = Desk()
    desk.scripts[sid] = asks_once(SOON)
    async with served(place, desk, suspend="exit") as stand:
        await stand.sessions.ask(sid, "go", agent="people", thread_id=f"{sid}-thread")
        assert (await stand.sessions.session(sid).result()).exit_reason is ExitReason.SUSPENDED
        await due(stand)
        assert (await wake(stand)).woken == 1
        await stand.finish(sid)
        assert (await stand.texts(f"{sid}-thread"))[-1] == NO_ANSWER


async def test_one_that_cannot_be_opened_is_not_started_every_minute(place: Settings, sid: str) -> None:
    """Its agent is gone: the workers say so once, and again only after a while."""
    desk = Desk()
    desk.scripts[sid] = asks_once(SOON)
    async with served(place, desk) as stand:
        await left(stand, sid)
        state = await state_of(stand, sid)
        await store_of(stand).save_state(sid, state.model_copy(update={"agent_type": "nobody"}))
        await due(stand)
        assert (await wake(stand)).woken == 1
        with pytest.raises(WorkflowFailureError):
            await stand.handle(sid).result()
        found = await wake(stand)
        assert (found.due, found.woken, found.left) == (1, 0, 1)


async def test_one_run_starts_so_many_and_the_next_goes_on(place: Settings, sid: str) -> None:
    """A Monday morning after a holiday must not start a hundred thousand turns at once."""
    desk = Desk()
    names = [f"{sid}-{number}" for number in range(3)]
    async with served(place, desk) as stand:
        for name in names:
            desk.scripts[name] = asks_once(SOON)
            await left(stand, name)
        await due(stand, 3)
        assert (await wake(stand, most=2, page=1)).woken == 2
        for name in names[:2]:
            assert await answer(stand, name) == NO_ANSWER
        assert await wake(stand) == WakeResult(due=1, woken=1)


async def test_an_attempt_goes_on_where_the_one_before_was(place: Settings, sid: str) -> None:
    """What was done is in its heartbeats: pages that were gone through are not looked at again."""
    queue = f"{sid}-nobody"
    async with served(place, Desk()) as stand:
        store, client = store_of(stand), stand.served.client
        for number in range(3):
            await _waits(store, f"{sid}-{number}", 1_000 + number)
        page = await store.list_due(limit=2)
        environment = ActivityEnvironment(client=client)
        summary = WakeResult(due=2, woken=2).model_dump(mode="json")
        environment.info = dataclasses.replace(
            environment.info, heartbeat_details=[page.next_cursor, summary]
        )
        beats: list[tuple[Any, ...]] = []
        environment.on_heartbeat = lambda *given: beats.append(given)
        activities = WakingActivities(store)
        found = await environment.run(activities.wake, WakeInput(task_queue=queue, page=2))
        assert found == WakeResult(due=3, woken=3)
        assert beats[-1] == (None, found.model_dump(mode="json"))
        started = client.get_workflow_handle(workflow_id(f"{sid}-2"))
        described = await started.describe()
        assert (described.status, described.task_queue) == (WorkflowExecutionStatus.RUNNING, queue)
        await started.terminate()


async def test_a_session_that_has_ended_is_left(place: Settings, sid: str) -> None:
    """A clean-up has ended it: what nobody answered does not bring it back."""
    async with served(place, Desk()) as stand:
        store = store_of(stand)
        await _waits(store, sid, 1_000, status=SessionStatus.FAILED)
        assert await wake(stand) == WakeResult(due=1, left=1)


async def test_a_damaged_session_keeps_nobody_asleep(place: Settings, sid: str) -> None:
    """It comes first, and is named; nobody was woken before it was restored."""
    queue = f"{sid}-nobody"
    async with served(place, Desk()) as stand:
        store, client = store_of(stand), stand.served.client
        await _waits(store, f"{sid}-broken", 1_000)
        await _waits(store, f"{sid}-sound", 2_000)
        await damaged(place, f"{sid}-broken")
        found = await wake(stand, task_queue=queue)
        assert found == WakeResult(due=2, woken=1, failed=(f"{sid}-broken",), failures=1)
        await client.get_workflow_handle(workflow_id(f"{sid}-sound")).terminate()


async def test_without_a_session_store_nobody_knows_whose_deadline_has_passed(
    place: Settings, sid: str
) -> None:
    """It says so; the next who comes by starts the session, which then finds its deadline passed."""
    desk = Desk()
    desk.scripts[sid] = asks_once(SOON)
    async with served(place.model_copy(update={"session_store": "none"}), desk) as stand:
        await left(stand, sid)
        assert await wake(stand) == WakeResult(no_session_store=True)
        await asyncio.sleep(0.2)
        await stand.client().session(sid).resume()
        assert await answer(stand, sid) == NO_ANSWER


async def test_a_session_is_woken_on_the_task_queue_on_which_it_ran(place: Settings, sid: str) -> None:
    """Two task queues of one deployment share a store: the other one's workers lack the session's agents."""
    desk = Desk()
    desk.scripts[sid] = asks_once(SOON)
    async with served(place, desk, suspend="exit") as stand:
        await left(stand, sid)
        await due(stand)
        assert (await wake(stand, task_queue=f"{sid}-other")).woken == 1
        described = await stand.handle(sid).describe()
        assert described.task_queue == stand.served.plugin.settings.task_queue
        assert await answer(stand, sid) == NO_ANSWER


async def test_a_deadline_leaves_those_alone_that_have_none(place: Settings, sid: str) -> None:
    """The call that nobody answered in time has its result; the other one still waits."""
    desk = Desk()
    desk.scripts[sid] = asks_once(SOON, LOCATE)
    async with served(place, desk) as stand:
        _, locate = await left(stand, sid)
        await due(stand)
        assert (await wake(stand)).woken == 1
        assert (await stand.sessions.session(sid).result()).exit_reason is ExitReason.SUSPENDED
        assert [call.id for call in await stand.sessions.session(sid).get_pending_calls()] == [locate.id]
        assert await wake(stand) == WakeResult()
        state = await state_of(stand, sid)
        assert list(state.pending_client_tool_calls) == [locate.id]
        assert [each.outcome for each in state.completed_client_tool_calls.values()] == ["expired"]
        reply = await stand.client().session(sid).submit_tool_result(locate, "Bonn", wait=True)
        assert reply.result is not None
        assert reply.result.text == f"{NO_ANSWER} | Bonn"


async def test_a_tree_of_sessions_is_woken_from_its_root(crew: Crew, sid: str) -> None:
    """The call is a sub-agent's: whoever waits for that one is to have its answer."""
    (call,) = await left_above(crew, sid, agent="asks-hurried")
    assert call.route
    store = store_of(crew)
    while call.route[-1] not in {each.session_id for each in (await store.list_due()).items}:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    await wake(crew)
    while (result := await once_more(crew, sid)).status is AskStatus.SUSPENDED:
        continue  # who asks again before it goes on is told that it waits
    assert result.text == f"they said {NO_ANSWER}"
    assert call.route[-1] not in {each.session_id for each in (await store.list_due()).items}


async def _waits(
    store: SessionStore, session_id: str, deadline: int, status: SessionStatus = SessionStatus.PAUSED
) -> None:
    """A session of the store alone that waits since 1970."""
    state = await store.create_session(session_id, CreateSession(agent_type="people", status=status))
    call = PendingClientToolCall(tool_call_id="c", tool_name="soon", deadline_at=deadline)
    await store.save_state(session_id, state.model_copy(update={"pending_client_tool_calls": {"c": call}}))
