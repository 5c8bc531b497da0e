"""Tables on the shared PostgreSQL: made once a process and prefix, emptied for each test."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from helix_temporal.stores.postgres import PostgresBackend

_MIGRATED: set[tuple[str, str]] = set()
_DELETES: dict[str, str] = {}
"""What empties the tables of a prefix."""


def own_prefix(name: str = "t") -> str:
    """A prefix that no other process of the run has."""
    return f"{name}{os.getpid()}_"


@asynccontextmanager
async def emptied(dsn: str, prefix: str, **options: Any) -> AsyncIterator[PostgresBackend]:
    """A backend over empty tables of that prefix, closed at the end."""
    backend = PostgresBackend(dsn, table_prefix=prefix, **{"timeout": 60, **options})
    try:
        if (dsn, prefix) in _MIGRATED:
            await empty(backend)
        else:
            await backend.migrations.run()
            _MIGRATED.add((dsn, prefix))
        yield backend
    finally:
        await backend.close()


async def empty(backend: PostgresBackend) -> None:
    """Empty all tables of a backend, whose prefix is the process's own."""
    prefix = backend.table_prefix
    if prefix not in _DELETES:
        _DELETES[prefix] = await _deletes(backend)
    await backend.database.execute(_DELETES[prefix])


async def _deletes(backend: PostgresBackend) -> str:
    # Quicker than TRUNCATE where there are few rows.
    rows = await backend.database.fetch(
        "SELECT quote_ident(tablename) AS name FROM pg_tables"
        " WHERE schemaname = current_schema() AND starts_with(tablename, $1) AND tablename <> $2",
        backend.table_prefix,
        f"{backend.table_prefix}migrations",
    )
    return ";".join(f"DELETE FROM {row['name']}" for row in rows)
