"""Bringing the tables to the newest version: all of it, or nothing."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from helix_temporal.errors import HelixError, MigrationError, SchemaVersionError, StoreUnavailableError
from helix_temporal.stores.postgres._adapter import Database, as_adapter
from helix_temporal.stores.postgres._names import DEFAULT_PREFIX, check_prefix
from helix_temporal.stores.postgres._protocol import PostgresExecutor, transact
from helix_temporal.stores.postgres._queries import NOW

_FOLDER: Final = files("helix_temporal.stores.postgres") / "migrations"
_FILE: Final = re.compile(r"V(\d{3})__([a-z0-9_]+)\.sql")
_MADE: Final = re.compile(r'CREATE TABLE (?:IF NOT EXISTS )?"\{prefix\}(\w+)"')
_SECONDS: Final = 600.0
"""A migration may take long, and so may waiting for somebody else's."""

TABLE: Final = """CREATE TABLE IF NOT EXISTS "{prefix}migrations" (
    version    INTEGER PRIMARY KEY,
    name       TEXT   NOT NULL,
    checksum   TEXT   NOT NULL,
    applied_at BIGINT NOT NULL
);
"""

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
def released() -> tuple[Migration, ...]:
    """All migrations that this version of the package knows, in order and without gaps."""
    found = [(match, path) for path in _FOLDER.iterdir() if (match := _FILE.fullmatch(path.name))]
    made = [Migration(int(match[1]), match[2], path.read_text("utf-8")) for match, path in found]
    return tuple(sorted(made, key=lambda each: each.version))


class PostgresMigrations:
    """The versions of one prefix's tables, in the schema that the connection uses.

    Args:
        database: An adapter, or an asyncpg pool; whoever made it closes it.
        table_prefix: See `check_prefix`; each prefix has versions of its own.
        migrations: Others than the package's own; for tests.

    Raises:
        InvalidConfigError: The prefix is not acceptable.
    """

    def __init__(
        self,
        database: Database,
        *,
        table_prefix: str = DEFAULT_PREFIX,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        self._adapter, self._prefix = as_adapter(database), check_prefix(table_prefix)
        self._migrations = tuple(released() if migrations is None else migrations)

    @property
    def latest(self) -> int:
        """The newest version that this package knows."""
        return self._migrations[-1].version if self._migrations else 0

    @property
    def tables(self) -> list[str]:
        """The names of the tables that it makes, without the one that remembers versions."""
        made = (name for each in self._migrations for name in _MADE.findall(each.text))
        return [f"{self._prefix}{name}" for name in made]

    async def run(
        self, *, target: int | None = None, on_start: Callable[[Migration], None] | None = None
    ) -> MigrationResult:
        """Apply what is missing, up to ``target`` or all, in one transaction.

        ``on_start`` is told each migration before it runs; where the transaction is run again, again.

        However many processes do it at once, each version is applied once: they wait for each other.
        Repeating it applies nothing.

        Raises:
            MigrationError: A migration failed (then none of this run took effect), one that was applied
                has another text here, or there is no such target.
        """
        self._check_target(target)

        async def work(transaction: PostgresExecutor) -> MigrationResult:
            await transaction.execute(_LOCK, self._lock_name, timeout=_SECONDS)
            await transaction.execute(self._filled(TABLE), timeout=_SECONDS)
            applied = await self._applied(transaction)
            pending = self._pending(applied, target)
            for migration in pending:
                if on_start is not None:
                    on_start(migration)
                await self._apply(transaction, migration)
            versions = tuple(each.version for each in pending)
            return MigrationResult(versions, max((*applied, *versions), default=0))

        # Statements of programs that run meanwhile may deadlock with it.
        return await transact(self._adapter, work)

    async def pending(self, target: int | None = None) -> tuple[Migration, ...]:
        """What `run` would apply now; changes nothing.

        Raises:
            MigrationError: One that was applied has another text here, or there is no such target.
        """
        self._check_target(target)
        return self._pending(await self._found(), target)

    async def current_version(self) -> int:
        """The newest version that was applied; 0 where there is none."""
        return max(await self._found(), default=0)

    async def verify(self, *, allow_newer: bool = False) -> int:
        """Refuse a schema that this code was not written for; returns its version.

        Raises:
            SchemaVersionError: It is older, or newer without ``allow_newer``.
            MigrationError: A migration was applied with another text.
        """
        applied = await self._found()
        current = max(applied, default=0)
        missing = self._pending(applied, None)
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
        parts = ["BEGIN;\n", f"{_LOCK.replace('$1', _quoted(self._lock_name))};\n", self._filled(TABLE)]
        parts += [f"-- V{each.version} {each.name}\n{self._statements(each)}" for each in migrations]
        return "\n".join([*parts, "COMMIT;\n"])

    @property
    def _lock_name(self) -> str:
        return f"helix_temporal:{self._prefix}"

    def _statements(self, migration: Migration) -> str:
        return f"{self._filled(migration.text).rstrip()}\n\n{self._filled(_remember(migration))}"

    def _check_target(self, target: int | None) -> None:
        if target is not None and not 1 <= target <= self.latest:
            raise MigrationError(f"version {target}: there are versions 1 to {self.latest}")

    def _filled(self, text: str) -> str:
        return text.replace("{prefix}", self._prefix)

    async def _found(self) -> Mapping[int, str]:
        if not await self._adapter.fetchval(_EXISTS, f"{self._prefix}migrations"):
            return {}
        return await self._applied(self._adapter)

    async def _applied(self, on: PostgresExecutor) -> Mapping[int, str]:
        rows: list[Any] = await on.fetch(self._filled('SELECT version, checksum FROM "{prefix}migrations"'))
        return {row["version"]: row["checksum"] for row in rows}

    def _pending(self, applied: Mapping[int, str], target: int | None) -> tuple[Migration, ...]:
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

    async def _apply(self, transaction: PostgresExecutor, migration: Migration) -> None:
        try:
            await transaction.execute(self._statements(migration), timeout=_SECONDS)
        except StoreUnavailableError:
            raise
        except HelixError as error:
            raise MigrationError(
                f"migration V{migration.version} {migration.name} failed and nothing was changed "
                f"({error.facts.get('sqlstate') or type(error).__name__})",
                version=migration.version,
                sqlstate=error.facts.get("sqlstate"),
            ) from error


def _quoted(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _remember(migration: Migration) -> str:
    return (
        'INSERT INTO "{prefix}migrations" (version, name, checksum, applied_at)\n'
        f"VALUES ({migration.version}, {_quoted(migration.name)}, '{migration.checksum}', {NOW});\n"
    )
