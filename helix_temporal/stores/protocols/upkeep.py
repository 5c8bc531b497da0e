"""What the maintenance worker does to archives."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from helix_temporal.models.maintenance import ABANDONED_AFTER
from helix_temporal.stores.protocols.progress import Progress, no_progress


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What compaction or garbage collection did to one thread."""

    thread_id: str
    objects_deleted: int = 0
    bytes_deleted: int = 0
    segments_before: int = 0
    segments_after: int = 0
    uploaded: int = 0


@dataclass(frozen=True, slots=True)
class Audit:
    """What is wrong with one thread; nothing if ``problems`` is empty."""

    thread_id: str
    problems: tuple[str, ...] = field(default=())
    unarchived: int = 0


class ArchiveUpkeep(Protocol):
    """Maintenance of one thread's archive; harmless beside a live session.

    Raises (every method):
        StoreUnavailableError: A store did not answer; repeat the call.
    """

    async def compact(self, thread_id: str, progress: Progress = no_progress) -> Maintenance:
        """Merge small segments, and list the oldest ones apart."""
        ...

    def archived(self, part: int) -> AsyncIterator[str]:
        """Ids of all archived threads in one of the 256 parts of the archive.

        Deleted ones are among them, and those of which objects are there without a manifest: a fork that was
        given up.  One that comes meanwhile may be missed; one whose manifest names no thread is left out,
        as is one without a manifest whose id is so long that its key holds a hash of it.
        """
        ...

    async def collect_garbage(
        self, thread_id: str, progress: Progress = no_progress, *, abandoned_after: float = ABANDONED_AFTER
    ) -> Maintenance:
        """Delete objects that no manifest names and none can come to name.

        Where the thread has been at rest for ``abandoned_after`` seconds by the store's clock, also payloads
        as old as that which no step took, and all of a thread that has no manifest.
        """
        ...

    async def audit(self, thread_id: str, progress: Progress = no_progress) -> Audit:
        """Read and verify everything of one thread; changes nothing."""
        ...
