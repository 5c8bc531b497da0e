"""What a stream is, and what writes, ends, pauses and resets make of one: pure, the same for every store."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Literal

import orjson

from helix_temporal.errors import (
    FencedError,
    InvalidRequestError,
    StoreCorruptError,
    StreamAbandonedError,
    StreamClosedError,
    StreamFailedError,
    StreamNotFoundError,
    StreamTruncatedError,
)
from helix_temporal.models.base import dump_json
from helix_temporal.models.states import ErrorInfo
from helix_temporal.models.streams import EndStatus, StoredChunk, StreamInfo, StreamStatus


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
        return dump_json({name: value for name, value in fields if value not in (None, 0, ())})


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
class StreamHead:
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

    head: StreamHead
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
class StatusChange:
    """A change of a stream's status, to be made if it is still as it was seen.

    Attributes:
        before: What was seen.
        expects_no_append: Nothing may have been appended since, either.
        chunk: Written with it; all chunks and dedup keys before it are dropped.
    """

    before: StreamHead
    status: StreamStatus
    facts: Facts
    fence: int | None
    expects_no_append: bool = False
    chunk: bytes | None = None

    @property
    def sequence(self) -> int | None:
        """Of the chunk: stores take it from here, and do not count."""
        return None if self.chunk is None else self.facts.resync_at


def refused_write_error(stream_id: str, why: Refused, fence: int | None) -> Exception:
    """The error for a writer."""
    if why.why == "fenced":
        return FencedError(
            f"stream {stream_id!r}: fence {fence} is lower than {why.fence}, which was written under before; "
            "this writer was replaced and must stop",
            expected_at_least=why.fence,
            got=fence,
        )
    if why.why == "closed":
        return stream_closed_error(stream_id, why.status)
    return stream_not_found_error(stream_id)


def stream_not_found_error(stream_id: str) -> StreamNotFoundError:
    """The error for a stream that is not there, or not there any more."""
    return StreamNotFoundError(
        f"stream {stream_id!r} is not there: it was never made, was deleted, or has expired",
        stream_id=stream_id,
    )


def stream_closed_error(stream_id: str, status: str, wanted: str = "takes no chunks") -> StreamClosedError:
    """The error for a stream that is over, or paused."""
    found = f"stream {stream_id!r} is {status}: {wanted}"
    return StreamClosedError(found, stream_id=stream_id, status=status)


# -- reading


def reading_position(head: StreamHead, after: int) -> int:
    """After which sequence a reader goes on who has read up to ``after``.

    Raises:
        StreamTruncatedError: What comes next was trimmed.
    """
    if after + 1 >= head.first:
        return after
    if after < head.facts.resync_at and head.facts.resync_at >= head.first:
        return head.facts.resync_at - 1
    raise stream_truncated_error(head.stream_id, after + 1, head.first)


def stream_truncated_error(stream_id: str, wanted: int, first: int) -> StreamTruncatedError:
    """The error for a reader who comes too late."""
    return StreamTruncatedError(
        f"stream {stream_id!r}: chunk {wanted} was trimmed, the first that is there is {first}; "
        "load the session and read on from there",
        stream_id=stream_id,
        first_available=first,
        position=wanted,
    )


def is_stream_over(view: View, abandoned_after: float) -> bool:
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


_OPERATIONS: Final = 32
"""So many ids of operations are remembered."""

_END_STATUSES: Final = ("completed", "interrupted", "aborted")


def check_fence(head: StreamHead, fence: int | None) -> int | None:
    """The higher of both.

    Raises:
        FencedError: The stream's is higher.
    """
    if fence is not None and head.fence is not None and fence < head.fence:
        raise refused_write_error(head.stream_id, Refused("fenced", head.fence), fence)
    return head.fence if fence is None else fence


def is_operation_done(head: StreamHead, operation_id: str | None) -> bool:
    """Whether the operation is one of the last that were done."""
    return operation_id is not None and operation_id in head.facts.operations


def check_end_status(status: object) -> EndStatus:
    """One of the three.

    Raises:
        InvalidRequestError: It is none.
    """
    if status not in _END_STATUSES:
        raise InvalidRequestError(f"end status {status!r}: one of {', '.join(_END_STATUSES)} expected")
    return status


def decide_end(
    head: StreamHead, status: EndStatus, output: object, size: int | None, now: int
) -> StatusChange | None:
    """End it; None if it ended so before.  ``size``: of an output that is left out."""
    if head.status == "ended" and head.facts.outcome == status:
        return None
    _refuse_over(head, f"it cannot end as {status!r} any more")
    facts = replace(head.facts, outcome=status, output=output, output_bytes=size, ended_at=now)
    return StatusChange(head, "ended", facts, head.fence)


def decide_failure(head: StreamHead, error: ErrorInfo, now: int) -> StatusChange | None:
    """End it by a failure; None if it failed before."""
    if head.status == "failed":
        return None
    _refuse_over(head, "it cannot fail any more")
    facts = replace(head.facts, error=(error.type, error.message), ended_at=now)
    return StatusChange(head, "failed", facts, head.fence)


def decide_pause(head: StreamHead) -> StatusChange | None:
    """Close it for now."""
    _refuse_over(head, "it cannot be paused any more")
    return None if head.status == "paused" else StatusChange(head, "paused", head.facts, head.fence)


def decide_resume(head: StreamHead) -> StatusChange | None:
    """Open it again."""
    _refuse_over(head, "it cannot be resumed any more")
    return None if head.status == "active" else StatusChange(head, "active", head.facts, head.fence)


def decide_reset(head: StreamHead, chunk: bytes, now: int) -> StatusChange:
    """Begin anew after all that was written, at a sequence that leaps to the store's clock.

    A store that was restored from an older copy gives out again the numbers that were lost with the newer
    one.  Whoever has read those is before the leap, and so comes to the ``stream_resync`` next.
    """
    sequence = max(head.last + 1, now)
    leapt = head.facts.leapt + sequence - head.last - 1
    facts = Facts(resync_at=sequence, leapt=leapt, operations=head.facts.operations)
    return StatusChange(head, "active", facts, head.fence, expects_no_append=True, chunk=chunk)


def with_fence_and_operation(
    change: StatusChange, fence: int | None, operation_id: str | None
) -> StatusChange:
    """The change with who made it."""
    operations = change.facts.operations
    if operation_id is not None:
        operations = (*operations, operation_id)[-_OPERATIONS:]
    return replace(change, fence=fence, facts=replace(change.facts, operations=operations))


# copies: redis, postgres
def head_after_change(change: StatusChange, head: StreamHead, now: int) -> StreamHead | None:
    """The head after a change; None if it is not what was seen any more."""
    before = change.before
    same = head.made == before.made and head.revision == before.revision
    if (
        not same
        or (change.expects_no_append and head.last != before.last)
        or (head.fence or 0) > (change.fence or 0)
    ):
        return None
    last = head.last if change.sequence is None else change.sequence
    return replace(
        head,
        status=change.status,
        facts=change.facts,
        fence=change.fence,
        first=head.first if change.sequence is None else last,
        last=last,
        revision=head.revision + 1,
        updated_at=now,
    )


def _refuse_over(head: StreamHead, wanted: str) -> None:
    if head.status in {"ended", "failed"}:
        raise stream_closed_error(head.stream_id, head.facts.outcome or head.status, wanted)


# copies: redis, postgres
def admit_batch(
    head: StreamHead | None, batch: Batch, sequences: Mapping[str, int], now: int
) -> StreamHead | Refused:
    """The head that a batch is appended to: as it is, under its fence, or new."""
    if head is None or (head.made != batch.made and not batch.create):
        if not batch.create:
            return Refused("absent")
        head = StreamHead(batch.stream_id, batch.made, created_at=now)
    if batch.fence is not None and batch.fence < (head.fence or 0):
        return Refused("fenced", head.fence)
    repeated = bool(batch.entries) and all(key in sequences for key, _ in batch.entries)
    if head.status != "active" and (batch.create or not repeated):
        return Refused("closed", status=head.status)
    return replace(head, fence=head.fence if batch.fence is None else batch.fence, updated_at=now)


class StreamLog:
    """One stream with its chunks and keys.

    Attributes:
        head: None before the first batch.
        chunks: What is kept, without gaps, up to the last.
        keys: Where the chunk of each dedup key stands or stood.
    """

    def __init__(self) -> None:
        self.head: StreamHead | None = None
        self.chunks: deque[StoredChunk] = deque()
        self.keys: dict[str, int] = {}

    # copies: redis, postgres
    def append_batch(self, batch: Batch, now: int, max_chunks: int) -> Written | Refused:
        """Append what is new of the batch."""
        head = admit_batch(self.head, batch, self.keys, now)
        if isinstance(head, Refused):
            return head
        sequences, last = [], head.last
        for key, body in batch.entries:
            if key and key in self.keys:
                sequences.append(self.keys[key])
                continue
            last += 1
            self.chunks.append(StoredChunk(last, batch.run_id, now, body))
            sequences.append(last)
            if key:
                self.keys[key] = last
        self._trim_chunks(replace(head, last=last), max_chunks)
        return Written(head.made, tuple(sequences), last)

    # copies: redis, postgres
    def change_status(self, change: StatusChange, now: int) -> int | None:
        """Make a change of status; the last sequence then, None if the stream is not what was seen."""
        after = None if self.head is None else head_after_change(change, self.head, now)
        if after is None:
            return None
        if change.chunk is not None:
            self.chunks.clear()
            self.keys.clear()
            self.chunks.append(StoredChunk(after.last, "", now, change.chunk))
        self.head = after
        return after.last

    # copies: redis, postgres, sqlite
    def chunks_after(self, position: int, limit: int) -> tuple[StoredChunk, ...]:
        """Chunks after a sequence."""
        start = max(0, position + 1 - self.head.first) if self.head else 0
        return tuple(islice(self.chunks, start, start + limit))

    # copies: redis, postgres, sqlite
    def _trim_chunks(self, head: StreamHead, max_chunks: int) -> None:
        while max_chunks and len(self.chunks) > max_chunks:
            self.chunks.popleft()
        self.head = replace(head, first=head.last + 1 - len(self.chunks))
