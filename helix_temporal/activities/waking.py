"""The activity ``helix.maintenance.wake``: sessions that nobody answered in time are told so."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.activities._context import heartbeats
from helix_temporal.activities._errors import typed
from helix_temporal.activities._limits import limited_as
from helix_temporal.models.deployments import Deployment, memo_of
from helix_temporal.models.ids import workflow_id
from helix_temporal.models.queries import deadlines
from helix_temporal.models.sessions import SessionInput
from helix_temporal.models.states import SessionState, SessionStatus, is_past
from helix_temporal.models.waking import WakeInput, WakeResult
from helix_temporal.stores.protocols.sessions import SessionStore

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription

SESSION_WORKFLOW: Final = "helix.session"
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
    @typed
    @limited_as("maintenance")
    async def wake(self, request: WakeInput) -> WakeResult:
        """Start those that are due; the next attempt goes on where this one was.

        A session that runs is not touched, so a repeat changes nothing.
        """
        store = self._sessions
        if store is None:
            return WakeResult(no_session_store=True)
        last = list(activity.info().heartbeat_details[:2])
        cursor, summary = _resumed(last)
        now = await store.now()
        async with heartbeats(self._beat_every, lambda: last):
            while summary.woken < request.most:
                page = await store.list_due(now, limit=request.page, cursor=cursor)
                for each in page.items:
                    summary = await self._one(store, each.session_id, now, request, summary)
                    if summary.woken >= request.most:
                        break
                cursor = page.next_cursor
                last[:] = cursor, summary.model_dump(mode="json")
                activity.heartbeat(*last)
                if cursor is None:
                    break
        return summary

    async def _one(
        self, store: SessionStore, session_id: str, now: int, request: WakeInput, summary: WakeResult
    ) -> WakeResult:
        state = await store.load_state(session_id)
        deadline = 0 if state is None else _passed(state, now)
        if state is not None and state.root_session_id not in {None, session_id}:
            # A sub-agent is called by those above it: they start it again.
            state = await store.load_state(state.root_session_id or "")
        if state is None or state.status not in _MAY_WAIT or not deadline or is_past(state.expires_at, now):
            return summary.plus("left")
        try:
            return summary.plus(await self._woken(activity.client(), state, deadline, request))
        except RPCError as error:
            if error.status not in _OF_THE_SESSION:
                raise
            activity.logger.warning("session %r is not woken: %s", session_id, error)
            return summary.without(session_id)

    async def _woken(self, client: "Client", state: SessionState, deadline: int, request: WakeInput) -> str:
        """Start it, unless it runs, or was started after the deadline and is left for a while."""
        name = workflow_id(state.session_id, self._deployment.name)
        before = await _last_execution(client, name)
        if before is not None and before.close_time is None:
            return "running"
        if before is not None and _in_vain(before, deadline, request.again_after):
            return "left"
        queue = request.task_queue if before is None else request.task_queue or before.task_queue
        try:
            await client.start_workflow(
                SESSION_WORKFLOW,
                _start(state),
                id=name,
                task_queue=queue or activity.info().task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                memo=memo_of(self._deployment),
            )
        except WorkflowAlreadyStartedError:
            return "running"
        return "woken"


async def _last_execution(client: "Client", name: str) -> "WorkflowExecutionDescription | None":
    """What Temporal knows of it; None once that is past the retention."""
    try:
        return await client.get_workflow_handle(name).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None


def _in_vain(before: "WorkflowExecutionDescription", deadline: int, again_after: float) -> bool:
    """It was started since, and the call is still there: it could not be opened."""
    if before.start_time.timestamp() * 1000 < deadline:
        return False
    return datetime.now(UTC) - before.start_time < timedelta(seconds=again_after)


def _start(state: SessionState) -> SessionInput:
    elsewhere: dict[str, Any] = {} if state.thread_id is None else {"thread_id": state.thread_id}
    return SessionInput(session_id=state.session_id, agent=state.agent_type, mode="continue", **elsewhere)


def _passed(state: SessionState, now: int) -> int:
    """The newest deadline that has passed; 0 if none has."""
    return max((each for each in deadlines(state) if is_past(each, now)), default=0)


def _resumed(details: Sequence[Any]) -> tuple[str | None, WakeResult]:
    if len(details) < 2:
        return None, WakeResult()
    return details[0], WakeResult.model_validate(details[1])
