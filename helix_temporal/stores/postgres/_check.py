"""The start-up check: refuse a server that would not do."""

from typing import Final

from helix_temporal.errors import InvalidConfigError, StoreUnavailableError, UnsupportedServerError
from helix_temporal.stores.postgres._adapter import AsyncpgAdapter
from helix_temporal.stores.postgres._errors import statement_lost
from helix_temporal.stores.postgres._migrations import PostgresMigrations
from helix_temporal.stores.postgres._protocol import PostgresAdapter

_OLDEST: Final = 13
_NO_TRANSACTION: Final = frozenset({"08003", "08P01"})
"""PgBouncer's words for a transaction in statement mode: it refuses ``BEGIN`` and closes the connection."""
_LOOK: Final = """SELECT current_setting('server_version_num')::int / 10000 AS version,
    pg_is_in_recovery() AS standby, current_setting('transaction_read_only') = 'on' AS read_only,
    current_setting('server_encoding') AS encoding"""

_LACKING: Final = """SELECT tables.name AS name, string_agg(rights.name, ', ' ORDER BY rights.name) AS rights
    FROM unnest($1::text[]) AS tables (name),
        unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS rights (name)
    WHERE NOT has_table_privilege(
        to_regclass(quote_ident(current_schema()) || '.' || quote_ident(tables.name)), rights.name
    )
    GROUP BY tables.name ORDER BY tables.name"""


async def check_database(adapter: PostgresAdapter, prefix: str) -> None:
    """Refuse a server, tables or rights that would not do.

    Raises:
        UnsupportedServerError: See `check_server`.
        InvalidConfigError: See `check_pooler`.
        SchemaVersionError: The tables are older or newer than this package needs.
        InvalidConfigError: The user lacks rights on tables; it names both.
    """
    await check_server(adapter)
    await check_pooler(adapter)
    migrations = PostgresMigrations(adapter, table_prefix=prefix)
    await migrations.verify()
    lacking = await adapter.fetch(_LACKING, migrations.tables)
    if lacking:
        told = "; ".join(f'{row["rights"]} on "{row["name"]}"' for row in lacking)
        raise InvalidConfigError(f"PostgreSQL at {adapter.where}: the user lacks rights; grant {told}")


async def check_server(adapter: PostgresAdapter) -> None:
    """Ask the server what it is.

    Raises:
        UnsupportedServerError: It is older than PostgreSQL 13, read-only, or not in UTF-8.
    """
    (row,) = await adapter.fetch(_LOOK)
    refuse_unsupported(
        adapter.where, row["version"], row["encoding"], read_only=row["standby"] or row["read_only"]
    )


async def check_pooler(adapter: PostgresAdapter) -> None:
    """Look for a pooler between that would fail each call later.

    Raises:
        InvalidConfigError: It allows no transactions, or loses the statements that are prepared by name.
    """
    try:
        async with adapter.transaction() as transaction:
            await transaction.fetchval("SELECT 1")
            await transaction.fetchval("SELECT 2")
    except StoreUnavailableError as error:
        # Single statements have just been taken, so the server is there.
        state = error.facts.get("sqlstate")
        if state not in _NO_TRANSACTION:
            raise
        raise InvalidConfigError(
            f"PostgreSQL at {adapter.where} takes statements and refuses transactions ({state}): a pooler in "
            "statement mode stands between; set its pool_mode to transaction or session",
            sqlstate=state,
        ) from error
    if isinstance(adapter, AsyncpgAdapter) and await adapter.loses_statements():
        raise statement_lost(adapter.where, "keeps no prepared statement")


def refuse_unsupported(where: str, version: int, encoding: str, *, read_only: bool) -> None:
    """Refuse what does not take our statements or would change our texts.

    Raises:
        UnsupportedServerError: It says what was found and what is needed.
    """
    if version < _OLDEST:
        raise UnsupportedServerError(
            f"PostgreSQL at {where}: version {version}, at least {_OLDEST} needed", found=version
        )
    if read_only:
        raise UnsupportedServerError(
            f"PostgreSQL at {where} is read-only, a standby perhaps; name the primary"
        )
    if encoding != "UTF8":
        raise UnsupportedServerError(
            f"PostgreSQL at {where}: the database's encoding is {encoding}, UTF8 needed", found=encoding
        )
