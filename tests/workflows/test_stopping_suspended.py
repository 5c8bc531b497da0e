"""Stops of sessions that ended while they waited: their turns end as if they had stayed."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError

from helix_temporal.client import SessionClient
from helix_temporal.client._updates import Updates
from helix_temporal.client._updates import _RetryUpdate as RetryUpdate
from helix_temporal.errors import AgentNotServedError
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.ids import ASK_AGAIN
from helix_temporal.models.sessions import (
    AskStatus,
    ExitReason,
    SessionInput,
    SessionOptions,
    Status,
    StopRequest,
    StopResult,
    SuspendedTurn,
)
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.models.waiting import INTERRUPTED, PendingCall
from helix_temporal.settings import Settings
from helix_temporal.workflows.execution import Execution
from helix_temporal.workflows.stops import Stops
from tests.workflows._desk import Desk
from tests.workflows._embedded import EmbeddedSession
from tests.workflows.conftest import Stand
from tests.workflows.test_embedded import ask
from tests.workflows.test_states import PAIRINGS, place, served, state_of
from tests.workflows.test_waits import ACT, LOCATE, asks_once
from tests.workflows.test_waits_exit import left

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["place"]


async def again(client: SessionClient, sid: str) -> Any:
    """What became of the message, for whoever sends it again."""
    return await client.ask(sid, "go", agent="people", message_id="m-go")


async def over(stand: Stand, sid: str) -> None:
    """Wait until the turn has ended: a stop does not."""
    while (seen := await stand.sessions.session(sid).get_status()).status is not Status.IDLE:
        await stand.sessions.session(sid).wait_for_change(seen.version)


async def test_an_interrupt_ends_the_turn_whole(stand: Stand, desk: Desk, sid: str) -> None:
    """Each open call gets a result, tools that ran keep theirs, and the conversation can go on."""
    desk.scripts[sid] = asks_once(LOCATE, ACT)
    await left(stand, sid)
    assert await stand.client().session(sid).stop()
    result = await again(stand.client(), sid)
    assert (result.status, result.in_thread) == (AskStatus.INTERRUPTED, True)
    messages = await stand.messages(sid)
    assert [(each.text, each.is_error) for each in messages[2:]] == [(INTERRUPTED, True), ("here", False)]
    assert len(desk.contexts[sid]) == 1
    desk.scripts[sid] = lambda request: request.messages[-1].text.upper()
    assert (await stand.client().ask(sid, "next", agent="people")).text == "NEXT"


async def test_an_abort_leaves_no_trace_of_the_turn(stand: Stand, desk: Desk, sid: str) -> None:
    """As if it had never been asked; the same message may be asked anew."""
    desk.scripts[sid] = asks_once(LOCATE)
    await left(stand, sid)
    assert await stand.client().session(sid, agent="people").stop(abort=True)
    await over(stand, sid)
    desk.scripts[sid] = lambda request: request.messages[-1].text.upper()
    assert (await again(stand.client(), sid)).text == "GO"
    assert await stand.texts(sid) == ["go", "GO"]


async def test_a_stop_of_another_turn_leaves_the_session_as_it_is(stand: Stand, desk: Desk, sid: str) -> None:
    """The button of an old page must not end today's question."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = await left(stand, sid)
    assert not await stand.client().session(sid).stop(run_id="another")
    assert (await stand.sessions.session(sid).result()).exit_reason is ExitReason.SUSPENDED
    assert await stand.sessions.session(sid).get_pending_calls() == (call,)


async def test_an_execution_that_was_terminated_while_it_waited_is_stopped_too(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The next one would wait for the same calls."""
    desk.scripts[sid] = asks_once(LOCATE)
    await stand.sessions.ask(sid, "go", agent="people", message_id="m-go")
    await stand.handle(sid).terminate()
    assert await stand.sessions.session(sid).stop()
    assert (await again(stand.client(), sid)).status is AskStatus.INTERRUPTED


async def test_a_session_that_is_idle_is_not_started_by_a_stop(stand: Stand, desk: Desk, sid: str) -> None:
    """There is nothing to stop."""
    await stand.sessions.ask(sid, "hello", agent="main")
    await stand.finish(sid)
    before = (await stand.handle(sid).describe()).run_id
    assert not await stand.sessions.session(sid).stop()
    assert not await stand.sessions.session(f"{sid}-never").stop()
    assert (await stand.handle(sid).describe()).run_id == before


async def test_why_a_session_cannot_be_opened_is_told_to_who_stops_it(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Nothing was stopped, and a false would say that nothing waits."""
    desk.scripts[sid] = asks_once(LOCATE)
    await left(stand, sid)
    with pytest.raises(AgentNotServedError, match="nobody"):
        await stand.client().session(sid, agent="nobody").stop()
    assert await stand.client().session(sid, agent="people").stop()


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_every_pairing_of_stores_is_told_of_the_stop(place: Settings, sid: str) -> None:
    """Nothing is pending any more, and the run has ended."""
    desk = Desk()
    desk.scripts[sid] = asks_once(LOCATE)
    async with served(place, desk) as stand:
        await left(stand, sid)
        assert await stand.client().session(sid).stop()
        await again(stand.client(), sid)
        state = await state_of(stand, sid)
        assert (state.pending_client_tool_calls, state.suspension_context) == ({}, None)
        store = stand.served.plugin.backends.sessions
        assert store is not None
        assert [run.status for run in (await store.list_runs(sid)).items] == [RunStatus.INTERRUPTED]
        await stand.finish(sid)


@pytest.mark.parametrize("agent", ["people", None])
async def test_a_session_that_temporal_knows_nothing_of_is_known_by_its_state(
    stand: Stand, desk: Desk, sid: str, agent: str | None
) -> None:
    """People think for longer than histories are kept."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = await left_elsewhere(stand, sid)
    assert not await stand.client().session(sid, agent=agent).stop(run_id="another")
    assert (await stand.sessions.session(sid).result()).exit_reason is ExitReason.SUSPENDED
    assert await stand.client().session(sid, agent=agent).stop()
    await over(stand, sid)
    assert (await stand.texts(sid))[2:] == [INTERRUPTED]
    late = await stand.client().session(sid, agent=agent).submit_tool_result(call, "Bonn")
    assert late.status == "already_completed"


async def test_such_a_session_goes_on_with_an_answer(stand: Stand, desk: Desk, sid: str) -> None:
    """Whoever answers names the session and the call, and nothing else."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = await left_elsewhere(stand, sid)
    reply = await stand.client().session(sid).submit_tool_result(call, "Bonn", wait=True)
    assert reply.result is not None
    assert reply.result.text == "Bonn"


async def left_elsewhere(stand: Stand, sid: str) -> tuple[PendingCall, ...]:
    """A session that ended suspended, and left no execution of its own: another workflow had it inside."""
    handle = await stand.served.client.start_workflow(
        EmbeddedSession.run,
        SessionInput(session_id=sid, agent="people", options=SessionOptions(suspend="exit")),
        id=f"embedded-{sid}",
        task_queue=stand.served.plugin.settings.task_queue,
    )
    pending = (await ask(handle, "go")).pending
    assert (await handle.result()).exit_reason is ExitReason.SUSPENDED
    return pending


async def test_a_stop_whose_answer_was_lost_is_told_what_it_did(
    stand: Stand, desk: Desk, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent again under the same id: the session has ended by then, and stops nothing a second time."""
    desk.scripts[sid] = asks_once(LOCATE, ACT)
    await left(stand, sid)
    client = stand.client(suspend="exit")
    update_once, lost = Updates._update_once, list[Any]()

    async def loses_the_first(self: Updates, session_id: str, update: str, *given: Any) -> Any:
        told = await update_once(self, session_id, update, *given)
        if update == "stop" and not lost:
            lost.append(told)
            await stand.finish(sid)
            raise RetryUpdate("no answer in time")
        return told

    monkeypatch.setattr(Updates, "_update_once", loses_the_first)
    assert await client.session(sid).stop()
    assert [each.stopping for each in lost] == [True]


async def test_a_session_that_ends_sends_who_stops_it_to_the_next_execution() -> None:
    """Its turn could not be ended, since a store was away: "stopping" would be no more than a word."""
    start = SessionInput(session_id="s", agent="people")
    run = Execution.of(start, datetime.now(UTC), 0)
    run.pending_calls.suspended = SuspendedTurn(head=Head(position=2, last_id="a"), start=EMPTY, run_id="r")
    stops = Stops(start, run, cast("Any", None))
    assert stops._stop_suspended(StopRequest()) == StopResult(stopping=True, run_id="r")
    run.closing, run.stopping = True, None
    with pytest.raises(ApplicationError) as refused:
        stops._stop_suspended(StopRequest())
    assert refused.value.type == ASK_AGAIN
    assert run.stopping is None
