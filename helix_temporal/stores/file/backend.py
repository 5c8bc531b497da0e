"""The door to everything in one directory."""

from pathlib import Path

from helix_temporal.models.streams import DEFAULT_LIMITS, StreamLimits
from helix_temporal.stores.file._documents import Documents
from helix_temporal.stores.file.locks import FileLocks
from helix_temporal.stores.file.payloads import FilePayloads
from helix_temporal.stores.file.sessions import FileSessions
from helix_temporal.stores.file.streams import FileStreams
from helix_temporal.stores.file.threads import FileThreads
from helix_temporal.stores.file.usage import FileUsage


class FileBackend:
    """One directory on a local file system, shared by the processes of one machine.

    Nothing is made or opened until the first use.

    Args:
        directory: Made by the first write.  Sessions and threads of one id lie in one file below
            ``sessions``, payloads below ``payloads``, locks below ``locks``, usage below ``usage``,
            streams below ``streams``.
        stream_limits: What is kept of streams.
    """

    def __init__(self, directory: Path, *, stream_limits: StreamLimits = DEFAULT_LIMITS) -> None:
        self.documents = Documents(directory / "sessions")
        self.threads = FileThreads(self.documents)
        self.sessions = FileSessions(self.documents)
        self.payloads = FilePayloads(Documents(directory / "payloads", cache_bytes=0))
        self.locks = FileLocks(Documents(directory / "locks"))
        self.usage = FileUsage(Documents(directory / "usage"))
        self.streams = FileStreams(directory / "streams", stream_limits)

    async def check(self) -> None:
        """Refuse a directory that takes no writes or locks; see `HotTier.check`."""
        await self.threads.check()

    async def close(self) -> None:
        """End readers that wait; nothing else is held between calls."""
        await self.streams.close()
