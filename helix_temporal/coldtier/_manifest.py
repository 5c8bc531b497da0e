"""The manifest: the small object that says what a thread's archive is."""

from dataclasses import dataclass, replace
from typing import Final

from helix_temporal.models.records import EMPTY, Head, Record, size_of
from helix_temporal.stores.protocols.hot import Archived

FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """One immutable object of the archive: messages ``first`` to ``last``, both included.

    Attributes:
        size: Bytes of the object.
        raw_size: Bytes of its packed records.
        sha256: Hex digest of the object.
        gen: Generation of the manifest that it was written for; part of its name.
    """

    first: int
    last: int
    size: int
    raw_size: int
    sha256: str
    gen: int

    @property
    def stop(self) -> int:
        """One past the last position."""
        return self.last + 1


@dataclass(frozen=True, slots=True)
class Legacy:
    """The version 1 snapshot that became the beginning of this thread."""

    key: str
    etag: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive holds.

    Attributes:
        version: One higher with each commit.
        nonce: Random with each commit, so that no two manifests have the same bytes (and etag).
        epoch, owner, closed: As in the hot header; this copy decides.
        ended: Closed by the end of its execution, rather than by an open that looks on.
        born: The epoch that created the thread.
        head, committed: As in the hot header.
        index: An object that lists the oldest segments; it holds no messages itself.
        segments: The newer ones, oldest first, without a gap after ``index``.
        inline: The newest messages, in the manifest itself.
        gen: Raised by garbage collection; segments are named by the generation they commit on.
        size: Packed bytes of all messages.
        slice: State bytes; ``slice_object`` names the object that holds them when they are large.
        origin: As in the hot header.
        cut: Messages that the last open cut because their turn had not ended.
    """

    thread_id: str
    version: int = 0
    nonce: str = ""
    epoch: int = 0
    owner: str = ""
    closed: bool = False
    ended: bool = False
    born: int = 0
    head: Head = EMPTY
    committed: int = 0
    index: SegmentRef | None = None
    segments: tuple[SegmentRef, ...] = ()
    inline: tuple[Record, ...] = ()
    gen: int = 0
    size: int = 0
    slice: bytes = b""
    slice_object: str = ""
    slice_version: int = 0
    adapter: str = ""
    deleted: bool = False
    origin: str = ""
    legacy: Legacy | None = None
    cut: int = 0

    @property
    def inline_first(self) -> int:
        """Position of the first inline message: where the segments end."""
        return self.head.position - len(self.inline)

    @property
    def archived(self) -> Archived:
        """What the hot tier may drop."""
        return Archived(self.head, self.committed, self.slice_version, self.size)

    @property
    def is_absent(self) -> bool:
        """No thread: never written, or a tombstone."""
        return self.version == 0 or self.deleted

    def next(self, nonce: str, **changes: object) -> "Manifest":
        """The manifest of the next commit."""
        return replace(self, version=self.version + 1, nonce=nonce, **changes)  # type: ignore[arg-type]

    def record_at(self, position: int) -> Record | None:
        """The message at a position if it is inline."""
        at = position - self.inline_first
        return self.inline[at] if 0 <= at < len(self.inline) else None


def size_before(manifest: Manifest, kept: tuple[SegmentRef, ...], inline: tuple[Record, ...]) -> int:
    """Packed bytes of a log made of these parts of ``manifest``."""
    indexed = manifest.index.raw_size if manifest.index is not None else 0
    return indexed + sum(segment.raw_size for segment in kept) + size_of(inline)
