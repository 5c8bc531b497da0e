"""Activities ``helix.maintenance.*`` and ``helix.cleanup.*``: sweep, upkeep, expired calls and sessions."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from temporalio import activity
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.activities._runtime import (
    heartbeat_in_background,
    heartbeat_with_progress,
    is_given_up,
    limited_as,
    raise_application_errors,
)
from helix_temporal.activities.executions import find_execution
from helix_temporal.errors import HelixError, StoreUnavailableError
from helix_temporal.models.base import WireModel, only_set
from helix_temporal.models.deployments import Deployment, memo_of
from helix_temporal.models.ids import SESSION_WORKFLOW, workflow_id
from helix_temporal.models.maintenance import (
    AgeCleanupSummary,
    CleanUpExpiredInput,
    CleanUpOldInput,
    CleanupSummary,
    KeepPartInput,
    KeepRecordsInput,
    KeepResult,
    PurgeOperationsInput,
    PurgeOperationsResult,
    RecordsKept,
    SweepInput,
    SweepResult,
)
from helix_temporal.models.sessions import SessionInput
from helix_temporal.models.states import SessionState, SessionStatus, is_past
from helix_temporal.models.store_calls import OrderBy, SessionQuery, call_deadlines
from helix_temporal.models.waiting import WakeInput, WakeResult
from helix_temporal.stores.cleanup import Cleanup
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ArchiveUpkeep, ThreadStore
from helix_temporal.stores.records import RecordUpkeep
from helix_temporal.stores.threads.keep import keep_part
from helix_temporal.stores.threads.sweep import ReportPage, Unarchived, sweep_threads
from helix_temporal.telemetry import metrics

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription

T = TypeVar("T", bound=WireModel)


@contextlib.contextmanager
def _recording_pass(schedule: str) -> Iterator[list[int]]:
    """Record one pass of maintenance: how it ended, and what the block says of it.

    One that is cancelled because its worker stops has not ended: the next attempt goes on.

    Yields:
        What was seen, what was done with it, and what failed; to be set by the block.
    """
    began, counts = time.monotonic(), [0, 0, 0]
    try:
        yield counts
    except (Exception, asyncio.CancelledError) as error:
        if not isinstance(error, asyncio.CancelledError) or is_given_up():
            metrics.MAINTENANCE_FAILURES.add(schedule=schedule)
            metrics.MAINTENANCE_LAST_END.set(time.time(), schedule=schedule)
        raise
    seen, done, failures = counts
    metrics.MAINTENANCE_SEEN.add(seen, schedule=schedule)
    metrics.MAINTENANCE_DONE.add(done, schedule=schedule)
    metrics.MAINTENANCE_FAILURES.add(failures, schedule=schedule)
    metrics.MAINTENANCE_DURATION.record_since(began, schedule=schedule)
    metrics.MAINTENANCE_LAST_END.set(time.time(), schedule=schedule)
    metrics.MAINTENANCE_LAST_SUCCESS.set(time.time(), schedule=schedule)


def _record_unarchived(unarchived: Unarchived) -> None:
    """Record what a loss of the hot tier would lose now."""
    now = time.time()
    metrics.UNARCHIVED_BYTES.set(unarchived.size)
    metrics.UNARCHIVED_AGE.set(now - unarchived.since / 1000 if unarchived.since else 0.0)
    # Of several workers the one that told it last counts.  That is not always the one whose sweep ended last.
    metrics.UNARCHIVED_TIMESTAMP.set(now)


async def _record_waiting(sessions: SessionStore) -> None:
    """Record how many sessions wait, and for how long; nothing else depends on it."""
    if metrics.find_meter() is None:
        return
    oldest = SessionQuery(
        status=(SessionStatus.PAUSED,), order_by=OrderBy(field="updated_at", direction="asc"), limit=1
    )
    try:
        page = await sessions.list_sessions(oldest)
    except Exception as error:  # noqa: BLE001 (the store may be the application's own)
        activity.logger.warning("how many sessions wait is not known: %s", type(error).__name__)
        return
    ages = [time.time() - each.updated_at / 1000 for each in page.sessions]
    if page.total is not None:
        metrics.WAITING_SESSIONS.set(page.total)
    metrics.WAITING_AGE.set(max(ages, default=0.0))


class MaintenanceActivities:
    """What the maintenance worker runs.

    Args:
        upkeep: The archive's; None where there is none, and then there is nothing to archive either.
        records: That of records; None where there is no archive, or no session store.
    """

    def __init__(
        self,
        hot: HotTier,
        threads: ThreadStore,
        upkeep: ArchiveUpkeep | None,
        records: RecordUpkeep | None = None,
        *,
        beat_every: float = 1.0,
    ) -> None:
        self._hot, self._threads, self._upkeep, self._beat_every = hot, threads, upkeep, beat_every
        self._records = records

    @activity.defn(name="helix.maintenance.sweep")
    @raise_application_errors
    @limited_as("maintenance")
    async def sweep(self, request: SweepInput) -> SweepResult:
        """Archive all that is hot, each thread under its own epoch; a session that is alive does not notice.

        The next attempt goes on where this one was.  A thread that cannot be archived for good is reported,
        not raised: it must not stop a sweep.
        """
        last = list(activity.info().heartbeat_details[:2])
        cursor, summary = _parse_progress(last, SweepResult)

        def report(at: str, done: SweepResult) -> None:
            last[:] = at, done.model_dump(mode="json")
            activity.heartbeat(*last)

        schedule = "evict" if request.evict else "sweep"
        async with heartbeat_in_background(self._beat_every, lambda: last):
            with _recording_pass(schedule) as counts:
                done = await self._sweep_all(request, cursor, summary, report)
                counts[:] = done.seen, done.archived, done.failures
                return done

    async def _sweep_all(
        self, request: SweepInput, cursor: str | None, summary: SweepResult | None, report: ReportPage
    ) -> SweepResult:
        """Sweep, and record what is not archived, also where the pass fails or is cancelled."""
        unarchived, is_complete = Unarchived(summary), False
        try:
            done = await sweep_threads(
                self._hot,
                self._threads,
                request,
                cursor=cursor,
                done=summary,
                report=report,
                unarchived=unarchived,
            )
            is_complete = True
            return done
        finally:
            # Of a pass that did not come to its end what it has seen, at least; nothing seen says nothing.
            if is_complete or unarchived.since:
                _record_unarchived(unarchived)

    @activity.defn(name="helix.maintenance.keep_part")
    @raise_application_errors
    @limited_as("maintenance")
    async def keep_part(self, request: KeepPartInput) -> KeepResult:
        """Look after one part of the archive: merge small segments, delete what no manifest names, verify."""
        if self._upkeep is None:
            return KeepResult()
        async with heartbeat_with_progress(self._beat_every) as progress:
            with _recording_pass("keep") as counts:
                done = await keep_part(self._upkeep, request, progress)
                counts[:] = done.seen, done.segments_merged, done.failures
                return done

    @activity.defn(name="helix.maintenance.keep_records")
    @raise_application_errors
    @limited_as("maintenance")
    async def keep_records(self, request: KeepRecordsInput) -> RecordsKept:  # noqa: ARG002 (for later fields)
        """Archive what is old of all sessions' records, and delete packs that hold none any more."""
        if self._records is None:
            return RecordsKept()
        async with heartbeat_with_progress(self._beat_every) as progress:
            with _recording_pass("records") as counts:
                done = await self._records.run(progress)
                counts[:] = done.seen, done.archived, done.failures
                return done


_MAY_WAIT: Final = frozenset({SessionStatus.PAUSED, SessionStatus.ACTIVE})
_OF_THE_SESSION: Final = frozenset(
    {RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.PERMISSION_DENIED}
)
"""What a start answers that will not be otherwise for other sessions' sake: they are gone on with."""


class WakingActivities:
    """Wakes sessions.

    Args:
        sessions: None where there is no session store: then nobody knows of deadlines but the sessions.
        beat_every: Seconds between background heartbeats.
        deployment: Whose the sessions are.
    """

    def __init__(
        self,
        sessions: SessionStore | None,
        *,
        beat_every: float = 1.0,
        deployment: Deployment = Deployment(),  # noqa: B008 (frozen)
    ) -> None:
        self._sessions, self._beat_every, self._deployment = sessions, beat_every, deployment

    @activity.defn(name="helix.maintenance.wake")
    @raise_application_errors
    @limited_as("maintenance")
    async def wake(self, request: WakeInput) -> WakeResult:
        """Start those that are due; the next attempt goes on where this one was.

        A session that runs is not touched, so a repeat changes nothing.  One that is damaged is named in
        the summary and in the log.
        """
        if self._sessions is None:
            return WakeResult(no_session_store=True)
        last = list(activity.info().heartbeat_details[:2])
        async with heartbeat_in_background(self._beat_every, lambda: last):
            with _recording_pass("wake") as counts:
                done = await self._wake_all(self._sessions, request, last)
                await _record_waiting(self._sessions)
                counts[:] = done.due, done.woken, done.failures
                return done

    async def _wake_all(self, store: SessionStore, request: WakeInput, last: list[Any]) -> WakeResult:
        """Wake those that are due; ``last`` is what heartbeats carry."""
        cursor, found = _parse_progress(last, WakeResult)
        summary = found or WakeResult()
        now = await store.now()
        while summary.woken < request.most:
            page = await store.list_due(now, limit=request.page, cursor=cursor)
            for each in page.items:
                summary = await self._wake_if_due(store, each.session_id, now, request, summary)
                if summary.woken >= request.most:
                    break
            cursor = page.next_cursor
            last[:] = cursor, summary.model_dump(mode="json")
            activity.heartbeat(*last)
            if cursor is None:
                break
        return summary

    async def _wake_if_due(
        self, store: SessionStore, session_id: str, now: int, request: WakeInput, summary: WakeResult
    ) -> WakeResult:
        try:
            state = await store.load_state(session_id)
            deadline = 0 if state is None else _newest_passed_deadline(state, now)
            if state is not None and state.root_session_id not in {None, session_id}:
                # A sub-agent is called by those above it: they start it again.
                state = await store.load_state(state.root_session_id or "")
        except StoreUnavailableError:
            raise
        except HelixError as error:
            activity.logger.warning("session %r is not woken: %s", session_id, error)
            return summary.without(session_id)
        if state is None or state.status not in _MAY_WAIT or not deadline or is_past(state.expires_at, now):
            return summary.plus("left")
        try:
            return summary.plus(await self._start_unless_running(activity.client(), state, deadline, request))
        except RPCError as error:
            if error.status not in _OF_THE_SESSION:
                raise
            activity.logger.warning("session %r is not woken: %s", session_id, error)
            return summary.without(session_id)

    async def _start_unless_running(
        self, client: "Client", state: SessionState, deadline: int, request: WakeInput
    ) -> str:
        """Start it, unless it runs, or was started after the deadline and is left for a while."""
        name = workflow_id(state.session_id, self._deployment.name)
        before = await find_execution(client.get_workflow_handle(name))
        if before is not None and before.close_time is None:
            return "running"
        if before is not None and _in_vain(before, deadline, request.again_after):
            return "left"
        # Its own one first: workers of another task queue over the same store may lack its agents.
        queue = (None if before is None else before.task_queue) or request.task_queue
        try:
            await client.start_workflow(
                SESSION_WORKFLOW,
                _build_session_input(state),
                id=name,
                task_queue=queue or activity.info().task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                memo=memo_of(self._deployment),
            )
        except WorkflowAlreadyStartedError:
            return "running"
        return "woken"


def _in_vain(before: "WorkflowExecutionDescription", deadline: int, again_after: float) -> bool:
    """It was started since, and the call is still there: it could not be opened."""
    if before.start_time.timestamp() * 1000 < deadline:
        return False
    return datetime.now(UTC) - before.start_time < timedelta(seconds=again_after)


def _build_session_input(state: SessionState) -> SessionInput:
    elsewhere = only_set(thread_id=state.thread_id)
    return SessionInput(session_id=state.session_id, agent=state.agent_type, mode="continue", **elsewhere)


def _newest_passed_deadline(state: SessionState, now: int) -> int:
    """The newest deadline that has passed; 0 if none has."""
    return max((each for each in call_deadlines(state) if is_past(each, now)), default=0)


def _parse_progress(details: Sequence[Any], kind: type[T]) -> tuple[str | None, T | None]:
    """Where the attempt before was, and what it had done."""
    return (None, None) if len(details) < 2 else (details[0], kind.model_validate(details[1]))


class CleanupActivities:
    """Cleans up the session store.

    Args:
        cleanup: None where there is no session store: then there is nothing to clean up.
        beat_every: Seconds between background heartbeats.
    """

    def __init__(self, cleanup: Cleanup | None, *, beat_every: float = 1.0) -> None:
        self._cleanup, self._beat_every = cleanup, beat_every

    @activity.defn(name="helix.cleanup.expired")
    @raise_application_errors
    @limited_as("maintenance")
    async def expired(self, request: CleanUpExpiredInput) -> CleanupSummary:
        """End sessions past their time; the next attempt goes on where this one was."""
        cleanup = self._cleanup
        if cleanup is None:
            return CleanupSummary()
        last = list(activity.info().heartbeat_details[:2])
        cursor, summary = _parse_progress(last, CleanupSummary)

        def report(at: str | None, done: CleanupSummary) -> None:
            last[:] = at, done.model_dump(mode="json")
            activity.heartbeat(*last)

        # A page of sessions with many snapshots takes longer than the heartbeat time-out.
        async with heartbeat_in_background(self._beat_every, lambda: last):
            with _recording_pass("cleanup_expired") as counts:
                done = await cleanup.clean_up_expired(request, report, cursor=cursor, summary=summary)
                counts[:] = done.detected, done.marked, done.error_count
                return done

    @activity.defn(name="helix.cleanup.old")
    @raise_application_errors
    @limited_as("maintenance")
    async def old(self, request: CleanUpOldInput) -> AgeCleanupSummary:
        """Delete sessions that nobody has changed for long."""
        if self._cleanup is None:
            return AgeCleanupSummary()
        async with heartbeat_with_progress(self._beat_every):
            with _recording_pass("cleanup_old") as counts:
                done = await self._cleanup.clean_up_old(request)
                counts[:] = done.scanned, done.deleted, done.error_count
                return done

    @activity.defn(name="helix.cleanup.operations")
    @raise_application_errors
    @limited_as("maintenance")
    async def operations(self, request: PurgeOperationsInput) -> PurgeOperationsResult:
        """Forget operations of long ago."""
        if self._cleanup is None:
            return PurgeOperationsResult()
        async with heartbeat_with_progress(self._beat_every):
            with _recording_pass("cleanup_operations") as counts:
                purged = await self._cleanup.forget_operations(request.older_than_ms)
                counts[:] = purged, purged, 0
                return PurgeOperationsResult(purged=purged)
