"""Damaged bytes in Redis: whoever reads them is told, and never gets other content or a raw error."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.store_calls import OrderBy, SessionQuery
from helix_temporal.models.stored_messages import Head, Kind, StoredMessage
from helix_temporal.stores.protocols.hot import PageRange
from helix_temporal.stores.protocols.session_rows import (
    RowKind,
    SessionRow,
    SessionView,
    WantedRows,
)
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.testing.builders import EPOCH, a_message, a_step, messages, opened
from helix_temporal.testing.contracts._streams_base import a_delta, reader_on, take, writer_on
from helix_temporal.testing.contracts._usage_base import some_tokens
from tests.unit.stores._damage import DAMAGES, is_told, told
from tests.unit.stores._redis import backend_on
from tests.unit.stores._redis_sessions import change, only_rows

pytestmark = pytest.mark.slow

LOG = (*messages(3), StoredMessage(Kind.ANSWER, "large", b"x" * 5000), a_message("end", message_id="end"))
RUN = SessionRow(RowKind.RUN, "run", b'{"run": 1}', order=3)
Look = Callable[[RedisBackend], Awaitable[Any]]


async def _chunks(backend: RedisBackend) -> Any:
    return await take(await reader_on(backend.streams, "stream"), 2)


LOOKS: dict[str, Look] = {
    "header": lambda on: on.threads.read_header("t"),
    "snapshot": lambda on: on.threads.read_snapshot("t", 0),
    "page": lambda on: on.threads.read_page("t", PageRange(1, 4, 9, 9999)),
    "page backward": lambda on: on.threads.read_page("t", PageRange(0, 5, 9, 9999, backward=True)),
    "window": lambda on: on.threads.step_view(
        "t", Head(position=5, last_id="end"), after=9, limit=2, max_bytes=9999, ids=9
    ),
    "standing step": lambda on: on.threads.step_view(
        "t", Head(position=3, last_id="m2"), after=9, limit=9, max_bytes=9999, ids=9
    ),
    "step again": lambda on: on.threads.append(a_step("t", inputs=LOG)),
    "session": lambda on: on.sessions.view("s", WantedRows(keys=(RUN.name,))),
    "rows": lambda on: on.sessions.read_page("s", RowKind.RUN, limit=9),
    "list": lambda on: on.sessions.list_sessions(SessionQuery()),
    "lock": lambda on: on.locks.acquire("l", owner="me", ttl_ms=1),
    "stream": lambda on: on.streams.get_info("stream"),
    "chunks": _chunks,
    "usage": lambda on: on.usage.get_entries("s"),
}


@pytest.fixture
async def backend(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
    """Something of everything."""
    async with backend_on(redis_url, redis_prefix) as backend:
        await opened(backend.threads, "t")
        await backend.threads.append(a_step("t", inputs=LOG))
        await backend.threads.save_slice("t", EPOCH, b'{"slice": 1}', 0)
        await backend.sessions.commit(change("s"))
        await backend.sessions.commit(change("s", 1, agent_type="main"))
        await backend.sessions.commit(only_rows("s", 2, RUN))
        await backend.locks.acquire("l", ttl_ms=600_000)
        writer = await writer_on(backend.streams, "stream")
        await writer.write_many([a_delta("one"), a_delta("two")])
        await backend.usage.record_entry(some_tokens("s"))
        await backend.payloads.put_payload("t", "p", b"payload", 600)
        yield backend


async def hashes(backend: RedisBackend) -> dict[tuple[str, bytes], bytes]:
    """All fields of all hashes, by key and name."""
    connection = backend._connection
    found: dict[tuple[str, bytes], bytes] = {}
    async for keys in connection.scan(f"{connection.prefix}*"):
        for key in keys:
            flat = await connection.send_command("HGETALL", key)
            found |= {(key.decode(), field): value for field, value in flat.items()}
    return found


def _comparable(found: Any) -> Any:
    # What the server's clock says differs each time.
    return replace(found, now=0) if isinstance(found, SessionView) else found


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("look", LOOKS)
async def test_every_field_is_either_read_as_written_or_told(
    backend: RedisBackend, look: str, damage: str
) -> None:
    """Of 55 flips and truncations five had been read as other content, and 24 were errors of Python's own."""
    connection = backend._connection
    sound = _comparable(await told(lambda: LOOKS[look](backend)))
    assert not isinstance(sound, StoreCorruptError)
    wrong = {}
    for (key, field), value in (await hashes(backend)).items():
        if (damaged := DAMAGES[damage](value or b"?")) == value:
            continue
        await connection.send_command("HSET", key, field, damaged)
        found = _comparable(await told(lambda: LOOKS[look](backend)))
        if not is_told(found, sound, backend._connection.prefix):
            wrong[key, field] = found
        await connection.send_command("HSET", key, field, value)
    assert wrong == {}


WRITES: dict[str, Look] = {
    "append": lambda on: on.threads.append(a_step("t", Head(position=5, last_id="end"))),
    "save": lambda on: on.threads.save_slice("t", EPOCH, b"2", 1),
    "trim": lambda on: on.threads.trim("t", EPOCH, Head(position=5, last_id="end"), 3),
    "close": lambda on: on.threads.close_epoch("t", EPOCH),
    "session": lambda on: on.sessions.commit(only_rows("s", 3, RUN)),
    "lock": lambda on: on.locks.acquire("l", ttl_ms=1),
    "chunk": lambda on: _write_one(on),
}


async def _write_one(backend: RedisBackend) -> None:
    writer = await writer_on(backend.streams, "stream")
    await writer.write(a_delta("three"))


@pytest.mark.parametrize(
    ("write", "key", "field"),
    [
        *((each, "{t}", "n") for each in ("append", "save", "trim", "close")),
        ("session", "{s}:session", "v"),
        ("lock", "{l}:lock", "t"),
        ("chunk", "{stream}:stream", "z"),
    ],
)
async def test_a_write_does_not_make_damage_sound(
    backend: RedisBackend, write: str, key: str, field: str
) -> None:
    """A new checksum over a damaged number would hide it for ever."""
    connection, name = backend._connection, backend._connection.prefix + key
    await connection.send_command("HINCRBY", name, field, 1)
    before = await connection.send_command("HGETALL", name)
    with pytest.raises(StoreCorruptError, match=r"checksum of its (header|lease|head)"):
        await WRITES[write](backend)
    assert await connection.send_command("HGETALL", name) == before


@pytest.mark.parametrize("field", ["v", "e", "b", "h", "i"])
async def test_a_hash_of_somebody_else_is_no_session(backend: RedisBackend, field: str) -> None:
    """Its fields may have names of ours: that is told with its key, for reads and writes."""
    key = backend.sessions._connection.key_of("new") + ":session"
    await backend._connection.send_command("HSET", key, field, "theirs")
    with pytest.raises(StoreCorruptError, match="new"):
        await backend.sessions.view("new")
    with pytest.raises(StoreCorruptError, match="new"):
        await backend.sessions.commit(change("new"))
    assert await backend._connection.send_command("HGET", key, field) == b"theirs"


async def test_a_damaged_chunk_is_told_with_its_place(backend: RedisBackend) -> None:
    """Whoever reads a stream live is told as well as who reads it later."""
    connection = backend._connection
    key = f"{connection.prefix}{{stream}}:stream:chunks"
    ((_, fields),) = await connection.send_command("XREVRANGE", key, "2-0", "2-0")
    await connection.send_command("UNLINK", key)
    values = [each.replace(b"two", b"six") for pair in fields.items() for each in pair]
    await connection.send_command("XADD", key, "2-0", *values)
    with pytest.raises(StoreCorruptError, match="chunk 2"):
        await _chunks(backend)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_payload_is_told(backend: RedisBackend, damage: str) -> None:
    """A tool's result must not reach the model with other bytes."""
    connection, key = backend._connection, backend.payloads._payloads_key("t")
    whole = await connection.send_command("HGET", key, "p")
    await connection.send_command("HSET", key, "p", DAMAGES[damage](whole))
    with pytest.raises(StoreCorruptError, match="payload"):
        await backend.payloads.get_payload("t", "p")


async def test_lists_are_made_anew_where_a_row_is_damaged(backend: RedisBackend) -> None:
    """Wherever it is; a wrong number of facets had kept the server busy for minutes."""
    sessions = backend.sessions
    await sessions.commit(change("other", expires_at=7, user_id="u"))
    index, command = sessions._index, sessions._connection.send_command

    async def listed() -> Any:
        return await sessions.list_sessions(SessionQuery()), await sessions.list_expired(9, limit=9)

    async def stored() -> Any:
        return await command("HGETALL", index._rows), await command("ZRANGE", index._entries, 0, -1)

    await sessions.rebuild_index()
    sound, bytes_before = await listed(), await stored()
    row = bytes_before[0][b"other"]
    damaged = [row[:at] + bytes([row[at] ^ 0x01]) + row[at + 1 :] for at in range(len(row))]
    damaged += [row[: len(row) // 2], b"", b"x"]
    for each in damaged:
        await command("HSET", index._rows, "other", each)
        assert await sessions.rebuild_index() == 2
        assert (await listed(), await stored()) == (sound, bytes_before), each


async def test_a_commit_mends_the_damaged_row_of_its_session(backend: RedisBackend) -> None:
    """A wrong number in it, too: the script that takes out its old entries is not kept busy."""
    sessions = backend.sessions
    index, command = sessions._index, sessions._connection.send_command
    (row,) = (await command("HGETALL", index._rows)).values()
    document = row.index(b"\n") + 1
    wrong = [b"", b"x", row[: document + 20], row[: document + 33] + b"\xff" * 4 + row[document + 37 :]]
    for revision, damaged in enumerate(wrong, 3):
        await command("HSET", index._rows, "s", damaged)
        await sessions.commit(change("s", revision, agent_type=f"v{revision}"))
        (listed,) = (await sessions.list_sessions(SessionQuery())).sessions
        assert listed.agent_type == f"v{revision}"


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_list_mends_a_damaged_row_by_its_session(backend: RedisBackend, damage: str) -> None:
    """One flipped bit had kept everybody's sessions from every list, and from the clean-up."""
    sessions = backend.sessions
    await sessions.commit(change("other", expires_at=7, user_id="u"))
    index, command = sessions._index, sessions._connection.send_command
    sound = await sessions.list_sessions(SessionQuery()), await sessions.list_expired(9, limit=9)
    row = await command("HGET", index._rows, "other")
    for look in (0, 1):
        await command("HSET", index._rows, "other", DAMAGES[damage](row))
        listed = (
            await sessions.list_expired(9, limit=9) if look else await sessions.list_sessions(SessionQuery())
        )
        assert listed == sound[look]
    assert len((await sessions.list_sessions(SessionQuery())).sessions) == 2


async def test_a_session_that_is_damaged_itself_is_left_out_of_lists_and_named(
    backend: RedisBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """All others are listed and cleaned up as ever; whoever reads that one is told."""
    sessions, connection = backend.sessions, backend._connection
    await sessions.commit(change("other", expires_at=7))
    await sessions.commit(change("broken", expires_at=7))
    await connection.send_command("HINCRBY", f"{connection.prefix}{{broken}}:session", "v", 1)
    await connection.send_command("HSET", sessions._index._rows, "broken", b"x")
    page = await sessions.list_sessions(SessionQuery())
    assert ({each.session_id for each in page.sessions}, page.damaged) == ({"s", "other"}, 1)
    assert "session 'broken' is left out of a list" in caplog.text
    expired = await sessions.list_expired(9, limit=9)
    assert [each.session_id for each in expired] == ["broken", "other"]
    with pytest.raises(StoreCorruptError):
        await sessions.view("broken")


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_entry_of_the_index_is_no_error_of_pythons(
    backend: RedisBackend, damage: str
) -> None:
    """An id that is no text any more had ended every list, and the clean-up of all sessions."""
    sessions = backend.sessions
    await sessions.commit(change("other", expires_at=7, user_id="u"))
    await sessions.commit(only_rows("other", 1, SessionRow(RowKind.OPERATION, "o", b"{}", order=1)))
    index, command = sessions._index, sessions._connection.send_command
    await sessions.rebuild_index()
    sound = await sessions.list_sessions(SessionQuery())
    for entry in await command("ZRANGE", index._entries, 0, -1):
        await command("ZREM", index._entries, entry)
        await command("ZADD", index._entries, 0, DAMAGES[damage](entry))
        await command("ZADD", index.marks, 0, DAMAGES[damage](b"other\0mark"))
        for backwards in ("asc", "desc"):
            order = OrderBy(direction=backwards)
            await sessions.list_sessions(SessionQuery(order_by=order, limit=1))
            await sessions.list_sessions(SessionQuery(order_by=order, user_id="u", agent_type="main"))
        await sessions.list_expired(9, limit=9)
        await sessions.list_due(9, limit=9)
        await sessions.list_cleanup_pending(limit=9)
        await sessions.purge_operations(0, limit=9)
        await sessions.rebuild_index()
        assert await sessions.list_sessions(SessionQuery()) == sound
