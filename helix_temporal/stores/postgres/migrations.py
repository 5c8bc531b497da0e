"""Bringing the tables to the newest version, and the check at the start."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    MigrationError,
    SchemaVersionError,
    StoreUnavailableError,
    UnsupportedServerError,
)
from helix_temporal.stores.postgres.database import (
    AsyncpgDatabase,
    DatabaseOrPool,
    PostgresDatabase,
    PostgresExecutor,
    as_database,
    run_in_transaction,
    statement_lost,
)
from helix_temporal.stores.postgres.queries import DEFAULT_PREFIX, NOW, check_prefix

_FOLDER: Final = files("helix_temporal.stores.postgres") / "migrations"
_FILE: Final = re.compile(r"V(\d{3})__([a-z0-9_]+)\.sql")
_MADE: Final = re.compile(r'CREATE TABLE (?:IF NOT EXISTS )?"\{prefix\}(\w+)"')
_DROPPED: Final = re.compile(r"DROP TABLE ([^;]+);")
_NAME: Final = re.compile(r'"\{prefix\}(\w+)"')
_SECONDS: Final = 600.0
"""A migration may take long, and so may waiting for somebody else's."""

TABLE: Final = """CREATE TABLE IF NOT EXISTS "{prefix}migrations" (
    version    INTEGER PRIMARY KEY,
    name       TEXT   NOT NULL,
    checksum   TEXT   NOT NULL,
    applied_at BIGINT NOT NULL
);
"""

_TAKEN: Final = re.compile(r'relation "(\w+)" already exists')
_NO_COLUMN: Final = "42703"
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1 || ':' || current_schema(), 0))"
_EXISTS: Final = "SELECT to_regclass(quote_ident(current_schema()) || '.' || quote_ident($1)) IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema; ``text`` still has ``{prefix}`` in it."""

    version: int
    name: str
    text: str
    checksum: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checksum", hashlib.sha256(self.text.encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class MigrationResult:
    """What a run did: the versions it applied, in order, and the one that the schema has now."""

    applied: tuple[int, ...]
    current: int


@cache
def load_migrations() -> tuple[Migration, ...]:
    """All migrations that this version of the package knows, in order and without gaps."""
    found = [(match, path) for path in _FOLDER.iterdir() if (match := _FILE.fullmatch(path.name))]
    made = [Migration(int(match[1]), match[2], path.read_text("utf-8")) for match, path in found]
    return tuple(sorted(made, key=lambda each: each.version))


class PostgresMigrations:
    """The versions of one prefix's tables, in the schema that the connection uses.

    Args:
        database: A `PostgresDatabase`, or an asyncpg pool; whoever made it closes it.
        table_prefix: See `check_prefix`; each prefix has versions of its own.
        migrations: Others than the package's own; for tests.

    Raises:
        InvalidConfigError: The prefix is not acceptable.
    """

    def __init__(
        self,
        database: DatabaseOrPool,
        *,
        table_prefix: str = DEFAULT_PREFIX,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        self._database, self._prefix = as_database(database), check_prefix(table_prefix)
        self._migrations = tuple(load_migrations() if migrations is None else migrations)

    @property
    def latest(self) -> int:
        """The newest version that this package knows."""
        return self._migrations[-1].version if self._migrations else 0

    @property
    def tables(self) -> list[str]:
        """The names of the tables that are there at the end, without the one that remembers versions."""
        text = "\n".join(each.text for each in self._migrations)
        dropped = {name for names in _DROPPED.findall(text) for name in _NAME.findall(names)}
        return [f"{self._prefix}{name}" for name in _MADE.findall(text) if name not in dropped]

    async def run(
        self, *, target: int | None = None, on_start: Callable[[Migration], None] | None = None
    ) -> MigrationResult:
        """Apply what is missing, up to ``target`` or all, in one transaction.

        ``on_start`` is told each migration before it runs; where the transaction is run again, again.

        However many processes do it at once, each version is applied once: they wait for each other.
        Repeating it applies nothing.

        Raises:
            MigrationError: A migration failed (then none of this run took effect), one that was applied
                has another text here, there is no such target, or a table of that name is somebody else's.
            UnsupportedServerError: See `check_server`.
            InvalidConfigError: There is no schema, or the user may make no tables in it.
        """
        self._check_target(target)
        await check_server(self._database)

        async def work(transaction: PostgresExecutor) -> MigrationResult:
            await transaction.execute(_LOCK, self._lock_name, timeout=_SECONDS)
            await transaction.execute(self._fill_prefix(TABLE), timeout=_SECONDS)
            applied = await self._read_applied(transaction)
            pending = self._select_pending(applied, target)
            for migration in pending:
                if on_start is not None:
                    on_start(migration)
                await self._apply_migration(transaction, migration)
            versions = tuple(each.version for each in pending)
            return MigrationResult(versions, max((*applied, *versions), default=0))

        # Statements of programs that run meanwhile may deadlock with it.
        return await run_in_transaction(self._database, work)

    async def pending(self, target: int | None = None) -> tuple[Migration, ...]:
        """What `run` would apply now; changes nothing.

        Raises:
            MigrationError: One that was applied has another text here, or there is no such target.
        """
        self._check_target(target)
        return self._select_pending(await self._find_applied(), target)

    async def current_version(self) -> int:
        """The newest version that was applied; 0 where there is none."""
        return max(await self._find_applied(), default=0)

    async def verify(self, *, allow_newer: bool = False) -> int:
        """Refuse a schema that this code was not written for; returns its version.

        Raises:
            SchemaVersionError: It is older, or newer without ``allow_newer``.
            MigrationError: A migration was applied with another text.
        """
        applied = await self._find_applied()
        current = max(applied, default=0)
        missing = self._select_pending(applied, None)
        if missing:
            raise SchemaVersionError(
                f"tables {self._prefix}*: version {current} found, {self.latest} needed; "
                "run: helix-temporal migrate",
                found_version=current,
                expected_version=self.latest,
            )
        if current > self.latest and not allow_newer:
            raise SchemaVersionError(
                f"tables {self._prefix}*: version {current} found, this package knows {self.latest}; "
                "upgrade it",
                found_version=current,
                expected_version=self.latest,
            )
        return current

    def script(self, migrations: Sequence[Migration]) -> str:
        """What `run` sends for these migrations, as one script for psql."""
        parts = [
            "BEGIN;\n",
            f"{_LOCK.replace('$1', _quote_text(self._lock_name))};\n",
            self._fill_prefix(TABLE),
        ]
        parts += [f"-- V{each.version} {each.name}\n{self._build_statements(each)}" for each in migrations]
        return "\n".join([*parts, "COMMIT;\n"])

    @property
    def _lock_name(self) -> str:
        return f"helix_temporal:{self._prefix}"

    def _build_statements(self, migration: Migration) -> str:
        remembered = self._fill_prefix(_insert_statement(migration))
        return f"{self._fill_prefix(migration.text).rstrip()}\n\n{remembered}"

    def _check_target(self, target: int | None) -> None:
        if target is not None and not 1 <= target <= self.latest:
            raise MigrationError(f"version {target}: there are versions 1 to {self.latest}")

    def _fill_prefix(self, text: str) -> str:
        return text.replace("{prefix}", self._prefix)

    async def _find_applied(self) -> Mapping[int, str]:
        if not await self._database.fetchval(_EXISTS, f"{self._prefix}migrations"):
            return {}
        return await self._read_applied(self._database)

    async def _read_applied(self, on: PostgresExecutor) -> Mapping[int, str]:
        try:
            rows: list[Any] = await on.fetch(
                self._fill_prefix('SELECT version, checksum FROM "{prefix}migrations"')
            )
        except SchemaVersionError as error:
            if error.facts.get("sqlstate") != _NO_COLUMN:
                raise
            raise _foreign_error(f"{self._prefix}migrations") from error
        return {row["version"]: row["checksum"] for row in rows}

    def _select_pending(self, applied: Mapping[int, str], target: int | None) -> tuple[Migration, ...]:
        for migration in self._migrations:
            checksum = applied.get(migration.version)
            if checksum not in {None, migration.checksum}:
                raise MigrationError(
                    f"migration V{migration.version} {migration.name} was applied with another text; "
                    "released migrations are never edited",
                    version=migration.version,
                )
        current = max(applied, default=0)
        missing = tuple(each for each in self._migrations if each.version not in applied)
        if missing and missing[0].version < current:
            raise MigrationError(
                f"version {missing[0].version} was never applied, yet {current} was; "
                f"look at {self._prefix}migrations",
                version=missing[0].version,
            )
        return tuple(each for each in missing if target is None or each.version <= target)

    async def _apply_migration(self, transaction: PostgresExecutor, migration: Migration) -> None:
        try:
            await transaction.execute(self._build_statements(migration), timeout=_SECONDS)
        except StoreUnavailableError:
            raise
        except HelixError as error:
            if taken := _TAKEN.search(str(error.__cause__)):
                raise _foreign_error(taken[1], version=migration.version) from error
            state = error.facts.get("sqlstate") or type(error).__name__
            told = error if isinstance(error, InvalidConfigError) else state
            raise MigrationError(
                f"migration V{migration.version} {migration.name} failed and nothing was changed ({told})",
                version=migration.version,
                sqlstate=error.facts.get("sqlstate"),
            ) from error


def _foreign_error(name: str, **facts: int) -> MigrationError:
    return MigrationError(
        f'there is already a table or index "{name}", and no migration of this package has made it; nothing'
        " was changed; set HELIX_TABLE_PREFIX to a prefix that nobody else uses, or name another schema",
        **facts,
    )


def _quote_text(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _insert_statement(migration: Migration) -> str:
    return (
        'INSERT INTO "{prefix}migrations" (version, name, checksum, applied_at)\n'
        f"VALUES ({migration.version}, {_quote_text(migration.name)}, '{migration.checksum}', {NOW});\n"
    )


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


async def check_database(database: PostgresDatabase, prefix: str) -> None:
    """Refuse a server, tables or rights that would not do.

    Raises:
        UnsupportedServerError: See `check_server`.
        InvalidConfigError: See `check_pooler`.
        SchemaVersionError: The tables are older or newer than this package needs.
        InvalidConfigError: The user lacks rights on tables; it names both.
    """
    await check_server(database)
    await check_pooler(database)
    migrations = PostgresMigrations(database, table_prefix=prefix)
    await migrations.verify()
    lacking = await database.fetch(_LACKING, migrations.tables)
    if lacking:
        told = "; ".join(f'{row["rights"]} on "{row["name"]}"' for row in lacking)
        raise InvalidConfigError(f"PostgreSQL at {database.where}: the user lacks rights; grant {told}")


async def check_server(database: PostgresDatabase) -> None:
    """Ask the server what it is.

    Raises:
        UnsupportedServerError: It is older than PostgreSQL 13, read-only, or not in UTF-8.
    """
    (row,) = await database.fetch(_LOOK)
    refuse_unsupported(
        database.where, row["version"], row["encoding"], read_only=row["standby"] or row["read_only"]
    )


async def check_pooler(database: PostgresDatabase) -> None:
    """Look for a pooler between that would fail each call later.

    Raises:
        InvalidConfigError: It allows no transactions, or loses the statements that are prepared by name.
    """
    try:
        async with database.transaction() as transaction:
            await transaction.fetchval("SELECT 1")
            await transaction.fetchval("SELECT 2")
    except StoreUnavailableError as error:
        # Single statements have just been taken, so the server is there.
        state = error.facts.get("sqlstate")
        if state not in _NO_TRANSACTION:
            raise
        raise InvalidConfigError(
            f"PostgreSQL at {database.where} takes statements and refuses transactions ({state}): a pooler "
            "in statement mode stands between; set its pool_mode to transaction or session",
            sqlstate=state,
        ) from error
    if isinstance(database, AsyncpgDatabase) and await database.loses_statements():
        raise statement_lost(database.where, "keeps no prepared statement")


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
