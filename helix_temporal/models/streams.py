"""Streams: what is stored of one, beside its chunks."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from pydantic import JsonValue

from helix_temporal.models._base import Model
from helix_temporal.models.chunks import ChunkBase, EndStatus, from_bytes
from helix_temporal.models.states import ErrorInfo

StreamStatus = Literal["active", "paused", "ended", "failed"]
"""``paused``: closed cleanly for now, as while a person is asked; it may become active again."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """What a store keeps of a stream, and for how long.

    Attributes:
        ttl: Seconds after the last write; None keeps it until it is deleted.
        max_chunks: The newest so many are kept; 0 for all.
        max_chunk_bytes: The largest chunk, as JSON.
        abandoned_after: Seconds without a write or beat after which readers take the producer for gone.
    """

    ttl: float | None = 24 * 3600.0
    max_chunks: int = 10_000
    max_chunk_bytes: int = 1024 * 1024
    abandoned_after: float = 600.0


DEFAULT_LIMITS: Final = StreamLimits()


@dataclass(frozen=True)
class StoredChunk:
    """A chunk where it stands in its stream.

    Attributes:
        sequence: From 1, without gaps but those before a ``stream_resync``.
        run_id: Of the run whose writer wrote it; empty if that named none.
        written_at: Milliseconds since 1970, by the store's clock.
        body: The chunk as JSON, to be passed on as it is.
    """

    sequence: int
    run_id: str
    written_at: int
    body: bytes

    @cached_property
    def chunk(self) -> ChunkBase:
        """The chunk; several readers may be given the same one: do not change what is in it."""
        return from_bytes(self.body)


class StreamInfo(Model):
    """A stream as it stands.

    Attributes:
        outcome: How it ended, with status ``ended``.
        chunk_count: Ever written, also those that were trimmed or dropped; the last sequence may be higher.
        first_sequence: Of the oldest chunk that can be read; one more than the last if there is none.
        last_sequence: 0 if nothing was written.
        output: What it ended with.
        output_bytes: Set where that was too large to keep: its size.
        error: Why it failed.
        max_fence: The highest that anybody wrote under.
        created_at, updated_at, ended_at: Milliseconds since 1970, by the store's clock.
    """

    stream_id: str
    status: StreamStatus
    outcome: EndStatus | None = None
    chunk_count: int = 0
    first_sequence: int = 1
    last_sequence: int = 0
    output: JsonValue = None
    output_bytes: int | None = None
    error: ErrorInfo | None = None
    max_fence: int | None = None
    created_at: int
    updated_at: int
    ended_at: int | None = None
