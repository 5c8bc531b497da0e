"""Damaged rows in PostgreSQL: whoever reads them is told, and never gets other content or a raw error."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.store_calls import OrderBy, SessionQuery
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.postgres.database import translate_error
from helix_temporal.stores.protocols.hot import PageRange
from helix_temporal.stores.protocols.session_rows import RowKind, SessionRow, WantedRows
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.testing.builders import EPOCH, a_step, messages, opened
from helix_temporal.testing.contracts._streams_base import a_delta, reader_on, take, writer_on
from helix_temporal.testing.contracts._usage_base import some_tokens
from tests import _postgres
from tests.unit.stores._damage import DAMAGES
from tests.unit.stores._redis_sessions import change, only_rows

Look = Callable[[PostgresBackend], Awaitable[Any]]
RUN = SessionRow(RowKind.RUN, "run", b'{"run": 1}', order=3)


async def _chunks(on: PostgresBackend) -> Any:
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
    "slice": ("threads", "slice", lambda on: on.threads.read_header("t")),
    "state": ("states", "body", lambda on: on.sessions.view("s")),
    "row": ("session_rows", "body", lambda on: on.sessions.view("s", WantedRows(keys=(RUN.name,)))),
    "rows": ("session_rows", "body", lambda on: on.sessions.read_page("s", RowKind.RUN, limit=9)),
    "chunks": ("stream_chunks", "body", _chunks),
    "usage": ("usage_entries", "body", lambda on: on.usage.get_entries("s")),
    "payload": ("thread_payloads", "body", lambda on: on.payloads.get_payload("t", "p")),
}


@pytest.fixture
async def backend(postgres_dsn: str) -> AsyncIterator[PostgresBackend]:
    """One of everything."""
    async with _postgres.emptied(postgres_dsn, _postgres.own_prefix("damage")) as backend:
        await opened(backend.threads, "t")
        await backend.threads.append(a_step("t", inputs=messages(1)))
        await backend.threads.save_slice("t", EPOCH, b'{"slice": 1}', 0)
        await backend.sessions.commit(change("s"))
        await backend.sessions.commit(only_rows("s", 1, RUN))
        writer = await writer_on(backend.streams, "stream")
        await writer.write_many([a_delta("one")])
        await backend.usage.record_entry(some_tokens("s"))
        await backend.payloads.put_payload("t", "p", b"payload", 600)
        yield backend


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("look", LOOKS)
async def test_a_damaged_body_is_told(backend: PostgresBackend, look: str, damage: str) -> None:
    """Whatever kind of row it is, and wherever it is damaged."""
    table, column, call = LOOKS[look]
    await call(backend)
    name = f'"{backend.table_prefix}{table}"'
    value = await backend.database.fetchval(f"SELECT {column} FROM {name}")
    await backend.database.execute(f"UPDATE {name} SET {column} = $1", DAMAGES[damage](value))
    with pytest.raises(StoreCorruptError, match="is damaged"):
        await call(backend)


@pytest.mark.parametrize("column", ["id", "kind"])
async def test_a_damaged_message_is_told_whichever_column_it_is(
    backend: PostgresBackend, column: str
) -> None:
    """Another id would be another message, and another kind another place for a cut."""
    name = f'"{backend.table_prefix}messages"'
    await backend.database.execute(f"UPDATE {name} SET {column} = 'x'")
    with pytest.raises(StoreCorruptError, match="position 0"):
        await backend.threads.read_snapshot("t", 0)


LOG = messages(5)
LOST: dict[str, Look] = {
    "snapshot": lambda on: on.threads.read_snapshot("log", 0),
    "page": lambda on: on.threads.read_page("log", PageRange(0, 5, 9, 999)),
    "page backward": lambda on: on.threads.read_page("log", PageRange(0, 5, 9, 999, backward=True)),
    "window": lambda on: on.threads.step_view(
        "log", Head(position=5, last_id="m4"), after=1, limit=9, max_bytes=999, ids=9
    ),
    "ids before the window": lambda on: on.threads.step_view(
        "log", Head(position=5, last_id="m4"), after=1, limit=1, max_bytes=999, ids=9
    ),
    "after a head": lambda on: on.threads.step_view(
        "log", Head(position=0, last_id=""), after=5, limit=1, max_bytes=999, ids=1
    ),
    "step again": lambda on: on.threads.append(a_step("log", inputs=LOG)),
}


@pytest.mark.parametrize("gone", ["position >= 0", "position = 0", "position = 2", "position = 4"])
@pytest.mark.parametrize("look", LOST)
async def test_rows_that_are_gone_are_told(backend: PostgresBackend, look: str, gone: str) -> None:
    """A restored table, or an index that misses rows: a shorter conversation would be taken for the whole."""
    await opened(backend.threads, "log")
    await backend.threads.append(a_step("log", inputs=LOG))
    await LOST[look](backend)
    name = f'"{backend.table_prefix}messages"'
    await backend.database.execute(f"DELETE FROM {name} WHERE thread_id = 'log' AND {gone}")
    with pytest.raises(StoreCorruptError, match="is damaged"):
        await LOST[look](backend)


@pytest.mark.parametrize("state", ["XX001", "XX002"])
def test_a_damage_that_the_server_finds_is_one(state: str) -> None:
    """Its own checksums of pages say it first, where they are switched on."""

    class FoundError(Exception):
        sqlstate = state

    assert isinstance(translate_error(FoundError(), "here"), StoreCorruptError)


async def test_a_damaged_row_is_left_out_of_lists_and_named(
    backend: PostgresBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """One summary had kept everybody's sessions from the list; pages go on behind it."""
    sessions = backend.sessions
    for name in ("a", "b", "c"):
        await sessions.commit(change(name, created_at=5, expires_at=7, cleanup_pending=True))
    statement = f'UPDATE "{backend.table_prefix}states" SET summary = $1 WHERE session_id = $2'
    await backend.database.execute(statement, b"damaged", "a")
    order = OrderBy(field="created_at", direction="asc")
    query, found, damaged = SessionQuery(limit=1, order_by=order), list[str](), 0
    while True:
        page = await sessions.list_sessions(query)
        found += [each.session_id for each in page.sessions]
        damaged += page.damaged
        assert page.total == 4
        if page.next_cursor is None:
            break
        query = SessionQuery(limit=1, order_by=order, cursor=page.next_cursor)
    assert (sorted(found), damaged) == (["b", "c", "s"], 1)
    assert "session 'a' is left out of a list: the summary" in caplog.text
    # What is beside it is sound, and the next commit writes it anew.
    assert (await sessions.view("a")).state is not None
    await sessions.commit(change("a", 1))
    assert len((await sessions.list_sessions(SessionQuery())).sessions) == 4


async def test_a_damaged_time_stops_no_clean_up(backend: PostgresBackend) -> None:
    """It is nobody's time: the session is left out, and all others are on the pages."""
    store = RowSessions(backend.sessions)
    for name in ("a", "b", "c"):
        await backend.sessions.commit(change(name, expires_at=7))
    name = f'"{backend.table_prefix}states"'
    await backend.database.execute(f"UPDATE {name} SET expires_at = -5, due_at = -5 WHERE session_id = 'a'")
    await backend.database.execute(f"UPDATE {name} SET due_at = 5 WHERE session_id IN ('b', 'c')")
    for look in (store.list_expired, store.list_due):
        first = await look(limit=1)
        assert first.next_cursor is not None
        second = await look(limit=1, cursor=first.next_cursor)
        assert [each.session_id for each in (*first.items, *second.items)] == ["b", "c"]
        assert not second.has_more
