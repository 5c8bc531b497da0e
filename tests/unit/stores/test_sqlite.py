"""What is particular to SQLite: damage, files of others, full disks, cancels, loops, deletion, clocks."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from helix_temporal.errors import (
    InvalidConfigError,
    SchemaVersionError,
    StoreCorruptError,
    StoreUnavailableError,
    UnsupportedServerError,
)
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.models.streams import StreamLimits
from helix_temporal.models.usage import UsageQuery
from helix_temporal.stores.protocols.hot import Archived, PageRange, scan_threads
from helix_temporal.stores.protocols.session_rows import RowKind, SessionRow, WantedRows
from helix_temporal.stores.sqlite import (
    Database,
    SqliteBackend,
    SqliteLocks,
    SqlitePayloads,
    SqliteStreams,
    SqliteThreads,
)
from helix_temporal.stores.sqlite.connection import VERSION
from helix_temporal.stores.sqlite.queries import load_statement, schema_statements, statement_names
from helix_temporal.testing.builders import EPOCH, a_message, a_step, all_of, messages, opened
from helix_temporal.testing.contracts._streams_base import a_delta, reader_on, take, writer_on
from helix_temporal.testing.contracts._usage_base import some_tokens
from tests.unit.stores._damage import DAMAGES
from tests.unit.stores._redis_sessions import change, only_rows

Look = Callable[[SqliteBackend], Awaitable[Any]]
RUN = SessionRow(RowKind.RUN, "run", b'{"run": 1}', order=3)


@pytest.fixture
def file(data_directory: Path) -> Path:
    """Where no database is yet."""
    return data_directory / "helix.db"


@pytest.fixture
async def empty(file: Path) -> AsyncIterator[SqliteBackend]:
    """A database without content."""
    backend = SqliteBackend(file)
    await backend.check()
    yield backend
    await backend.close()


def sql(file: Path, text: str, *values: object) -> list[Any]:
    """What another program does in the file."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        return connection.execute(text, values).fetchall()


# ---- damage -----------------------------------------------------------------------------------------


async def _chunks(on: SqliteBackend) -> Any:
    return await take(await reader_on(on.streams, "stream"), 1)


LOOKS: dict[str, tuple[str, str, Look]] = {
    "snapshot": ("messages", "body", lambda on: on.threads.read_snapshot("t", 0)),
    "page": ("messages", "body", lambda on: on.threads.read_page("t", PageRange(0, 1, 9, 999))),
    "window": (
        "messages",
        "body",
        lambda on: on.threads.step_view(
            "t", Head(position=1, last_id="m0"), after=1, limit=9, max_bytes=99, ids=9
        ),
    ),
    "step again": ("messages", "body", lambda on: on.threads.append(a_step("t", inputs=messages(1)))),
    "header": ("threads", "header", lambda on: on.threads.read_header("t")),
    "slice": ("threads", "slice", lambda on: on.threads.read_header("t")),
    "state": ("sessions", "state", lambda on: on.sessions.view("s")),
    "guard": ("sessions", "guard", lambda on: on.sessions.view("s")),
    "row": ("session_rows", "body", lambda on: on.sessions.view("s", WantedRows(keys=(RUN.name,)))),
    "rows": ("session_rows", "body", lambda on: on.sessions.read_page("s", RowKind.RUN, limit=9)),
    "stream": ("streams", "head", lambda on: on.streams.get_info("stream")),
    "chunks": ("stream_chunks", "body", _chunks),
    "lock": ("locks", "lease", lambda on: on.locks.acquire("k")),
    "usage": ("usage", "body", lambda on: on.usage.get_entries("s")),
    "sums": ("usage", "body", lambda on: on.usage.query_usage(UsageQuery())),
    "payload": ("payloads", "body", lambda on: on.payloads.get_payload("t", "p")),
}


@pytest.fixture
async def backend(empty: SqliteBackend) -> SqliteBackend:
    """One of everything."""
    await opened(empty.threads, "t")
    await empty.threads.append(a_step("t", inputs=messages(1)))
    await empty.threads.save_slice("t", EPOCH, b'{"slice": 1}', 0)
    await empty.sessions.commit(change("s"))
    await empty.sessions.commit(only_rows("s", 1, RUN))
    writer = await writer_on(empty.streams, "stream")
    await writer.write_many([a_delta("one")])
    await empty.usage.record_entry(some_tokens("s"))
    await empty.payloads.put_payload("t", "p", b"payload", 600)
    await empty.locks.acquire("k", ttl_ms=1)
    return empty


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("look", LOOKS)
async def test_a_damaged_body_is_told(backend: SqliteBackend, file: Path, look: str, damage: str) -> None:
    """Whatever kind of row it is, and wherever it is damaged."""
    table, column, call = LOOKS[look]
    await call(backend)
    ((value,),) = sql(file, f"SELECT {column} FROM {table}")
    sql(file, f"UPDATE {table} SET {column} = ?", DAMAGES[damage](value))
    with pytest.raises(StoreCorruptError, match="is damaged"):
        await call(backend)


@pytest.mark.parametrize(
    ("text", "look"),
    [
        ("UPDATE messages SET id = 'x'", "snapshot"),
        ("UPDATE messages SET kind = 'x'", "snapshot"),
        ("UPDATE messages SET position = 1", "snapshot"),
        ("DELETE FROM messages", "snapshot"),
        ("UPDATE sessions SET revision = 7", "state"),
        ("UPDATE sessions SET max_epoch = 7", "state"),
        ("UPDATE sessions SET state = NULL", "state"),
        ("UPDATE session_rows SET place = 7", "rows"),
        ("UPDATE stream_chunks SET run_id = 'x'", "chunks"),
    ],
)
async def test_what_stands_beside_a_body_is_covered(
    backend: SqliteBackend, file: Path, text: str, look: str
) -> None:
    """Another id would be another message, and another revision would let a late commit through."""
    sql(file, text)
    with pytest.raises(StoreCorruptError, match="is damaged"):
        await LOOKS[look][2](backend)


def _overwritten(file: Path) -> bytes:
    damaged = bytearray(file.read_bytes())
    damaged[4096:] = b"\xff" * (len(damaged) - 4096)
    file.write_bytes(damaged)
    return bytes(damaged)


async def test_damage_that_sqlite_finds_is_told(backend: SqliteBackend, file: Path) -> None:
    """Of its own pages: with the file's name, and the file stays as it is."""
    await backend.close()
    damaged = _overwritten(file)
    with pytest.raises(StoreCorruptError, match=r"helix\.db"):
        await backend.threads.read_snapshot("t", 0)
    await backend.close()
    assert await asyncio.to_thread(file.read_bytes) == damaged


async def test_a_damaged_session_is_left_out_of_lists_and_told_to_the_log(
    empty: SqliteBackend, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One bad row does not take the list of all others away, and the next commit writes it anew."""
    for name in ("a", "b"):
        await empty.sessions.commit(change(name))
    sql(file, "UPDATE sessions SET summary = x'00' WHERE session_id = 'a'")
    page = await empty.sessions.list_sessions(SessionQuery())
    assert ([each.session_id for each in page.sessions], page.total) == (["b"], 2)
    assert "session 'a' is left out" in caplog.text
    assert [name async for name in empty.sessions.scan()] == ["a", "b"]
    await empty.sessions.commit(change("a", 1))
    assert len((await empty.sessions.list_sessions(SessionQuery())).sessions) == 2


async def test_a_damaged_time_stops_no_clean_up(empty: SqliteBackend, file: Path) -> None:
    """It is nobody's time: the session is left out."""
    for name in ("a", "b"):
        await empty.sessions.commit(change(name, expires_at=7))
    sql(file, "UPDATE sessions SET expires_at = -5, due_at = -5 WHERE session_id = 'a'")
    assert [each.session_id for each in await empty.sessions.list_expired(10, limit=9)] == ["b"]
    assert await empty.sessions.list_due(10, limit=9) == ()


async def test_a_damaged_header_goes_where_the_archive_has_it_all(empty: SqliteBackend, file: Path) -> None:
    """The thread is hydrated again; one that holds more than the archive stays."""
    await opened(empty.threads, "t")
    await empty.threads.append(a_step("t", inputs=messages(2)))
    await empty.threads.save_slice("t", EPOCH, b"slice", 0)
    whole, half = (Archived(Head(position=n, last_id=""), n, 1, 0) for n in (2, 1))
    assert not await empty.threads.drop_damaged("t", whole, b"slice")
    sql(file, "UPDATE threads SET header = x'00'")
    assert not await empty.threads.drop_damaged("t", half, b"slice")
    assert not await empty.threads.drop_damaged("t", whole, b"other")
    assert await empty.threads.drop_damaged("t", whole, b"slice")
    assert await empty.threads.read_header("t") is None
    assert sql(file, "SELECT * FROM messages") == []


# ---- files ------------------------------------------------------------------------------------------


async def test_a_file_that_is_no_database_is_told_and_left_alone(tmp_path: Path) -> None:
    """A wrong path must not cost somebody else's file."""
    (tmp_path / "helix.db").write_bytes(b"notes " * 1000)
    backend = SqliteBackend(tmp_path / "helix.db")
    with pytest.raises(StoreCorruptError, match="not a database"):
        await backend.check()
    assert (tmp_path / "helix.db").read_bytes() == b"notes " * 1000


async def test_the_database_of_something_else_is_refused(tmp_path: Path) -> None:
    """Our tables do not go into it."""
    sql(tmp_path / "helix.db", "CREATE TABLE threads (id)")
    backend = SqliteBackend(tmp_path / "helix.db")
    with pytest.raises(UnsupportedServerError, match="something else"):
        await backend.check()
    assert sql(tmp_path / "helix.db", "PRAGMA journal_mode") == [("delete",)]


async def test_a_file_that_another_process_makes_meanwhile_is_ours(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that start together on a new file: one had looked whose it is before, and for tables after."""
    look, others = aiosqlite.Connection.execute_fetchall, [SqliteBackend(file, timeout=0.1)]

    async def look_with_another(connection: aiosqlite.Connection, what: str, *more: Any) -> Any:
        if what == "PRAGMA user_version" and others:
            other = others.pop()
            with suppress(StoreUnavailableError):  # it has to wait, and gives up
                await other.check()
            await other.close()
        return await look(connection, what, *more)

    monkeypatch.setattr(aiosqlite.Connection, "execute_fetchall", look_with_another)
    backend = SqliteBackend(file)
    await backend.check()
    await backend.close()
    assert others == []


async def test_tables_of_a_newer_version_are_refused(empty: SqliteBackend, file: Path) -> None:
    """An old program would write what a new one cannot read."""
    await empty.close()
    sql(file, f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(SchemaVersionError, match="upgrade"):
        await empty.check()


async def test_a_place_that_may_not_be_written_is_a_lasting_error(tmp_path: Path) -> None:
    """Repeating would not help: an administrator must."""
    (tmp_path / "data").write_text("not a directory")
    with pytest.raises(UnsupportedServerError):
        await SqliteBackend(tmp_path / "data" / "helix.db").check()


async def test_a_full_disk_is_told_and_takes_nothing_away(empty: SqliteBackend) -> None:
    """What was there stays, and writes go on once there is room."""
    await opened(empty.threads, "t")
    opened_now = empty.database._opened
    assert opened_now is not None
    assert opened_now.writer is not None
    ((pages,),) = await opened_now.writer.execute_fetchall("PRAGMA page_count")
    await opened_now.writer.execute_fetchall(f"PRAGMA max_page_count = {pages}")
    step = a_step("t", EMPTY, inputs=[a_message(b"x" * 100_000, message_id="large")])
    with pytest.raises(StoreUnavailableError, match="full"):
        await empty.threads.append(step)
    assert (await empty.threads.append(step)) is not None


async def test_a_file_that_took_anothers_place_is_used_from_then_on(empty: SqliteBackend, file: Path) -> None:
    """A backup was put back, or the directory was emptied, under a running process."""
    await empty.locks.acquire("before")
    for path in [*file.parent.iterdir()]:
        path.unlink()
    assert not await empty.locks.is_locked("before")
    await empty.locks.acquire("after")
    assert [key for (key,) in sql(file, "SELECT key FROM locks")] == ["after"]


async def test_files_are_for_their_owner_alone(backend: SqliteBackend, file: Path) -> None:
    """Conversations are private."""
    found = {path.stat().st_mode & 0o777 for path in file.parent.iterdir()}
    assert (found, file.parent.stat().st_mode & 0o777) == ({0o600}, 0o700)


async def test_what_was_deleted_is_in_no_file(empty: SqliteBackend, file: Path) -> None:
    """Neither in pages that are free, nor in the log."""
    await opened(empty.threads, "t")
    await empty.threads.append(a_step("t", inputs=[a_message(b"the secret", message_id="m")]))
    await empty.payloads.put_payload("t", "k", b"the secret", 60)
    await empty.threads.drop("t", EPOCH)
    await empty.payloads.delete_payloads("t")
    assert not [path for path in file.parent.iterdir() if b"the secret" in path.read_bytes()]


# ---- transactions -----------------------------------------------------------------------------------


def test_every_statement_fits_the_tables() -> None:
    """A name of a column that is wrong is found here, whether a test comes by it or not."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for each in schema_statements():
            connection.execute(each)
        for name in statement_names():
            text = load_statement(name)
            connection.execute(f"EXPLAIN {text}", dict.fromkeys(re.findall(r":(\w+)", text)))


async def test_a_write_that_is_cancelled_leaves_the_file_free(empty: SqliteBackend, file: Path) -> None:
    """Whoever comes next finds no transaction under way, and all of the write or nothing."""
    await opened(empty.threads, "t")
    for number in range(30):
        step = a_step("t", inputs=[a_message(b"x" * 50_000, message_id="m")])
        task = asyncio.create_task(empty.threads.append(step))
        await asyncio.sleep(number / 10_000)
        task.cancel()
        await asyncio.wait([task])
        sql(file, "BEGIN IMMEDIATE")
        held = await empty.threads.read_snapshot("t", 0)
        assert held is not None
        assert len(held.messages) == held.header.head.position


async def test_a_block_that_fails_changes_nothing(empty: SqliteBackend) -> None:
    """All or nothing."""

    async def fail() -> None:
        async with empty.database.write() as on:
            await on.fetch("lock_put", {"key": "k", "lease": b""})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await empty.database.fetch("lock_row", {"key": "k"}) == []


def test_another_loop_may_go_on_once_the_first_has_ended(file: Path) -> None:
    """As `asyncio.run` twice does; at the same time it is refused, since it would fail in the middle."""
    backend = SqliteBackend(file)
    asyncio.run(backend.check())

    async def use_beside() -> None:
        await backend.check()
        with pytest.raises(InvalidConfigError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, backend.check())
        await backend.close()

    asyncio.run(use_beside())


# ---- clocks -----------------------------------------------------------------------------------------


async def test_tokens_grow_over_a_restart_with_an_earlier_clock(empty: SqliteBackend) -> None:
    """The battery of the machine's clock was empty."""
    first = await SqliteLocks(empty.database, clock=lambda: 2_000.0).acquire("k", owner="me")
    second = await SqliteLocks(empty.database, clock=lambda: 1_000.0).acquire("k", owner="me")
    assert first is not None
    assert second is not None
    assert second.fencing_token == first.fencing_token + 1


async def test_a_scan_removes_warm_threads_that_have_expired(empty: SqliteBackend, file: Path) -> None:
    """Nobody asks for them again, so nobody else would; the session of the same id stays."""
    now = [1_000.0]
    threads = SqliteThreads(empty.database, clock=lambda: now[0])
    for name in ("gone", "kept"):
        header = await opened(threads, name)
        await threads.evict(name, EPOCH, all_of(header), warm_ttl=60)
    await empty.sessions.commit(change("kept"))
    assert sorted([each.thread_id async for each in scan_threads(threads)]) == ["gone", "kept"]
    now[0] += 60
    assert [each.thread_id async for each in scan_threads(threads)] == []
    assert sql(file, "SELECT thread_id FROM threads") == []
    assert [name async for name in empty.sessions.scan()] == ["kept"]


async def test_a_damaged_end_removes_no_thread(empty: SqliteBackend, file: Path) -> None:
    """The column is for the search; what counts has a checksum."""
    await opened(empty.threads, "t")
    sql(file, "UPDATE threads SET expires_at = 1")
    assert [each.thread_id async for each in scan_threads(empty.threads)] == ["t"]


async def test_payloads_expire_by_the_clock_and_are_removed(empty: SqliteBackend, file: Path) -> None:
    """A disk is not filled by runs that were terminated."""
    now = [1_000.0]
    payloads = SqlitePayloads(empty.database, clock=lambda: now[0])
    await payloads.put_payload("t", "k", b"x", 60)
    now[0] += 60
    assert await payloads.get_payload("t", "k") is None
    await payloads.put_payload("t", "other", b"y", 60)
    assert sql(file, "SELECT key FROM payloads") == [("other",)]


async def test_expired_streams_leave_the_file(file: Path) -> None:
    """Swept by whoever makes the next one; those that are in use stay."""
    now = [1_000.0]

    def store() -> SqliteStreams:
        return SqliteStreams(Database(file), StreamLimits(ttl=60.0), clock=lambda: now[0])

    first, second = store(), store()
    await (await writer_on(first, "old")).write(a_delta("x"), dedup_key="k")
    now[0] += 30
    await (await writer_on(first, "kept")).write(a_delta("x"))
    now[0] += 40
    await writer_on(second, "new")
    await first.close()
    await second.close()
    assert [each for (each,) in sql(file, "SELECT stream_id FROM streams ORDER BY 1")] == ["kept", "new"]
    assert sql(file, "SELECT count(*) FROM stream_chunks") == [(1,)]
    assert sql(file, "SELECT count(*) FROM stream_keys") == [(0,)]


async def test_a_long_stream_stays_small(empty: SqliteBackend, file: Path) -> None:
    """What is trimmed leaves the table; keys are remembered."""
    streams = SqliteStreams(empty.database, StreamLimits(max_chunks=50))
    writer = await writer_on(streams, "s")
    await writer.write(a_delta("first"), dedup_key="k")
    for _ in range(10):
        await writer.write_many([a_delta("x")] * 20)
    assert sql(file, "SELECT count(*), min(sequence) FROM stream_chunks") == [(50, 152)]
    assert await writer.write(a_delta("first"), dedup_key="k") == 1
