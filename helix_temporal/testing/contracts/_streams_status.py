"""Ends, failures, pauses, resets."""

import time
from typing import Any, Final

import pytest

from helix_temporal.errors import (
    InvalidRequestError,
    StreamClosedError,
    StreamFailedError,
    StreamNotFoundError,
)
from helix_temporal.models.states import ErrorInfo
from helix_temporal.models.streams import StreamResync
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.testing.builders import an_id
from helix_temporal.testing.contracts._streams_base import (
    SMALL,
    MakeStreams,
    StreamFixtures,
    a_delta,
    a_stream,
    deltas,
    reader_on,
    rest,
    sequences,
    stored_in,
    take,
    texts,
    writer_on,
)

CLOCKS_DIFFER: Final = 60_000
"""Milliseconds that a store's clock may be behind the test's."""


class StreamStatuses(StreamFixtures):
    """See the module."""

    async def test_an_end_says_how(self, streams: StreamStore) -> None:
        """Readers would otherwise take every end for success."""
        stream_id = await a_stream(streams, 2)
        await streams.end_stream(stream_id, status="interrupted", output={"a": [1, None]})
        info = await streams.get_info(stream_id)
        assert info is not None
        assert (info.status, info.outcome, info.output) == ("ended", "interrupted", {"a": [1, None]})
        assert info.ended_at is not None
        assert info.ended_at >= info.created_at

    async def test_an_end_without_a_status_is_a_mistake(self, streams: StreamStore) -> None:
        """It has no default."""
        stream_id = await a_stream(streams)
        end: Any = streams.end_stream
        with pytest.raises(TypeError):
            await end(stream_id)
        with pytest.raises(InvalidRequestError):
            await end(stream_id, status="failed")

    async def test_the_first_end_counts(self, streams: StreamStore, another: StreamStore) -> None:
        """A repeat is nothing; another end is a conflict, and changes nothing."""
        stream_id = await a_stream(streams, 1)
        await streams.end_stream(stream_id, status="completed", output=1)
        before = await streams.get_info(stream_id)
        await another.end_stream(stream_id, status="completed", output=2)
        for change in (
            another.end_stream(stream_id, status="aborted"),
            another.fail_stream(stream_id, "no"),
            another.pause_stream(stream_id),
            another.resume_stream(stream_id),
        ):
            with pytest.raises(StreamClosedError):
                await change
        assert await streams.get_info(stream_id) == before

    async def test_a_failure_counts_once(self, streams: StreamStore) -> None:
        """As an end does."""
        stream_id = await a_stream(streams, 1)
        await streams.fail_stream(stream_id, ErrorInfo(type="ModelRequestError", message="bad key"))
        await streams.fail_stream(stream_id, "again")
        with pytest.raises(StreamClosedError):
            await streams.end_stream(stream_id, status="completed")
        info = await streams.get_info(stream_id)
        assert info is not None
        assert (info.status, info.error) == (
            "failed",
            ErrorInfo(type="ModelRequestError", message="bad key"),
        )

    async def test_an_ended_stream_takes_no_chunks(self, streams: StreamStore) -> None:
        """What comes later nobody reads."""
        stream_id = await a_stream(streams)
        writer = await writer_on(streams, stream_id)
        await streams.end_stream(stream_id, status="completed")
        for write in (writer.write(a_delta("x")), writer.beat(), writer_on(streams, stream_id)):
            with pytest.raises(StreamClosedError) as refused:
                await write
            assert refused.value.facts["status"] == "ended"
        info = await streams.get_info(stream_id)
        assert info is not None
        assert info.chunk_count == 0

    async def test_a_failed_stream_is_read_to_its_end_first(self, streams: StreamStore) -> None:
        """What was said before the failure was said."""
        stream_id = await a_stream(streams, 3)
        reader = await reader_on(streams, stream_id)
        await streams.fail_stream(stream_id, "out of tokens")
        found = await take(reader, 3)
        with pytest.raises(StreamFailedError, match="out of tokens") as failed:
            await take(reader, 1)
        assert failed.value.facts["reason"] == "out of tokens"
        assert (texts(found), reader.status) == (["1", "2", "3"], "failed")

    async def test_a_large_output_is_left_out_and_named(self, make: MakeStreams) -> None:
        """The end itself is never refused: readers would wait for ever."""
        streams = make(SMALL)
        stream_id = await a_stream(streams, 1)
        await streams.end_stream(stream_id, status="completed", output="x" * 5000)
        info = await streams.get_info(stream_id)
        assert info is not None
        assert (info.status, info.output, info.output_bytes) == ("ended", None, 5002)
        other = await a_stream(streams, 1)
        await streams.fail_stream(other, "x" * 5000)
        info = await streams.get_info(other)
        assert info is not None
        assert info.status == "failed"

    async def test_nothing_can_be_changed_of_no_stream(self, streams: StreamStore) -> None:
        """A name that was misspelled must not look like a success."""
        for change in (
            streams.end_stream("nobody", status="completed"),
            streams.fail_stream("nobody", "x"),
            streams.pause_stream("nobody"),
            streams.resume_stream("nobody"),
            streams.reset_stream("nobody"),
        ):
            with pytest.raises(StreamNotFoundError):
                await change

    async def test_a_paused_stream_ends_readers_and_goes_on(
        self, streams: StreamStore, another: StreamStore
    ) -> None:
        """While a person is asked nobody holds a connection; afterwards the count goes on."""
        stream_id = await a_stream(streams, 2)
        reader = await reader_on(another, stream_id)
        await streams.pause_stream(stream_id)
        await streams.pause_stream(stream_id)
        assert (sequences(await rest(reader)), reader.status) == ([1, 2], "paused")
        with pytest.raises(StreamClosedError):
            await writer_on(streams, stream_id)
        await another.resume_stream(stream_id)
        await another.resume_stream(stream_id)
        writer = await writer_on(streams, stream_id)
        assert await writer.write(a_delta("x")) == 3
        again = await reader_on(streams, stream_id, after_sequence=reader.last_sequence)
        await streams.end_stream(stream_id, status="completed")
        assert sequences(await rest(again)) == [3]

    async def test_a_writer_can_resume(self, streams: StreamStore) -> None:
        """The step that follows the answer writes on without asking first."""
        stream_id = await a_stream(streams, 1)
        await streams.pause_stream(stream_id)
        writer = await writer_on(streams, stream_id, resume=True)
        assert await writer.write(a_delta("x")) == 2

    async def test_an_operation_is_done_once(self, streams: StreamStore) -> None:
        """A pause that is repeated after the resume must not pause again."""
        stream_id = await a_stream(streams, 1)
        await streams.pause_stream(stream_id, operation_id="op-1")
        await streams.resume_stream(stream_id, operation_id="op-2")
        await streams.pause_stream(stream_id, operation_id="op-1")
        info = await streams.get_info(stream_id)
        assert info is not None
        assert info.status == "active"
        first = await streams.reset_stream(stream_id, operation_id="op-3")
        assert await streams.reset_stream(stream_id, operation_id="op-3") == first

    async def test_a_reset_drops_what_was_and_counts_on(self, streams: StreamStore) -> None:
        """A consumer that comes back with a place from before learns that it is void."""
        now = int(time.time() * 1000)
        stream_id = await a_stream(streams, 3)
        slow = await reader_on(streams, stream_id)
        await take(slow, 1)
        await streams.end_stream(stream_id, status="interrupted")
        at = await streams.reset_stream(stream_id, reason="regenerated")
        assert at >= now - CLOCKS_DIFFER
        writer = await writer_on(streams, stream_id)
        await writer.write_many(deltas(2))
        await streams.end_stream(stream_id, status="completed")
        found = await stored_in(streams, stream_id)
        resync = found[0].chunk
        assert isinstance(resync, StreamResync)
        assert (resync.reason, resync.position) == ("regenerated", 3)
        assert sequences(found) == [at, at + 1, at + 2]
        later = await reader_on(streams, stream_id, after_sequence=2)
        assert sequences(await rest(later)) == [at, at + 1, at + 2]
        assert sequences(await rest(slow))[-3:] == [at, at + 1, at + 2]
        info = await streams.get_info(stream_id)
        assert info is not None
        assert (info.chunk_count, info.first_sequence, info.outcome) == (6, at, "completed")

    async def test_a_reset_leaps_over_numbers_that_were_taken_back(
        self, streams: StreamStore, another: StreamStore
    ) -> None:
        """Who read more than there is, before an older copy was restored, passes no chunk over."""
        stream_id = await a_stream(streams, 3)
        reader = await reader_on(another, stream_id, after_sequence=500)
        first = await streams.reset_stream(stream_id)
        writer = await writer_on(another, stream_id)
        await writer.write_many(deltas(600))
        await streams.end_stream(stream_id, status="completed")
        assert sequences(await rest(reader)) == [*range(first, first + 601)]
        late = await reader_on(streams, stream_id, after_sequence=500)
        assert sequences(await rest(late)) == [*range(first, first + 601)]

    async def test_each_reset_counts_higher(self, make: MakeStreams) -> None:
        """Also where several come in one millisecond; and old chunks are trimmed as before."""
        streams = make(SMALL)
        stream_id = await a_stream(streams, 2)
        places = [await streams.reset_stream(stream_id) for _ in range(5)]
        assert places == sorted(set(places))
        writer = await writer_on(streams, stream_id)
        await writer.write_many(deltas(7))
        await streams.end_stream(stream_id, status="completed")
        last = places[-1] + 7
        assert sequences(await rest(await reader_on(streams, stream_id, after_sequence=last - 5))) == [
            *range(last - 4, last + 1)
        ]
        info = await streams.get_info(stream_id)
        assert info is not None
        assert (info.chunk_count, info.first_sequence, info.last_sequence) == (14, last - 4, last)

    async def test_a_reset_forgets_dedup_keys(self, streams: StreamStore, another: StreamStore) -> None:
        """Their chunks are gone: what is told again is to be read again."""
        stream_id = await a_stream(streams)
        writer = await writer_on(streams, stream_id)
        await writer.write(a_delta("a"), dedup_key="k")
        at = await another.reset_stream(stream_id)
        assert await writer.write(a_delta("a"), dedup_key="k") == at + 1
        assert await (await writer_on(another, stream_id)).write(a_delta("a"), dedup_key="k") == at + 1

    async def test_a_stream_that_is_behind_what_is_known_of_it_is_reset(
        self, streams: StreamStore, another: StreamStore
    ) -> None:
        """Its store was restored from an older copy, and would give numbers out again."""
        stream_id = await a_stream(streams, 3)
        writer = await writer_on(another, stream_id, reached=5, fence=7)
        at = await writer.write(a_delta("x"))
        await writer_on(streams, stream_id, reached=5, fence=7)
        await streams.end_stream(stream_id, status="completed")
        found = await rest(await reader_on(streams, stream_id, after_sequence=5))
        assert sequences(found) == [at - 1, at]
        resync = found[0].chunk
        assert isinstance(resync, StreamResync)
        assert (resync.reason, resync.position) == ("restored", 3)

    async def test_a_stream_that_was_lost_begins_with_a_resync(self, streams: StreamStore) -> None:
        """The next one under its id counts from 1 only where nobody knows of another."""
        stream_id = an_id()
        writer = await writer_on(streams, stream_id, reached=1)
        at = await writer.write(a_delta("x"))
        assert at > 2
        await streams.end_stream(stream_id, status="completed")
        found = await rest(await reader_on(streams, stream_id, after_sequence=1))
        assert [each.chunk.type for each in found] == ["stream_resync", "text_delta"]

    async def test_a_stream_that_is_as_far_as_is_known_goes_on(
        self, streams: StreamStore, another: StreamStore
    ) -> None:
        """A resync costs readers all that they show."""
        stream_id = await a_stream(streams, 3)
        assert await (await writer_on(another, stream_id, reached=3)).write(a_delta("x")) == 4
        assert await (await writer_on(streams, stream_id, reached=2)).write(a_delta("x")) == 5

    async def test_a_deleted_stream_is_gone(self, streams: StreamStore, another: StreamStore) -> None:
        """With all of it; others stay."""
        gone, kept = await a_stream(streams, 2), await a_stream(streams, 1)
        assert await another.delete_stream(gone)
        assert not await another.delete_stream(gone)
        assert await streams.get_info(gone) is None
        assert await streams.get_info(kept) is not None
        await writer_on(streams, gone)
        info = await streams.get_info(gone)
        assert info is not None
        assert info.chunk_count == 0
