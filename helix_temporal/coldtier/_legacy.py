"""Version 1 snapshots (zeitlich's): what the cold tier needs of them."""

from dataclasses import dataclass
from typing import Protocol

from helix_temporal.coldtier._manifest import Legacy
from helix_temporal.models.records import Record


@dataclass(frozen=True, slots=True)
class LegacySnapshot:
    """A version 1 thread, ready to become the beginning of an archive."""

    records: tuple[Record, ...]
    slice: bytes
    adapter: str
    origin: Legacy


class LegacySource(Protocol):
    """Where version 1 snapshots are looked for when a thread has no manifest."""

    async def load(self, thread_id: str, adapter: str = "") -> LegacySnapshot | None:
        """The snapshot of this thread, None if there is none.

        ``adapter`` names the format of its rows, which version 1 does not store.

        Raises:
            ArchiveCorruptError: It is damaged; nothing of it was used.
            TooLargeError: It expands past the limit.
        """
        ...

    async def check_unchanged(self, origin: Legacy) -> None:
        """Make sure that nobody writes version 1 any more.

        Raises:
            LegacyWriterActiveError: The snapshot changed since it was taken over.
        """
        ...
