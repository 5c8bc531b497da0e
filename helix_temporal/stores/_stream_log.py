"""A stream as a value that one process changes: what the stores in memory and on disk do to it."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from helix_temporal.models.streams import StoredChunk
from helix_temporal.stores._stream_changes import changed
from helix_temporal.stores._stream_rules import Batch, Change, Head, Refused, Written


def admitted(head: Head | None, batch: Batch, known: Mapping[str, int], now: int) -> Head | Refused:
    """The head that a batch is appended to: as it is, under its fence, or new."""
    if head is None or (head.made != batch.made and not batch.create):
        if not batch.create:
            return Refused("absent")
        head = Head(batch.stream_id, batch.made, created_at=now)
    if batch.fence is not None and batch.fence < (head.fence or 0):
        return Refused("fenced", head.fence)
    repeated = bool(batch.entries) and all(key in known for key, _ in batch.entries)
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
        self.head: Head | None = None
        self.chunks: deque[StoredChunk] = deque()
        self.keys: dict[str, int] = {}

    def append(self, batch: Batch, now: int, max_chunks: int) -> Written | Refused:
        """Append what is new of the batch."""
        head = admitted(self.head, batch, self.keys, now)
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
        self._keep(replace(head, last=last), max_chunks)
        return Written(head.made, tuple(sequences), last)

    def change(self, change: Change, now: int) -> int | None:
        """Make a change of status; the last sequence then, None if the stream is not what was seen."""
        after = None if self.head is None else changed(change, self.head, now)
        if after is None:
            return None
        if change.chunk is not None:
            self.chunks.clear()
            self.keys.clear()
            self.chunks.append(StoredChunk(after.last, "", now, change.chunk))
        self.head = after
        return after.last

    def after(self, position: int, limit: int) -> tuple[StoredChunk, ...]:
        """Chunks after a sequence."""
        start = max(0, position + 1 - self.head.first) if self.head else 0
        return tuple(islice(self.chunks, start, start + limit))

    def _keep(self, head: Head, max_chunks: int) -> None:
        while max_chunks and len(self.chunks) > max_chunks:
            self.chunks.popleft()
        self.head = replace(head, first=head.last + 1 - len(self.chunks))
