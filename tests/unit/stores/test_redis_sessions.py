"""Sessions in Redis: what is left of rows, what is refused, and what a commit costs."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from helix_temporal.devstack import Valkey
from helix_temporal.errors import (
    InvalidConfigError,
    InvalidIdError,
    InvalidRequestError,
    StoreCorruptError,
)
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.stores.protocols.session_rows import (
    RowKind,
    SessionCommit,
    SessionRow,
    SessionView,
    WantedRows,
)
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.testing.builders import EPOCH, a_step, opened
from tests.unit.stores._redis import backend_on
from tests.unit.stores._redis_sessions import change, only_rows


@pytest.fixture
async def backend(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
    """An empty prefix of a real server."""
    async with backend_on(redis_url, redis_prefix, timeout=60) as made:
        yield made


@pytest.fixture(params=["redis_url", "redis_cluster"])
async def found(request: pytest.FixtureRequest, redis_prefix: str) -> AsyncIterator[RedisBackend]:
    """An empty prefix, of one server or of a cluster."""
    url: str = request.getfixturevalue(request.param)
    made = RedisBackend(url, prefix=redis_prefix, cluster=request.param == "redis_cluster", timeout=60)
    yield made
    await made.close()


# -- rows


async def test_nothing_is_left_of_rows_that_went(backend: RedisBackend) -> None:
    """A place that stays would cost memory for ever: staged changes come and go with every step."""
    sessions, connection = backend.sessions, backend.sessions._connection
    staged = SessionRow(RowKind.STAGED, "t", b"1", "s1", order=1)
    moved, run = replace(staged, order=2), SessionRow(RowKind.RUN, "r", b"1")
    await sessions.commit(only_rows("s", 0, staged, run))
    await sessions.commit(only_rows("s", 1, moved))
    order = f"{connection.key_of('s')}:session-order"
    assert await connection.send_command("ZCARD", order) == 3
    await sessions.commit(SessionCommit("s", 2, EPOCH, clears=((RowKind.STAGED, "s1"),)))
    assert await connection.send_command("ZCARD", order) == 1
    await sessions.commit(SessionCommit("s", 3, EPOCH, removes=(run.name,)))
    assert await connection.send_command("EXISTS", order) == 0


async def test_what_is_in_a_group_is_not_in_none(backend: RedisBackend) -> None:
    """Clearing the changes of no step must not clear those of every step."""
    staged = SessionRow(RowKind.STAGED, "t", b"1", "s1")
    await backend.sessions.commit(only_rows("s", 0, staged))
    view = await backend.sessions.view("s", WantedRows(groups=((RowKind.STAGED, ""),)))
    assert view.rows == ()


# -- what a server says of itself


async def test_sessions_are_durable_where_the_server_keeps_an_append_only_file(own_valkey: Valkey) -> None:
    """The caller decides by it whether state must be kept elsewhere too."""
    async with backend_on(own_valkey.url) as persistent:
        await persistent.check()
        assert persistent.sessions.durable


async def test_sessions_are_not_taken_for_durable_where_nothing_says_so(backend: RedisBackend) -> None:
    """Neither before the check nor on a server that keeps everything in memory."""
    before = backend.sessions.durable
    await backend.check()
    assert (before, backend.sessions.durable) == (False, False)


async def test_what_was_seen_before_redis_lost_a_session_is_not_written_over_the_next_one(
    found: RedisBackend,
) -> None:
    """Its revisions come again; its birth does not."""
    sessions, connection = found.sessions, found.sessions._connection
    await sessions.commit(change("s"))
    before = await sessions.view("s")
    key = connection.key_of("s")
    await connection.send_command("UNLINK", f"{key}:session", f"{key}:session-order")
    await sessions.commit(change("s"))
    now = await sessions.view("s")
    assert now.revision == before.revision
    assert not now.is_same_as(before)
    assert await sessions.commit(replace(change("s", now.revision), birth=before.birth)) is None
    assert await sessions.commit(replace(change("s", now.revision), birth=now.birth)) is not None


# -- refusals


async def test_foreign_keys_are_refused_before_anything_is_written(backend: RedisBackend) -> None:
    """A script that fails half way keeps what it wrote, so it must fail before."""
    sessions, connection = backend.sessions, backend.sessions._connection
    await opened(backend.threads, "s")
    await sessions.commit(change("s"))
    for name in (f"{connection.key_of('s')}:session-order", sessions._index.marks):
        await connection.send_command("UNLINK", name)
        await connection.send_command("SET", name, "somebody else's")
        written = change("s", 1)
        with pytest.raises(InvalidConfigError):
            await sessions.commit(SessionCommit("s", 1, EPOCH, written.state, append=a_step("s")))
        await connection.send_command("UNLINK", name)
    assert (await sessions.view("s")).revision == 1
    header = await backend.threads.read_header("s")
    assert header is not None
    assert header.head.position == 0


async def test_the_keys_of_another_id_are_refused(backend: RedisBackend) -> None:
    """Two long ids could have the same hashed form: neither may see the other's session."""
    sessions, connection = backend.sessions, backend.sessions._connection
    await sessions.commit(change("another"))
    await connection.send_command(
        "RENAME", f"{connection.key_of('another')}:session", f"{connection.key_of('s')}:session"
    )
    with pytest.raises(InvalidIdError):
        await sessions.view("s")
    with pytest.raises(InvalidIdError):
        await sessions.commit(change("s", 1))
    with pytest.raises(InvalidIdError):
        await sessions.read_page("s", RowKind.RUN, limit=1)


async def test_a_damaged_row_is_told(backend: RedisBackend) -> None:
    """Nothing of ours writes such a value."""
    connection, row = backend.sessions._connection, SessionRow(RowKind.RUN, "r", b"1")
    await backend.sessions.commit(only_rows("s", 0, row))
    await connection.send_command("HSET", f"{connection.key_of('s')}:session", b"r\0r", "short")
    with pytest.raises(StoreCorruptError):
        await backend.sessions.view("s", WantedRows(keys=(row.name,)))


async def test_a_step_of_another_thread_is_refused(backend: RedisBackend) -> None:
    """It could lie on another server."""
    await opened(backend.threads, "t")
    with pytest.raises(InvalidRequestError, match="thread"):
        await backend.sessions.commit(SessionCommit("s", 0, EPOCH, append=a_step("t")))


# -- cost


async def test_a_turn_costs_few_round_trips(found: RedisBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """One to read, one to write, one for the lists; on a cluster one more to announce it."""
    await opened(found.threads, "s")
    run, names = found.sessions._connection.run_script, list[str]()

    async def counted(script: Any, *args: Any) -> Any:
        names.append(script.name)
        return await run(script, *args)

    monkeypatch.setattr(found.sessions._connection, "run_script", counted)
    view: SessionView = await found.sessions.view("s", WantedRows(thread=True))
    written = change("s", view.revision)
    await found.sessions.commit(SessionCommit("s", 0, EPOCH, written.state, append=a_step("s")))
    announced = ["index_mark"] if found.sessions._connection.cluster else []
    assert names == ["session_view", *announced, "session_commit", "index_update"]
    names.clear()
    await found.sessions.commit(only_rows("s", 1, SessionRow(RowKind.STAGED, "t", b"1", "g")))
    assert names == ["session_commit"]


async def test_a_page_of_many_is_answered_by_its_own_rows_only(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of 5 among 300 reads 6 entries."""
    await asyncio.gather(
        *(backend.sessions.commit(change(f"s{n}", updated_at=n, user_id=f"u{n % 2}")) for n in range(300))
    )
    lists = backend.sessions._index._lists
    run, sizes = lists._run_script, list[int]()

    async def measured(*args: Any) -> list[bytes]:
        answer = await run(*args)
        sizes.append(len(answer) - 1)
        return answer

    monkeypatch.setattr(lists, "_run_script", measured)
    page = await backend.sessions.list_sessions(SessionQuery(limit=5, user_id="u1"))
    assert [each.session_id for each in page.sessions] == ["s299", "s297", "s295", "s293", "s291"]
    assert (page.total, sizes) == (150, [6])
