"""Reading: order, live and late, many at a time, silence."""

import asyncio

import pytest

from helix_temporal.errors import StreamAbandonedError, StreamNotFoundError, StreamTruncatedError
from helix_temporal.models.streams import Heartbeat, StreamLimits, TextChunk
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.testing.contracts._streams_base import (
    SMALL,
    MakeStreams,
    StreamFixtures,
    a_delta,
    a_stream,
    deltas,
    plain_reader_on,
    reader_on,
    rest,
    sequences,
    settled,
    stored_in,
    take,
    texts,
    writer_on,
)


class StreamReadContract(StreamFixtures):
    """See the module."""

    async def test_whenever_a_reader_comes_it_sees_all(
        self, streams: StreamStore, another: StreamStore
    ) -> None:
        """Before, during and after the writing: the same chunks in the same order, then the end."""
        stream_id = await a_stream(streams)
        writer = await writer_on(streams, stream_id)
        tasks = [asyncio.create_task(rest(await reader_on(another, stream_id)))]
        await settled()
        for chunk in deltas(50):
            await writer.write(chunk)
        tasks.append(asyncio.create_task(rest(await reader_on(another, stream_id))))
        tasks.append(asyncio.create_task(rest(await reader_on(streams, stream_id))))
        await writer.write_many(deltas(50, 51))
        await streams.end_stream(stream_id, status="completed")
        tasks.append(asyncio.create_task(rest(await reader_on(streams, stream_id))))
        for found in await asyncio.gather(*tasks):
            assert texts(found) == [str(number) for number in range(1, 101)]

    async def test_a_plain_reader_gives_chunks(self, streams: StreamStore) -> None:
        """Who needs no places gets none."""
        stream_id = await a_stream(streams, 2)
        reader = await plain_reader_on(streams, stream_id)
        await streams.end_stream(stream_id, status="completed")
        found = [chunk async for chunk in reader]
        assert [chunk.delta for chunk in found if isinstance(chunk, TextChunk)] == ["1", "2"]
        assert (reader.status, reader.info.outcome) == ("ended", "completed")

    async def test_a_chunk_is_read_as_it_comes(self, streams: StreamStore, another: StreamStore) -> None:
        """A person watches: nothing waits for more."""
        stream_id = await a_stream(streams)
        writer, reader = await writer_on(streams, stream_id), await reader_on(another, stream_id)
        for number in range(1, 6):
            waiting = asyncio.create_task(take(reader, 1))
            await settled()
            await writer.write(a_delta(str(number)))
            (stored,) = await waiting
            assert stored.sequence == number

    async def test_a_slow_reader_holds_nobody_up(self, streams: StreamStore) -> None:
        """It gets all the same what is kept."""
        stream_id = await a_stream(streams)
        writer = await writer_on(streams, stream_id)
        slow, quick = await reader_on(streams, stream_id), await reader_on(streams, stream_id)
        await writer.write(a_delta("1"))
        assert texts(await take(slow, 1)) == ["1"]
        reading = asyncio.create_task(rest(quick))
        for start in range(2, 3002, 500):
            await writer.write_many(deltas(500, start))
        await streams.end_stream(stream_id, status="completed")
        assert sequences(await reading) == [*range(1, 3002)]
        assert sequences(await rest(slow)) == [*range(2, 3002)]

    async def test_many_read_one_stream(self, streams: StreamStore) -> None:
        """An audience costs the store no more than one reader does."""
        stream_id = await a_stream(streams)
        writer = await writer_on(streams, stream_id)
        readers = [asyncio.create_task(rest(await reader_on(streams, stream_id))) for _ in range(50)]
        await settled()
        for chunk in deltas(20):
            await writer.write(chunk)
        await streams.end_stream(stream_id, status="completed")
        for found in await asyncio.gather(*readers):
            assert sequences(found) == [*range(1, 21)]

    async def test_a_reader_can_stop_waiting_and_go_on(self, streams: StreamStore) -> None:
        """A server-sent event stream sends a comment now and then; no chunk is lost by that."""
        stream_id = await a_stream(streams, 1)
        writer, reader = await writer_on(streams, stream_id), await reader_on(streams, stream_id)
        await take(reader, 1)
        for number in (2, 3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await take(reader, 1)
            await writer.write(a_delta("x"))
            assert sequences(await take(reader, 1)) == [number]

    async def test_a_closed_reader_reads_no_more(self, streams: StreamStore) -> None:
        """Its browser is gone."""
        stream_id = await a_stream(streams, 2)
        reader = await reader_on(streams, stream_id)
        await take(reader, 1)
        await reader.aclose()
        assert await rest(reader) == []

    async def test_a_closed_store_can_be_used_again(self, streams: StreamStore) -> None:
        """Its connections are opened anew; a reader that waited goes on waiting."""
        stream_id = await a_stream(streams, 1)
        reader = await reader_on(streams, stream_id)
        reading = asyncio.create_task(take(reader, 2))
        await settled()
        await streams.close()
        await (await writer_on(streams, stream_id)).write(a_delta("x"))
        assert sequences(await reading) == [1, 2]
        await reader.aclose()

    async def test_a_silent_producer_is_given_up(self, make: MakeStreams) -> None:
        """It was killed, and nobody will end its stream; the reader must not wait for ever."""
        streams = make(StreamLimits(abandoned_after=0.4))
        stream_id = await a_stream(streams, 2)
        reader = await reader_on(streams, stream_id)
        assert len(await take(reader, 2)) == 2
        with pytest.raises(StreamAbandonedError):
            await take(reader, 1)

    async def test_a_patient_reader_waits_however_long_a_producer_is_silent(self, make: MakeStreams) -> None:
        """Between two turns nobody writes for hours, and whoever looks on wants the next one."""
        streams = make(StreamLimits(abandoned_after=0.1))
        stream_id = await a_stream(streams, 2)
        writer = await writer_on(streams, stream_id)
        reader = await streams.create_resumable_reader(stream_id, patient=True)
        assert reader is not None
        reading = asyncio.create_task(take(reader, 3))
        await asyncio.sleep(0.5)
        await writer.write(a_delta("x"))
        assert sequences(await reading) == [1, 2, 3]
        await reader.aclose()

    async def test_a_producer_that_beats_is_not_given_up(self, make: MakeStreams) -> None:
        """A model may think for longer than that."""
        streams = make(StreamLimits(abandoned_after=2.5))
        stream_id = await a_stream(streams)
        writer, reader = await writer_on(streams, stream_id), await reader_on(streams, stream_id)
        reading = asyncio.create_task(rest(reader))
        for number in range(8):
            await asyncio.sleep(0.4)
            await (writer.beat() if number % 2 else writer.write(Heartbeat()))
        await streams.end_stream(stream_id, status="completed")
        assert sequences(await reading) == [1, 2, 3, 4]

    async def test_a_trimmed_place_is_an_error(self, make: MakeStreams) -> None:
        """Never a gap that nobody is told of."""
        streams = make(SMALL)
        stream_id = await a_stream(streams)
        writer, slow = await writer_on(streams, stream_id), await reader_on(streams, stream_id)
        await writer.write_many(deltas(3))
        assert sequences(await take(slow, 2)) == [1, 2]
        for chunk in deltas(17, 4):
            await writer.write(chunk)
        info = await streams.get_info(stream_id)
        assert info is not None
        assert (info.chunk_count, info.first_sequence, info.last_sequence) == (20, 16, 20)
        for reader in (
            await reader_on(streams, stream_id),
            await reader_on(streams, stream_id, from_sequence=15),
            await reader_on(streams, stream_id, after_sequence=14),
        ):
            with pytest.raises(StreamTruncatedError) as missed:
                await take(reader, 1)
            assert missed.value.facts["first_available"] == 16
        reader = await reader_on(streams, stream_id, from_sequence=16)
        await streams.end_stream(stream_id, status="completed")
        assert sequences(await rest(reader)) == [16, 17, 18, 19, 20]

    async def test_no_limit_keeps_all(self, make: MakeStreams) -> None:
        """Zero means that."""
        streams = make(StreamLimits(max_chunks=0))
        stream_id = await a_stream(streams, 600)
        await streams.end_stream(stream_id, status="completed")
        assert len(await stored_in(streams, stream_id)) == 600

    async def test_an_old_stream_is_gone(self, make: MakeStreams) -> None:
        """Streams end by themselves, so that nobody has to clean up after every conversation."""
        streams = make(StreamLimits(ttl=0.3))
        stream_id = await a_stream(streams, 1)
        writer = await writer_on(streams, stream_id)
        await writer.write(a_delta("x"), dedup_key="k")
        await asyncio.sleep(0.7)
        assert await streams.get_info(stream_id) is None
        assert await streams.create_reader(stream_id) is None
        again = await writer_on(streams, stream_id)
        assert await again.write(a_delta("x"), dedup_key="k") == 1

    async def test_a_stream_that_goes_away_ends_its_readers(self, make: MakeStreams) -> None:
        """They would wait for chunks that cannot come; a new stream of that id is not theirs."""
        streams = make(StreamLimits(abandoned_after=4.0))
        stream_id = await a_stream(streams, 2)
        reader = await reader_on(streams, stream_id)
        await take(reader, 2)
        reading = asyncio.create_task(take(reader, 1))
        await settled()
        await streams.delete_stream(stream_id)
        await (await writer_on(streams, stream_id)).write_many(deltas(3))
        with pytest.raises(StreamNotFoundError):
            await reading
