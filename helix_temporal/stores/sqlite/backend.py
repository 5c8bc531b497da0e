"""The door to everything in one database file."""

from pathlib import Path

from helix_temporal.models.streams import DEFAULT_LIMITS, StreamLimits
from helix_temporal.stores.sqlite.connection import Database
from helix_temporal.stores.sqlite.locks import SqliteLocks
from helix_temporal.stores.sqlite.payloads import SqlitePayloads
from helix_temporal.stores.sqlite.sessions import SqliteSessions
from helix_temporal.stores.sqlite.streams import SqliteStreams
from helix_temporal.stores.sqlite.threads import SqliteThreads
from helix_temporal.stores.sqlite.usage import SqliteUsage


class SqliteBackend:
    """One SQLite database on a local disk, shared by the processes of one machine.

    Nothing is made or opened until the first use.

    Args:
        file: Of the database; made with its directories by the first use.
        timeout: Seconds to wait for another process that writes.
        stream_limits: What is kept of streams.
    """

    def __init__(
        self, file: Path | str, *, timeout: float = 10.0, stream_limits: StreamLimits = DEFAULT_LIMITS
    ) -> None:
        self.database = Database(file, timeout=timeout)
        self.threads = SqliteThreads(self.database)
        self.sessions = SqliteSessions(self.database, self.threads)
        self.payloads = SqlitePayloads(self.database)
        self.locks = SqliteLocks(self.database)
        self.usage = SqliteUsage(self.database)
        self.streams = SqliteStreams(self.database, stream_limits)

    async def check(self) -> None:
        """Refuse a file that takes no writes; see `Database.check`."""
        await self.database.check()

    async def find_damage(self, within: float) -> tuple[str, ...] | None:
        """What is wrong with the file's structure; see `Database.find_damage`."""
        return await self.database.find_damage(within)

    async def close(self) -> None:
        """End readers that wait, and close all connections."""
        await self.streams.close()
