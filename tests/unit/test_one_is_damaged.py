"""One session is damaged: whatever goes over all sessions does its work for the others, and names it."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.deletion import DeletionActivities
from helix_temporal.activities.maintenance import CleanupActivities, WakingActivities
from helix_temporal.activities.payloads import Payloads
from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.handles import EraseSessionInput, EraseSessionResult
from helix_temporal.models.maintenance import CleanUpExpiredInput, CleanUpOldInput, PurgeOperationsInput
from helix_temporal.models.states import CreateSession, SessionStatus, SubSessionRef
from helix_temporal.models.waiting import WakeInput, WakeResult
from helix_temporal.stores.cleanup import Cleanup
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.sessions import RowSessions, decisions
from helix_temporal.stores.sqlite import SqliteBackend
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.contracts._sessions_tools import waiting
from tests import _postgres
from tests.unit.stores._redis import backend_on

BROKEN, SOUND = "a-broken", ("b", "c")
"""The damaged one comes first, by its name and in time."""


@dataclass(frozen=True)
class Place:
    """A session store, and what damages one session in it for whoever reads or changes it."""

    store: RowSessions
    damage: Callable[[], Awaitable[object]]
    kind: str


@pytest.fixture(params=["redis", "sqlite", "postgres"])
async def place(
    request: pytest.FixtureRequest, redis_url: str, redis_prefix: str, postgres_dsn: str, tmp_path: Path
) -> AsyncIterator[Place]:
    """An empty one."""
    async with AsyncExitStack() as stack:
        if request.param == "redis":
            redis = await stack.enter_async_context(backend_on(redis_url, redis_prefix))
            key = f"{redis_prefix}{{{BROKEN}}}:session"
            yield Place(
                RowSessions(redis.sessions),
                lambda: redis._connection.send_command("HINCRBY", key, "v", 1),
                request.param,
            )
        elif request.param == "postgres":
            prefix = _postgres.own_prefix("damaged")
            postgres = await stack.enter_async_context(_postgres.emptied(postgres_dsn, prefix))
            statement = f"UPDATE \"{postgres.table_prefix}states\" SET body = 'x' WHERE session_id = $1"
            yield Place(
                RowSessions(postgres.sessions),
                lambda: postgres.database.execute(statement, BROKEN),
                request.param,
            )
        else:
            sqlite = SqliteBackend(tmp_path / "helix.db")
            stack.push_async_callback(sqlite.close)

            async def flip() -> None:
                with closing(sqlite3.connect(tmp_path / "helix.db", isolation_level=None)) as connection:
                    connection.execute("UPDATE sessions SET state = x'00' WHERE session_id = ?", (BROKEN,))

            yield Place(RowSessions(sqlite.sessions), flip, request.param)


async def made(
    place: Place, options: CreateSession, *, operations: bool = False, waits: bool = False
) -> None:
    """Three sessions, one of them damaged."""
    for name in (BROKEN, *SOUND):
        if waits:
            await waiting(place.store, name, "call-1", deadline=1_000)
            await place.store.update_status(name, SessionStatus.FAILED)
        else:
            await place.store.create_session(name, options, operation_id="made" if operations else None)
    await asyncio.sleep(0.02)
    await place.damage()
    with pytest.raises(StoreCorruptError):
        await place.store.load_state(BROKEN)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said of the damaged session."""
    found = [each for each in caplog.records if each.levelno >= logging.WARNING]
    return [each.getMessage() for each in found if BROKEN in each.getMessage()]


async def test_operations_of_all_others_are_forgotten(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The table of operations grew for ever where one session could not be read."""
    await made(place, CreateSession(), operations=True)
    activities = CleanupActivities(Cleanup(place.store))
    with caplog.at_level(logging.WARNING):
        purged = await place.store.purge_operations(older_than_ms=10)
    if place.kind != "redis":
        # They are rows of their own, which nobody has to read.
        assert purged == 3
        return
    assert purged == 2
    (told,) = warnings_of(caplog)
    assert f"session '{BROKEN}' keeps its old operations" in told
    # As the schedule does it: it comes to its end with nothing left to do.
    done = await ActivityEnvironment().run(activities.operations, PurgeOperationsInput(older_than_ms=1000))
    assert done.purged == 0


async def test_all_others_that_are_due_are_looked_at(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody was woken while one session was damaged."""
    await made(place, CreateSession(), waits=True)
    with caplog.at_level(logging.WARNING):
        found = await ActivityEnvironment().run(WakingActivities(place.store).wake, WakeInput(page=2))
    assert found == WakeResult(due=3, left=2, failed=(BROKEN,), failures=1)
    assert any("is not woken" in each for each in warnings_of(caplog))


async def test_expired_calls_of_all_others_are_found(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody's were."""
    await made(place, CreateSession(), waits=True)
    with caplog.at_level(logging.WARNING):
        found = await place.store.find_expired_pending(2_000)
    assert [each.session_id for each in found] == [*SOUND]
    assert warnings_of(caplog)


async def test_all_others_past_their_time_are_ended(place: Place) -> None:
    """The damaged one is in the summary."""
    await made(place, CreateSession(expires_at=1))
    found = await Cleanup(place.store).clean_up_expired(CleanUpExpiredInput(page=2))
    assert found.marked == 2
    assert {(each.session_id, each.stage) for each in found.errors} == {(BROKEN, "load")}


async def test_all_others_that_are_old_are_deleted(place: Place) -> None:
    """The damaged one is in the summary."""
    await made(place, CreateSession())
    await asyncio.sleep(1.1)
    found = await Cleanup(place.store).clean_up_old(CleanUpOldInput(max_age_ms=1000, page=2))
    assert found.deleted == 2
    assert {(each.session_id, each.stage) for each in found.errors} == {(BROKEN, "load")}


async def erased(store: RowSessions, session_id: str) -> EraseSessionResult:
    """One attempt of the activity, beside threads, payloads and usage that are sound."""
    memory = MemoryBackend()
    deletion = DeletionActivities(
        HotThreads(memory.threads), Payloads(memory.payloads), memory.usage, None, store
    )
    return await ActivityEnvironment().run(deletion.erase, EraseSessionInput(session_id=session_id))


async def test_a_deletion_names_the_damaged_one_and_goes_on(place: Place) -> None:
    """Its sub-agents' sessions, which go first, and those above it had stayed as well."""
    await made(place, CreateSession())
    found = await erased(place.store, BROKEN)
    ((what, where, why),) = [(each.what, each.where, each.why) for each in found.left]
    assert (what, where) == ("state", BROKEN)
    assert "delete it again" in why


async def test_a_deletion_names_what_a_newer_version_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is not rolled out yet took the deletion up, and all of it failed."""
    store = RowSessions(MemoryBackend().sessions)
    await store.create_session(BROKEN, CreateSession())
    monkeypatch.setattr(decisions, "SCHEMA_VERSION", 0)
    found = await erased(store, BROKEN)
    ((what, where, why),) = [(each.what, each.where, each.why) for each in found.left]
    assert (what, where) == ("state", BROKEN)
    assert "upgrade helix_temporal; then delete it again" in why


async def test_a_session_below_a_damaged_one_is_deleted(place: Place) -> None:
    """What the damaged one says of it stays there, and is told."""
    below = CreateSession(parent_session_id=BROKEN, root_session_id=BROKEN)
    await place.store.create_session("below", below)
    await made(place, CreateSession())
    found = await erased(place.store, "below")
    assert found.removed == ("state",)
    assert [(each.what, each.where) for each in found.left] == [("state", BROKEN)]
    assert await place.store.load_state("below") is None


async def test_a_tree_loses_all_others(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The damaged one is still in the lists, and named by whatever comes to it."""
    await place.store.create_session("above", CreateSession())
    refs = [SubSessionRef(sub_session_id=name, agent_type="helper") for name in (BROKEN, *SOUND)]
    await place.store.add_sub_session_refs("above", refs)
    await made(place, CreateSession(parent_session_id="above"))
    with caplog.at_level(logging.WARNING):
        assert await place.store.delete_session("above")
    assert [await place.store.load_state(each) for each in ("above", *SOUND)] == [None, None, None]
    (told,) = warnings_of(caplog)
    assert "is not deleted with the one above it" in told
