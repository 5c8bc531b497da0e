"""Following a stream: each chunk once, whatever happens to connections, streams and those who write."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helix_temporal.client._streams import LiveAsk, StreamFollower, stream_store_of
from helix_temporal.errors import (
    InvalidConfigError,
    StoreUnavailableError,
    StreamAbandonedError,
    StreamNotFoundError,
    StreamTruncatedError,
)
from helix_temporal.models.sessions import AskResult, AskStatus
from helix_temporal.models.streams import (
    ChunkBase,
    RunEnded,
    RunStarted,
    StoredChunk,
    StreamInfo,
    StreamLimits,
    Suspended,
    TextChunk,
)
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.streams.rules import View
from tests.unit._web import write

ANSWERED = AskResult(status=AskStatus.ANSWERED, text="hi")


class Flaky(MemoryStreams):
    """Loses the connection at every third look."""

    looks = 0

    async def _read_view(self, stream_id: str, after: int, limit: int) -> View | None:
        self.looks += 1
        if self.looks % 3 == 0:
            raise StoreUnavailableError("lost")
        return await super()._read_view(stream_id, after, min(limit, 2))


def turn(*words: str, message: str = "m1") -> list[ChunkBase]:
    return [
        RunStarted(turn=1, message_ids=(message,)),
        *(TextChunk(delta=word) for word in words),
        RunEnded(status="completed"),
    ]


async def sequences(follow: StreamFollower) -> list[int]:
    return [stored.sequence async for stored in follow.follow_chunks()]


async def test_lost_connections_are_made_again() -> None:
    """A store that restarts must not end everybody's page."""
    store = Flaky()
    await write(store, *turn(*"abcdefghij"))
    assert await sequences(StreamFollower(store, "s1")) == list(range(1, 13))


async def test_a_session_that_nobody_talked_to_yet_is_waited_for() -> None:
    """The page is there before the first question."""
    store = MemoryStreams()
    following = asyncio.create_task(sequences(StreamFollower(store, "s1")))
    await asyncio.sleep(0.05)
    await write(store, *turn("a"))
    assert await following == [1, 2, 3]


async def test_a_turn_that_is_run_again_is_the_same_turn() -> None:
    """Its thread lost steps; who asked does not care."""
    store = MemoryStreams()
    await write(store, *turn("lost")[:-1])
    await write(store, *turn("again"), run_id="r1.1")
    assert await sequences(StreamFollower(store, "s1", run_id="r1")) == [1, 2, 3, 4, 5]


async def test_a_turn_whose_workflow_was_terminated_ends_with_the_next() -> None:
    """Nobody was left to tell its end."""
    store = MemoryStreams()
    await write(store, *turn("cut off")[:-1])
    await write(store, *turn("next", message="m2"), run_id="r2")
    assert await sequences(StreamFollower(store, "s1", message_id="m1")) == [1, 2]


async def test_silence_in_a_turn_is_told_and_between_turns_is_not() -> None:
    """A page may be open for days; an answer may not be late for days without a word."""
    store = MemoryStreams(StreamLimits(abandoned_after=0.05))
    await write(store, *turn("a"))
    between = StreamFollower(store, "s1", after=3, until="closed").follow_chunks()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(between), 0.3)
    await between.aclose()
    await write(store, RunStarted(turn=2, message_ids=("m2",)), run_id="r2")
    with pytest.raises(StreamAbandonedError):
        await sequences(StreamFollower(store, "s1", message_id="m2"))


async def test_silence_while_people_think_is_no_fault() -> None:
    """An approval may take until Monday."""
    store = MemoryStreams(StreamLimits(abandoned_after=0.05))
    await write(store, RunStarted(turn=1, message_ids=("m1",)), Suspended())
    following = asyncio.create_task(sequences(StreamFollower(store, "s1", message_id="m1")))
    await asyncio.sleep(0.3)
    await write(store, RunEnded(status="completed"))
    assert await following == [1, 2, 3]


async def test_a_stream_that_is_deleted_in_a_turn_is_told() -> None:
    """What comes after it would look like the rest of the answer."""
    store = MemoryStreams()
    await write(store, *turn("a")[:-1])
    chunks = StreamFollower(store, "s1", message_id="m1").follow_chunks()
    await anext(chunks)
    await anext(chunks)
    await store.delete_stream("s1")
    with pytest.raises(StreamNotFoundError):
        await anext(chunks)


async def test_a_trimmed_place_is_told_with_the_first_that_is_there() -> None:
    """The reader loads the history and goes on from there."""
    store = MemoryStreams(StreamLimits(max_chunks=2))
    await write(store, *turn("a", "b", "c"))
    with pytest.raises(StreamTruncatedError) as caught:
        await sequences(StreamFollower(store, "s1", after=1))
    assert caught.value.facts["first_available"] == 4


async def trimmed() -> MemoryStreams:
    """Two turns, of which the first is kept in part."""
    store = MemoryStreams(StreamLimits(max_chunks=4))
    await write(store, *turn("a"))
    await write(store, *turn("b", message="m2"), run_id="r2")
    return store


async def test_all_that_is_kept_begins_where_it_is_kept() -> None:
    """Nobody asked for what is gone."""
    assert await sequences(StreamFollower(await trimmed(), "s1")) == [3]
    assert await sequences(StreamFollower(await trimmed(), "s1", after=3)) == [4, 5, 6]


async def test_a_run_is_read_from_where_it_began() -> None:
    """Its own chunks are kept, whatever was trimmed before it."""

    async def begun() -> int:
        return 3

    store = await trimmed()
    assert await sequences(StreamFollower(store, "s1", run_id="r2", begun=begun)) == [4, 5, 6]


async def test_a_run_whose_beginning_is_gone_is_told_so() -> None:
    """Waiting for it would take for ever."""

    async def begun() -> int:
        return 0

    with pytest.raises(StreamTruncatedError):
        await sequences(StreamFollower(await trimmed(), "s1", run_id="r1", begun=begun))
    with pytest.raises(StreamTruncatedError):
        await sequences(StreamFollower(await trimmed(), "s1", message_id="m1"))


async def test_a_message_is_read_from_where_its_turn_began() -> None:
    """In a long session it was an error each time, though nothing of that turn was missing."""
    assert await sequences(StreamFollower(await trimmed(), "s1", message_id="m2")) == [4, 5, 6]


async def test_a_message_that_has_no_turn_yet_is_waited_for() -> None:
    """Sent a moment ago: what was trimmed before is not missed."""

    async def begun() -> None:
        return None

    store = await trimmed()
    following = asyncio.create_task(sequences(StreamFollower(store, "s1", message_id="m3", begun=begun)))
    await asyncio.sleep(0.1)
    await write(store, *turn("c", message="m3"), run_id="r3")
    assert await following == [7, 8, 9]


async def test_the_newest_turn_is_found_where_it_begins() -> None:
    """A page that has loaded the history wants what is not in it yet."""
    store = MemoryStreams()
    await write(store, *turn("a"))
    await write(store, *turn("b", message="m2"), run_id="r2")
    assert await sequences(StreamFollower(store, "s1", after="turn")) == [4, 5, 6]


async def test_an_ask_ends_although_its_stream_says_nothing() -> None:
    """The answer is what counts; a worker without streams gives it all the same."""

    async def ask() -> AskResult:
        return ANSWERED

    live = LiveAsk(MemoryStreams(), "s1", "m1", ask)
    assert [stored async for stored in live] == []
    assert await live.result() == ANSWERED


async def test_an_ask_that_fails_ends_the_iteration_with_its_error() -> None:
    """Nobody must ask for the result to learn that there is none."""

    async def ask() -> AskResult:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        [stored async for stored in LiveAsk(MemoryStreams(), "s1", "m1", ask)]


async def test_a_stream_that_fails_is_told_before_the_answer_comes() -> None:
    """The page shows at once that it shows nothing; the answer may take ten minutes, and is not lost."""

    class Lost(MemoryStreams):
        async def _read_view(self, stream_id: str, after: int, limit: int) -> View | None:
            raise StreamTruncatedError("not kept any more")

    answers = asyncio.Event()

    async def ask() -> AskResult:
        await answers.wait()
        return ANSWERED

    async with LiveAsk(Lost(), "s1", "m1", ask, after=0) as live:
        with pytest.raises(StreamTruncatedError):
            async with asyncio.timeout(20):
                [stored async for stored in live]
        answers.set()
        assert await live.result() == ANSWERED


class Away(MemoryStreams):
    """Does not answer the first look."""

    looks = 0

    async def get_info(self, stream_id: str) -> StreamInfo | None:
        """From the second look on."""
        self.looks += 1
        if self.looks == 1:
            raise StoreUnavailableError("lost")
        return await super().get_info(stream_id)


async def test_a_store_that_misses_the_first_look_ends_no_watch() -> None:
    """One hiccup was an error at once, and the message that was to be watched was not sent."""
    store = Away()
    await write(store, *turn("a"))
    assert await sequences(StreamFollower(store, "s1", message_id="m1")) == [1, 2, 3]
    store = Away(StreamLimits(max_chunks=4))
    await write(store, *turn("a"))
    await write(store, *turn("b", message="m2"), run_id="r2")

    async def ask() -> AskResult:
        await write(store, *turn("c", message="m3"), run_id="r3")
        return ANSWERED

    async with LiveAsk(store, "s1", "m3", ask) as live:
        assert [stored.sequence async for stored in live] == [7, 8, 9]
        assert await live.result() == ANSWERED


async def test_leaving_early_stops_waiting() -> None:
    """A request that was cancelled must leave no tasks behind."""
    store, asked = MemoryStreams(), asyncio.Event()

    async def ask() -> AskResult:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def first(live: AsyncIterator[StoredChunk]) -> Any:
        return await anext(live)

    async with LiveAsk(store, "s1", "m1", ask) as live:
        waiting = asyncio.create_task(first(aiter(live)))
        await asked.wait()
        await write(store, *turn("a"))
        assert (await waiting).sequence == 1
    await asyncio.sleep(0)
    names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]  # type: ignore[union-attr]
    assert not [name for name in names if "LiveAsk" in name or "ask" in name.split(".")[-1:]]


def test_streams_in_another_processs_memory_are_refused() -> None:
    """Waiting for them would be waiting for ever."""
    with pytest.raises(InvalidConfigError, match="memory"):
        stream_store_of([HelixPlugin(Settings())])
