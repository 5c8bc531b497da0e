"""Long threads of LangGraph, ours and `AsyncPostgresSaver`, in the same database.

In an environment with the extra ``langgraph`` and bench/peers/langgraph.txt, with the address of a database
that may be written to::

    HELIX_POSTGRES_DSN=postgresql://… python -m bench.frameworks.langgraph_threads [CHECKPOINTS]
"""

import asyncio
import os
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.langgraph import HelixSaver
from helix_temporal.stores.postgres import PostgresBackend

SHORT: Final = 100
READS: Final = 50
CONFIG: Final[Any] = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
TEXT: Final = "What a turn says is about as long as this line, and a second one like it. " * 4


@asynccontextmanager
async def open_ours(dsn: str, schema: str) -> AsyncIterator[tuple[Any, str]]:
    """Our saver in PostgreSQL, and what its tables' names begin with."""
    prefix = f"{schema}_"
    backends = Backends(
        Settings.from_env(
            {"HELIX_POSTGRES_DSN": dsn, "HELIX_TABLE_PREFIX": prefix, "HELIX_ALLOW_PLAINTEXT": "true"}
        )
    )
    await migrate(dsn, prefix)
    assert backends.records is not None
    assert backends.sessions is not None
    try:
        yield HelixSaver(backends.records, backends.sessions), f"public.{prefix}"
    finally:
        await backends.close()


@asynccontextmanager
async def open_theirs(dsn: str, schema: str) -> AsyncIterator[tuple[Any, str]]:
    """The saver of LangGraph, in a schema of its own."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"CREATE SCHEMA {schema}")
    await connection.close()
    separator = "&" if "?" in dsn else "?"
    async with AsyncPostgresSaver.from_conn_string(
        f"{dsn}{separator}options=-csearch_path%3D{schema}"
    ) as saver:
        await saver.setup()
        yield saver, f"{schema}."


async def migrate(dsn: str, prefix: str) -> None:
    """Make our tables."""
    backend = PostgresBackend(dsn, table_prefix=prefix)
    await backend.migrations.run()
    await backend.close()


async def put_turns(saver: Any, first: int, last: int, config: Any) -> Any:
    """Checkpoints as a graph makes them: one channel changes each time, one stays, a task has written."""
    for step in range(first, last):
        version = saver.get_next_version(f"{step:032}.0", None)
        checkpoint = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=step)),
            "channel_values": {"said": f"{step} {TEXT}", "kept": "x" * 100},
            "channel_versions": {"said": version, "kept": f"{1:032}.0"},
            "versions_seen": {"node": {"said": version}},
        }
        new = {"said": version} if step else {"said": version, "kept": f"{1:032}.0"}
        config = await saver.aput(config, checkpoint, {"source": "loop", "step": step, "parents": {}}, new)
        await saver.aput_writes(config, [("said", f"{step} {TEXT}")], str(uuid.UUID(int=step)))
    return config


async def time_median(ask: Callable[[], Awaitable[Any]]) -> float:
    """Milliseconds of one call."""
    taken = []
    for _ in range(READS):
        start = time.perf_counter()
        await ask()
        taken.append(time.perf_counter() - start)
    return 1_000 * statistics.median(taken)


async def list_ten(saver: Any) -> None:
    """A page of the history."""
    assert len([each async for each in saver.alist(CONFIG, limit=10)]) == 10


async def measure_bytes(dsn: str, begins: str) -> int:
    """What the tables take with their indexes, without what is dead."""
    connection = await asyncpg.connect(dsn)
    schema, prefix = begins.split(".")
    tables = await connection.fetch(
        "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) AS name FROM pg_tables"
        " WHERE schemaname = $1 AND starts_with(tablename, $2)",
        schema,
        prefix,
    )
    size = 0
    for table in tables:
        await connection.execute(f"VACUUM FULL {table['name']}")
        size += await connection.fetchval("SELECT pg_total_relation_size($1::regclass)", table["name"])
    await connection.close()
    return size


async def measure(name: str, opened: Any, dsn: str, length: int) -> None:
    """One saver's row."""
    async with opened as (saver, begins):
        config = await put_turns(saver, 0, SHORT, CONFIG)
        short = await time_median(lambda: saver.aget_tuple(CONFIG))
        start = time.perf_counter()
        await put_turns(saver, SHORT, length, config)
        turn = 1_000 * (time.perf_counter() - start) / (length - SHORT)
        long = await time_median(lambda: saver.aget_tuple(CONFIG))
        page = await time_median(lambda: list_ten(saver))
        full = await measure_bytes(dsn, begins)
        start = time.perf_counter()
        try:
            await saver.aprune(["t"])
            pruned = f"{time.perf_counter() - start:.1f} s"
        except NotImplementedError:
            pruned = "none"
        assert await saver.aget_tuple(CONFIG) is not None
        left = await measure_bytes(dsn, begins)
        print(
            f"| {name} | {turn:.1f} ms | {short:.1f} ms | {long:.1f} ms | {page:.1f} ms |"
            f" {full / length:,.0f} | {pruned} | {left / 1_000:,.0f} kB |"
        )


async def main() -> None:
    """The table."""
    dsn, length = os.environ["HELIX_POSTGRES_DSN"], int((sys.argv[1:] or ["10000"])[0])
    print(f"{length:,} checkpoints of one thread; medians of {READS} reads\n")
    print(
        f"| saver | a turn | newest at {SHORT} | newest at {length:,} | newest ten | bytes a checkpoint |"
        " prune | left |\n|---|---|---|---|---|---|---|---|"
    )
    schema = f"bench{uuid.uuid4().hex[:8]}"
    await measure("HelixSaver", open_ours(dsn, schema), dsn, length)
    await measure("AsyncPostgresSaver", open_theirs(dsn, schema), dsn, length)


if __name__ == "__main__":
    asyncio.run(main())
