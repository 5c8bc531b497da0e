"""Runs that an earlier execution left at work on a stream: which of them an open ends, and what it costs."""

import asyncio
from typing import Any

import pytest

from helix_temporal.activities import stream_buffer
from helix_temporal.activities.live import Streaming
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.streams import (
    DEFAULT_LIMITS,
    ChunkBase,
    RunEnded,
    RunStarted,
    StreamInfo,
    StreamLimits,
    TextChunk,
)
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.streams.rules import Batch, Refused, Written

OLD, NEW = 5, 9


class Shaky(MemoryStreams):
    """Which hangs, or fails the next write of a chunk, as told."""

    hangs = fails = False

    async def get_info(self, stream_id: str) -> StreamInfo | None:
        """See the class."""
        if self.hangs:
            await asyncio.Event().wait()
        return await super().get_info(stream_id)

    async def _append_batch(self, batch: Batch) -> Written | Refused:
        if batch.entries and self.fails:
            raise StoreUnavailableError("down")
        return await super()._append_batch(batch)


async def left(*chunks: ChunkBase, limits: StreamLimits = DEFAULT_LIMITS) -> Shaky:
    """A store in which the run ``r1`` of the session ``s`` has shown this."""
    store = Shaky(limits)
    writer = await store.create_writer("s", agent_id="r1", fence=OLD)
    await writer.write_many(chunks)
    return store


def ends(store: MemoryStreams) -> list[Any]:
    """How runs have ended on the stream."""
    return [chunk.status for chunk in store.get_chunks_sync("s") if isinstance(chunk, RunEnded)]


BEGUN = RunStarted(turn=3, message_ids=("m",))


async def test_a_turn_that_is_not_in_the_thread_was_left() -> None:
    """Its execution was terminated before its first answer was there."""
    store = await left(BEGUN)
    assert await Streaming(store).find_run_at_work("s", NEW, SessionRecord(turns=2, run="r0")) == "r1"


async def test_a_turn_that_stands_is_not_taken_back_on_the_page() -> None:
    """Only the word of its end was lost, with a store that was away: the answer is in the history."""
    store = await left(BEGUN)
    assert await Streaming(store).find_run_at_work("s", NEW, SessionRecord(turns=3, run="r1")) is None
    assert await Streaming(store).find_run_at_work("s", NEW, SessionRecord(turns=5, run="r4")) is None


async def test_a_turn_whose_beginning_is_gone_is_known_by_its_run() -> None:
    """Where little is kept, its number went with its beginning."""
    store = await left(BEGUN, *[TextChunk(delta="x")] * 9, limits=StreamLimits(max_chunks=5))
    assert await Streaming(store).find_run_at_work("s", NEW, SessionRecord(turns=3, run="r1")) is None
    assert await Streaming(store).find_run_at_work("s", NEW, SessionRecord(turns=3, run="r0")) == "r1"


async def test_an_open_that_dies_before_the_end_is_written_is_done_again() -> None:
    """Its writer had shut out the left execution by then, which must not look as if the turn were ours."""
    store = await left(BEGUN)
    streaming, state = Streaming(store), SessionRecord(turns=2)
    store.fails = True
    await streaming.tell_left_behind("s", "r1", NEW)
    store.fails = False
    assert ends(store) == []
    run = await streaming.find_run_at_work("s", NEW, state)
    assert run == "r1"
    await streaming.tell_left_behind("s", run, NEW)
    assert ends(store) == ["superseded"]
    assert await streaming.find_run_at_work("s", NEW, state) is None


async def test_a_late_attempt_of_an_open_leaves_the_turn_that_followed_alone() -> None:
    """It was held up until a later attempt had opened the session, and its first turn had begun."""
    store = await left(BEGUN)
    writer = await store.create_writer("s", agent_id="r2", fence=NEW)
    await writer.write(BEGUN)
    assert await Streaming(store).find_run_at_work("s", NEW, SessionRecord(turns=2)) is None


async def test_a_store_that_hangs_does_not_hold_up_an_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream decides nothing, least of all whether a session can be asked."""
    monkeypatch.setattr(stream_buffer, "GRACE", 0.01)
    store = await left(BEGUN)
    store.hangs = True
    assert await Streaming(store).find_run_at_work("s", NEW, SessionRecord()) is None


async def test_where_nothing_is_shown_nothing_is_left() -> None:
    """Sessions without a stream store are opened as ever."""
    assert await Streaming().find_run_at_work("s", NEW, SessionRecord()) is None
