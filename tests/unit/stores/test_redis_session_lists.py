"""Lists of sessions in Redis mend themselves, whoever died, was late, was lost or reached its end."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from helix_temporal.devstack import Valkey, start_valkey
from helix_temporal.errors import (
    InvalidConfigError,
    StoreUnavailableError,
    UnsafeRedisPolicyError,
)
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.stores.protocols.session_rows import (
    RowKind,
    RowsCommitted,
    SessionCommit,
    SessionRow,
)
from helix_temporal.stores.redis import RedisBackend, RedisSessions, session_index
from helix_temporal.testing.builders import EPOCH, opened
from tests.unit.stores._redis import backend_on
from tests.unit.stores._redis_sessions import change, gone, listed, marks, only_rows, told


@pytest.fixture
async def backend(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
    """An empty prefix of a real server."""
    async with backend_on(redis_url, redis_prefix, timeout=60) as made:
        yield made


@pytest.fixture
async def cluster(redis_cluster: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
    """An empty prefix of a real cluster."""
    made = RedisBackend(redis_cluster, prefix=redis_prefix, cluster=True, timeout=60)
    yield made
    await made.close()


@pytest.fixture(params=["redis_url", "redis_cluster"])
async def found(request: pytest.FixtureRequest, redis_prefix: str) -> AsyncIterator[RedisBackend]:
    """An empty prefix, of one server or of a cluster."""
    url: str = request.getfixturevalue(request.param)
    made = RedisBackend(url, prefix=redis_prefix, cluster=request.param == "redis_cluster", timeout=60)
    yield made
    await made.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers mend at once what they find."""
    monkeypatch.setattr(session_index, "_MOMENT", 0)


def fail_update(sessions: RedisSessions, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """From now on nothing arrives in the index."""

    async def update(*_: object) -> None:
        raise error

    monkeypatch.setattr(sessions._index, "update_row", update)


# -- writers that die


async def test_a_commit_that_did_not_reach_the_index_is_listed_by_the_next_reader(
    backend: RedisBackend, redis_url: str, redis_prefix: str, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """The commit has happened: its caller hears so, and a list must not hide it."""
    fail_update(backend.sessions, monkeypatch, StoreUnavailableError("gone"))
    assert await backend.sessions.commit(change("s")) == RowsCommitted(1)
    async with backend_on(redis_url, redis_prefix) as reader:
        assert await listed(reader.sessions) == {"s": 1}


async def test_a_writer_cancelled_before_the_index_leaves_a_mark(
    cluster: RedisBackend, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """A worker that is shut down in between, on a cluster."""
    with monkeypatch.context() as patched:
        fail_update(cluster.sessions, patched, asyncio.CancelledError())
        with pytest.raises(asyncio.CancelledError):
            await cluster.sessions.commit(change("s"))
    assert await marks(cluster) == 1
    assert await listed(cluster.sessions) == {"s": 1}


async def test_a_mark_goes_once_nothing_can_come_of_it(
    cluster: RedisBackend, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """Readers look after it until its commit has happened or never will."""
    await cluster.sessions._index.announce_commit(cluster.sessions._index.new_mark("s"))
    assert await listed(cluster.sessions) == {}
    assert await marks(cluster) == 1
    monkeypatch.setattr(session_index, "_SETTLED", 0)
    assert await listed(cluster.sessions) == {}
    assert await marks(cluster) == 0


async def test_a_commit_that_comes_too_late_for_its_mark_is_refused(
    cluster: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers may have given its mark up, and nobody would mend the lists."""
    monkeypatch.setattr(session_index, "COMMIT_BY", -60_000)
    with pytest.raises(StoreUnavailableError, match="too late"):
        await cluster.sessions.commit(change("s"))
    assert (await cluster.sessions.view("s")).revision == 0
    assert await marks(cluster) == 0


async def test_commits_leave_no_marks(found: RedisBackend) -> None:
    """Neither those that happen nor those that are refused: readers would look after them."""
    changes = [change("s") for _ in range(16)]
    outcomes = await asyncio.gather(*map(found.sessions.commit, changes))
    assert outcomes.count(None) == 15
    assert await marks(found) == 0


async def test_lists_tell_the_truth_whatever_was_cut_short(found: RedisBackend, impatient: None) -> None:
    """Writers die at any place, in any number; what the sessions say is what is listed."""
    sessions, chance, ids = found.sessions, random.Random(7), [f"s{n}" for n in range(12)]

    async def write(session_id: str) -> None:
        view = await sessions.view(session_id)
        if view.state is not None and chance.random() < 0.2:
            await sessions.commit(SessionCommit(session_id, view.revision, EPOCH, deletes=True))
        else:
            await sessions.commit(change(session_id, view.revision))

    for _ in range(20):
        tasks = [asyncio.create_task(write(each)) for each in chance.choices(ids, k=8)]
        await asyncio.sleep(chance.random() * 0.004)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    views = {each: await sessions.view(each) for each in ids}
    truth = {each: view.revision for each, view in views.items() if view.state is not None}
    assert await listed(sessions) == truth
    assert set(truth) == {each async for each in sessions.scan()}


async def test_what_a_killed_server_acknowledged_is_there_and_listed(
    own_valkey: Valkey, impatient: None
) -> None:
    """With an append-only file that is synced each time."""
    async with backend_on(own_valkey.url, timeout=30) as backend:
        sessions, done, enough = backend.sessions, dict[str, int](), asyncio.Event()

        async def write(session_id: str) -> None:
            for revision in range(100_000):
                assert await sessions.commit(change(session_id, revision)) is not None
                done[session_id] = revision + 1
                if sum(done.values()) == 30:
                    enough.set()

        tasks = [asyncio.create_task(write(f"s{n}")) for n in range(6)]
        await enough.wait()
        own_valkey.stop(kill=True)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in outcomes} == {StoreUnavailableError}
        own_valkey.start()
        views = {each: await sessions.view(each) for each in done}
        assert all(views[each].revision >= revision for each, revision in done.items())
        versions = await listed(sessions)
        assert {each: versions[each] for each in done} == {
            each: view.revision for each, view in views.items()
        }


async def test_a_damaged_session_keeps_no_other_from_the_lists(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """Somebody wrote over its key while a commit was on its way: one session is lost, not all lists."""
    sessions, connection = backend.sessions, backend.sessions._connection
    await sessions.commit(change("there"))
    await sessions._index.announce_commit(sessions._index.new_mark("damaged"))
    await connection.send_command("SET", f"{connection.key_of('damaged')}:session", "somebody else's")
    assert await listed(sessions) == {"there": 1}
    monkeypatch.setattr(session_index, "_SETTLED", 0)
    assert await listed(sessions) == {"there": 1}
    assert await marks(backend) == 0


async def test_custom_states_come_from_the_sessions_that_are_sound_and_match_still(
    found: RedisBackend, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index says which, and they are asked after it: one may be another's by then, gone or damaged."""
    sessions, connection = found.sessions, found.sessions._connection
    for name in "abcde":
        await sessions.commit(change(name, user_id="ann", custom_state={"name": name}))
    query = SessionQuery(user_id="ann", include=("custom_state",))
    assert {each.session_id for each in (await sessions.list_sessions(query)).sessions} == {*"abcde"}
    with monkeypatch.context() as patched:
        fail_update(sessions, patched, StoreUnavailableError("gone"))
        await sessions.commit(change("b", 1, user_id="bob"))
    await gone(found, "c")
    await connection.send_command("HSET", f"{connection.key_of('d')}:session", "s", "damaged")
    await connection.send_command("DEL", f"{connection.key_of('e')}:session")
    await connection.send_command("SET", f"{connection.key_of('e')}:session", "somebody else's")
    page = await sessions._index._lists.list_sessions(query)
    assert ([each.custom_state for each in page.sessions], page.damaged) == ([{"name": "a"}], 2)
    assert "session 'd' is left out of a list" in caplog.text
    assert "session 'e' is left out of a list" in caplog.text


async def test_readers_look_after_any_number_of_dead_writers(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """A whole fleet may have died at once."""
    sessions = backend.sessions
    ids = [f"s{n}" for n in range(230)]
    with monkeypatch.context() as patched:
        fail_update(sessions, patched, StoreUnavailableError("gone"))
        await asyncio.gather(*(sessions.commit(change(each)) for each in ids))
    assert (await sessions.list_sessions(SessionQuery())).total == len(ids)


# -- updates out of order


async def test_an_older_update_never_replaces_a_newer_one(backend: RedisBackend) -> None:
    """Two writers, one after the other, may reach the index the other way round."""
    await backend.sessions.commit(change("s", user_id="old"))
    old = await told(backend, "s")
    await backend.sessions.commit(change("s", 1, user_id="new"))
    await backend.sessions._index.update_row("s", old)
    assert (await backend.sessions.list_sessions(SessionQuery(user_id="old"))).total == 0
    assert (await backend.sessions.list_sessions(SessionQuery(user_id="new"))).total == 1


async def test_a_session_keeps_its_birth(backend: RedisBackend) -> None:
    """Commits of one life are told apart by what they count, not by a clock that may be set back."""
    births = set[int]()
    for revision in range(3):
        await backend.sessions.commit(change("s", revision))
        births.add((await told(backend, "s")).birth)
    await backend.sessions.commit(SessionCommit("s", 3, EPOCH, deletes=True))
    assert births == {(await told(backend, "s")).birth}


async def test_nothing_is_forgotten_that_has_not_reached_its_end(backend: RedisBackend) -> None:
    """A session may be made anew just after a reader did not find it."""
    await backend.sessions.commit(change("s"))
    await backend.sessions._index.update_row("s", None)
    assert await listed(backend.sessions) == {"s": 1}


async def test_an_older_update_never_revives_a_deleted_session(backend: RedisBackend) -> None:
    """Lists must not show what cannot be read."""
    await backend.sessions.commit(change("s", expires_at=1, cleanup_pending=True))
    old = await told(backend, "s")
    await backend.sessions.commit(SessionCommit("s", 1, EPOCH, deletes=True))
    await backend.sessions._index.update_row("s", old)
    assert await listed(backend.sessions) == {}
    assert await backend.sessions.list_expired(9, limit=9) == ()
    assert await backend.sessions.list_cleanup_pending(limit=9) == ()


# -- servers that lost data


async def test_lists_are_made_anew_after_the_index_was_lost(found: RedisBackend) -> None:
    """Its server of a cluster came back empty; the sessions know everything."""
    sessions = found.sessions
    for n in range(5):
        await sessions.commit(change(f"s{n}", expires_at=n))
    await sessions.commit(SessionCommit("s4", 1, EPOCH, deletes=True))
    index = sessions._index
    await sessions._connection.send_command("UNLINK", index._rows, index._entries, index.marks)
    assert await listed(sessions) == {}
    assert await sessions.rebuild_index() == 4
    assert await listed(sessions) == {f"s{n}": 1 for n in range(4)}
    assert [each.session_id for each in await sessions.list_expired(2, limit=9)] == ["s0", "s1"]


async def test_lists_made_anew_forget_sessions_that_were_lost(found: RedisBackend) -> None:
    """And tell of those that were rolled back as they are now."""
    sessions = found.sessions
    for name in ("lost", "rolled back", "there"):
        await sessions.commit(change(name))
    rolled_back = await told(found, "rolled back")
    await sessions._index.update_row("rolled back", rolled_back._replace(revision=9, document=b""))
    await gone(found, "lost")
    await sessions.rebuild_index()
    assert await listed(sessions) == {"rolled back": 1, "there": 1}


async def test_a_session_written_while_lists_are_made_anew_stays_in_them(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not there when it was asked for, and is there when it would be forgotten."""
    sessions = backend.sessions
    await sessions.commit(change("s"))
    await gone(backend, "s")

    async def ask(session_id: str) -> None:
        await sessions.commit(change(session_id))

    with monkeypatch.context() as patched:
        patched.setattr(sessions._index, "_ask", ask)
        await sessions._index.remake_rows()
    assert await listed(sessions) == {"s": 1}


# -- ends of life


async def test_a_session_never_expires_unless_told_to(backend: RedisBackend) -> None:
    """One that waits a month for a person is still there."""
    await backend.sessions.commit(change("s"))
    connection = backend.sessions._connection
    assert await connection.send_command("PTTL", f"{connection.key_of('s')}:session") == -1


async def test_each_commit_renews_the_time_to_live(redis_url: str, redis_prefix: str) -> None:
    """Of state and rows alike, at the same millisecond; the thread has none."""
    backend = RedisBackend(redis_url, prefix=redis_prefix, session_ttl=1_000)
    connection = backend.sessions._connection
    key = connection.key_of("s")
    await opened(backend.threads, "s")
    await backend.sessions.commit(change("s"))
    row = SessionRow(RowKind.CHECKPOINT, "c", b"1")
    await backend.sessions.commit(only_rows("s", 1, row))
    await connection.send_command("PEXPIRE", f"{key}:session", 500_000)
    await backend.sessions.commit(only_rows("s", 2, row))
    ends = [await connection.send_command("PTTL", f"{key}:{name}") for name in ("session", "session-order")]
    assert all(900_000 < each <= 1_000_000 for each in ends)
    assert await connection.send_command("PTTL", key) == -1
    await backend.close()


async def test_a_time_to_live_that_is_unset_ends_with_the_next_commit(
    backend: RedisBackend, redis_url: str, redis_prefix: str
) -> None:
    """Whoever turns it off must not lose sessions all the same."""
    mortal = RedisBackend(redis_url, prefix=redis_prefix, session_ttl=1_000)
    await mortal.sessions.commit(change("s"))
    await mortal.close()
    await backend.sessions.commit(change("s", 1))
    connection = backend.sessions._connection
    assert await connection.send_command("PTTL", f"{connection.key_of('s')}:session") == -1


async def test_a_session_that_reached_its_end_leaves_the_lists(backend: RedisBackend) -> None:
    """Its keys went without a word; whoever lists next notices."""
    await backend.sessions.commit(change("s", expires_at=5))
    await backend.sessions._index.update_row("s", (await told(backend, "s"))._replace(ends=1))
    await gone(backend, "s")
    assert await listed(backend.sessions) == {}
    assert await backend.sessions.list_expired(9, limit=9) == ()


async def test_a_session_whose_life_was_renewed_stays_in_the_lists(backend: RedisBackend) -> None:
    """Commits that no list shows renew it too, and the index does not hear of those."""
    await backend.sessions.commit(change("s"))
    await backend.sessions._index.update_row("s", (await told(backend, "s"))._replace(ends=1))
    assert await listed(backend.sessions) == {"s": 1}
    assert await listed(backend.sessions) == {"s": 1}


async def test_a_renewed_end_of_life_is_noticed_as_well(redis_url: str, redis_prefix: str) -> None:
    """Whoever mended the lists told them of the new one."""
    mortal = RedisBackend(redis_url, prefix=redis_prefix, session_ttl=1_000)
    sessions = mortal.sessions
    await sessions.commit(change("s"))
    await sessions._index.update_row("s", (await told(mortal, "s"))._replace(ends=1))
    await listed(sessions)
    [entry] = await sessions._index._entries_in(b"[d", b"(e", 9)
    assert int.from_bytes(entry[1:9], "big") > await sessions.now()
    await mortal.close()


async def test_a_session_made_anew_after_its_end_is_listed(backend: RedisBackend) -> None:
    """It counts from 1 again, and yet is the later one."""
    for revision in range(3):
        await backend.sessions.commit(change("s", revision, user_id="old"))
    await gone(backend, "s")
    await backend.sessions.commit(change("s", user_id="new"))
    assert await listed(backend.sessions) == {"s": 1}
    assert (await backend.sessions.list_sessions(SessionQuery(user_id="old"))).total == 0


@pytest.mark.parametrize("ttl", [0, -1.0])
def test_a_time_to_live_is_above_0(ttl: float) -> None:
    """Every session would be gone when its commit returns."""
    with pytest.raises(InvalidConfigError, match="session_ttl"):
        RedisBackend("redis://127.0.0.1", session_ttl=ttl)


async def test_mortal_sessions_need_a_server_that_evicts_nothing() -> None:
    """It would evict a session's rows and leave its state."""
    with start_valkey(arguments=("--maxmemory-policy", "volatile-lru")) as server:
        async with backend_on(server.url) as backend:
            await backend.check()
        mortal = RedisBackend(server.url, session_ttl=60)
        with pytest.raises(UnsafeRedisPolicyError, match="session"):
            await mortal.check()
        await mortal.close()
