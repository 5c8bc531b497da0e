"""What a stream is, and what a reader makes of one: values and pure decisions, the same for every store."""

from dataclasses import dataclass
from typing import Any, Literal

import orjson

from helix_temporal.errors import (
    FencedError,
    StoreCorruptError,
    StreamAbandonedError,
    StreamClosedError,
    StreamFailedError,
    StreamNotFoundError,
    StreamTruncatedError,
)
from helix_temporal.models._json import dumps
from helix_temporal.models.chunks import EndStatus
from helix_temporal.models.states import ErrorInfo
from helix_temporal.models.streams import StoredChunk, StreamInfo, StreamStatus


@dataclass(frozen=True, slots=True)
class Facts:
    """What only changes of status read and write; one JSON object in the store.

    Attributes:
        resync_at: The sequence of the newest ``stream_resync``; 0 if there was none.
        leapt: How many numbers resets have left out.
    """

    outcome: EndStatus | None = None
    output: Any = None
    output_bytes: int | None = None
    error: tuple[str, str] | None = None
    ended_at: int | None = None
    resync_at: int = 0
    leapt: int = 0
    operations: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """As it is stored: what differs from an empty one."""
        fields = ((name, getattr(self, name)) for name in self.__slots__)
        return dumps({name: value for name, value in fields if value not in (None, 0, ())})


def facts_from(body: bytes, stream_id: str) -> Facts:
    """Inverse of `Facts.to_bytes`.

    Raises:
        StoreCorruptError: It is none.
    """
    try:
        fields = orjson.loads(body)
        error = fields.pop("error", None)
        operations = tuple(fields.pop("operations", ()))
        return Facts(**fields, error=tuple(error) if error else None, operations=operations)
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreCorruptError(f"stream {stream_id!r}: its head is damaged; delete it") from error


@dataclass(frozen=True, slots=True)
class Head:
    """A stream without its chunks.

    Attributes:
        made: Told by who made it, different for each stream that ever had the id.
        first: The oldest sequence that is kept; ``last + 1`` if none is.
        revision: Grows with every change of status, not with chunks.
        updated_at: When a writer was heard of last.
    """

    stream_id: str
    made: str
    status: StreamStatus = "active"
    first: int = 1
    last: int = 0
    revision: int = 0
    fence: int | None = None
    created_at: int = 0
    updated_at: int = 0
    facts: Facts = Facts()

    @property
    def info(self) -> StreamInfo:
        """For callers."""
        facts, error = self.facts, self.facts.error
        return StreamInfo(
            stream_id=self.stream_id,
            status=self.status,
            outcome=facts.outcome,
            chunk_count=self.last - facts.leapt,
            first_sequence=self.first,
            last_sequence=self.last,
            output=facts.output,
            output_bytes=facts.output_bytes,
            error=None if error is None else ErrorInfo(type=error[0], message=error[1]),
            max_fence=self.fence,
            created_at=self.created_at,
            updated_at=self.updated_at,
            ended_at=facts.ended_at,
        )


@dataclass(frozen=True, slots=True)
class View:
    """A stream in one instant: its head, chunks after a place, and the store's clock in ms."""

    head: Head
    now: int
    chunks: tuple[StoredChunk, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Chunks to append, together.

    Attributes:
        made: Of the stream that is meant; with ``create``, what a new one is called.
        create: Make the stream if there is none.
        entries: Dedup key (or empty) and body of each; none only tells that the writer is alive.
    """

    stream_id: str
    made: str
    create: bool = False
    fence: int | None = None
    run_id: str = ""
    entries: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """Where each entry of a batch stands, and in which stream.

    Attributes:
        last: The stream's last sequence, with the batch.
    """

    made: str
    sequences: tuple[int, ...]
    last: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Why nothing of a batch was written."""

    why: Literal["absent", "fenced", "closed"]
    fence: int | None = None
    status: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a stream's status, to be made if it is still as it was seen.

    Attributes:
        before: What was seen.
        settled: Nothing may have been appended since, either.
        chunk: Written with it; all chunks and dedup keys before it are dropped.
    """

    before: Head
    status: StreamStatus
    facts: Facts
    fence: int | None
    settled: bool = False
    chunk: bytes | None = None

    @property
    def sequence(self) -> int | None:
        """Of the chunk: stores take it from here, and do not count."""
        return None if self.chunk is None else self.facts.resync_at


def refused(stream_id: str, why: Refused, fence: int | None) -> Exception:
    """The error for a writer."""
    if why.why == "fenced":
        return FencedError(
            f"stream {stream_id!r}: fence {fence} is lower than {why.fence}, which was written under before; "
            "this writer was replaced and must stop",
            expected_at_least=why.fence,
            got=fence,
        )
    if why.why == "closed":
        return closed(stream_id, why.status)
    return absent(stream_id)


def absent(stream_id: str) -> StreamNotFoundError:
    """The error for a stream that is not there, or not there any more."""
    return StreamNotFoundError(
        f"stream {stream_id!r} is not there: it was never made, was deleted, or has expired",
        stream_id=stream_id,
    )


def closed(stream_id: str, status: str, wanted: str = "takes no chunks") -> StreamClosedError:
    """The error for a stream that is over, or paused."""
    found = f"stream {stream_id!r} is {status}: {wanted}"
    return StreamClosedError(found, stream_id=stream_id, status=status)


# -- reading


def place(head: Head, after: int) -> int:
    """After which sequence a reader goes on who has read up to ``after``.

    Raises:
        StreamTruncatedError: What comes next was trimmed.
    """
    if after + 1 >= head.first:
        return after
    if after < head.facts.resync_at and head.facts.resync_at >= head.first:
        return head.facts.resync_at - 1
    raise truncated(head.stream_id, after + 1, head.first)


def truncated(stream_id: str, wanted: int, first: int) -> StreamTruncatedError:
    """The error for a reader who comes too late."""
    return StreamTruncatedError(
        f"stream {stream_id!r}: chunk {wanted} was trimmed, the first that is there is {first}; "
        "load the session and read on from there",
        stream_id=stream_id,
        first_available=first,
        position=wanted,
    )


def over(view: View, abandoned_after: float) -> bool:
    """Whether a reader who has read all of it is done.

    Raises:
        StreamFailedError: It failed.
        StreamAbandonedError: It is active, but its producer has been silent for so many seconds.
    """
    head = view.head
    if head.status == "failed":
        kind, reason = head.facts.error or ("", "")
        raise StreamFailedError(
            f"stream {head.stream_id!r} failed: {reason or 'its producer gave no reason'}",
            stream_id=head.stream_id,
            reason=reason,
            error_type=kind,
        )
    if head.status != "active":
        return True
    silent = view.now - head.updated_at
    if silent > abandoned_after * 1000:
        raise StreamAbandonedError(
            f"stream {head.stream_id!r}: its producer has been silent for {silent // 1000} s and left no end",
            stream_id=head.stream_id,
            silent_ms=silent,
        )
    return False
