"""How each backend's sessions are opened, here and in other processes."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.session_rows import SessionRows
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sqlite import SqliteBackend
from tests import _postgres

CONNECTIONS = 4

LONG = os.environ.get("HELIX_CAMPAIGN") == "1"
"""Whether the long form of a campaign was asked for: ``make campaign``."""


class Place(NamedTuple):
    """Where sessions lie, and the hot threads that lie with them."""

    rows: SessionRows
    threads: HotTier


PlaceOpener = Callable[[], AbstractAsyncContextManager[Place]]
"""Opens the same place as often as one likes; picklable but for memory's."""


def memory_place(*, together: bool = True) -> PlaceOpener:
    """Dicts of one's own; ``together``: sessions and threads are committed in one unit."""
    threads = MemoryThreads()
    place = Place(MemorySessions(threads if together else None), threads)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Place]:
        yield place

    return opened


@asynccontextmanager
async def sqlite_place(file: Path) -> AsyncIterator[Place]:
    """A database file as it is."""
    backend = SqliteBackend(file, timeout=60)
    try:
        yield Place(backend.sessions, backend.threads)
    finally:
        await backend.close()


@asynccontextmanager
async def redis_place(url: str, prefix: str, *, cluster: bool = False) -> AsyncIterator[Place]:
    """A prefix as it is."""
    backend = RedisBackend(url, prefix=prefix, cluster=cluster, timeout=60, max_connections=CONNECTIONS)
    try:
        yield Place(backend.sessions, backend.threads)
    finally:
        await backend.close()


@asynccontextmanager
async def postgres_place(dsn: str, table_prefix: str) -> AsyncIterator[Place]:
    """Tables as they are."""
    backend = PostgresBackend(dsn, table_prefix=table_prefix, max_connections=CONNECTIONS, timeout=60)
    try:
        yield Place(backend.sessions, backend.threads)
    finally:
        await backend.close()


@asynccontextmanager
async def empty_postgres_place(dsn: str, table_prefix: str) -> AsyncIterator[Place]:
    """Tables that are empty now."""
    async with _postgres.emptied(dsn, table_prefix, max_connections=CONNECTIONS) as backend:
        yield Place(backend.sessions, backend.threads)
