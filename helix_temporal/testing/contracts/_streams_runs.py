"""Runs that nobody ends any more: found from the end of the stream, and ended once."""

import asyncio

from helix_temporal.models.streams import RunEnded, RunStarted
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.stores.streams.runs import BegunRun, run_at_work
from helix_temporal.testing.builders import an_id
from helix_temporal.testing.contracts._streams_base import (
    SMALL,
    MakeStreams,
    StreamFixtures,
    deltas,
    stored_in,
    writer_on,
)

_OLD, _NEW = 5, 9
"""Epochs: of the execution that is gone, and of the one that looks."""


async def a_run(store: StreamStore, stream_id: str, run_id: str, words: int, turn: int = 1) -> None:
    """A run that speaks, and comes to no end."""
    writer = await writer_on(store, stream_id, run_id=run_id, fence=_OLD)
    await writer.write(RunStarted(turn=turn, message_ids=(f"{run_id}-asked",)))
    for start in range(0, words, 500):
        await writer.write_many(deltas(min(500, words - start), start + 1))


async def ends(store: StreamStore, stream_id: str, run_id: str, fence: int = _OLD) -> None:
    """Write the end of a run, as whoever opens the session does."""
    writer = await writer_on(store, stream_id, run_id=run_id, fence=fence)
    await writer.write(RunEnded(status="superseded", in_thread=False), dedup_key=f"run/{run_id}/ended")


class StreamRuns(StreamFixtures):
    """See the module."""

    async def test_a_run_without_an_end_is_found(self, streams: StreamStore) -> None:
        """Nothing else may know of it: a turn stands in the thread with its first answer."""
        stream_id = an_id()
        assert await run_at_work(streams, stream_id, below=_NEW) is None
        await a_run(streams, stream_id, "r1", 0)
        assert await run_at_work(streams, stream_id, below=_NEW) == BegunRun("r1", 1)
        await a_run(streams, stream_id, "r2", 1200, turn=2)
        assert await run_at_work(streams, stream_id, below=_NEW) == BegunRun("r2", 2)
        await a_run(streams, stream_id, "r3", 3000, turn=3)
        assert await run_at_work(streams, stream_id, below=_NEW) == BegunRun("r3", None)

    async def test_a_run_that_has_ended_is_not(self, streams: StreamStore) -> None:
        """Whoever has read its end would see it end again, another way."""
        stream_id = an_id()
        await a_run(streams, stream_id, "r1", 3)
        await ends(streams, stream_id, "r1")
        assert await run_at_work(streams, stream_id, below=_NEW) is None
        await (await writer_on(streams, stream_id, run_id="else")).write_many(deltas(20))
        assert await run_at_work(streams, stream_id, below=_NEW) is None

    async def test_a_run_that_may_be_alive_is_not(self, streams: StreamStore, another: StreamStore) -> None:
        """A late attempt of an open looks when the turn that followed it has begun."""
        stream_id = an_id()
        await a_run(streams, stream_id, "r1", 3)
        for fence in (_OLD - 1, _OLD):
            assert await run_at_work(another, stream_id, below=fence) is None
        assert await run_at_work(another, stream_id, below=_OLD + 1) == BegunRun("r1", 1)

    async def test_a_run_whose_beginning_was_trimmed_is_found(self, make: MakeStreams) -> None:
        """Where little is kept, the first answer of a turn may be longer than that."""
        streams, stream_id = make(SMALL), an_id()
        await a_run(streams, stream_id, "r1", 20)
        assert await run_at_work(streams, stream_id, below=_NEW) == BegunRun("r1", None)
        await ends(streams, stream_id, "r1")
        assert await run_at_work(streams, stream_id, below=_NEW) is None

    async def test_what_a_reset_dropped_is_not_found(self, streams: StreamStore) -> None:
        """Its readers were told to begin anew."""
        stream_id = an_id()
        await a_run(streams, stream_id, "r1", 3)
        await streams.reset_stream(stream_id)
        assert await run_at_work(streams, stream_id, below=_NEW) is None

    async def test_what_shows_no_run_has_none(self, streams: StreamStore) -> None:
        """Applications write to streams, too, and runs of theirs are theirs to end."""
        stream_id = an_id()
        await (await writer_on(streams, stream_id)).write_many(deltas(20))
        assert await run_at_work(streams, stream_id, below=_NEW) is None

    async def test_a_stream_that_has_ended_shows_none(self, streams: StreamStore) -> None:
        """It takes no chunks, and its readers wait for none."""
        stream_id = an_id()
        await a_run(streams, stream_id, "r1", 3)
        await streams.end_stream(stream_id, status="aborted")
        assert await run_at_work(streams, stream_id, below=_NEW) is None

    async def test_a_run_is_ended_once(self, streams: StreamStore, another: StreamStore) -> None:
        """Attempts of one open may look at the same time, and each finds the run."""
        stream_id = an_id()
        await a_run(streams, stream_id, "r1", 3)
        await asyncio.gather(*(ends(store, stream_id, "r1", _NEW - 1) for store in (streams, another) * 4))
        assert await run_at_work(streams, stream_id, below=_NEW) is None
        await streams.end_stream(stream_id, status="completed")
        types = [stored.chunk.type for stored in await stored_in(streams, stream_id)]
        assert types == ["run_started", *["text_delta"] * 3, "run_ended"]
