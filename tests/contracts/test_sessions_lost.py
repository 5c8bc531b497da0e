"""Every backend's sessions come back from the archive of their threads."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.testing.contracts._sessions_lost import ArchivedSessions, LostSessionsContract, Wipe
from tests._postgres import own_prefix
from tests._sessions import Place, empty_postgres_place, memory_place, redis_place, sqlite_place


@asynccontextmanager
async def losing(places: Iterable[AbstractAsyncContextManager[Place]]) -> AsyncIterator[Wipe]:
    """Each wipe goes on with the next one of these empty places, over one archive."""
    blobs, empty = MemoryBlobs(), iter(places)
    async with AsyncExitStack() as stack:

        async def wipe() -> ArchivedSessions:
            place = await stack.enter_async_context(next(empty))
            threads = TieredThreads(place.threads, blobs)
            return ArchivedSessions(RowSessions(place.rows, threads, together=False), threads)

        yield wipe


class TestMemory(LostSessionsContract):
    @pytest.fixture
    async def wipe(self) -> AsyncIterator[Wipe]:
        """New dicts each time."""
        async with losing(memory_place(together=False)() for _ in range(9)) as wipe:
            yield wipe


class TestSqlite(LostSessionsContract):
    @pytest.fixture
    async def wipe(self, data_directory: Path) -> AsyncIterator[Wipe]:
        """A new file each time."""
        async with losing(sqlite_place(data_directory / f"{n}.db") for n in range(9)) as wipe:
            yield wipe


class TestRedis(LostSessionsContract):
    @pytest.fixture
    async def wipe(self, redis_url: str, redis_prefix: str) -> AsyncIterator[Wipe]:
        """A new prefix each time."""
        async with losing(redis_place(redis_url, f"{redis_prefix}{n}:") for n in range(9)) as wipe:
            yield wipe


class TestPostgres(LostSessionsContract):
    @pytest.fixture
    async def wipe(self, postgres_dsn: str) -> AsyncIterator[Wipe]:
        """The same tables, emptied each time."""
        async with losing(empty_postgres_place(postgres_dsn, own_prefix("l")) for _ in range(9)) as wipe:
            yield wipe
