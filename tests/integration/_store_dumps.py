"""All that stores hold, to be compared: not only values, but when they expire and when they were written."""

import hashlib
import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
from redis.asyncio import Redis

from helix_temporal.backends import Backends


async def dump_redis(url: str, prefix: str) -> dict[str, Any]:
    """Each key with its bytes and the time at which it expires."""
    async with Redis.from_url(url) as redis:
        return {
            key.decode(): (await redis.dump(key), await redis.pexpiretime(key))
            async for key in redis.scan_iter(match=f"{prefix}*", count=1000)
        }


async def dump_postgres(dsn: str, prefix: str) -> dict[str, Any]:
    """Each table's rows with the transaction that wrote them."""
    connection = await asyncpg.connect(dsn)
    try:
        names = await connection.fetch(
            "SELECT tablename FROM pg_tables"
            " WHERE schemaname = current_schema() AND starts_with(tablename, $1)",
            prefix,
        )
        return {
            row["tablename"]: sorted(
                str(each[0])
                for each in await connection.fetch(
                    f'SELECT (t.*, t.xmin, t.ctid)::text FROM "{row["tablename"]}" t'
                )
            )
            for row in names
        }
    finally:
        await connection.close()


def dump_files(root: Path) -> dict[str, Any]:
    """Each file's bytes and time of change; of SQLite what its database says instead."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        if not path.is_file() or path.name.endswith(("-wal", "-shm")):
            continue
        if path.read_bytes()[:15] == b"SQLite format 3":
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
                found[str(path)] = list(database.iterdump())
        else:
            stat = path.stat()
            found[str(path)] = (hashlib.sha256(path.read_bytes()).hexdigest(), stat.st_mtime_ns)
    return found


async def dump_archive(backends: Backends) -> dict[str, Any]:
    """Each object of the archive with its bytes; other tests write below other prefixes of the bucket."""
    assert backends.blobs is not None
    found = {}
    async for each in backends.blobs.list(f"{backends.settings.s3_prefix}/"):
        blob = await backends.blobs.get(each.key)
        assert blob is not None
        found[each.key] = (each.size, hashlib.sha256(blob.data).hexdigest(), blob.etag)
    return found
