"""How readers share one look at a stream, and who waits for whom."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from helix_temporal.errors import StoreUnavailableError, StreamDroppedError
from helix_temporal.models.streams import StreamLimits
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.streams.polling import Place, Polling
from helix_temporal.stores.streams.reader import Feed, News
from helix_temporal.stores.streams.rules import View
from helix_temporal.stores.streams.store import Streams
from helix_temporal.testing.contracts._streams_base import (
    a_delta,
    a_stream,
    deltas,
    reader_on,
    rest,
    sequences,
    settled,
    take,
    writer_on,
)


def feeds_of(streams: Streams) -> list[Feed]:
    """The feeds of this event loop."""
    return [*streams._feeds.get(asyncio.get_running_loop(), {}).values()]


class CountedStreams(MemoryStreams):
    """Counts what readers ask."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.looks = self.waits = 0
        self.broken = False

    async def _read_view(self, stream_id: str, after: int, limit: int) -> View | None:
        self.looks += 1
        if self.broken:
            raise StoreUnavailableError("away")
        return await super()._read_view(stream_id, after, limit)

    async def _wait_for_news(self, view: View, after: int, seconds: float) -> News:
        self.waits += 1
        return await super()._wait_for_news(view, after, seconds)


async def test_readers_that_have_caught_up_ask_nothing() -> None:
    """Each chunk costs the store one look, however many watch."""
    streams = CountedStreams()
    stream_id = await a_stream(streams)
    writer = await writer_on(streams, stream_id)
    reading = [asyncio.create_task(rest(await reader_on(streams, stream_id))) for _ in range(100)]
    await settled()
    before = streams.looks
    for chunk in deltas(20):
        await writer.write(chunk)
        await asyncio.sleep(0.001)
    assert streams.looks - before <= 21
    await streams.end_stream(stream_id, status="completed")
    assert all(sequences(each) == [*range(1, 21)] for each in await asyncio.gather(*reading))


async def test_nobody_waits_when_nobody_reads() -> None:
    """The last reader to leave ends the look at the stream: left, closed, or forgotten."""
    streams = CountedStreams(limits=StreamLimits(abandoned_after=4.0))
    stream_id = await a_stream(streams, 1)
    closed, forgotten = await reader_on(streams, stream_id), await reader_on(streams, stream_id)
    for reader in (closed, forgotten):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(take(reader, 2), 0.01)
    await closed.aclose()
    del forgotten, reader
    async with asyncio.timeout(20):
        while [each for each in feeds_of(streams) if each.running]:  # noqa: ASYNC110 (a feed tells nobody)
            await asyncio.sleep(0.01)


async def test_a_reader_that_was_given_up_in_the_middle_holds_nothing() -> None:
    """A browser that leaves cancels its task."""
    streams = CountedStreams()
    stream_id = await a_stream(streams, 1)
    reader = await reader_on(streams, stream_id)
    reading = asyncio.create_task(rest(reader))
    await settled()
    reading.cancel()
    await asyncio.wait([reading])
    await reader.aclose()
    await settled()
    assert not [each for each in feeds_of(streams) if each.running]


async def test_a_store_that_is_away_is_told_to_all_and_can_come_back() -> None:
    """Each of them reads on from where it was."""
    streams = CountedStreams(limits=StreamLimits(abandoned_after=4.0))
    stream_id = await a_stream(streams, 1)
    readers = [await reader_on(streams, stream_id) for _ in range(3)]
    reading = [asyncio.create_task(take(each, 2)) for each in readers]
    await settled()
    streams.broken = True
    await (await writer_on(streams, stream_id)).write(a_delta("2"))
    results = await asyncio.gather(*reading, return_exceptions=True)
    assert {type(each) for each in results} == {StreamDroppedError}
    streams.broken = False
    for reader in readers:
        assert reader.last_sequence == 1
        assert sequences(await take(reader, 1)) == [2]


async def test_a_reader_far_behind_reads_for_itself() -> None:
    """The others' memory is bounded."""
    streams = CountedStreams()
    stream_id = await a_stream(streams)
    writer = await writer_on(streams, stream_id)
    slow, quick = await reader_on(streams, stream_id), await reader_on(streams, stream_id)
    await writer.write(a_delta("1"))
    await take(slow, 1)
    waiting = asyncio.create_task(take(slow, 1))
    following = asyncio.create_task(take(quick, 5001))
    await settled()
    for start in range(2, 5002, 250):
        await writer.write_many(deltas(250, start))
        await asyncio.sleep(0)
    assert sequences(await following) == [*range(1, 5002)]
    assert sequences(await waiting) == [2]
    assert all(len(feed._recent) <= 1000 + 500 for feed in feeds_of(streams))
    assert sequences(await take(slow, 4999)) == [*range(3, 5002)]
    for reader in (slow, quick):
        await reader.aclose()


class Asked:
    """Where streams are, and how often that was asked."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.asked: list[list[str]] = []

    async def __call__(self, stream_ids: Sequence[str]) -> dict[str, Place]:
        """What `Polling` calls."""
        self.asked.append(sorted(stream_ids))
        return {each: self.places[each] for each in stream_ids if each in self.places}


async def test_one_statement_asks_for_all_streams() -> None:
    """The database is asked as often for a hundred streams as for one."""
    asked = Asked()
    asked.places = {"a": ("m", 1, 0), "b": ("m", 1, 0)}
    polling = Polling(asked, "a test")
    waits = [asyncio.create_task(polling.wait_for_news(each, ("m", 1, 0), 30)) for each in ("a", "b")]
    await asyncio.sleep(0.05)
    asked.places["a"] = ("m", 2, 0)
    await waits[0]
    assert not waits[1].done()
    del asked.places["b"]
    await waits[1]
    assert ["a", "b"] in asked.asked
    await asyncio.sleep(0.15)
    count = len(asked.asked)
    await asyncio.sleep(0.15)
    assert len(asked.asked) == count
    await polling.close()


async def test_a_wait_has_an_end_of_its_own() -> None:
    """Readers look then whether the producer is silent."""
    asked = Asked()
    asked.places = {"a": ("m", 1, 0)}
    polling = Polling(asked, "a test")
    await polling.wait_for_news("a", ("m", 1, 0), 0.03)
    assert polling._waiting == {}
    await polling.close()


async def test_a_cancel_that_comes_with_the_news_is_a_cancel() -> None:
    """A store that was closed in that instant waited for its reader for ever, before Python 3.12."""
    asked = Asked()
    asked.places = {"a": ("m", 1, 0)}
    polling = Polling(asked, "a test")
    waits = asyncio.create_task(polling.wait_for_news("a", ("m", 1, 0), 30))
    await asyncio.sleep(0.03)
    _, came = polling._waiting["a"]
    came.set_result(None)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    await polling.close()


async def test_who_waits_learns_that_the_database_is_away() -> None:
    """And may wait again."""

    async def away(_: Sequence[str]) -> dict[str, Place]:
        raise StoreUnavailableError("away")

    polling = Polling(away, "a test")
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await polling.wait_for_news("a", ("m", 1, 0), 30)
    await polling.close()
