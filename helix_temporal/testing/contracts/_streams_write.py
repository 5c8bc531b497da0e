"""Writing: sequences, repeats, fences, sizes."""

import asyncio
from typing import Any

import pytest

from helix_temporal.errors import (
    FencedError,
    InvalidIdError,
    InvalidMessageError,
    InvalidRequestError,
    StreamClosedError,
    StreamNotFoundError,
    TooLargeError,
)
from helix_temporal.models.streams import (
    Custom,
    StepDiscarded,
    StreamLimits,
    TextChunk,
    Thinking,
    UnknownChunk,
)
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.testing.builders import an_id
from helix_temporal.testing.contracts._streams_base import (
    SMALL,
    MakeStreams,
    StreamFixtures,
    a_delta,
    a_stream,
    deltas,
    sequences,
    stored_in,
    texts,
    writer_on,
)

ODD_IDS = (
    "a", "A", "a:b", "a/b", "../a", "..", "*", "{x}", "a}b", "%", "é", "e\u0301", "🔒", "x" * 256,
    "x" * 255 + "y", "é" * 200,
)  # fmt: skip


class StreamWriting(StreamFixtures):
    """See the module."""

    async def test_a_writer_makes_the_stream_and_counts_from_one(self, streams: StreamStore) -> None:
        """Consumers can tell a gap from an end only if there are no gaps."""
        stream_id = an_id()
        writer = await writer_on(streams, stream_id)
        assert [await writer.write(each) for each in deltas(3)] == [1, 2, 3]
        assert await writer.write_many(deltas(2)) == [4, 5]
        info = await streams.get_info(stream_id)
        assert info is not None
        assert (info.status, info.chunk_count, info.first_sequence, info.last_sequence) == ("active", 5, 1, 5)
        assert 0 < info.created_at <= info.updated_at

    async def test_an_unknown_stream_is_nothing(self, streams: StreamStore) -> None:
        """A reader that comes before the writer tries again; it is no failure."""
        assert await streams.get_info("nobody") is None
        assert await streams.create_reader("nobody") is None
        assert await streams.create_resumable_reader("nobody", after_sequence=3) is None
        assert not await streams.delete_stream("nobody")

    async def test_chunks_say_who_wrote_them(self, streams: StreamStore) -> None:
        """A consumer of several agents must know whose text it shows."""
        stream_id = an_id()
        writer = await writer_on(streams, stream_id, run_id="r7")
        await writer.write(a_delta("x"))
        await writer.write(TextChunk(delta="y", agent_id="mine", agent_type="other", timestamp=5, step=2))
        await streams.end_stream(stream_id, status="completed")
        first, second = await stored_in(streams, stream_id)
        assert (first.run_id, first.chunk.agent_id, first.chunk.agent_type) == ("r7", "run-1", "writer")
        assert first.chunk.timestamp > 0
        assert (second.chunk.agent_id, second.chunk.agent_type) == ("mine", "other")
        assert (second.chunk.timestamp, second.chunk.step) == (5, 2)
        assert first.written_at > 0

    async def test_writers_share_a_stream(self, streams: StreamStore, another: StreamStore) -> None:
        """Tools that run side by side tell of themselves in one stream."""
        stream_id = an_id()

        async def write(store: StreamStore, number: int) -> list[int]:
            writer = await writer_on(store, stream_id, run_id=f"r{number}")
            return [await writer.write(a_delta(f"{number}/{at}")) for at in range(100)]

        found = await asyncio.gather(
            *(write(store, number) for number in range(4) for store in (streams, another))
        )
        await streams.end_stream(stream_id, status="completed")
        stored = await stored_in(another, stream_id)
        assert sequences(stored) == [*range(1, 801)]
        assert sorted(number for each in found for number in each) == [*range(1, 801)]
        assert all(each == sorted(each) for each in found)
        by_sequence = dict(zip(sequences(stored), texts(stored), strict=True))
        assert all(
            [by_sequence[at] for at in each] == [f"{number // 2}/{n}" for n in range(100)]
            for number, each in enumerate(found)
        )

    async def test_a_repeated_key_is_written_once(self, streams: StreamStore, another: StreamStore) -> None:
        """Who got no answer, or is the next attempt, says it again; readers see it once."""
        stream_id = an_id()
        writer = await writer_on(streams, stream_id)
        assert await writer.write(a_delta("a"), dedup_key="k1") == 1
        assert await writer.write(a_delta("b")) == 2
        again = await writer_on(another, stream_id)
        assert await again.write(a_delta("a again"), dedup_key="k1") == 1
        assert await again.write_many(deltas(3), dedup_keys=["k2", "k1", None]) == [3, 1, 4]
        await streams.end_stream(stream_id, status="completed")
        assert texts(await stored_in(streams, stream_id)) == ["a", "b", "1", "3"]
        assert await writer.write(a_delta("a"), dedup_key="k1") == 1

    async def test_one_key_at_the_same_time_is_written_once(
        self, streams: StreamStore, another: StreamStore
    ) -> None:
        """An attempt that was given up may be at it still."""
        stream_id = an_id()
        writers = [await writer_on(store, stream_id) for store in (streams, another) for _ in range(4)]
        found = await asyncio.gather(*(each.write(a_delta("a"), dedup_key="k") for each in writers))
        assert found == [1] * 8
        info = await streams.get_info(stream_id)
        assert info is not None
        assert info.chunk_count == 1

    async def test_keys_of_one_call_differ(self, streams: StreamStore) -> None:
        """Two chunks under one key would have one place."""
        writer = await writer_on(streams, an_id())
        with pytest.raises(InvalidRequestError):
            await writer.write_many(deltas(2), dedup_keys=["k", "k"])
        with pytest.raises(InvalidRequestError):
            await writer.write_many(deltas(2), dedup_keys=["k"])
        with pytest.raises(InvalidRequestError):
            await writer.write_many(deltas(1001))
        assert await writer.write_many([]) == []
        assert await writer.write(a_delta("x")) == 1

    async def test_a_large_chunk_is_refused_and_uses_no_sequence(self, make: MakeStreams) -> None:
        """One tool result must not fill the store, nor leave a gap that looks like a loss."""
        streams = make(SMALL)
        writer = await writer_on(streams, an_id())
        await writer.write(a_delta("x"))
        with pytest.raises(TooLargeError) as refused:
            await writer.write(a_delta("x" * 3000))
        assert refused.value.facts["limit"] == 2048
        assert int(refused.value.facts["size"] or 0) > 3000
        assert await writer.write(a_delta("y")) == 2

    async def test_large_text_is_written_in_pieces(self, make: MakeStreams) -> None:
        """A provider's delta has any size; a consumer joins the pieces without knowing."""
        streams = make(StreamLimits(max_chunk_bytes=2048))
        stream_id = an_id()
        writer = await writer_on(streams, stream_id)
        text = "é\u2028\x01🔒" * 700
        assert await writer.write_split(TextChunk(delta=text), dedup_key="k") == await writer.write_split(
            TextChunk(delta=text), dedup_key="k"
        )
        await writer.write_split(Thinking(content=text, is_complete=True))
        assert len(await writer.write_split(a_delta("short"))) == 1
        await streams.end_stream(stream_id, status="completed")
        stored = await stored_in(streams, stream_id)
        assert "".join(texts(stored)) == text + "short"
        thoughts = [each.chunk for each in stored if isinstance(each.chunk, Thinking)]
        assert "".join(each.content for each in thoughts) == text
        assert [each.is_complete for each in thoughts] == [False] * (len(thoughts) - 1) + [True]

    async def test_what_is_no_json_is_refused(self, streams: StreamStore) -> None:
        """It would be found by a reader, who can do nothing about it."""
        writer = await writer_on(streams, an_id())
        with pytest.raises(InvalidMessageError):
            await writer.write(TextChunk.model_construct(type="text_delta", delta="\ud800"))
        with pytest.raises(InvalidMessageError):
            Custom(event_name="e", data=float("nan"))
        assert await writer.write(a_delta("x")) == 1

    async def test_what_is_no_chunk_is_refused(self, streams: StreamStore) -> None:
        """A bare text is the usual mistake, and one chunk where many are written."""
        writer = await writer_on(streams, an_id())
        text: Any = "hello"
        with pytest.raises(InvalidRequestError, match="a chunk expected, got str"):
            await writer.write(text)
        with pytest.raises(InvalidRequestError, match="a chunk expected, got str"):
            await writer.write_split(text)
        with pytest.raises(InvalidRequestError, match="a chunk expected, got dict"):
            await writer.write_many([a_delta("x"), {"type": "text_delta", "delta": "y"}])  # type: ignore[list-item]
        with pytest.raises(InvalidRequestError, match="a list of chunks expected, got TextChunk"):
            await writer.write_many(a_delta("x"))  # type: ignore[arg-type]
        assert await writer.write(a_delta("x")) == 1

    async def test_unknown_types_and_fields_are_kept(self, streams: StreamStore) -> None:
        """A newer producer, or an application, may write what this version does not know."""
        stream_id = an_id()
        fields: dict[str, Any] = {"a": [1, None, {"b": 2**53 + 1}], "emoji": "🔒", "agentId": "x", "deep": {}}
        writer = await writer_on(streams, stream_id)
        await writer.write(UnknownChunk(type="from_the_future", **fields))
        await writer.write(TextChunk.model_validate({"delta": "x", "tone": "warm"}))
        await streams.end_stream(stream_id, status="completed")
        first, second = (stored.chunk for stored in await stored_in(streams, stream_id))
        assert isinstance(first, UnknownChunk)
        assert (first.type, first.model_extra) == ("from_the_future", fields)
        assert second.model_extra == {"tone": "warm"}

    async def test_a_lower_fence_is_refused(self, streams: StreamStore, another: StreamStore) -> None:
        """A worker that was replaced must not go on telling, nor end what the next one tells."""
        stream_id = an_id()
        old = await writer_on(streams, stream_id, fence=4)
        await old.write(a_delta("a"))
        new = await writer_on(another, stream_id, fence=5)
        with pytest.raises(FencedError) as refused:
            await old.write(a_delta("b"))
        assert (refused.value.facts["expected_at_least"], refused.value.facts["got"]) == (5, 4)
        for change in (
            old.beat(),
            writer_on(streams, stream_id, fence=4),
            streams.end_stream(stream_id, status="aborted", fence=4),
            streams.fail_stream(stream_id, "x", fence=4),
            streams.pause_stream(stream_id, fence=4),
            streams.reset_stream(stream_id, fence=4),
        ):
            with pytest.raises(FencedError):
                await change
        assert await new.write(a_delta("c")) == 2
        info = await streams.get_info(stream_id)
        assert info is not None
        assert (info.status, info.last_sequence, info.max_fence) == ("active", 2, 5)

    async def test_a_change_of_status_raises_the_fence(self, streams: StreamStore) -> None:
        """Who was told to stop must not write between the change and the next writer."""
        stream_id = await a_stream(streams, 1, fence=1)
        await streams.pause_stream(stream_id, fence=3)
        with pytest.raises(FencedError):
            await writer_on(streams, stream_id, fence=2)

    async def test_a_repeated_attempt_says_so_first(self, streams: StreamStore) -> None:
        """Consumers drop what the failed attempt told, and only once."""
        stream_id = await a_stream(streams, 2, step_id="s1")
        await writer_on(streams, stream_id, step_id="s1", attempt=2)
        writer = await writer_on(streams, stream_id, step_id="s1", attempt=2)
        await writer.write(a_delta("new"))
        await streams.end_stream(stream_id, status="completed")
        *_, said, new = (stored.chunk for stored in await stored_in(streams, stream_id))
        assert isinstance(said, StepDiscarded)
        assert (said.step_id, said.attempt, said.agent_id) == ("s1", 1, "run-1")
        assert isinstance(new, TextChunk)
        info = await streams.get_info(stream_id)
        assert info is not None
        assert info.chunk_count == 4

    async def test_a_closed_writer_writes_no_more(self, streams: StreamStore) -> None:
        """The stream is as it was: others write on."""
        stream_id = an_id()
        async with await writer_on(streams, stream_id) as writer:
            await writer.write(a_delta("a"))
        with pytest.raises(StreamClosedError):
            await writer.write(a_delta("b"))
        info = await streams.get_info(stream_id)
        assert info is not None
        assert (info.status, info.chunk_count) == ("active", 1)

    async def test_a_deleted_stream_takes_no_more(self, streams: StreamStore) -> None:
        """Also when there is another stream of that id by now."""
        stream_id = an_id()
        writer = await writer_on(streams, stream_id)
        await writer.write(a_delta("a"), dedup_key="k")
        assert await streams.delete_stream(stream_id)
        with pytest.raises(StreamNotFoundError):
            await writer.write(a_delta("b"))
        other = await writer_on(streams, stream_id)
        with pytest.raises(StreamNotFoundError):
            await writer.write(a_delta("b"))
        assert await other.write(a_delta("c"), dedup_key="k") == 1

    @pytest.mark.parametrize("stream_id", ODD_IDS)
    async def test_odd_ids_are_streams_of_their_own(self, streams: StreamStore, stream_id: str) -> None:
        """Ids come from applications."""
        for each in (stream_id, "other"):
            await (await writer_on(streams, each)).write(a_delta(each))
            await streams.end_stream(each, status="completed")
        assert texts(await stored_in(streams, stream_id)) == [stream_id]
        assert texts(await stored_in(streams, "other")) == ["other"]

    async def test_bad_arguments_are_refused(self, streams: StreamStore) -> None:
        """With our errors, whatever the store's own would be."""
        for stream_id in ("", "x" * 257, "a\x00b"):
            with pytest.raises(InvalidIdError):
                await writer_on(streams, stream_id)
            with pytest.raises(InvalidIdError):
                await streams.get_info(stream_id)
        with pytest.raises(InvalidRequestError):
            await writer_on(streams, "s", attempt=0)
        with pytest.raises(InvalidRequestError):
            await writer_on(streams, "s", attempt=2)
        with pytest.raises(InvalidRequestError):
            await writer_on(streams, "s", fence=-1)
