"""The façade's sessions in PostgreSQL: state and messages in the tables that everything else uses."""

from helix_temporal.stores.postgres.backend import PostgresBackend
from helix_temporal.stores.postgres.database import DatabaseOrPool
from helix_temporal.stores.postgres.queries import DEFAULT_PREFIX
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.storage import StoreSessionStorage
from helix_temporal.stores.threads.hot_only import HotThreads


class PostgresSessionStorage(StoreSessionStorage):
    """`SessionStorage` on PostgreSQL; ``helix-temporal migrate`` makes the tables.

    Args:
        database: ``postgresql://user:password@host:port/database``, or a pool or a `PostgresDatabase`; see
            `PostgresBackend`.
        table_prefix: What the names of all tables begin with.

    Raises:
        InvalidConfigError: The DSN or the prefix is not acceptable.
    """

    def __init__(self, database: str | DatabaseOrPool, *, table_prefix: str = DEFAULT_PREFIX) -> None:
        self._backend = PostgresBackend(database, table_prefix=table_prefix)
        store = RowSessions(self._backend.sessions, HotThreads(self._backend.threads))
        super().__init__(store, self._backend.locks)

    async def close(self) -> None:
        """Close all connections."""
        await self._backend.close()
