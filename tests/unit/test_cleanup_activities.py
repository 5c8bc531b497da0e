"""The clean-up's activities: what one attempt has done, the next one knows."""

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.maintenance import CleanupActivities
from helix_temporal.backends import Backends
from helix_temporal.errors import StoreCorruptError, StoreUnavailableError
from helix_temporal.models.maintenance import (
    AgeCleanupSummary,
    CleanUpExpiredInput,
    CleanUpOldInput,
    CleanupSummary,
    PurgeOperationsInput,
    PurgeOperationsResult,
)
from helix_temporal.models.states import CreateSession, SessionState, SessionStatus, WorkspaceRef
from helix_temporal.settings import Settings
from helix_temporal.stores.cleanup import Cleanup
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads

LATE = CreateSession(expires_at=1)
WITH_WORKSPACE = LATE.model_copy(
    update={"workspaces": (WorkspaceRef(provider_id="disks", workspace_id="w"),)}
)
REQUEST = CleanUpExpiredInput(page=2)


class Disks:
    """One snapshot a session; the provider may stall, or break."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.stalls = asyncio.Event()
        self.stalls.set()

    async def list_snapshots(self, session_id: str) -> Sequence[str]:
        """One."""
        return [f"{session_id}-snapshot"]

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Waits while it stalls."""
        await self.stalls.wait()
        self.deleted.append(snapshot_id)


@pytest.fixture
def store() -> RowSessions:
    """A store with five sessions past their time."""
    backend = MemoryBackend()
    return RowSessions(backend.sessions, HotThreads(backend.threads))


async def attempt(
    activities: CleanupActivities, details: Sequence[Any] = (), *, beats: list[tuple[Any, ...]]
) -> CleanupSummary:
    """Run one attempt as Temporal does, with what the one before said last."""
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, heartbeat_details=list(details))
    environment.on_heartbeat = lambda *given: beats.append(given)
    return await environment.run(activities.expired, REQUEST)


async def test_an_attempt_goes_on_where_the_one_before_was(store: RowSessions) -> None:
    """Sessions are counted once, and those of the pages before are not looked at again."""
    for number in range(5):
        await store.create_session(f"s{number}", LATE)
    beats: list[tuple[Any, ...]] = []
    broken = CleanupActivities(Cleanup(_breaks_after_pages(store, 2)))
    with pytest.raises(ApplicationError) as caught:
        await attempt(broken, beats=beats)
    assert (caught.value.type, caught.value.non_retryable) == ("StoreUnavailableError", False)
    summary = await attempt(CleanupActivities(Cleanup(store)), beats[-1], beats=[])
    assert summary == CleanupSummary(detected=5, marked=5)


async def test_an_attempt_that_had_listed_all_keeps_its_counts(store: RowSessions) -> None:
    """It died among the snapshots: sessions that it ended are not counted as finished before."""
    await store.create_session("s", WITH_WORKSPACE)
    beats: list[tuple[Any, ...]] = []
    assert (await attempt(CleanupActivities(Cleanup(store)), beats=beats)).marked == 1
    disks = Disks()
    summary = await attempt(CleanupActivities(Cleanup(store, {"disks": disks})), beats[-1], beats=[])
    assert (summary.detected, summary.marked, summary.already_terminal) == (1, 1, 0)


async def test_a_long_page_beats_all_the_while_with_what_is_known(store: RowSessions) -> None:
    """A provider that is slow is no lost worker, and its beats don't forget the attempt before."""
    await store.create_session("s", WITH_WORKSPACE)
    await Cleanup(store).clean_up_expired(REQUEST)
    disks, beaten = Disks(), asyncio.Event()
    disks.stalls.clear()
    known = (None, CleanupSummary(detected=7, marked=7).model_dump(mode="json"))
    beats = _Beats(beaten, enough=3)
    activities = CleanupActivities(Cleanup(store, {"disks": disks}), beat_every=0.001)
    running = asyncio.create_task(attempt(activities, known, beats=beats))
    await beaten.wait()
    assert [*beats] == [known] * len(beats)
    disks.stalls.set()
    assert (await running).marked == 7


async def test_one_that_cannot_be_read_stops_no_other(store: RowSessions) -> None:
    """Neither among those past their time nor among those whose snapshots are left."""
    for session_id in ("a", "b"):
        await store.create_session(session_id, WITH_WORKSPACE)
    await Cleanup(store).clean_up_expired(REQUEST)
    disks = Disks()
    summary = await Cleanup(_damaged(store, "a"), {"disks": disks}).clean_up_expired(REQUEST)
    assert {(each.session_id, each.stage) for each in summary.errors} == {("a", "load")}
    assert disks.deleted == ["b-snapshot"]


async def test_snapshots_of_one_that_came_back_stay(store: RowSessions) -> None:
    """Ended, its snapshots not yet deleted, and then resumed by its user: it needs them."""
    await store.create_session("s", WITH_WORKSPACE)
    await Cleanup(store).clean_up_expired(REQUEST)
    await store.compare_and_set_status("s", {SessionStatus.FAILED}, SessionStatus.ACTIVE, expires_at=2**50)
    disks = Disks()
    summary = await Cleanup(store, {"disks": disks}).clean_up_expired(REQUEST)
    state = await store.load_state("s")
    assert (disks.deleted, summary.error_count) == ([], 0)
    assert state is not None
    assert not state.cleanup_pending


class _Beats(list[tuple[Any, ...]]):
    """Says when there are enough of them."""

    def __init__(self, beaten: asyncio.Event, enough: int) -> None:
        self._beaten, self._enough = beaten, enough

    def append(self, given: tuple[Any, ...]) -> None:
        super().append(given)
        if len(self) == self._enough:
            self._beaten.set()


class _Failing:
    def __init__(self, store: RowSessions, **replaced: Any) -> None:
        self._store, self._replaced = store, replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced.get(name) or getattr(self._store, name)


def _breaks_after_pages(store: RowSessions, pages: int) -> Any:
    left = [pages]

    async def list_expired(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise StoreUnavailableError("the store does not answer")
        return await store.list_expired(*args, **kwargs)

    return _Failing(store, list_expired=list_expired)


def _damaged(store: RowSessions, damaged: str) -> Any:
    async def load_state(session_id: str) -> SessionState | None:
        if session_id == damaged:
            raise StoreCorruptError(f"session {session_id!r} is damaged")
        return await store.load_state(session_id)

    return _Failing(store, load_state=load_state)


async def test_without_a_session_store_there_is_nothing_to_clean_up() -> None:
    """The schedule runs there as well, every hour: it must not fail for want of its activities."""
    backends = Backends(Settings(session_store="none"))
    found = {each.__temporal_activity_definition.name: each for each in backends.make_activities([])}
    run = ActivityEnvironment().run
    assert await run(found["helix.cleanup.expired"], REQUEST) == CleanupSummary()
    assert await run(found["helix.cleanup.old"], CleanUpOldInput(max_age_ms=1000)) == AgeCleanupSummary()
    purged = await run(found["helix.cleanup.operations"], PurgeOperationsInput())
    assert purged == PurgeOperationsResult()
