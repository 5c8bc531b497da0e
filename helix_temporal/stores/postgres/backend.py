"""The door to everything in one PostgreSQL database."""

from helix_temporal.models.streams import DEFAULT_LIMITS, StreamLimits
from helix_temporal.stores.postgres.database import AsyncpgDatabase, DatabaseOrPool, as_database
from helix_temporal.stores.postgres.facts import read_facts
from helix_temporal.stores.postgres.locks import PostgresLocks
from helix_temporal.stores.postgres.migrations import PostgresMigrations, check_pooler
from helix_temporal.stores.postgres.payloads import PostgresPayloads
from helix_temporal.stores.postgres.queries import DEFAULT_PREFIX
from helix_temporal.stores.postgres.sessions import PostgresSessions
from helix_temporal.stores.postgres.streams import PostgresStreams
from helix_temporal.stores.postgres.threads import PostgresThreads
from helix_temporal.stores.postgres.usage import PostgresUsage
from helix_temporal.stores.protocols.server_facts import PostgresFacts


class PostgresBackend:
    """One PostgreSQL database: its threads and payloads over one pool of connections.

    Nothing is connected until the first use, on the loop that runs then.

    Args:
        database: ``postgresql://user:password@host:port/database``; or an asyncpg pool or a
            `PostgresDatabase` that is there, whose maker closes it.  The next three are for the first.
        table_prefix: What the names of all tables begin with; ``[A-Za-z_][A-Za-z0-9_]*``, at most 30
            characters.
        statement_cache_size: See `AsyncpgDatabase.from_dsn`.
        max_connections: At most so many operations at a time; more wait.
        timeout: Seconds for one statement; not of a `PostgresDatabase`.
        stream_limits: What is kept of streams.

    Raises:
        InvalidConfigError: The DSN or the prefix is not acceptable.
    """

    def __init__(
        self,
        database: str | DatabaseOrPool,
        *,
        table_prefix: str = DEFAULT_PREFIX,
        statement_cache_size: int | None = None,
        max_connections: int = 16,
        timeout: float = 10.0,
        stream_limits: StreamLimits = DEFAULT_LIMITS,
    ) -> None:
        self.table_prefix = table_prefix
        self._is_own = isinstance(database, str)
        if isinstance(database, str):
            database = AsyncpgDatabase.from_dsn(
                database,
                statement_cache_size=statement_cache_size,
                max_connections=max_connections,
                timeout=timeout,
            )
        self.database = as_database(database, timeout=timeout)
        self.threads = PostgresThreads(self.database, table_prefix=table_prefix)
        self.sessions = PostgresSessions(self.database, table_prefix=table_prefix)
        self.payloads = PostgresPayloads(self.database, table_prefix=table_prefix)
        self.locks = PostgresLocks(self.database, table_prefix=table_prefix)
        self.usage = PostgresUsage(self.database, table_prefix=table_prefix)
        self.streams = PostgresStreams(self.database, table_prefix=table_prefix, limits=stream_limits)
        self.migrations = PostgresMigrations(self.database, table_prefix=table_prefix)

    async def check(self) -> None:
        """Refuse a server or tables that would not do; see `PostgresThreads.check`."""
        await self.threads.check()

    async def read_facts(self) -> PostgresFacts:
        """What the server says of itself and of the tables; changes nothing."""
        return await read_facts(self.database, self.migrations)

    async def check_pooler(self) -> None:
        """Refuse a pooler between that would fail each call later; `check` looks for one, too.

        Raises:
            InvalidConfigError: It allows no transactions, or loses the statements that are prepared by name.
        """
        await check_pooler(self.database)

    async def close(self) -> None:
        """Close all connections; a pool or `PostgresDatabase` that was given stays open."""
        await self.streams.close()
        if self._is_own:
            await self.database.close()
