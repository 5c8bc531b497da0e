"""Deletion: nothing that was said is found any more, in no store and in no history."""

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import zstandard
from redis.asyncio import Redis
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.deletion import DeletionActivities
from helix_temporal.errors import SessionNotFoundError, StoreUnavailableError
from helix_temporal.models.handles import DeleteResult, EraseSessionInput
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import session_worker
from tests.workflows._desk import Desk, Gate, calls, first_tools_then
from tests.workflows._team import Team, ask
from tests.workflows.conftest import Crew, Stand
from tests.workflows.test_states import PAIRINGS, damaged, place, served

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]

WORD = "Rumpelstilzchen"
"""Said in the session, and by nobody else."""
LONG = f"{WORD} " * 1500
"""Too long to travel in a history."""


@asynccontextmanager
async def crew_of(settings: Settings) -> AsyncIterator[Crew]:
    """A worker of agents that call each other, over those stores."""
    team = Team()
    options = SessionOptions(idle_timeout=60)
    async with session_worker(settings, team.agents(), options=options, drain=1.0) as running:
        yield Crew(running, Desk(), team)


async def places_of(stand: Stand, word: str = WORD) -> set[str]:
    """Where a word is found: in histories, and in every store of the stand's workers."""
    settings = stand.served.plugin.settings
    found = {place async for place in _histories(stand, word)}
    found |= {place async for place in _objects(stand, word)}
    if settings.redis_url is not None:
        found |= {place async for place in _redis_keys(settings, word)}
    if settings.postgres_dsn is not None:
        found |= {place async for place in _tables(settings, word)}
    if settings.data_directory is not None:
        found |= set(_files(settings.data_directory, word))
    return found


def _has(data: bytes, word: str) -> bool:
    """Whether the bytes hold the word, as they are or in a zstd frame somewhere in them."""
    if word.encode() in data:
        return True
    start = data.find(b"\x28\xb5\x2f\xfd")
    while start >= 0:
        try:
            inflated = zstandard.ZstdDecompressor().decompressobj().decompress(data[start:])
        except zstandard.ZstdError:
            inflated = b""
        if word.encode() in inflated:
            return True
        start = data.find(b"\x28\xb5\x2f\xfd", start + 1)
    return False


async def _histories(stand: Stand, word: str) -> AsyncIterator[str]:
    queue = stand.served.plugin.settings.task_queue
    async for each in stand.served.client.list_workflows(f"TaskQueue = '{queue}'"):
        handle = stand.served.client.get_workflow_handle(each.id, run_id=each.run_id)
        try:
            history = await handle.fetch_history()
        except RPCError as error:
            # The list lags behind: what has been deleted stands in it for a moment.
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            continue
        if any(_has(event.SerializeToString(), word) for event in history.events):
            yield f"history {each.id}"


async def _objects(stand: Stand, word: str) -> AsyncIterator[str]:
    blobs = stand.served.plugin.backends.blobs
    if blobs is None:
        return
    async for info in blobs.list(stand.served.plugin.settings.s3_prefix):
        blob = await blobs.get(info.key)
        if blob is not None and _has(blob.data, word):
            yield f"object {info.key}"


async def _redis_keys(settings: Settings, word: str) -> AsyncIterator[str]:
    assert settings.redis_url is not None
    reads: dict[str, tuple[Any, ...]] = {
        "hash": ("HGETALL",), "string": ("GET",), "zset": ("ZRANGE", 0, -1),
        "list": ("LRANGE", 0, -1), "set": ("SMEMBERS",), "stream": ("XRANGE", "-", "+"),
    }  # fmt: skip
    redis: Any = Redis.from_url(settings.redis_url)
    async with redis:
        async for key in redis.scan_iter(match=f"{settings.redis_prefix}*", count=1000):
            command, *rest = reads[(await redis.type(key)).decode()]
            if _has(_flat(await redis.execute_command(command, key, *rest)), word):
                yield f"redis {key.decode()}"


def _flat(value: Any) -> bytes:
    """All bytes of an answer, one after the other."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return _flat(list(value.items()))
    return b"".join(map(_flat, value)) if isinstance(value, list | tuple | set) else b""


async def _tables(settings: Settings, word: str) -> AsyncIterator[str]:
    assert settings.postgres_dsn is not None
    connection = await asyncpg.connect(settings.postgres_dsn)
    try:
        query = "SELECT tablename FROM pg_tables WHERE starts_with(tablename, $1)"
        for row in await connection.fetch(query, settings.table_prefix):
            for each in await connection.fetch(f'SELECT * FROM "{row["tablename"]}"'):
                values = (v if isinstance(v, bytes) else str(v).encode() for v in each.values())
                if any(_has(value, word) for value in values):
                    yield f"table {row['tablename']}"
    finally:
        await connection.close()


def _files(directory: Path, word: str) -> list[str]:
    return [
        f"file {each}" for each in directory.rglob("*") if each.is_file() and _has(each.read_bytes(), word)
    ]


async def told_much(stand: Crew, sid: str) -> None:
    """A session that has said the word wherever it can be said: also long, by a tool, and by a sub-agent."""
    desk = stand.team
    desk.leads[sid] = lambda request: (
        ask(request.messages[-1].text) if request.messages[-1].role == "user" else f"it said {WORD}"
    )
    for text in (f"{WORD} one", LONG, f"tool {WORD}"):
        result = await stand.sessions.ask(sid, text, agent="new", metadata={"note": WORD})
        assert result.status is AskStatus.ANSWERED
    await stand.sessions.session(sid).list_messages()
    await stand.sessions.session(sid).get_state()


@pytest.mark.parametrize("place", [each for each in PAIRINGS if each != "memory alone"], indirect=True)
async def test_nothing_that_was_said_is_found_after_a_deletion(place: Settings, sid: str) -> None:
    """Whoever has a conversation deleted has all of it deleted: also what sub-agents said and were told."""
    async with crew_of(place) as stand:
        await told_much(stand, sid)
        await stand.sessions.ask(f"{sid}-other", "hello", agent="helper")
        before = await places_of(stand)
        assert {each.split()[0] for each in before} >= {"history"}
        assert len(before) > 2
        children = [each.sub_session_id for each in await stand.children(sid)]
        assert len(children) == 3
        result = await stand.sessions.session(sid).delete(settle=60)
        assert (result.left, result.pending) == ((), ())
        assert result.complete
        assert set(result.sessions) == {sid, *children}
        assert (result.removed["thread"], result.removed["state"]) == (4, 4)
        assert result.removed["execution"] == 4
        assert await places_of(stand) == set()
        with pytest.raises(SessionNotFoundError):
            await stand.sessions.session(sid).get_status()
        with pytest.raises(SessionNotFoundError):
            await stand.sessions.session(sid).get_usage()
        with pytest.raises(SessionNotFoundError):
            await stand.sessions.session(sid).list_messages()
        assert await stand.texts(f"{sid}-other") == ["hello", "1: hello"]
        await stand.sessions.session(f"{sid}-other").delete()


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_the_next_ask_begins_anew(place: Settings, sid: str) -> None:
    """Also where the session was running when it was deleted; and the deletion may be repeated."""
    async with served(place, Desk()) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        assert (await stand.sessions.session(sid).delete()).removed["thread"] == 1
        assert (await stand.sessions.ask(sid, "two", agent="main", timeout=20)).text == "1: two"
        assert (await stand.sessions.session(sid).get_status()).turns == 1
        await stand.finish(sid)
        assert (await stand.sessions.session(sid).delete(settle=60)).complete
        assert await stand.sessions.session(sid).delete(settle=60) == DeleteResult(sessions=(sid,))
        assert (await stand.sessions.ask(sid, "three", agent="main", timeout=20)).text == "1: three"
        await stand.sessions.session(sid).delete()


async def test_a_session_that_was_never_there_is_deleted_without_a_trace(place: Settings, sid: str) -> None:
    """Whoever repeats a deletion need not know whether the first one came to its end."""
    async with served(place, Desk()) as stand:
        assert await stand.sessions.session(sid).delete(settle=60) == DeleteResult(sessions=(sid,))
        assert await places_of(stand, sid) == set()


async def test_a_turn_under_way_is_ended_by_the_deletion(place: Settings, sid: str) -> None:
    """Whoever waits for its answer is told; what the model says later is not stored."""
    desk, gate = Desk(), Gate()
    async with served(place, desk) as stand:
        desk.scripts[sid] = gate.then()
        asking = asyncio.create_task(stand.sessions.ask(sid, WORD, agent="main", timeout=30))
        await gate.reached.wait()
        result = await stand.sessions.session(sid).delete(settle=60)
        gate.opened.set()
        assert result.complete
        told = await asyncio.gather(asking, return_exceptions=True)
        assert getattr(told[0], "status", AskStatus.INTERRUPTED) is not AskStatus.ANSWERED
        assert await places_of(stand) == set()


async def test_a_large_result_that_no_step_took_goes_as_well(place: Settings, sid: str) -> None:
    """It was put aside, and lies beside the thread."""
    desk, gate = Desk(), Gate()
    async with served(place, desk) as stand:
        desk.scripts[sid] = lambda request: calls("a", "b")
        seen: list[str] = []

        async def act(what: str, context: object) -> str:
            seen.append(what)
            if what == "b":
                await gate.passing()
            return LONG

        desk.acts[sid] = act
        await stand.sessions.send(sid, "go", agent="main")
        await gate.reached.wait()
        while not await places_of(stand):  # noqa: ASYNC110 (the result is on its way)
            await asyncio.sleep(0.05)
        assert (await stand.sessions.session(sid).delete(settle=60)).complete
        assert await places_of(stand) == set()
        gate.opened.set()


async def test_a_sub_agents_session_is_deleted_alone(place: Settings, sid: str) -> None:
    """Its parent forgets it, and keeps what it was told."""
    async with crew_of(place) as stand:
        await told_much(stand, sid)
        first, *others = [each.sub_session_id for each in await stand.children(sid)]
        result = await stand.sessions.session(first).delete()
        assert (result.sessions, result.left) == ((first,), ())
        assert [each.sub_session_id for each in await stand.children(sid)] == others
        assert len(await stand.texts(sid)) > 6
        await stand.sessions.session(sid).delete()


async def test_usage_may_be_kept_for_the_invoice(place: Settings, sid: str) -> None:
    """Nobody's words are in it."""
    desk = Desk()
    async with served(place, desk) as stand:
        desk.scripts[sid] = first_tools_then("done", "x")
        await stand.sessions.ask(sid, "one", agent="main")
        result = await stand.sessions.session(sid).delete(keep_usage=True, settle=60)
        assert "usage" not in result.removed
        assert await stand.served.plugin.backends.usage.exists(sid)
        assert (await stand.sessions.session(sid).delete()).removed == {"usage": 1}


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_the_session_store_deletes_sub_agents_sessions(place: Settings, sid: str) -> None:
    """Whoever works with the store alone has them deleted, too; what it refers to itself stays."""
    async with crew_of(place) as stand:
        await told_much(stand, sid)
        await stand.finish(sid)
        store = stand.served.plugin.backends.sessions
        assert store is not None
        children = [each.sub_session_id for each in await stand.children(sid)]
        assert await store.delete_session(sid)
        for each in (sid, *children):
            assert not await store.session_exists(each)
            with pytest.raises(SessionNotFoundError):
                await stand.sessions.session(each).describe_thread()
        assert not await store.delete_session(sid)


async def test_a_damaged_sub_agents_session_is_left_behind_and_named(place: Settings, sid: str) -> None:
    """All others of its tree are deleted, and whoever deletes is told what is left and why."""
    async with crew_of(place) as stand:
        await told_much(stand, sid)
        first, *others = [each.sub_session_id for each in await stand.children(sid)]
        await stand.finish(sid)
        await damaged(place, first)
        result = await stand.sessions.session(sid).delete()
        assert {*result.sessions} == {sid, first, *others}
        assert ("state", first) in {(each.what, each.where) for each in result.left}
        assert {each.where for each in result.left} == {first}
        for each in (sid, *others):
            with pytest.raises(SessionNotFoundError):
                await stand.sessions.session(each).get_state()


async def test_without_a_session_store_sub_agents_are_found_by_their_calls(place: Settings, sid: str) -> None:
    """The thread is all that there is."""
    async with crew_of(place.model_copy(update={"session_store": "none"})) as stand:
        await told_much(stand, sid)
        result = await stand.sessions.session(sid).delete(settle=60)
        assert len(result.sessions) == 4
        assert result.complete
        assert await places_of(stand) == set()


async def test_an_execution_that_no_worker_serves_is_terminated(place: Settings, sid: str) -> None:
    """And the result says that a late write of it may be left."""
    async with served(place, Desk()) as stand:
        queue = f"{uuid.uuid4().hex}-nobody"
        from helix_temporal.client import workflow_id
        from helix_temporal.models.sessions import SessionInput

        handle = await stand.served.client.start_workflow(
            "helix.session",
            SessionInput(session_id=sid, agent="main"),
            id=workflow_id(sid),
            task_queue=queue,
        )
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        result = await stand.sessions.session(sid).delete(grace=0.3)
        assert [each.what for each in result.left] == ["late_writes"]
        assert result.removed == {"execution": 1}


class _Dies:
    """A store one of whose methods does what it is asked, and fails, the first time."""

    def __init__(self, inner: Any, method: str) -> None:
        self._inner, self._method, self._died = inner, method, False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name != self._method:
            return found

        async def dies(*given: Any, **named: Any) -> Any:
            done = await found(*given, **named)
            if not self._died:
                self._died = True
                raise StoreUnavailableError("on purpose")
            return done

        return dies


@pytest.mark.parametrize(
    ("which", "method"),
    [
        ("threads", "delete"),
        ("streams", "delete_stream"),
        ("usage", "delete"),
        ("sessions", "delete_session"),
    ],
)
async def test_an_erasure_that_dies_on_its_way_is_finished_by_the_next_attempt(
    place: Settings, sid: str, which: str, method: str
) -> None:
    """Whatever was done, and whatever was not told."""
    desk = Desk()
    async with served(place, desk) as stand:
        desk.scripts[sid] = first_tools_then("done", "x")
        await stand.sessions.ask(sid, WORD, agent="main")
        await stand.handle(sid).terminate()
        backends = stand.served.plugin.backends
        stores = {name: getattr(backends, name) for name in ("threads", "usage", "streams", "sessions")}
        dying: dict[str, Any] = {
            name: _Dies(store, method) if name == which else store for name, store in stores.items()
        }
        activities = DeletionActivities(payloads=backends.payloads, **dying)
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(environment.info, scheduled_time=datetime.now(UTC))
        request = EraseSessionInput(session_id=sid)
        with pytest.raises(ApplicationError, match="on purpose"):
            await environment.run(activities.erase, request)
        assert (await environment.run(activities.erase, request)).left == ()
        async with asyncio.timeout(20):
            while not (found := await places_of(stand)):  # noqa: ASYNC110 (the server's list lags behind)
                await asyncio.sleep(0.1)
        assert {each.split()[0] for each in found} == {"history"}
        assert not await backends.usage.exists(sid)
        assert (await environment.run(activities.erase, request)).removed == ()


async def test_the_deletion_of_what_never_opened_leaves_the_log_silent(
    stand: Stand, sid: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A traceback there says that something is broken."""
    await stand.sessions.ask(sid, "hello", agent="main")
    await stand.sessions.session(sid).fork(f"{sid}-fork")
    for each in (f"{sid}-fork", f"{sid}-never"):
        assert (await stand.sessions.session(each).delete()).complete
    # Sessions of earlier tests may have something to say as well.
    said = "\n".join(caplog.handler.format(each) for each in caplog.records if sid in each.getMessage())
    assert "SessionNotFoundError" not in said
    assert "Completing activity as failed" not in said
