"""Stores that fail at the end of a session that waits: nobody who was told that it waits is let down."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from temporalio.client import WorkflowFailureError

from helix_temporal.models.sessions import AskStatus, ExitReason
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.waiting import INTERRUPTED, ToolApproval
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushThread
from helix_temporal.testing.proxy import FaultProxy
from tests.workflows._desk import Desk
from tests.workflows._embedded import EmbeddedSession
from tests.workflows.conftest import TIMEOUTS, Stand
from tests.workflows.test_embedded import ask, start
from tests.workflows.test_reset import reset, task_ends
from tests.workflows.test_states import place, served, state_of
from tests.workflows.test_waits import ACT, LOCATE, WIPE, asks_once
from tests.workflows.test_waits_exit import left

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]

SHORT = TIMEOUTS.model_copy(update={"finaliser_budget": timedelta(seconds=1)})


@asynccontextmanager
async def behind_proxy(place: Settings, desk: Desk) -> AsyncIterator[tuple[Stand, FaultProxy]]:
    """A worker whose PostgreSQL can be taken away."""
    dsn = place.postgres_dsn
    assert dsn is not None
    netloc = urlsplit(dsn).netloc
    address = netloc.rpartition("@")[2]
    async with FaultProxy.start(address) as proxy:
        changes = {"postgres_dsn": dsn.replace(address, proxy.address, 1), "timeouts": SHORT}
        async with served(place.model_copy(update=changes), desk) as stand:
            yield stand, proxy
            proxy.refuse(False)


async def cancelled(stand: Stand, sid: str) -> None:
    """Cancel the session's execution, and wait for its end."""
    await stand.handle(sid).cancel()
    with pytest.raises(WorkflowFailureError):
        await stand.handle(sid).result()


async def tools_have_run(stand: Stand, sid: str) -> None:
    """Whoever asked was told that the turn waits, and of tools beside it the results may come later."""
    for _ in range(400):
        described = await stand.handle(sid).describe()
        if not described.raw_description.pending_activities:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{sid}: activities still run")


@pytest.mark.parametrize("place", ["redis and postgres", "postgres alone"], indirect=True)
async def test_a_cancel_while_the_store_is_away_leaves_the_turn_waiting(place: Settings, sid: str) -> None:
    """Its asker was told that it waits and is in the thread: so it is, for the next execution."""
    desk = Desk()
    desk.scripts[sid] = asks_once(LOCATE)
    async with behind_proxy(place, desk) as (stand, proxy):
        asked = await stand.sessions.ask(sid, "go", agent="people", message_id="m")
        assert asked.in_thread
        waits = asyncio.create_task(stand.sessions.ask(sid, "go", agent="people", message_id="m"))
        await stand.accepted(sid, 2)
        proxy.refuse()
        await cancelled(stand, sid)
        told = await waits
        assert (told.status, told.in_thread, told.pending) == (AskStatus.SUSPENDED, True, asked.pending)
        proxy.refuse(False)
        reply = await stand.sessions.session(sid).submit_tool_result(asked.pending[0], "Bonn", wait=True)
        assert reply.result is not None
        assert reply.result.text == "Bonn"
        assert await stand.texts(sid) == ["go", "", "Bonn", "Bonn"]
        await stand.finish(sid)


async def test_a_second_cancel_stops_no_clean_up(place: Settings, sid: str) -> None:
    """The turn that waits is to be ended, for which a reset thread is opened again, which takes too long."""
    desk = Desk()
    desk.scripts[sid] = asks_once(LOCATE)
    async with behind_proxy(place, desk) as (stand, proxy):
        await stand.sessions.ask(sid, "go", agent="people", message_id="m")
        await reset(stand, sid, (await task_ends(stand, sid))[-1])
        proxy.refuse()
        await stand.handle(sid).cancel()
        await asyncio.sleep(2.5)
        await stand.handle(sid).cancel()
        await asyncio.sleep(1)
        proxy.refuse(False)
        with pytest.raises(WorkflowFailureError):
            await stand.handle(sid).result()
        done = {each.name for each in (await stand.sessions.session(sid).get_status()).receipts}
        assert {"save", "flush", "evict"} <= done


async def test_an_answer_that_was_taken_before_such_a_cancel_counts(place: Settings, sid: str) -> None:
    """The person was told so; the next execution goes on with it, and runs no tool again."""
    desk = Desk()
    desk.scripts[sid] = asks_once(LOCATE, ACT)
    async with behind_proxy(place, desk) as (stand, proxy):
        asked = await stand.sessions.ask(sid, "go", agent="people", message_id="m")
        await tools_have_run(stand, sid)
        proxy.refuse()
        reply = await stand.sessions.session(sid).submit_tool_result(asked.pending[0], "Bonn")
        assert reply.status == "submitted"
        await cancelled(stand, sid)
        proxy.refuse(False)
        again = await stand.sessions.session(sid, agent="people").submit_tool_result(asked.pending[0], "Rome")
        assert again.status == "already_completed"
        assert (await stand.sessions.ask(sid, "go", agent="people", message_id="m")).text == "Bonn | here"
        assert len(desk.contexts[sid]) == 1
        await stand.finish(sid)


async def test_a_cancel_with_all_stores_there_ends_the_turn_as_ever(place: Settings, sid: str) -> None:
    """What can be ended whole is."""
    desk = Desk()
    desk.scripts[sid] = asks_once(LOCATE)
    async with behind_proxy(place, desk) as (stand, _):
        await stand.sessions.ask(sid, "go", agent="people", message_id="m")
        await cancelled(stand, sid)
        assert (await stand.texts(sid))[2:] == [INTERRUPTED]
        assert (await state_of(stand, sid)).status is SessionStatus.INTERRUPTED


@pytest.fixture
def forgetful(stand: Stand, redis_url: str, monkeypatch: pytest.MonkeyPatch, sid: str) -> list[int]:
    """Redis loses the thread between the save at the end of a session and the flush after it, once."""
    backends, wiped = stand.served.plugin.backends, list[int]()
    flush, prefix = backends.threads.flush, stand.served.plugin.settings.redis_prefix

    async def forgetting(request: FlushThread, *given: Any) -> FlushReceipt:
        if request.thread_id == sid and not wiped:
            async with Redis.from_url(redis_url) as redis:
                found = [key async for key in redis.scan_iter(match=f"{prefix}*{sid}*")]
                wiped.append(await redis.delete(*found))
        receipt: FlushReceipt = await flush(request, *given)
        return receipt

    monkeypatch.setattr(backends.threads, "flush", forgetting)
    return wiped


async def test_a_tool_that_ran_beside_a_question_does_not_run_again_when_redis_forgets_it(
    stand: Stand, desk: Desk, sid: str, forgetful: list[int]
) -> None:
    """Its result was saved, and Redis wiped before that was archived."""
    desk.scripts[sid] = asks_once(LOCATE, ACT)
    (call,) = await left(stand, sid)
    assert forgetful[0] > 0
    reply = await stand.client().session(sid).submit_tool_result(call, "Bonn", wait=True)
    assert reply.result is not None
    assert reply.result.text == "Bonn | here"
    assert len(desk.contexts[sid]) == 1


async def test_an_answer_that_was_taken_is_not_lost_when_redis_forgets_it(
    stand: Stand, desk: Desk, sid: str, forgetful: list[int]
) -> None:
    """Whoever gave it was told that it counts, and is not asked again."""
    desk.scripts[sid] = asks_once(LOCATE, WIPE)
    locate, wipe = await left(stand, sid)
    client = stand.client()
    assert (await client.session(sid).submit_tool_result(locate, "Bonn")).status == "submitted"
    ended = await client.session(sid).result()
    assert ended.exit_reason is ExitReason.SUSPENDED
    assert forgetful[0] > 0
    assert [call.id for call in await client.session(sid).get_pending_calls()] == [wipe.id]
    approval = ToolApproval(approval_id=wipe.id, approved=True)
    reply = await client.session(sid).submit_approval(approval, wait=True)
    assert reply.result is not None
    assert reply.result.text == "Bonn | wiped disk"


async def test_values_that_were_saved_at_the_end_are_saved_again(
    stand: Stand, sid: str, forgetful: list[int]
) -> None:
    """What an application changed after the last turn is in no step."""
    first = await start(stand, sid)
    await ask(first, "hello")
    await first.signal(EmbeddedSession.set_value, "late")
    await first.execute_update("close")
    await first.result()
    assert forgetful[0] > 0
    second = await start(stand, sid)
    await ask(second, "again")
    assert await second.query(EmbeddedSession.values) == {"turns": 2, "late": True}
    await second.execute_update("close")
    await second.result()
