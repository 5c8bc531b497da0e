"""Backups of the servers that hold sessions, put back while everything else has gone on."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from redis.asyncio import Redis

from helix_temporal.settings import Settings
from helix_temporal.stores.postgres import PostgresBackend


class Backup(Protocol):
    """What one server holds of the sessions, at one time."""

    async def take(self) -> None: ...

    async def put_back(self) -> None: ...


class PostgresBackup:
    """All tables of one prefix, each copied beside itself."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._names = settings, list[str]()

    async def take(self) -> None:
        """Copy them."""
        async with self._connected() as tables:
            rows = await tables.database.fetch(
                "SELECT tablename AS name FROM pg_tables"
                " WHERE schemaname = current_schema() AND starts_with(tablename, $1)",
                tables.table_prefix,
            )
            self._names = [row["name"] for row in rows]
            for name in self._names:
                await tables.database.execute(f'CREATE TABLE "{name}_bak" AS TABLE "{name}"')

    async def put_back(self) -> None:
        """The copies, at one moment."""
        async with self._connected() as tables, tables.database.transaction() as work:
            for name in self._names:
                await work.execute(f'TRUNCATE "{name}"')
                # Generated columns are made anew, as by pg_restore.
                given = await work.fetchrow(
                    "SELECT string_agg(quote_ident(column_name), ', ') AS names"
                    " FROM information_schema.columns"
                    " WHERE table_schema = current_schema() AND table_name = $1 AND is_generated = 'NEVER'",
                    name,
                )
                assert given is not None
                columns = given["names"]
                await work.execute(f'INSERT INTO "{name}" ({columns}) SELECT {columns} FROM "{name}_bak"')

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[PostgresBackend]:
        # Fixtures run on another loop than tests do.
        tables = PostgresBackend(self._settings.postgres_dsn or "", table_prefix=self._settings.table_prefix)
        try:
            yield tables
        finally:
            await tables.close()


class RedisBackup:
    """All keys of one prefix."""

    def __init__(self, settings: Settings) -> None:
        self._url, self._prefix = settings.redis_url or "", settings.redis_prefix
        self._kept: dict[bytes, bytes] = {}

    async def take(self) -> None:
        """Dump them."""
        async with Redis.from_url(self._url) as redis:
            keys = [key async for key in redis.scan_iter(match=f"{self._prefix}*")]
            self._kept = {key: dumped for key in keys if (dumped := await redis.dump(key)) is not None}

    async def put_back(self) -> None:
        """The dumps, at one moment."""
        async with Redis.from_url(self._url) as redis, redis.pipeline(transaction=True) as pipe:
            gone = [key async for key in redis.scan_iter(match=f"{self._prefix}*")]
            if gone:
                pipe.delete(*gone)
            for key, dumped in self._kept.items():
                pipe.restore(key, 0, dumped)
            await pipe.execute()


class FilesBackup:
    """The data directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._copy = directory.with_name(f"{directory.name}-copy")

    async def take(self) -> None:
        """Copy it."""
        shutil.copytree(self._directory, self._copy)

    async def put_back(self) -> None:
        """The copy in its place."""
        shutil.rmtree(self._directory)
        shutil.copytree(self._copy, self._directory)
