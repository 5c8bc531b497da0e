"""Connections to one database file, its transactions, and what it raises as errors of ours.

The file is in WAL mode: readers see the last commit and wait for nobody; of all processes one writes at a
time.
"""

import asyncio
import contextlib
import itertools
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiosqlite

from helix_temporal._futures import finish_before_cancel
from helix_temporal._retries import retry_pause
from helix_temporal.errors import (
    HelixError,
    SchemaVersionError,
    StoreCorruptError,
    StoreUnavailableError,
    TooLargeError,
    UnsupportedServerError,
)
from helix_temporal.stores._home_loop import HomeLoop
from helix_temporal.stores.sqlite.queries import load_statement, schema_statements

APPLICATION_ID: Final = 0x48656C78
"""``Helx`` in the file's header: whose database it is."""

VERSION: Final = 1
"""Of the tables; in the file's header as well."""

_OLDEST: Final = (3, 35)
_READERS: Final = 4
_CLOSE_SECONDS: Final = 5.0
_MOST_FINDINGS: Final = 10
_MOST_LOOKED_THROUGH: Final = 2**30
"""Bytes: SQLite 3.40 looks at the clock only once it is through a table."""
_STEPS_BETWEEN_LOOKS: Final = 500
"""Steps of SQLite, about a page each, between two looks at the clock."""

_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_REFUSED: Final = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})
_LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class Statements:
    """Statements by their names, on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def fetch(self, name: str, values: Mapping[str, Any] | None = None) -> list[sqlite3.Row]:
        """All rows of a statement."""
        return [*await self._connection.execute_fetchall(load_statement(name), values or {})]

    async def fetch_one(self, name: str, values: Mapping[str, Any] | None = None) -> sqlite3.Row | None:
        """The first row, None if there is none."""
        rows = await self.fetch(name, values)
        return rows[0] if rows else None

    async def execute_many(self, name: str, values: Iterable[Mapping[str, Any]]) -> None:
        """The same statement for each of the values."""
        given = [*values]
        if len(given) == 1:
            await self._connection.execute_fetchall(load_statement(name), given[0])
        elif given:
            await self._connection.executemany(load_statement(name), given)


@dataclass
class _Opened:
    """What one event loop has open."""

    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_READERS))
    writer: aiosqlite.Connection | None = None
    synced: bool = True
    idle: list[aiosqlite.Connection] = field(default_factory=list)
    inode: int = 0
    closed: bool = False


class Database:
    """One file, for all processes of a machine and one event loop of this one; see `HomeLoop`.

    It is made, with its directory and tables, by the first use.  What a transaction of `write` did is on the
    disk when the block ends, and survives a power cut; a cancel is passed on once nothing of it is under way.

    Args:
        file: On a local file system; ``-wal`` and ``-shm`` lie beside it.
        timeout: Seconds to wait for another process that writes.

    Raises (every method):
        StoreUnavailableError: The disk failed or is full, or another process writes for too long.
        UnsupportedServerError: Access is denied, or the file is the database of something else.
        StoreCorruptError: The file is damaged, or is no database.
        SchemaVersionError: A newer version of the package made its tables.
        InvalidConfigError: Another event loop uses it.
    """

    def __init__(self, file: Path | str, *, timeout: float = 10.0) -> None:
        self.file, self._timeout = Path(file), timeout
        self._home = HomeLoop(f"SQLite database {str(file)!r}")
        self._opened: _Opened | None = None

    async def fetch(self, name: str, values: Mapping[str, Any] | None = None) -> list[sqlite3.Row]:
        """All rows of one statement that only reads."""
        async with self._take_reader() as connection:
            return await Statements(connection).fetch(name, values)

    async def fetch_one(self, name: str, values: Mapping[str, Any] | None = None) -> sqlite3.Row | None:
        """The first row of one statement that only reads, None if there is none."""
        rows = await self.fetch(name, values)
        return rows[0] if rows else None

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Statements]:
        """Several statements that see one instant."""
        async with self._take_reader() as connection, _run_transaction(connection, "BEGIN"):
            yield Statements(connection)

    @asynccontextmanager
    async def write(self, *, synced: bool = True, erases: bool = False) -> AsyncIterator[Statements]:
        """Statements that happen together or not at all, and nobody else's between them.

        Args:
            synced: Without it a power cut may take the transaction back, unless a later one was synced; the
                death of the process does not.
            erases: What is deleted leaves the log beside the file as well, unless somebody reads it just now.
        """
        async with self._take_writer() as opened:
            assert opened.writer is not None
            try:
                if opened.synced is not synced:
                    level = "FULL" if synced else "NORMAL"
                    await opened.writer.execute_fetchall(f"PRAGMA synchronous = {level}")
                    opened.synced = synced
                async with _run_transaction(opened.writer, "BEGIN IMMEDIATE"):
                    yield Statements(opened.writer)
                if erases:
                    await opened.writer.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.Error as error:
                if _primary_code(error) not in _LOCKED:
                    broken, opened.writer = opened.writer, None
                    await _close_connection(broken)
                raise

    async def check(self) -> None:
        """Prove that the file takes writes."""
        async with self.write():
            pass

    async def find_damage(self, within: float) -> tuple[str, ...] | None:
        """What is wrong with the file's structure, by ``PRAGMA quick_check``: at most ten things.

        Whether contents are as they were written is not looked at: the verification of threads does that.

        Args:
            within: Seconds; a large file may take longer.

        Returns:
            None if the time was too short, or the file has more than 1 GiB.
        """
        end = time.monotonic() + within
        async with self._take_reader() as connection:
            if await asyncio.to_thread(_size_of, self.file) > _MOST_LOOKED_THROUGH:
                return None
            await connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS_BETWEEN_LOOKS)
            try:
                rows = await connection.execute_fetchall(f"PRAGMA quick_check({_MOST_FINDINGS})")
            except sqlite3.OperationalError as error:
                if _primary_code(error) != sqlite3.SQLITE_INTERRUPT:
                    raise
                return None
            finally:
                await connection.set_progress_handler(lambda: None, 0)  # 0 takes the handler away
        return tuple(" ".join(str(row[0]).split()) for row in rows if row[0] != "ok")

    async def close(self) -> None:
        """Close all connections; the next use opens new ones."""
        opened, self._opened = self._opened, None
        self._home.release_loop()
        if opened is not None:
            async with opened.writing:
                await _close_all(opened)

    # -- inside

    @asynccontextmanager
    async def _take_writer(self) -> AsyncIterator[_Opened]:
        """What is open, its writer among it, which nobody else uses meanwhile."""
        opened = await self._open_if_closed()
        async with opened.writing:
            with self._raise_store_errors():
                if opened.closed:
                    raise StoreUnavailableError(f"{self._where} was closed meanwhile; repeat the call")
                if opened.writer is None:
                    opened.writer, opened.synced = await self._prepare_writer(), True
                    opened.inode = _inode_of(self.file)
                yield opened

    @asynccontextmanager
    async def _take_reader(self) -> AsyncIterator[aiosqlite.Connection]:
        opened = await self._open_if_closed()
        if opened.writer is None:
            async with self._take_writer():
                pass
        async with opened.reading:
            with self._raise_store_errors():
                connection = opened.idle.pop() if opened.idle else await self._open_connection()
                unharmed = True
                try:
                    yield connection
                except sqlite3.Error as error:
                    unharmed = _primary_code(error) in _LOCKED
                    raise
                finally:
                    if unharmed and not opened.closed:
                        opened.idle.append(connection)
                    else:
                        await _close_connection(connection)

    async def _open_if_closed(self) -> _Opened:
        left = self._opened
        if self._home.claim_loop() and left is not None:
            self._opened = opened = _Opened()
            await _close_all(left)
            return opened
        if left is not None and (left.writer is None or left.inode == _inode_of(self.file)):
            return left
        self._opened = opened = _Opened()
        if left is not None:
            # The file was restored from a copy, or removed: what is written to the old one would be lost.
            async with left.writing:
                await _close_all(left)
        return opened

    async def _prepare_writer(self) -> aiosqlite.Connection:
        """A connection that writes, to a file that has our tables."""
        await asyncio.to_thread(_make_file, self.file)
        connection = await self._open_connection()
        try:
            await self._set_up(connection)
        except BaseException:
            await _close_connection(connection)
            raise
        return connection

    async def _open_connection(self) -> aiosqlite.Connection:
        connection = aiosqlite.connect(self.file, timeout=self._timeout, isolation_level=None)
        # A program that forgets to close would wait for this thread for ever at its end.
        thread: Any = getattr(connection, "_thread", connection)
        thread.daemon = True

        async def opened() -> aiosqlite.Connection:
            return await connection

        try:
            await finish_before_cancel(opened())
        except asyncio.CancelledError:
            await _close_connection(connection)
            raise
        connection.row_factory = sqlite3.Row
        return connection

    async def _set_up(self, connection: aiosqlite.Connection) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise UnsupportedServerError(f"SQLite {sqlite3.sqlite_version} is too old; 3.35 is needed")
        end = time.monotonic() + self._timeout
        for attempt in itertools.count():
            try:
                await self._make_tables(connection)
                return
            except sqlite3.OperationalError as error:
                # Where several processes open a new file, SQLite does not wait by itself.
                if _primary_code(error) not in _LOCKED or time.monotonic() > end:
                    raise
            await asyncio.sleep(retry_pause(attempt, first=0.01, longest=0.05))

    async def _make_tables(self, connection: aiosqlite.Connection) -> None:
        # In one transaction: between two reads another process may make the tables.
        async with _run_transaction(connection, "BEGIN"):
            made = await self._is_made(connection)
        ((mode,),) = await connection.execute_fetchall("PRAGMA journal_mode = WAL")
        if mode != "wal":
            raise UnsupportedServerError(
                f"{self._where}: its file system has no shared memory for WAL; use a local disk"
            )
        await connection.execute_fetchall("PRAGMA synchronous = FULL")
        # macOS keeps what was synced in the drive's cache unless it is asked for more; others ignore it.
        await connection.execute_fetchall("PRAGMA fullfsync = ON")
        # A conversation that somebody has deleted is not to be found in the file any more.
        await connection.execute_fetchall("PRAGMA secure_delete = ON")
        if made:
            return
        async with _run_transaction(connection, "BEGIN IMMEDIATE"):
            if await self._is_made(connection):
                return
            for each in (
                *schema_statements(),
                f"PRAGMA application_id = {APPLICATION_ID}",
                f"PRAGMA user_version = {VERSION}",
            ):
                await connection.execute_fetchall(each)

    async def _is_made(self, connection: aiosqlite.Connection) -> bool:
        """Whether our tables are there."""
        ((owner,),) = await connection.execute_fetchall("PRAGMA application_id")
        ((version,),) = await connection.execute_fetchall("PRAGMA user_version")
        ((tables,),) = await connection.execute_fetchall("SELECT count(*) FROM sqlite_master")
        if owner == APPLICATION_ID and version > VERSION:
            raise SchemaVersionError(
                f"{self._where} has tables of version {version}, this version of the package knows "
                f"{VERSION}; upgrade helix_temporal"
            )
        if owner != APPLICATION_ID and (owner or version or tables):
            raise UnsupportedServerError(f"{self._where} is the database of something else; choose another")
        return bool(version)

    @property
    def _where(self) -> str:
        return f"SQLite database {str(self.file)!r}"

    @contextlib.contextmanager
    def _raise_store_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._error_of_failure(error) from error
        except OSError as error:
            raise self._disk_failure(error) from error

    def _error_of_failure(self, error: sqlite3.Error) -> HelixError:
        code, told = _primary_code(error), f"{self._where}: {error}"
        if code in _DAMAGED:
            return StoreCorruptError(
                f"{self._where} is damaged: {error}; restore it from a backup or move it away",
                place=str(self.file),
            )
        if code in _REFUSED or (code == sqlite3.SQLITE_CANTOPEN and not _is_accessible(self.file)):
            return UnsupportedServerError(f"{told}; check the permissions of file and directory")
        if code in _LOCKED:
            return StoreUnavailableError(f"{told}: others wrote for {self._timeout} s; repeat the call")
        if code == sqlite3.SQLITE_TOOBIG or isinstance(error, sqlite3.DataError):
            return TooLargeError(f"{told}: SQLite takes no values above 1 GB")
        return StoreUnavailableError(f"{told}; check the disk and its free space, and repeat the call")

    def _disk_failure(self, error: OSError) -> HelixError:
        refused = (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)
        kind = UnsupportedServerError if isinstance(error, refused) else StoreUnavailableError
        return kind(f"{self._where}: {error.strerror}; check the directory's permissions and free space")


@asynccontextmanager
async def _run_transaction(connection: aiosqlite.Connection, begin: str) -> AsyncIterator[None]:
    try:
        await connection.execute_fetchall(begin)
        yield
        await connection.commit()
    except BaseException:
        # Waits for a statement whose caller was cancelled, too; nothing where the commit happened.
        await finish_before_cancel(connection.rollback())
        raise


async def _close_all(opened: _Opened) -> None:
    opened.closed = True
    connections = [*opened.idle] if opened.writer is None else [*opened.idle, opened.writer]
    opened.idle, opened.writer = [], None
    for connection in connections:
        await _close_connection(connection)


async def _close_connection(connection: aiosqlite.Connection) -> None:
    """Close a connection, whatever state it is in."""
    # One that never opened, or whose loop ended in the middle of a statement, has nobody left to close it.
    with contextlib.suppress(sqlite3.Error, ValueError, TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await connection.close()


def _primary_code(error: sqlite3.Error) -> int:
    """The primary code of SQLite's; 0 where the driver itself complains."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_accessible(file: Path) -> bool:
    return os.access(file, os.R_OK | os.W_OK) and os.access(file.parent, os.W_OK | os.X_OK)


def _inode_of(file: Path) -> int:
    """Which file has the name now; 0 for none."""
    try:
        return file.stat().st_ino
    except FileNotFoundError:
        return 0


def _size_of(file: Path) -> int:
    return file.stat().st_size


def _make_file(file: Path) -> None:
    """Make file and directories for their owner alone, and keep their names over a power cut."""
    if not file.exists():
        _make_directory(file.parent)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        _sync_directory(file.parent)


def _make_directory(directory: Path) -> None:
    if not directory.is_dir():
        _make_directory(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
