"""Writers: chunks are filled in, measured and written; pieces made of what is too large."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from helix_temporal.errors import InvalidRequestError, TooLargeError
from helix_temporal.models.ids import validate_id
from helix_temporal.models.streams import (
    ChunkBase,
    RunStarted,
    StepDiscarded,
    TextChunk,
    Thinking,
    ToolArgStreamDelta,
    to_bytes,
)
from helix_temporal.stores.streams import rules
from helix_temporal.stores.streams.rules import Batch, Refused, Written

MOST_CHUNKS: Final = 1000
"""Of one call."""

_ESCAPED: Final = 6
"""A character takes at most so many bytes of JSON."""

Appending = Callable[[Batch], Awaitable[Written | Refused]]
"""What a store's driver does with a batch."""


class Writing:
    """`StreamWriter` over the appends of one store.

    Args:
        made: Of the stream that was opened.
        stamp: Fields of chunks that were not given their own; the time is added.
    """

    def __init__(
        self,
        append: Appending,
        made: str,
        stream_id: str,
        stamp: Mapping[str, str],
        *,
        run_id: str,
        fence: int | None,
        max_bytes: int,
    ) -> None:
        self._append, self._made, self._stream_id, self._stamp = append, made, stream_id, stamp
        self._run_id, self._fence, self._max_bytes = run_id, fence, max_bytes
        self._closed = False

    @property
    def stream_id(self) -> str:
        """See `StreamWriter.stream_id`."""
        return self._stream_id

    async def open(self, void: StepDiscarded | None) -> None:
        """Make the stream if there is none, and write what a repeated attempt begins with."""
        entries: tuple[tuple[str, bytes], ...] = ()
        if void is not None:
            # No key of a caller's has such a character.
            entries = ((f"\x01discarded/{void.attempt}/{void.step_id}", self._encode_chunk(void)),)
        batch = Batch(
            self._stream_id,
            self._made,
            create=True,
            fence=self._fence,
            run_id=self._run_id,
            entries=entries,
        )
        self._made = (await append_batch(self._append, batch)).made

    async def write(self, chunk: ChunkBase, *, dedup_key: str | None = None) -> int:
        """See `StreamWriter.write`."""
        (sequence,) = await self._write_entries(((_check_dedup_key(dedup_key), self._encode_chunk(chunk)),))
        return sequence

    async def write_many(
        self, chunks: Sequence[ChunkBase], *, dedup_keys: Sequence[str | None] | None = None
    ) -> list[int]:
        """See `StreamWriter.write_many`."""
        if not isinstance(chunks, Sequence):
            raise InvalidRequestError(f"a list of chunks expected, got {type(chunks).__name__}")
        keys = [_check_dedup_key(each) for each in dedup_keys or [None] * len(chunks)]
        if len(keys) != len(chunks) or len(chunks) > MOST_CHUNKS:
            raise InvalidRequestError(
                f"{len(chunks)} chunks with {len(keys)} keys: at most {MOST_CHUNKS}, with a key each or none"
            )
        named = [key for key in keys if key]
        if len(set(named)) != len(named):
            raise InvalidRequestError("two chunks of one call have the same dedup key")
        if not chunks:
            return []
        return await self._write_entries(tuple(zip(keys, map(self._encode_chunk, chunks), strict=True)))

    async def write_split(self, chunk: ChunkBase, *, dedup_key: str | None = None) -> list[int]:
        """See `StreamWriter.write_split`."""
        sequences: list[int] = []
        for number, piece in enumerate(self._split_chunk(chunk)):
            key = dedup_key if dedup_key is None or number == 0 else f"{dedup_key}/{number}"
            sequences.append(await self.write(piece, dedup_key=key))
        return sequences

    async def beat(self) -> None:
        """See `StreamWriter.beat`."""
        await self._write_entries(())

    async def close(self) -> None:
        """See `StreamWriter.close`."""
        self._closed = True

    async def __aenter__(self) -> Self:
        """See `StreamWriter.__aenter__`."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """See `StreamWriter.__aexit__`."""
        await self.close()

    async def _write_entries(self, entries: tuple[tuple[str, bytes], ...]) -> list[int]:
        if self._closed:
            raise rules.stream_closed_error(self._stream_id, "closed", "make another writer")
        batch = Batch(self._stream_id, self._made, fence=self._fence, run_id=self._run_id, entries=entries)
        return list((await append_batch(self._append, batch)).sequences)

    def _encode_chunk(self, chunk: ChunkBase) -> bytes:
        if not isinstance(chunk, ChunkBase):
            raise InvalidRequestError(f"a chunk expected, got {type(chunk).__name__}")
        body = to_bytes(chunk, {**self._stamp, "timestamp": time.time_ns() // 1_000_000})
        check_chunk_size(body, self._max_bytes, chunk.type)
        return body

    def _split_chunk(self, chunk: ChunkBase) -> list[ChunkBase]:
        """The chunk, or several that say the same; a turn's begin that is too large has no texts."""
        if isinstance(chunk, RunStarted) and chunk.texts:
            fits = len(to_bytes(chunk, self._stamp)) < self._max_bytes // 2
            return [chunk if fits else chunk.model_copy(update={"texts": ()})]
        if not isinstance(chunk, TextChunk | Thinking | ToolArgStreamDelta):
            return [chunk]
        field = "content" if isinstance(chunk, Thinking) else "delta"
        text: str = getattr(chunk, field)
        if len(text) * _ESCAPED < self._max_bytes // 2 or len(to_bytes(chunk, self._stamp)) < self._max_bytes:
            return [chunk]
        size = max(1, self._max_bytes // 2 // _ESCAPED)
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        pieces: list[ChunkBase] = [chunk.model_copy(update={field: part}) for part in parts]
        if isinstance(chunk, Thinking) and chunk.is_complete:
            pieces[:-1] = [piece.model_copy(update={"is_complete": False}) for piece in pieces[:-1]]
        return pieces


async def append_batch(append: Appending, batch: Batch) -> Written:
    """Append a batch.

    Raises:
        StreamClosedError, FencedError, StreamNotFoundError: It was refused.
    """
    answer = await append(batch)
    if isinstance(answer, Refused):
        raise rules.refused_write_error(batch.stream_id, answer, batch.fence)
    return answer


def check_chunk_size(body: bytes, limit: int, what: str) -> None:
    """Refuse what is too large.

    Raises:
        TooLargeError: ``facts`` has ``size`` and ``limit``.
    """
    if len(body) > limit:
        raise TooLargeError(
            f"stream chunk {what!r}: {len(body)} > {limit} bytes; write text with write_split, "
            "and of results a part or a reference",
            size=len(body),
            limit=limit,
        )


def _check_dedup_key(dedup_key: str | None) -> str:
    return "" if dedup_key is None else validate_id(dedup_key, "dedup key")
