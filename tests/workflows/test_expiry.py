"""Sessions that have expired: they take no answer and no message until somebody renews them."""

import asyncio
import time
import uuid
from typing import Any

import pytest

from helix_temporal.errors import InvalidRequestError, SessionExpiredError, SessionNotFoundError
from helix_temporal.models.maintenance import CleanupInput, CleanUpOldInput, CleanupResult
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.states import SessionProperties, SessionStatus, ToolResultSubmission
from helix_temporal.models.waiting import ToolApproval, WakeInput, WakeResult
from helix_temporal.settings import Settings
from helix_temporal.workflows import CleanupWorkflow, WakeWorkflow
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand
from tests.workflows.test_states import PAIRINGS, place, served, state_of
from tests.workflows.test_waits import WIPE, asks_once
from tests.workflows.test_waits_exit import left

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]

EXPIRED = SessionProperties(expires_at=1)
"""A session that has been expired since 1970."""


async def swept(stand: Stand, **fields: Any) -> CleanupResult:
    """One run of the clean-up."""
    return await stand.served.client.execute_workflow(
        CleanupWorkflow.run,
        CleanupInput(**fields),
        id=f"cleanup-{uuid.uuid4().hex}",
        task_queue=stand.served.plugin.settings.task_queue,
    )


def approve(call_id: str) -> ToolApproval:
    return ToolApproval(approval_id=call_id, approved=True)


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_an_expired_session_takes_no_approval(place: Settings, sid: str) -> None:
    """The tool pays: who approves it after the session's time must not make it run."""
    desk = Desk()
    desk.scripts[sid] = asks_once(WIPE)
    async with served(place, desk) as stand:
        (call,) = await left(stand, sid)
        await stand.sessions.session(sid).set_properties(EXPIRED)
        assert (await swept(stand)).expired.marked == 1
        ended = await state_of(stand, sid)
        assert (ended.status, ended.failure_reason) == (SessionStatus.FAILED, "session_expired")
        with pytest.raises(SessionExpiredError):
            await stand.client().session(sid).submit_approval(approve(call.id), timeout=10)
        with pytest.raises(SessionExpiredError):
            await stand.client().session(sid).resume(timeout=10)
        assert desk.contexts[sid] == []
        assert await state_of(stand, sid) == ended


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_who_renews_an_expired_session_goes_on_with_it(place: Settings, sid: str) -> None:
    """Deliberately: the ask names when it expires from now on, and the next clean-up leaves it alone."""
    desk = Desk()
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        await stand.finish(sid)
        await stand.sessions.session(sid).set_properties(EXPIRED)
        with pytest.raises(SessionExpiredError):
            await stand.sessions.ask(sid, "two", agent="main", timeout=10)
        later = int(time.time() * 1000) + 3_600_000
        renewed = SessionProperties(expires_at=later)
        result = await stand.sessions.ask(sid, "two", agent="main", properties=renewed)
        assert result.text == "3: two"
        await swept(stand)
        state = await state_of(stand, sid)
        assert (state.status, state.expires_at, state.failure_reason) == (SessionStatus.ACTIVE, later, None)
        await stand.sessions.ask(sid, "three", agent="main", properties=SessionProperties(expires_at=None))
        assert (await state_of(stand, sid)).expires_at is None


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_a_message_left_for_an_expired_session_is_refused(place: Settings, sid: str) -> None:
    """Nobody waits for its answer: whoever sends it is told now, or never."""
    async with served(place, Desk()) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        await stand.finish(sid)
        await stand.sessions.session(sid).set_properties(EXPIRED)
        with pytest.raises(SessionExpiredError, match="expired at 1"):
            await stand.sessions.send(sid, "two", agent="main", message_id="m-two", timeout=10)
        assert await stand.texts(sid) == ["one", "1: one"]
        renewed = SessionProperties(expires_at=None)
        await stand.sessions.send(sid, "two", agent="main", message_id="m-two", properties=renewed)
        assert (await stand.sessions.ask(sid, "two", agent="main", message_id="m-two")).text == "3: two"


async def test_a_session_that_expires_while_it_waits_takes_no_approval(place: Settings, sid: str) -> None:
    """Its execution is open, and knows as well when it expires."""
    desk = Desk()
    desk.scripts[sid] = asks_once(WIPE)
    async with served(place, desk) as stand:
        asked = await stand.sessions.ask(sid, "go", agent="people", message_id="m-go")
        (call,) = asked.pending
        await stand.sessions.session(sid).set_properties(EXPIRED)
        with pytest.raises(SessionExpiredError):
            await stand.sessions.session(sid).submit_approval(approve(call.id), timeout=10)
        with pytest.raises(SessionExpiredError):
            await stand.sessions.ask(sid, "more", agent="people", timeout=10)
        assert desk.contexts[sid] == []
        await stand.sessions.session(sid).set_properties(SessionProperties(expires_at=None))
        reply = await stand.sessions.session(sid).submit_approval(approve(call.id), wait=True)
        assert reply.result is not None
        assert reply.result.text == "wiped disk"
        await stand.finish(sid)


async def test_the_session_store_takes_no_answer_for_an_expired_session(place: Settings, sid: str) -> None:
    """A program without Temporal answers there; whoever starts the session next would take it."""
    desk = Desk()
    desk.scripts[sid] = asks_once(WIPE)
    async with served(place, desk) as stand:
        (call,) = await left(stand, sid)
        await stand.sessions.session(sid).set_properties(EXPIRED)
        store = stand.served.plugin.backends.sessions
        assert store is not None
        answer = ToolResultSubmission.model_validate({"tool_call_id": call.id, "response": {"result": "yes"}})
        with pytest.raises(SessionExpiredError):
            await store.submit_tool_result(sid, answer)


async def test_the_clean_up_asks_a_session_that_runs_to_end_and_marks_it_later(
    place: Settings, sid: str
) -> None:
    """A live session is never marked failed, nor deleted for its age."""
    desk = Desk()
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        await stand.sessions.session(sid).set_properties(EXPIRED)
        found = await swept(stand)
        assert (found.expired.running, found.expired.marked) == (1, 0)
        await stand.sessions.session(sid).result()
        state = await state_of(stand, sid)
        assert (state.status, state.failure_reason) == (SessionStatus.COMPLETED, None)


async def test_the_clean_up_by_age_leaves_a_session_alone_that_runs(place: Settings, sid: str) -> None:
    """It has waited for a person for a year, and its execution is open."""
    desk = Desk()
    desk.scripts[sid] = asks_once(WIPE)
    async with served(place, desk) as stand:
        asked = await stand.sessions.ask(sid, "go", agent="people", message_id="m-go")
        assert asked.status is AskStatus.SUSPENDED
        await _older(stand, sid)
        found = await swept(stand, old=CleanUpOldInput(max_age_ms=1000))
        assert (found.old.running, found.old.deleted) == (1, 0)
        assert (await state_of(stand, sid)).status is SessionStatus.PAUSED


async def _older(stand: Stand, sid: str) -> None:
    """Wait until the session has not changed for a second by its store's clock."""
    store = stand.served.plugin.backends.sessions
    assert store is not None
    while await store.now() - (await state_of(stand, sid)).updated_at <= 1000:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def test_an_expired_session_is_not_woken(place: Settings, sid: str) -> None:
    """Its call has expired, too: starting it would only fail, each hour."""
    desk = Desk()
    desk.scripts[sid] = asks_once(("soon", {"what": "ever"}))
    async with served(place, desk) as stand:
        await left(stand, sid)
        await stand.sessions.session(sid).set_properties(EXPIRED)
        store = stand.served.plugin.backends.sessions
        assert store is not None
        while not (await store.list_due()).items:  # noqa: ASYNC110 (the store has no event)
            await asyncio.sleep(0.02)
        found = await stand.served.client.execute_workflow(
            WakeWorkflow.run,
            WakeInput(),
            id=f"wake-{uuid.uuid4().hex}",
            task_queue=stand.served.plugin.settings.task_queue,
        )
        assert found == WakeResult(due=1, left=1)


async def test_properties_need_a_session_store_and_a_session(place: Settings, sid: str) -> None:
    """Nothing is silently forgotten."""
    async with served(place, Desk()) as stand:
        with pytest.raises(SessionNotFoundError):
            await stand.sessions.session(sid).set_properties(EXPIRED)
    async with served(place.model_copy(update={"session_store": "none"}), Desk()) as stand:
        with pytest.raises(InvalidRequestError):
            await stand.sessions.ask(sid, "one", agent="main", properties=EXPIRED, timeout=10)
