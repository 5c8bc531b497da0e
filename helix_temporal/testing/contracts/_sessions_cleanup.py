"""What a clean-up does to a session store."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.maintenance import CleanUpExpiredInput, CleanUpOldInput, CleanupSummary
from helix_temporal.models.states import (
    CreateSession,
    SessionState,
    SessionStatus,
    SubSessionRef,
    WorkspaceRef,
)
from helix_temporal.stores.cleanup import Cleanup
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import SessionFixtures, loaded

_LONG_AGO = 1_000
_AGE = 2_500
"""Milliseconds after which a session is old; one that was changed just now is looked at well before."""
_WORKSPACE = (WorkspaceRef(provider_id="disks", workspace_id="w"),)


class Disks:
    """Snapshots of workspaces, some of which cannot be deleted."""

    def __init__(self, **snapshots: list[str]) -> None:
        self.snapshots = snapshots
        self.broken: set[str] = set()

    async def list_snapshots(self, session_id: str) -> Sequence[str]:
        """As `WorkspaceProvider.list_snapshots`."""
        return list(self.snapshots.get(session_id, ()))

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """As `WorkspaceProvider.delete_snapshot`."""
        if snapshot_id in self.broken:
            raise OSError("the disk does not answer")
        for kept in self.snapshots.values():
            if snapshot_id in kept:
                kept.remove(snapshot_id)


class CleanupContract(SessionFixtures):
    """Expired sessions end, their snapshots go, old ones are deleted; whoever came back is left alone."""

    async def test_a_mix_is_counted_exactly(self, store: SessionStore) -> None:
        """Expired and live, expired and finished, not yet, never (case 116)."""
        future = await store.now() + 1_000_000
        for number in range(12):
            expires = (_LONG_AGO + number, _LONG_AGO + number, future, None)[number % 4]
            await _make(store, f"s{number:02}", expires)
            if number % 4 == 1:
                await store.update_status(f"s{number:02}", SessionStatus.COMPLETED)
        summary = await Cleanup(store).clean_up_expired(CleanUpExpiredInput(page=2))
        assert summary == CleanupSummary(detected=6, marked=3, already_terminal=3)
        states = [await loaded(store, f"s{number:02}") for number in range(12)]
        assert [each.status.value for each in states] == ["failed", "completed", "active", "active"] * 3
        assert {each.failure_reason for each in states[::4]} == {"session_expired"}

    async def test_snapshots_go_after_the_mark(self, store: SessionStore) -> None:
        """One whose provider fails, or is not here, is told and tried again (case 117)."""
        disks = Disks(a=["a1", "a2"], b=["b1"])
        disks.broken.add("b1")
        other = (WorkspaceRef(provider_id="elsewhere", workspace_id="w"),)
        for session_id, workspaces in (("a", _WORKSPACE), ("b", _WORKSPACE), ("c", other)):
            await _make(store, session_id, _LONG_AGO, workspaces)
        summary = await Cleanup(store, {"disks": disks}).clean_up_expired(CleanUpExpiredInput())
        assert (summary.marked, summary.snapshots_deleted, summary.error_count) == (3, 2, 2)
        assert {each.session_id for each in summary.errors} == {"b", "c"}
        pending = [(await loaded(store, each)).cleanup_pending for each in "abc"]
        assert pending == [False, True, True]
        disks.broken.clear()
        again = await Cleanup(store, {"disks": disks, "elsewhere": Disks()}).clean_up_expired(
            CleanUpExpiredInput()
        )
        assert (again.marked, again.snapshots_deleted, again.error_count) == (0, 1, 0)
        assert not (await loaded(store, "b")).cleanup_pending

    async def test_one_that_came_back_is_left_alone(self, store: SessionStore) -> None:
        """Prolonged between the look and the mark: neither ended nor its snapshots touched (case 118)."""
        await _make(store, "s", _LONG_AGO, _WORKSPACE)
        disks = Disks(s=["s1"])
        summary = await Cleanup(cast("SessionStore", _Returning(store)), {"disks": disks}).clean_up_expired(
            CleanUpExpiredInput()
        )
        assert (summary.detected, summary.marked, summary.skipped) == (1, 0, 1)
        assert (summary.error_count, summary.errors) == (0, ())
        state = await loaded(store, "s")
        assert (state.status, state.failure_reason) == (SessionStatus.ACTIVE, None)
        assert disks.snapshots["s"] == ["s1"]

    async def test_the_next_clean_up_finishes_what_one_left(self, store: SessionStore) -> None:
        """It died after the mark and before the snapshots (case 119)."""
        await _make(store, "s", _LONG_AGO, _WORKSPACE)
        await store.compare_and_set_status(
            "s", [SessionStatus.ACTIVE], SessionStatus.FAILED, cleanup_pending=True
        )
        disks = Disks(s=["s1"])
        summary = await Cleanup(store, {"disks": disks}).clean_up_expired(CleanUpExpiredInput())
        assert (summary.marked, summary.snapshots_deleted) == (0, 1)
        assert not (await loaded(store, "s")).cleanup_pending

    async def test_two_at_once_end_each_session_once(self, store: SessionStore) -> None:
        """Their counters add up (case 120)."""
        for number in range(10):
            await _make(store, f"s{number}", _LONG_AGO)
        found = await asyncio.gather(
            *(Cleanup(store).clean_up_expired(CleanUpExpiredInput(page=3)) for _ in range(2))
        )
        assert sum(each.marked for each in found) == 10
        versions = {(await loaded(store, f"s{number}")).version for number in range(10)}
        assert versions == {2}

    async def test_a_dry_run_changes_nothing(self, store: SessionStore) -> None:
        """And a limit is a limit (case 121)."""
        for number in range(5):
            await _make(store, f"s{number}", _LONG_AGO + number)
        dry = await Cleanup(store).clean_up_expired(CleanUpExpiredInput(dry_run=True))
        assert (dry.detected, dry.marked, dry.skipped, dry.would_end) == (5, 0, 0, 5)
        some = await Cleanup(store).clean_up_expired(CleanUpExpiredInput(max_sessions=2))
        assert (some.detected, some.marked) == (2, 2)
        statuses = [(await loaded(store, f"s{number}")).status.value for number in range(5)]
        assert statuses == ["failed", "failed", "active", "active", "active"]

    async def test_a_clean_up_with_a_limit_gets_through_in_the_end(self, store: SessionStore) -> None:
        """Those that earlier ones ended stay among the expired, and stand before the others."""
        for number in range(5):
            await _make(store, f"s{number}", _LONG_AGO + number)
        marked = [
            (await Cleanup(store).clean_up_expired(CleanUpExpiredInput(max_sessions=2, page=2))).marked
            for _ in range(4)
        ]
        assert marked == [2, 2, 1, 0]

    async def test_a_clean_up_goes_on_where_another_attempt_was(self, store: SessionStore) -> None:
        """The cursor and the counts of its last report are enough."""
        for number in range(5):
            await _make(store, f"s{number}", _LONG_AGO + number)
        reports: list[tuple[str | None, CleanupSummary]] = []

        def first_page_only(cursor: str | None, summary: CleanupSummary) -> None:
            reports.append((cursor, summary))
            raise StoreUnavailableError("the worker goes")

        with pytest.raises(StoreUnavailableError):
            await Cleanup(store).clean_up_expired(CleanUpExpiredInput(page=2), first_page_only)
        cursor, summary = reports[0]
        rest = await Cleanup(store).clean_up_expired(
            CleanUpExpiredInput(page=2), cursor=cursor, summary=summary
        )
        assert (rest.detected, rest.marked) == (5, 5)

    async def test_only_what_nobody_changes_is_deleted_by_age(self, store: SessionStore) -> None:
        """By the store's clock; one that is used while we look stays (case 121)."""
        for session_id in ("a", "b"):
            await _make(store, session_id, None)
        young = await Cleanup(store).clean_up_old(CleanUpOldInput(max_age_ms=100_000))
        assert (young.scanned, young.deleted) == (0, 0)
        await asyncio.sleep(1.1 * _AGE / 1000)
        await store.increment_step_count("b")
        summary = await Cleanup(store).clean_up_old(CleanUpOldInput(max_age_ms=_AGE))
        assert (summary.scanned, summary.deleted, summary.changed) == (1, 1, 0)
        assert not await store.session_exists("a")
        assert await store.session_exists("b")

    async def test_a_sub_agent_is_as_old_as_the_session_that_has_it(self, store: SessionStore) -> None:
        """One that its caller has not needed for long keeps its thread while the caller is used."""
        await _make(store, "caller", None)
        for session_id, parent in (("helper", "caller"), ("orphan", "gone")):
            await store.create_session(session_id, CreateSession(parent_session_id=parent))
        await store.add_sub_session_refs("caller", [SubSessionRef(sub_session_id="helper")])
        await asyncio.sleep(1.1 * _AGE / 1000)
        await store.increment_step_count("caller")
        dry = await Cleanup(store).clean_up_old(CleanUpOldInput(max_age_ms=_AGE, dry_run=True))
        assert (dry.scanned, dry.would_delete) == (1, 1)
        used = await Cleanup(store).clean_up_old(CleanUpOldInput(max_age_ms=_AGE))
        assert (used.scanned, used.deleted, used.error_count) == (1, 1, 0)
        there = [await store.session_exists(each) for each in ("caller", "helper", "orphan")]
        assert there == [True, True, False]

    async def test_a_sub_agent_goes_with_the_session_that_has_it(self, store: SessionStore) -> None:
        """Once the caller is old, however young the sub-agent's own session is; it is counted once."""
        await _make(store, "caller", None)
        await store.create_session("old", CreateSession(parent_session_id="caller"))
        await store.create_session("young", CreateSession(parent_session_id="caller"))
        refs = [SubSessionRef(sub_session_id=each) for each in ("old", "young")]
        await store.add_sub_session_refs("caller", refs)
        await asyncio.sleep(1.1 * _AGE / 1000)
        await store.increment_step_count("young")
        summary = await Cleanup(store).clean_up_old(CleanUpOldInput(max_age_ms=_AGE))
        assert (summary.scanned, summary.deleted, summary.error_count) == (1, 1, 0)
        assert [await store.session_exists(each) for each in ("caller", "old", "young")] == [False] * 3

    async def test_snapshots_go_before_the_session_that_names_them(self, store: SessionStore) -> None:
        """One whose provider fails, or is not here, stays: nobody else knows its snapshots (case 121)."""
        disks = Disks(a=["a1", "a2"], b=["b1"])
        disks.broken.add("b1")
        other = (WorkspaceRef(provider_id="elsewhere", workspace_id="w"),)
        for session_id, workspaces in (("a", _WORKSPACE), ("b", _WORKSPACE), ("c", other), ("d", ())):
            await _make(store, session_id, None, workspaces)
        await asyncio.sleep(1.1)
        summary = await Cleanup(store, {"disks": disks}).clean_up_old(CleanUpOldInput(max_age_ms=1000))
        assert (summary.scanned, summary.deleted, summary.snapshots_deleted) == (4, 2, 2)
        assert {each.session_id for each in summary.errors} == {"b", "c"}
        states = {each: await store.load_state(each) for each in "abcd"}
        assert (states["a"], states["d"]) == (None, None)
        assert states["b"] is not None
        assert states["b"].cleanup_pending
        assert states["c"] is not None
        assert (states["c"].version, states["c"].status) == (1, SessionStatus.ACTIVE)
        disks.broken.clear()
        finished = await Cleanup(store, {"disks": disks}).clean_up_expired(CleanUpExpiredInput())
        assert finished.snapshots_deleted == 1

    async def test_operations_are_forgotten_by_age(self, store: SessionStore) -> None:
        """A young one is still known and answers as at first."""
        await _make(store, "s", None)
        first = await store.increment_step_count("s", operation_id="op")
        assert await Cleanup(store).forget_operations(1_000_000) == 0
        assert await store.increment_step_count("s", operation_id="op") == first
        await asyncio.sleep(0.01)
        assert await store.purge_operations(older_than_ms=1) == 1


class _Returning:
    """A store whose sessions come back just when they have been looked at."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def load_state(self, session_id: str) -> SessionState | None:
        found = await self._store.load_state(session_id)
        assert found is not None
        later = found.model_copy(update={"expires_at": await self._store.now() + 1_000_000})
        await self._store.save_state(session_id, later)
        return found


async def _make(
    sessions: SessionStore, session_id: str, expires_at: int | None, workspaces: tuple[WorkspaceRef, ...] = ()
) -> None:
    await sessions.create_session(session_id, CreateSession(expires_at=expires_at, workspaces=workspaces))
