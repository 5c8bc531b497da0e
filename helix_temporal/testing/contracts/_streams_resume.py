"""Coming back: from any place, any number of times, to what any attempt wrote."""

import asyncio
import random

import pytest

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.stream_view import StreamView
from helix_temporal.models.streams import ChunkBase, RunEnded, RunStarted, StepCommitted, StepStarted
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.testing.contracts._streams_base import (
    StreamFixtures,
    a_delta,
    a_stream,
    deltas,
    nothing,
    reader_on,
    rest,
    sequences,
    settled,
    stored_in,
    take,
    texts,
    writer_on,
)


class StreamResuming(StreamFixtures):
    """See the module."""

    async def test_a_place_is_meant_with_or_without_itself(self, streams: StreamStore) -> None:
        """Both readings are in use: a page says "after", a program "from"."""
        stream_id = await a_stream(streams, 20)
        for place, first in (
            ({"from_sequence": 10}, 10),
            ({"after_sequence": 10}, 11),
            ({"after_sequence": 0}, 1),
            ({}, 1),
        ):
            (stored,) = await take(await reader_on(streams, stream_id, **place), 1)
            assert stored.sequence == first
        both = {"from_sequence": 1, "after_sequence": 1}
        for wrong in (both, {"from_sequence": 0}, {"after_sequence": -1}):
            with pytest.raises(InvalidRequestError):
                await reader_on(streams, stream_id, **wrong)

    async def test_past_the_end_it_waits_or_ends(self, streams: StreamStore) -> None:
        """A consumer that saw all comes back for what is next."""
        stream_id = await a_stream(streams, 5)
        writer = await writer_on(streams, stream_id)
        late = asyncio.create_task(take(await reader_on(streams, stream_id, from_sequence=8), 1))
        following = asyncio.create_task(take(await reader_on(streams, stream_id, after_sequence=5), 2))
        await settled()
        await writer.write_many(deltas(4, 6))
        assert sequences(await late) == [8]
        assert sequences(await following) == [6, 7]
        await streams.end_stream(stream_id, status="completed")
        assert await rest(await reader_on(streams, stream_id, after_sequence=9)) == []
        assert await rest(await reader_on(streams, stream_id, from_sequence=50)) == []

    async def test_a_hundred_reconnects_lose_and_double_nothing(
        self, streams: StreamStore, another: StreamStore
    ) -> None:
        """Phones lose their connections all the time."""
        stream_id = await a_stream(streams)
        writer = await writer_on(streams, stream_id)
        chance = random.Random(7)
        found = nothing()

        async def read() -> None:
            for connection in range(100):
                store = streams if connection % 2 else another
                reader = await reader_on(store, stream_id, after_sequence=len(found))
                found.extend(await take(reader, chance.randrange(1, 8)))
                await reader.aclose()
            last = await reader_on(streams, stream_id, after_sequence=len(found))
            found.extend(await rest(last))

        reading = asyncio.create_task(read())
        for start in range(1, 1001, 10):
            await writer.write_many(deltas(10, start))
            await asyncio.sleep(0)
        await streams.end_stream(stream_id, status="completed")
        await reading
        assert sequences(found) == [*range(1, 1001)]
        assert texts(found) == [str(number) for number in range(1, 1001)]

    async def test_a_run_can_be_read_alone(self, streams: StreamStore) -> None:
        """The stream of a session goes on from turn to turn; who asked now is shown this turn."""
        stream_id = await a_stream(streams, 3, run_id="r1")
        writer = await writer_on(streams, stream_id, run_id="r2")
        await writer.write_many(deltas(2, 4))
        await (await writer_on(streams, stream_id, run_id="r1")).write(a_delta("late"))
        await writer.write(a_delta("6"))
        await streams.end_stream(stream_id, status="completed")
        reader = await reader_on(streams, stream_id, run_id="r2")
        assert texts(await rest(reader)) == ["4", "5", "6"]
        assert reader.last_sequence == 7

    async def test_only_the_attempt_that_counts_is_shown(self, streams: StreamStore) -> None:
        """The first one's text disappears, also what its worker still writes."""
        stream_id = await a_stream(streams)
        first = await writer_on(streams, stream_id, step_id="s1")
        await first.write(StepStarted(step_id="s1", message_id="a"))
        await first.write(a_delta("He", "a"))
        second = await writer_on(streams, stream_id, step_id="s1", attempt=2)
        await second.write(StepStarted(step_id="s1", message_id="b", attempt=2))
        await second.write(a_delta("Good ", "b"))
        await first.write(a_delta("llo", "a"))
        await second.write(a_delta("day", "b"))
        await second.write(StepCommitted(step_id="s1", message_id="b", position=2))
        await streams.end_stream(stream_id, status="completed")
        view = StreamView()
        for stored in await stored_in(streams, stream_id):
            view.feed(stored)
        assert view.text == "Good day"
        assert [each.committed for each in view.messages] == [True]

    async def test_an_attempt_that_was_committed_after_all_is_shown(self, streams: StreamStore) -> None:
        """Its worker died between the commit and the word of it; the next attempt found it there."""
        stream_id = await a_stream(streams)
        first = await writer_on(streams, stream_id, step_id="s1")
        await first.write(StepStarted(step_id="s1", message_id="a"))
        await first.write(a_delta("Hello", "a"))
        second = await writer_on(streams, stream_id, step_id="s1", attempt=2)
        await second.write(StepCommitted(step_id="s1", message_id="a", position=2))
        await streams.end_stream(stream_id, status="completed")
        view = StreamView()
        for stored in await stored_in(streams, stream_id):
            view.feed(stored)
        assert view.text == "Hello"

    async def test_what_is_loaded_and_what_follows_fit(self, streams: StreamStore) -> None:
        """A page loads the session as of some sequence and reads on: 500 times, at any time of a run."""
        stream_id = await a_stream(streams)
        writer = await writer_on(streams, stream_id)
        await writer.write(RunStarted(turn=1, message_ids=("u1",)))
        run: list[ChunkBase] = []
        for step in range(5):
            run.append(StepStarted(step_id=f"s{step}", message_id=f"m{step}"))
            run.extend(a_delta(f"{step}.{at} ", f"m{step}") for at in range(48))
            run.append(StepCommitted(step_id=f"s{step}", message_id=f"m{step}", position=step))
        run.append(RunEnded(status="completed", message_id="m4", position=4))
        await writer.write_many(run)
        await streams.end_stream(stream_id, status="completed")
        every = await stored_in(streams, stream_id)
        whole = StreamView()
        for stored in every:
            whole.feed(stored)
        reader = await reader_on(streams, stream_id)
        later = await rest(reader)
        assert (whole.status, whole.text.count(" ")) == ("completed", 240)
        chance = random.Random(91)
        for _ in range(500):
            snapshot, overlap = chance.randrange(len(every)), chance.randrange(20)
            view = StreamView()
            for stored in (*every[:snapshot], *later[max(0, snapshot - overlap) :]):
                view.feed(stored)
            assert (view.text, view.status) == (whole.text, whole.status)
