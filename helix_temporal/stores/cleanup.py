"""Cleaning up: sessions past their time, sessions nobody uses, operations long done.

A session is ended by a compare-and-set on the very version that was looked at, so that one that was
resumed or prolonged meanwhile is left alone; only then its workspace snapshots are deleted, under a mark
that the next clean-up finds if this one does not come to its end.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from helix_temporal.errors import HelixError, SessionNotFoundError, StaleStateError, StoreUnavailableError
from helix_temporal.models.maintenance import (
    AgeCleanupSummary,
    CleanupError,
    CleanUpExpiredInput,
    CleanUpOldInput,
    CleanupSummary,
)
from helix_temporal.models.states import TERMINAL, CasConflict, SessionState, SessionStatus, is_past
from helix_temporal.models.store_calls import OrderBy, SessionQuery, SessionSummary
from helix_temporal.stores.protocols.executions import Executions
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.workspaces import WorkspaceProvider

T = TypeVar("T")

EXPIRED: Final = "session_expired"
_LIVE: Final = frozenset(SessionStatus) - TERMINAL
_PURGE: Final = 1000

Report = Callable[[str | None, CleanupSummary], None]
"""Told after each page: where to go on, and what was done so far."""
ReportOld = Callable[[AgeCleanupSummary], None]
"""Told after each page what was done so far."""


class Cleanup:
    """Cleans up one session store.

    Args:
        workspaces: Providers of workspaces by id.  Snapshots whose provider is not here are an error
            in the summary, and stay marked.
        executions: Asked whether a session runs, which is then left as it is; None where no workflow runs
            sessions of this store.
    """

    def __init__(
        self,
        store: SessionStore,
        workspaces: Mapping[str, WorkspaceProvider] | None = None,
        executions: Executions | None = None,
    ) -> None:
        self._store, self._workspaces = store, dict(workspaces or {})
        self._executions = executions

    async def clean_up_expired(
        self,
        request: CleanUpExpiredInput,
        report: Report | None = None,
        *,
        cursor: str | None = None,
        summary: CleanupSummary | None = None,
    ) -> CleanupSummary:
        """End sessions that are past their time by the store's clock.

        One that runs is asked to end, and is marked by a later clean-up.  One that fails is named in the
        summary and stops nobody else.  ``cursor`` and ``summary`` are those of the last ``report`` of an
        attempt that did not come to its end; a summary without a
        cursor means that only snapshots are left.

        Raises:
            StoreUnavailableError: The store does not answer; what is left is done by the next attempt.
        """
        listed = summary is not None and cursor is None
        summary = summary or CleanupSummary()
        now = await self._store.now()
        most = request.max_sessions
        while not listed and (most is None or summary.ended < most):
            page = await self._store.list_expired(now, limit=request.page, cursor=cursor)
            for each in page.items:
                summary = await self._end_expired(each.session_id, now, summary, dry_run=request.dry_run)
                if summary.ended == most:
                    break
            cursor = page.next_cursor
            if report is not None:
                report(cursor, summary)
            if cursor is None:
                break
        return summary if request.dry_run else await self._finish_pending(request.page, summary, report)

    async def clean_up_old(
        self, request: CleanUpOldInput, report: ReportOld | None = None
    ) -> AgeCleanupSummary:
        """Delete sessions that nobody has changed for ``max_age_ms``, their workspace snapshots first.

        One that has a parent here, as a sub-agent's, goes with it and not before: the parent may need it
        again, however long it has been at rest.  One whose parent is gone goes by its own age.  One whose
        snapshots can't be deleted stays, and is named.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        before = max(await self._store.now() - request.max_age_ms, 0)
        query = SessionQuery(
            date_field="updated_at",
            date_to=before,
            order_by=OrderBy(field="updated_at", direction="asc"),
            limit=request.page,
        )
        summary = AgeCleanupSummary()
        while True:
            page = await self._store.list_sessions(query)
            parents = set[str]()
            for each in page.sessions:
                if await self._goes_by_own_age(each, parents):
                    summary = await self._delete_old(each, summary, dry_run=request.dry_run)
            if report is not None:
                report(summary)
            if page.next_cursor is None:
                return summary
            query = query.model_copy(update={"cursor": page.next_cursor})

    async def forget_operations(self, older_than_ms: int) -> int:
        """Forget operations of long ago; how many.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        total = 0
        while purged := await self._store.purge_operations(older_than_ms=older_than_ms, limit=_PURGE):
            total += purged
        return total

    # -- one session

    async def _end_expired(
        self, session_id: str, now: int, summary: CleanupSummary, *, dry_run: bool
    ) -> CleanupSummary:
        summary = summary.plus(detected=1)
        state = await _result_or_error(session_id, "load", self._store.load_state(session_id))
        if isinstance(state, CleanupError):
            return summary.failed(state)
        if state is None or not is_past(state.expires_at, now):
            return summary.plus(skipped=1)
        if state.status in TERMINAL:
            return summary.plus(already_terminal=1)
        if self._executions is not None and await self._executions.is_running(session_id):
            if not dry_run:
                await self._executions.close(session_id)
            return summary.plus(running=1)
        if dry_run:
            return summary.plus(would_end=1)
        return await self._mark_expired(state, summary)

    async def _mark_expired(self, state: SessionState, summary: CleanupSummary) -> CleanupSummary:
        """End a session that is past its time, unless it is another one by now."""
        marks = bool(state.workspaces)
        change = self._store.compare_and_set_status(
            state.session_id,
            _LIVE,
            SessionStatus.FAILED,
            expected_version=state.version,
            failure_reason=EXPIRED,
            cleanup_pending=marks,
        )
        try:
            marked = await _result_or_error(state.session_id, "mark", change)
        except SessionNotFoundError:
            return summary.plus(skipped=1)
        if isinstance(marked, CleanupError):
            return summary.failed(marked)
        if isinstance(marked, CasConflict):
            return summary.plus(skipped=1)  # resumed or changed while it was looked at
        ended = {"status": SessionStatus.FAILED, "cleanup_pending": marks}
        return await self._delete_marked_snapshots(state.model_copy(update=ended), summary.plus(marked=1))

    async def _finish_pending(
        self, limit: int, summary: CleanupSummary, report: Report | None
    ) -> CleanupSummary:
        """Snapshots that an earlier clean-up, or this one, left."""
        failed = {each.session_id for each in summary.errors}
        cursor = None
        while True:
            page = await self._store.list_cleanup_pending(limit=limit, cursor=cursor)
            for each in page.items:
                if each.session_id not in failed:
                    summary = await self._finish_cleanup(each.session_id, summary)
            if report is not None:
                report(None, summary)
            if page.next_cursor is None:
                return summary
            cursor = page.next_cursor

    async def _finish_cleanup(self, session_id: str, summary: CleanupSummary) -> CleanupSummary:
        state = await _result_or_error(session_id, "load", self._store.load_state(session_id))
        if isinstance(state, CleanupError):
            return summary.failed(state)
        return summary if state is None else await self._delete_marked_snapshots(state, summary)

    async def _delete_marked_snapshots(self, state: SessionState, summary: CleanupSummary) -> CleanupSummary:
        """Delete the snapshots of a session that was ended, and take its mark away once all are gone."""
        if not state.cleanup_pending:
            return summary
        # One that came back since it was ended needs its snapshots.
        providers = {each.provider_id for each in state.workspaces} if state.status in TERMINAL else set()
        whole = True
        for provider_id in sorted(providers):
            deleted, error = await self._delete_snapshots(provider_id, state.session_id)
            summary = summary.plus(snapshots_deleted=deleted)
            if error is not None:
                summary, whole = summary.failed(error), False
        if not whole:
            return summary
        try:
            done = await _result_or_error(
                state.session_id, "finish", self._store.finish_cleanup(state.session_id)
            )
        except SessionNotFoundError:
            return summary
        return summary.failed(done) if isinstance(done, CleanupError) else summary

    async def _delete_snapshots(self, provider_id: str, session_id: str) -> tuple[int, CleanupError | None]:
        provider = self._workspaces.get(provider_id)
        if provider is None:
            return 0, _unknown_provider_error(session_id, provider_id)
        deleted = 0
        try:
            for snapshot_id in await provider.list_snapshots(session_id):
                await provider.delete_snapshot(snapshot_id)
                deleted += 1
        except Exception as error:  # noqa: BLE001 (a provider's own; the others must go on)
            return deleted, _cleanup_error(session_id, "snapshots", error)
        return deleted, None

    async def _goes_by_own_age(self, session: SessionSummary, parents: set[str]) -> bool:
        """Whether a session has no parent here; ``parents`` are those that were found to be there."""
        parent = session.parent_session_id
        if parent is None:
            return True
        if parent not in parents and await self._is_there(parent):
            parents.add(parent)
        # What is gone itself went with its parent since it was listed.
        return parent not in parents and await self._is_there(session.session_id)

    async def _is_there(self, session_id: str) -> bool:
        """Whether a session is in the store; a damaged one is."""
        found = await _result_or_error(session_id, "load", self._store.session_exists(session_id))
        return isinstance(found, CleanupError) or found

    async def _delete_old(
        self, session: SessionSummary, summary: AgeCleanupSummary, *, dry_run: bool
    ) -> AgeCleanupSummary:
        session_id, version, summary = session.session_id, session.version, summary.plus(scanned=1)
        if self._executions is not None and await self._executions.is_running(session_id):
            return summary.plus(running=1)
        if dry_run:
            return summary.plus(would_delete=1)
        state = await _result_or_error(session_id, "load", self._store.load_state(session_id))
        if isinstance(state, CleanupError):
            return summary.failed(state)
        try:
            if state is not None and state.workspaces:
                version, deleted = await self._empty_session(state, version)
                summary = summary.plus(snapshots_deleted=deleted)
            gone = await _result_or_error(session_id, "delete", self._delete_session(session_id, version))
        except (StaleStateError, SessionNotFoundError):
            return summary.plus(changed=1)
        except _KeptError as kept:
            return summary.plus(snapshots_deleted=kept.deleted).failed(kept.error)
        if isinstance(gone, CleanupError):
            return summary.failed(gone)
        deleted, left = gone
        summary = summary.plus(deleted=deleted)
        return summary if left is None else summary.failed(left)

    async def _delete_session(self, session_id: str, version: int) -> tuple[bool, CleanupError | None]:
        """Delete a session: whether it is gone, and what is left of it that no clean-up would find."""
        try:
            return await self._store.delete_session(session_id, expected_version=version), None
        except StoreUnavailableError as error:
            if await self._store.session_exists(session_id):
                raise
            return True, _cleanup_error(session_id, "delete", error)

    async def _empty_session(self, state: SessionState, version: int) -> tuple[int, int]:
        """Delete the snapshots of a session that is to go: its version then, and how many there were.

        It is ended first, under a mark: what is left of it is finished with those past their time.
        """
        session_id, providers = state.session_id, sorted({each.provider_id for each in state.workspaces})
        unknown = [each for each in providers if each not in self._workspaces]
        if unknown:
            raise _KeptError(0, _unknown_provider_error(session_id, unknown[0]))
        over = state.status in TERMINAL
        mark = self._store.compare_and_set_status(
            session_id,
            [state.status],
            state.status if over else SessionStatus.FAILED,
            expected_version=version,
            failure_reason=state.failure_reason if over else EXPIRED,
            cleanup_pending=True,
        )
        marked = await _result_or_error(session_id, "mark", mark)
        if isinstance(marked, CleanupError):
            raise _KeptError(0, marked)
        if isinstance(marked, CasConflict):
            raise StaleStateError(f"session {session_id!r} was changed while it was looked at")
        total = 0
        for provider_id in providers:
            deleted, error = await self._delete_snapshots(provider_id, session_id)
            total += deleted
            if error is not None:
                raise _KeptError(total, error)
        return marked.new_version, total


class _KeptError(Exception):
    """A session stays: ``error`` says why; ``deleted`` of its snapshots are gone."""

    def __init__(self, deleted: int, error: CleanupError) -> None:
        super().__init__(error.message)
        self.deleted, self.error = deleted, error


async def _result_or_error(session_id: str, stage: str, act: Awaitable[T]) -> T | CleanupError:
    """What it gave, or the error that names the session; others must go on.

    Raises:
        StoreUnavailableError: The next attempt does what is left.
        SessionNotFoundError, StaleStateError: Somebody else was there first.
    """
    try:
        return await act
    except (StoreUnavailableError, SessionNotFoundError, StaleStateError):
        raise
    except HelixError as error:
        return _cleanup_error(session_id, stage, error)


def _unknown_provider_error(session_id: str, provider_id: str) -> CleanupError:
    message = f"no provider {provider_id!r} was given; its snapshots stay"
    return CleanupError(session_id=session_id, stage="snapshots", message=message)


def _cleanup_error(session_id: str, stage: str, error: Exception) -> CleanupError:
    # Only the type of a foreign error: its text may hold what must not be here.
    message = str(error)[:300] if isinstance(error, HelixError) else type(error).__name__
    return CleanupError.model_validate({"session_id": session_id, "stage": stage, "message": message})
