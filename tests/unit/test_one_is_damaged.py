"""One session is damaged: whatever goes over all sessions does its work for the others, and names it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.maintenance import CleanupActivities, WakingActivities
from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.maintenance import CleanUpExpiredInput, CleanUpOldInput, PurgeOperationsInput
from helix_temporal.models.states import CreateSession, SessionStatus
from helix_temporal.models.waiting import WakeInput, WakeResult
from helix_temporal.stores.cleanup import Cleanup
from helix_temporal.stores.file import FileBackend
from helix_temporal.stores.file._format import name_of
from helix_temporal.stores.sessions import RecordSessions
from helix_temporal.testing.contracts._sessions_tools import waiting
from tests import _postgres
from tests.unit.stores._redis import backend_on

BROKEN, SOUND = "a-broken", ("b", "c")
"""The damaged one comes first, by its name and in time."""


@dataclass(frozen=True)
class Place:
    """A session store, and what damages one session in it for whoever reads or changes it."""

    store: RecordSessions
    damage: Callable[[], Awaitable[object]]
    kind: str


@pytest.fixture(params=["redis", "files", "heading", "postgres"])
async def place(
    request: pytest.FixtureRequest, redis_url: str, redis_prefix: str, postgres_dsn: str, tmp_path: Path
) -> AsyncIterator[Place]:
    """An empty one; of a document its body is damaged, or its first lines."""
    async with AsyncExitStack() as stack:
        if request.param == "redis":
            redis = await stack.enter_async_context(backend_on(redis_url, redis_prefix))
            key = f"{redis_prefix}{{{BROKEN}}}:session"
            yield Place(
                RecordSessions(redis.sessions),
                lambda: redis._connection.command("HINCRBY", key, "v", 1),
                request.param,
            )
        elif request.param == "postgres":
            prefix = _postgres.own_prefix("damaged")
            postgres = await stack.enter_async_context(_postgres.emptied(postgres_dsn, prefix))
            statement = f"UPDATE \"{postgres.table_prefix}states\" SET body = 'x' WHERE session_id = $1"
            yield Place(
                RecordSessions(postgres.sessions),
                lambda: postgres.adapter.execute(statement, BROKEN),
                request.param,
            )
        else:
            heading, files = request.param == "heading", FileBackend(tmp_path)

            async def flip() -> None:
                (file,) = (tmp_path / "sessions").glob(f"{BROKEN}*.helix")
                data = bytearray(file.read_bytes())
                data[40 if heading else -1] ^= 1
                file.write_bytes(data)
                files.documents._cache.forget(name_of(BROKEN))

            yield Place(RecordSessions(files.sessions), flip, request.param)


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
    if place.kind == "postgres":
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
    if place.kind == "heading":
        # It is not even listed.
        assert found == WakeResult(due=2, left=2)
    else:
        assert found == WakeResult(due=3, left=2, failed=(BROKEN,), failures=1)
    assert any("is not woken" in each or "left out" in each for each in warnings_of(caplog))


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
    found = await Cleanup(place.store).expired(CleanUpExpiredInput(page=2))
    assert found.marked == 2
    if place.kind != "heading":
        assert {(each.session_id, each.stage) for each in found.errors} == {(BROKEN, "load")}


async def test_all_others_that_are_old_are_deleted(place: Place) -> None:
    """The damaged one is in the summary."""
    await made(place, CreateSession())
    await asyncio.sleep(1.1)
    found = await Cleanup(place.store).old(CleanUpOldInput(max_age_ms=1000, page=2))
    assert found.deleted == 2
    if place.kind != "heading":
        assert {(each.session_id, each.stage) for each in found.errors} == {(BROKEN, "load")}
