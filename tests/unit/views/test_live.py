"""Sessions as they happen: what a page that follows one is given."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from helix_temporal import Backends
from helix_temporal.errors import (
    InvalidConfigError,
    SessionNotFoundError,
    StoreUnavailableError,
    StreamTruncatedError,
)
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus
from helix_temporal.models.states import SessionState
from helix_temporal.models.streams import RunEnded, RunStarted, StepStarted, StoredChunk, TextChunk, ToolEnd
from helix_temporal.views import live
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._backends import PLACES, create, open_stores, read_refusal


@pytest.fixture(params=PLACES)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backends]:
    """A session that nobody has talked to."""
    async with open_stores(request.param, tmp_path) as made:
        await create(made, "s", user_id="ann")
        yield made


async def say(stores: Backends, *texts: str, turn: int = 1, ends: bool = True) -> None:
    """A turn's chunks: its begin, texts, and its end."""
    assert stores.streams is not None
    writer = await stores.streams.create_writer("s", agent_id=f"r{turn}")
    await writer.write(RunStarted(turn=turn))
    for text in texts:
        await writer.write(TextChunk(delta=text))
    if ends:
        await writer.write(RunEnded(status="completed"))


async def begin_run(stores: Backends, turn: int, *, after: int = 0) -> None:
    """Record that a turn is under way."""
    await stores.sessions.start_run("s", NewRun(run_id=f"r{turn}", start_sequence=after))


async def take(chunks: AsyncGenerator[StoredChunk], count: int) -> list[str]:
    """So many chunks: a text's words, and the types of the others."""
    found = [await anext(chunks) for _ in range(count)]
    return [getattr(each.chunk, "delta", each.chunk.type) for each in found]


async def test_a_session_under_way_is_followed_from_the_begin_of_its_turn(stores: Backends) -> None:
    """What was said before stands in the thread already; of this turn nothing may be missing."""
    await say(stores, "old")
    await begin_run(stores, 1)
    await stores.sessions.update_run("s", "r1", RunChange(status=RunStatus.COMPLETED))
    await begin_run(stores, 2, after=3)
    await say(stores, "new", turn=2, ends=False)
    views = SessionViews(stores)
    assert await views.find_live_place("s") == 3
    async with contextlib.aclosing(views.follow_session("s")) as chunks:
        assert await take(chunks, 2) == ["run_started", "new"]
        await say(stores, "newer", turn=3)
        assert await take(chunks, 3) == ["run_started", "newer", "run_ended"]


async def test_a_turn_whose_begin_nobody_noted_is_found(stores: Backends) -> None:
    """Sessions of an older version have no such note."""
    await begin_run(stores, 1)
    await stores.sessions.update_run("s", "r1", RunChange(status=RunStatus.COMPLETED))
    await say(stores, "old")
    await begin_run(stores, 2)
    await say(stores, "new", turn=2, ends=False)
    assert await SessionViews(stores).find_live_place("s") == 3


async def test_errors_of_calls_are_those_of_the_newest_step(stores: Backends) -> None:
    """Providers' ids come again in each step; a call that was tried again and worked has none."""
    assert stores.streams is not None
    viewed = ViewedSessions(stores, None)
    assert await live.read_call_errors(viewed, "s") == {}
    await begin_run(stores, 1)
    await say(stores, "one", ends=False)
    writer = await stores.streams.create_writer("s", agent_id="r1")
    await writer.write(ToolEnd(tool_call_id="c0", success=False, error="of the step before"))
    await writer.write(StepStarted(step_id="2", message_id="m2"))
    for call_id, error in (("c1", "no order"), ("c2", "a reset")):
        await writer.write(ToolEnd(tool_call_id=call_id, success=False, error=error))
    await writer.write(ToolEnd(tool_call_id="c2"))
    assert await live.read_call_errors(viewed, "s") == {"c1": "no order"}


async def test_an_idle_session_is_followed_from_its_end(stores: Backends) -> None:
    """A turn that begins later comes; those that are over stand in the thread."""
    await say(stores, "old")
    views = SessionViews(stores)
    assert await views.find_live_place("s") == 3
    async with contextlib.aclosing(views.follow_session("s")) as chunks:
        following = asyncio.ensure_future(take(chunks, 2))
        await asyncio.sleep(0.1)
        await say(stores, "new", turn=2)
        assert await following == ["run_started", "new"]


async def test_a_session_that_was_silent_for_long_is_followed(tmp_path: Path) -> None:
    """A page that stays open over a night shows the turn of the morning."""
    abandoned = {"stream_abandoned_after": timedelta(seconds=1)}
    async with open_stores("memory", tmp_path, **abandoned) as stores:
        await create(stores, "s")
        await say(stores, "old")
        await asyncio.sleep(1.2)
        async with contextlib.aclosing(SessionViews(stores).follow_session("s")) as chunks:
            following = asyncio.ensure_future(take(chunks, 2))
            await asyncio.sleep(1.2)
            await say(stores, "new", turn=2)
            assert await following == ["run_started", "new"]


async def test_a_session_without_a_stream_is_waited_for(stores: Backends) -> None:
    """Nobody has talked to it yet, or its stream has expired."""
    views = SessionViews(stores)
    assert await views.find_live_place("s") == 0
    async with contextlib.aclosing(views.follow_session("s")) as chunks:
        following = asyncio.ensure_future(take(chunks, 2))
        await asyncio.sleep(0.1)
        await say(stores, "first")
        assert await following == ["run_started", "first"]


async def test_a_stream_that_expires_is_waited_for(stores: Backends) -> None:
    """The session is there: it goes on with a new stream, whose numbers begin anew."""
    assert stores.streams is not None
    await say(stores, "old")
    async with contextlib.aclosing(SessionViews(stores).follow_session("s")) as chunks:
        following = asyncio.ensure_future(take(chunks, 2))
        await asyncio.sleep(0.1)
        await stores.streams.delete_stream("s")
        await asyncio.sleep(0.3)
        await say(stores, "new", turn=2)
        assert await following == ["run_started", "new"]


async def test_a_session_that_is_deleted_ends(stores: Backends) -> None:
    """The page says so, and asks no more."""
    await say(stores, "old")
    async with contextlib.aclosing(SessionViews(stores).follow_session("s", 0)) as chunks:
        assert await take(chunks, 3) == ["run_started", "old", "run_ended"]
        following = asyncio.ensure_future(take(chunks, 1))
        await asyncio.sleep(0.1)
        await stores.sessions.delete_session("s")
        with pytest.raises(StopAsyncIteration):
            await following


async def test_another_session_under_the_same_id_is_not_followed(
    stores: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted and asked again: its turns would be added to those of the session that is gone."""
    monkeypatch.setattr(live, "_PAUSES", (0.5,))  # all of it happens between two looks
    await say(stores, "old")
    async with contextlib.aclosing(SessionViews(stores).follow_session("s", 0)) as chunks:
        assert await take(chunks, 3) == ["run_started", "old", "run_ended"]
        following = asyncio.ensure_future(take(chunks, 1))
        await asyncio.sleep(0.1)
        await stores.sessions.delete_session("s")
        await create(stores, "s", user_id="ann")
        await say(stores, "new")
        with pytest.raises(StopAsyncIteration):
            await following


async def test_a_session_whose_row_is_made_while_it_is_followed_goes_on(
    stores: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread was there before: it was told as deleted, as soon as its begin was known."""
    monkeypatch.setattr(live, "_PAUSES", (0.05,))
    read = ViewedSessions.load_state
    begins = iter((0,))

    async def load_state(viewed: ViewedSessions, session_id: str) -> SessionState:
        state = await read(viewed, session_id)
        return state.model_copy(update={"created_at": next(begins, state.created_at)})

    monkeypatch.setattr(ViewedSessions, "load_state", load_state)
    async with contextlib.aclosing(SessionViews(stores).follow_session("s", 0)) as chunks:
        following = asyncio.ensure_future(take(chunks, 3))
        await asyncio.sleep(0.2)
        await say(stores, "new")
        assert await following == ["run_started", "new", "run_ended"]


async def test_what_is_not_kept_any_more_is_told(stores: Backends) -> None:
    """The page loads the session anew, and shows no turn with a hole."""
    await say(stores, "old")
    async with contextlib.aclosing(SessionViews(stores).follow_session("s", 900)) as chunks:
        with pytest.raises(StreamTruncatedError):
            await take(chunks, 1)


@pytest.mark.parametrize("failures", [3, 100])
async def test_a_store_that_fails_for_a_moment_loses_nothing(
    stores: Backends, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """Each chunk comes once; a server that starts again refuses at once, hundreds of times."""
    monkeypatch.setattr(live, "_PAUSES", (0.001,))
    assert stores.streams is not None
    opened, open_reader = [0], stores.streams.create_resumable_reader

    async def fail_at_first(*arguments: object, **named: object) -> object:
        opened[0] += 1
        if opened[0] <= failures:
            raise StoreUnavailableError("no connection")
        return await open_reader(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(stores.streams, "create_resumable_reader", fail_at_first)
    await say(stores, "old")
    async with contextlib.aclosing(SessionViews(stores).follow_session("s", 0)) as chunks:
        assert await take(chunks, 3) == ["run_started", "old", "run_ended"]
    assert opened[0] == failures + 1


async def test_a_store_that_stays_away_is_told(stores: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever before a page that says "Following"."""

    async def fail(*arguments: object, **named: object) -> object:
        raise StoreUnavailableError("no connection")

    assert stores.streams is not None
    monkeypatch.setattr(stores.streams, "create_resumable_reader", fail)
    monkeypatch.setattr(live, "_PAUSES", (0.001,))
    monkeypatch.setattr(live, "_PATIENCE", 0.1)
    with pytest.raises(StoreUnavailableError):
        await take(SessionViews(stores).follow_session("s", 0), 1)


def test_an_outage_of_long_ago_does_not_count() -> None:
    """A session is silent for hours between two restarts of its store; each is waited for."""
    seconds = [0.0]
    outage = live.Outage(lambda: seconds[0])
    told = []
    for at in (0, 10, 20, 3600, 3615, 3629, 3631):
        seconds[0] = at
        told.append(outage.add_failure())
    assert told == [False] * 6 + [True]


async def test_a_viewer_who_loses_the_right_sees_no_further_turn(stores: Backends) -> None:
    """The page may stay open for days."""
    allowed = ["ann"]
    views = SessionViews(stores, admits=lambda session: session.user_id in allowed)
    await say(stores, "old")
    async with contextlib.aclosing(views.follow_session("s", 0)) as chunks:
        assert await take(chunks, 3) == ["run_started", "old", "run_ended"]
        allowed.clear()
        await say(stores, "secret", turn=2)
        with pytest.raises(SessionNotFoundError):
            await take(chunks, 1)


async def test_sessions_that_are_not_ones_own_are_not_followed(stores: Backends) -> None:
    """As if the session were not there."""
    views = SessionViews(stores, admits=lambda session: session.user_id == "bob")
    missing = (await read_refusal(views.find_live_place("no-such"))).replace("no-such", "s")
    assert await read_refusal(views.find_live_place("s")) == missing
    assert await read_refusal(take(views.follow_session("s"), 1)) == missing
    assert await read_refusal(take(views.follow_session("s", 0), 1)) == missing


async def test_without_a_stream_store_nothing_can_be_followed(tmp_path: Path) -> None:
    """The page says what to set."""
    async with open_stores("memory", tmp_path, stream_store="none") as stores:
        await create(stores, "s")
        views = SessionViews(stores)
        with pytest.raises(InvalidConfigError, match="HELIX_STREAM_STORE"):
            await views.find_live_place("s")
        with pytest.raises(InvalidConfigError):
            await take(views.follow_session("s"), 1)
