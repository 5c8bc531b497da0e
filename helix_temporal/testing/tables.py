"""Tables of one's own in PostgreSQL for the length of a test: migrated before, dropped after."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from helix_temporal.stores.postgres import PostgresBackend


@asynccontextmanager
async def own_tables(
    dsn: str, *, prefix: str | None = None, **options: Any
) -> AsyncIterator[PostgresBackend]:
    """A backend over tables that nobody else uses.

    Args:
        dsn: The database.
        prefix: Of the tables' names; a random one by default.
        options: Further arguments for `PostgresBackend`.

    Raises:
        StoreUnavailableError: The server does not answer.
    """
    backend = PostgresBackend(dsn, table_prefix=prefix or f"t{secrets.token_hex(5)}_", **options)
    try:
        await backend.migrations.run()
        yield backend
    finally:
        await _drop(backend)
        await backend.close()


async def _drop(backend: PostgresBackend) -> None:
    rows = await backend.database.fetch(
        "SELECT quote_ident(tablename) AS name FROM pg_tables"
        " WHERE schemaname = current_schema() AND starts_with(tablename, $1)",
        backend.table_prefix,
    )
    if rows:
        await backend.database.execute(f"DROP TABLE {', '.join(row['name'] for row in rows)}")
