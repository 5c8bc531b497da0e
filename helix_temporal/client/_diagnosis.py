"""Why a session does not answer, as the Temporal server knows it: failing calls, missing workers."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection, Iterable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from temporalio.api.activity.v1 import ActivityExecutionInfo
from temporalio.api.enums.v1 import EventType, PendingActivityState, PendingWorkflowTaskState, TimeoutType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import (
    DescribeActivityExecutionRequest,
    GetWorkflowExecutionHistoryReverseRequest,
)
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.converter import ActivitySerializationContext, WorkflowSerializationContext
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal._converter import read_failure
from helix_temporal._failures import describe_failure
from helix_temporal.client._looks import RPC, SharedLooks, look_up_or, to_millis
from helix_temporal.client._task_queues import CALLS, POLL_SECONDS, PinnedRun, TaskQueues, seconds_since_poll
from helix_temporal.errors import StoreUnavailableError, split_text
from helix_temporal.models.sessions import FailingCall

_log: Final = logging.getLogger(__name__)

_FIRST_LOOK, _NEXT_LOOK = 10.0, 30.0
"""Seconds until somebody who waits is told why in the log, and until that is looked at again.

A worker that was started together with its client is there by then, or another one has taken over.
"""
_UNOPENED, _UNOPENED_LOOK = 15.0, 5.0
"""Seconds without an answer of a store after which nobody is kept waiting for a session to be opened."""
_OPEN: Final = "helix.sessions.open"
_UNSERVED, _UNSERVED_LOOK = 15.0, 2.5
"""Seconds without any worker after which a read, which has no time-out, is given up."""
_DEPTH: Final = 3
_TAKEN_SECONDS: Final = 5.0
"""A worker that waits for work takes it at once: who last asked before it was there, and has not, is gone."""
_WARNED_SECONDS: Final = 60.0
"""So long one warning of missing workers stands for all who wait for them."""
_EVENTS: Final = 50
"""Of the newest ones of a history, in which is when a failing call was made."""
_AT_WORK: Final = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
_LAST_FAILURE: Final = "include_last_failure"
"""Newer servers leave it out of what they tell of an activity; older SDKs cannot ask for it."""


class ActivityRun(NamedTuple):
    """One standalone activity."""

    activity_id: str
    run_id: str


Execution: TypeAlias = str | ActivityRun
"""What somebody waits for: the newest run of the workflow of this id, or a standalone activity."""


class Diagnosis:
    """Looks at executions and task queues; never an error, since it explains another one.

    Args:
        task_queue: Where the client starts sessions.
        other_queues: Where workers may be instead, as far as settings say.
        deployment: The name of the sessions' deployment.
    """

    def __init__(
        self, client: Client, task_queue: str, other_queues: Collection[str], deployment: str
    ) -> None:
        self._client, self._task_queue = client, task_queue
        self._looks = SharedLooks()
        self._queues = TaskQueues(client, {task_queue, *other_queues}, deployment, self._looks)
        self._warned: dict[str, float] = {}
        """When callers of this client were last warned of missing workers, by what was said."""

    async def find_failing_calls(self, execution: Execution) -> tuple[FailingCall, ...]:
        """Calls of an execution, and of its sub-agents, that have failed so far and are tried again."""
        if isinstance(execution, ActivityRun):
            return await look_up_or(execution.activity_id, self._find_failing_attempts(execution), ())
        return await look_up_or(execution, self._find_failing_calls(execution), ())

    async def explain_wait(self, workflow_id: str) -> str:
        """What holds an execution up, as one sentence; empty if nothing is known to."""
        return "; ".join(await look_up_or(workflow_id, self._find_reasons(workflow_id), []))

    async def explain_queue(self) -> str:
        """What holds up all who wait for workers of the client's task queue; empty if nothing is known to.

        It is looked up once for all of them, so it is told where a server has too much to do to look at each.
        """
        return await look_up_or(self._task_queue, self._describe_crowd(), "")

    async def describe_missing_worker(self, execution: Execution, waited: float = 0.0) -> str:
        """That no worker polls the execution's task queue, as one sentence; empty if one does.

        Args:
            execution: Whose.
            waited: For so many seconds a workflow was asked something that a worker would have taken.
        """
        if isinstance(execution, ActivityRun):
            return await look_up_or(execution.activity_id, self._describe_unpolled_activity(execution), "")
        workflow_id = execution
        return await look_up_or(workflow_id, self._describe_unpolled_execution(workflow_id, waited), "")

    @contextlib.asynccontextmanager
    async def log_while_waiting(self, execution: Execution, subject: str) -> AsyncIterator[None]:
        """While the block waits for an execution, warn in the log of what holds it up.

        Args:
            execution: Which.
            subject: What its caller knows it as.
        """
        watch = asyncio.create_task(self.watch_execution(execution, subject))
        try:
            yield
        finally:
            watch.cancel()

    async def warn_of_wait(self, workflow_id: str, what: str) -> None:
        """Warn in the log of what holds up something of an execution that somebody waits for."""
        reason = await self.explain_wait(workflow_id)
        if reason:
            _log.warning("%s: waiting for its %s: %s", workflow_id, what, reason)

    async def wait_until_unserved(self, execution: Execution) -> str:
        """Come back once no worker polls an execution's task queue for a while, and say so."""
        since: float | None = None
        while True:
            await asyncio.sleep(_UNSERVED_LOOK)
            reason = await self.describe_missing_worker(execution)
            if reason:
                is_served = await look_up_or(str(execution), self._has_worker(execution), otherwise=False)
                reason = "" if is_served else reason
            since = (since or time.monotonic()) if reason else None
            if since is not None and time.monotonic() - since >= _UNSERVED:
                return reason

    async def _has_worker(self, execution: Execution) -> bool:
        """Whether a worker is at it now; one that is to stop ends what it has, and asks for nothing more."""
        if isinstance(execution, ActivityRun):
            return (await self._describe_activity(execution)).run_state == _AT_WORK
        calls = (await self._describe_execution(execution)).raw_description.pending_activities
        return any(each.state == _AT_WORK for each in calls)

    async def watch_execution(self, execution: Execution, subject: str) -> str:
        """Warn in the log of what holds an execution up; come back where a store has kept it from opening.

        Args:
            execution: Which.
            subject: What its caller knows it as.

        Returns:
            What the store said to an attempt that failed while somebody waited here: an older one tells
            nothing of a store that may be back by now.  The session is opened all the same once it is back.
        """
        reported: list[Any] = []
        first_attempt: int | None = None
        pause = _FIRST_LOOK
        while True:
            await asyncio.sleep(pause)
            missing = await self.describe_missing_worker(execution) or await self._describe_untaken_start(
                execution
            )
            failing = await self.find_failing_calls(execution)
            reason = "; ".join(filter(None, [missing, describe_calls(failing)]))
            # Passing time alone is no reason for another warning.
            attempts = [(each.activity, each.attempt) for each in failing]
            kind = missing.partition(" for ")[0]
            seen = [kind, *attempts]
            if reason and seen != reported and (attempts or not self._has_warned(kind)):
                _log.warning("waiting for %s: %s", subject, reason)
            reported = seen
            unopened = [each for each in failing if each.since and _is_kept_from_opening(each)]
            attempt = unopened[0].attempt if unopened else 0
            if first_attempt is None:
                first_attempt = attempt
            if unopened and attempt != first_attempt and time.time() - unopened[0].since / 1000 >= _UNOPENED:
                return describe_calls(unopened)
            pause = _UNOPENED_LOOK if unopened else _NEXT_LOOK

    def _has_warned(self, missing: str) -> bool:
        """Whether somebody who waits has just been told the same of the workers; from now on it is so."""
        now = time.monotonic()
        last = self._warned.get(missing)
        if last is not None and now - last < _WARNED_SECONDS:
            return True
        self._warned = {said: at for said, at in self._warned.items() if now - at < _WARNED_SECONDS}
        self._warned[missing] = now
        return False

    async def _find_reasons(self, workflow_id: str) -> list[str]:
        try:
            described = await self._describe_execution(workflow_id)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            missing = await self._queues.describe_missing_pollers(self._task_queue)
            return ["it has no run", *filter(None, [missing])]
        if described.status is not WorkflowExecutionStatus.RUNNING:
            return [f"its last run is {described.status.name.lower()}"] if described.status else []
        failing = [_describe_call(each) for each in await self._list_failing_calls(described, None, _DEPTH)]
        missing = await self._describe_unpolled_queue(described) or await self._describe_unpolled_calls(
            described
        )
        if missing:
            return [missing, *failing]
        return failing or [
            *(await self._describe_running_calls(described)),
            *(await self._describe_busy_workers(described)),
        ]

    async def _describe_execution(self, workflow_id: str) -> WorkflowExecutionDescription:
        handle = self._client.get_workflow_handle(workflow_id)
        return await self._looks.look_up((workflow_id,), partial(handle.describe, rpc_timeout=RPC))

    # -- calls

    async def _find_failing_calls(self, workflow_id: str) -> tuple[FailingCall, ...]:
        return tuple(
            await self._list_failing_calls(await self._describe_execution(workflow_id), None, _DEPTH)
        )

    async def _list_failing_calls(
        self, described: WorkflowExecutionDescription, workflow_id: str | None, depth: int
    ) -> list[FailingCall]:
        raw = described.raw_description
        failed = [each for each in raw.pending_activities if each.HasField("last_failure")]
        stuck = raw.HasField("pending_workflow_task") and raw.pending_workflow_task.attempt > 1
        events = await self._newest_events(described) if failed or stuck else []
        found = [await self._failing_call(each, described, workflow_id, events) for each in failed]
        if stuck:
            found.append(await self._failing_task(described, workflow_id, events))
        for child in raw.pending_children if depth else ():
            found += await self._list_failing_calls_below(child.workflow_id, depth - 1)
        return found

    async def _list_failing_calls_below(self, child_id: str, depth: int) -> list[FailingCall]:
        """Those of a sub-agent's session; none of one that has ended meanwhile."""
        try:
            below = await self._describe_execution(child_id)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return []
        return await self._list_failing_calls(below, child_id, depth)

    async def _newest_events(self, described: WorkflowExecutionDescription) -> list[HistoryEvent]:
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self._client.namespace,
            execution=described.raw_description.workflow_execution_info.execution,
            maximum_page_size=_EVENTS,
        )
        service = self._client.workflow_service
        found = await service.get_workflow_execution_history_reverse(request, timeout=RPC)
        return list(found.history.events)

    async def _failing_call(
        self,
        pending: PendingActivityInfo,
        described: WorkflowExecutionDescription,
        workflow_id: str | None,
        events: list[HistoryEvent],
    ) -> FailingCall:
        # As the SDK's worker encodes it.
        context = ActivitySerializationContext(
            namespace=self._client.namespace,
            activity_id=pending.activity_id,
            activity_type=pending.activity_type.name,
            activity_task_queue=pending.activity_options.task_queue.name or described.task_queue,
            workflow_id=described.id,
            workflow_type=described.workflow_type,
            is_local=False,
        )
        error = await read_failure(self._client.data_converter, pending.last_failure, context)
        # Its own scheduled_time is that of the newest attempt.
        made = (
            to_millis(event.event_time)
            for event in events
            if event.activity_task_scheduled_event_attributes.activity_id == pending.activity_id
        )
        return FailingCall(
            activity=pending.activity_type.name,
            attempt=pending.attempt,
            error=describe_failure(error),
            worker=pending.last_worker_identity,
            since=next(made, 0),
            workflow_id=workflow_id,
        )

    async def _failing_task(
        self, described: WorkflowExecutionDescription, workflow_id: str | None, events: list[HistoryEvent]
    ) -> FailingCall:
        """A workflow task that fails again and again: a worker without the pack, or a bug in a workflow."""
        pending = described.raw_description.pending_workflow_task
        text, worker = "the workflow task failed", ""
        context = WorkflowSerializationContext(namespace=self._client.namespace, workflow_id=described.id)
        for event in events:
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                failed = event.workflow_task_failed_event_attributes
                text = describe_failure(
                    await read_failure(self._client.data_converter, failed.failure, context)
                )
                worker = failed.identity
                break
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
                text = describe_task_timeout(event)
                break
        return FailingCall(
            activity=f"workflow task of {described.workflow_type}",
            attempt=pending.attempt,
            error=text,
            worker=worker,
            since=to_millis(pending.original_scheduled_time),
            workflow_id=workflow_id,
        )

    async def _describe_running_calls(self, described: WorkflowExecutionDescription) -> list[str]:
        """What is under way, where nothing has failed."""
        said = []
        for each in described.raw_description.pending_activities:
            name, worker = each.activity_type.name, each.last_worker_identity
            if each.state == _AT_WORK:
                since = _format_ago(to_millis(each.last_started_time))
                said.append(f"{name} runs at worker {worker!r} since {since}")
            else:
                said.append(f"{name} waits for a worker since {_format_ago(to_millis(each.scheduled_time))}")
        return said

    async def _describe_busy_workers(self, described: WorkflowExecutionDescription) -> list[str]:
        """That workers poll, as `_describe_unpolled_queue` has found, and do not come to what waits."""
        raw, said = described.raw_description, list[str]()
        task, waited = raw.pending_workflow_task, _longest_wait(described)
        if task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED:
            taken = time.time() - to_millis(task.started_time) / 1000
            if taken >= _TAKEN_SECONDS:
                said.append(
                    f"a worker took its workflow task {taken:.0f} s ago, and has not done it: it is "
                    "overloaded, frozen or dead"
                )
        if waited >= _TAKEN_SECONDS:
            backlog = await self._queues.describe_backlog(described.task_queue)
            said.append(
                f"workers poll task queue {described.task_queue!r} and have not come to it for "
                f"{waited:.0f} s: they have too much to do{backlog}; start more workers"
            )
        return said

    async def _describe_crowd(self) -> str:
        queue = self._task_queue
        missing = await self._queues.describe_missing_pollers(queue)
        if missing or not (backlog := await self._queues.describe_backlog(queue, _TAKEN_SECONDS)):
            return missing
        return f"workers poll task queue {queue!r} and have too much to do{backlog}; start more workers"

    # -- standalone activities

    async def _describe_activity(self, run: ActivityRun) -> ActivityExecutionInfo:
        request = DescribeActivityExecutionRequest(
            namespace=self._client.namespace, activity_id=run.activity_id, run_id=run.run_id
        )
        if _LAST_FAILURE in request.DESCRIPTOR.fields_by_name:
            setattr(request, _LAST_FAILURE, True)
        service = self._client.workflow_service
        return (await service.describe_activity_execution(request, timeout=RPC)).info

    async def _find_failing_attempts(self, run: ActivityRun) -> tuple[FailingCall, ...]:
        info = await self._describe_activity(run)
        if info.attempt <= 1:
            return ()
        said = "the attempt failed"
        if info.HasField("last_failure"):
            # As the SDK's worker encodes it.
            context = ActivitySerializationContext(
                namespace=self._client.namespace,
                activity_id=info.activity_id,
                activity_type=info.activity_type.name,
                activity_task_queue=info.task_queue,
                workflow_id=None,
                workflow_type=None,
                is_local=False,
            )
            said = describe_failure(
                await read_failure(self._client.data_converter, info.last_failure, context)
            )
        failing = FailingCall(
            activity=info.activity_type.name,
            attempt=info.attempt,
            error=said,
            worker=info.last_worker_identity,
            since=to_millis(info.schedule_time),
        )
        return (failing,)

    async def _describe_unpolled_activity(self, run: ActivityRun) -> str:
        """That no worker polls its task queue.

        Workers whose slots are all taken do not ask for activities, but for workflow tasks they do.
        """
        info = await self._describe_activity(run)
        if info.run_state == _AT_WORK:
            return ""
        waited = _seconds_untaken(info)
        silent = waited if _TAKEN_SECONDS <= waited < POLL_SECONDS else POLL_SECONDS
        if not await self._queues.describe_missing_pollers(info.task_queue, silent, CALLS):
            return ""
        return await self._queues.describe_missing_pollers(info.task_queue)

    async def _describe_untaken_activity(self, run: ActivityRun) -> str:
        info = await self._describe_activity(run)
        waited = _seconds_untaken(info)
        if waited < _TAKEN_SECONDS:
            return ""
        return await self._describe_untaken_call(info.task_queue, waited)

    # -- workers

    async def _describe_unpolled_execution(self, workflow_id: str, waited: float) -> str:
        return await self._describe_unpolled_queue(await self._describe_execution(workflow_id), waited)

    async def _describe_unpolled_queue(
        self, described: WorkflowExecutionDescription, waited: float = 0.0
    ) -> str:
        """`TaskQueues.describe_missing_pollers` of an execution's queue, by what waits there for a worker."""
        raw, now = described.raw_description, time.time()
        task = raw.pending_workflow_task
        if task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED and task.attempt <= 1:
            waited = max(waited, now - to_millis(task.original_scheduled_time) / 1000)
        silent = waited if _TAKEN_SECONDS <= waited < POLL_SECONDS else POLL_SECONDS
        pinned = PinnedRun.of(described)
        missing = await self._queues.describe_missing_pollers(described.task_queue, silent, pinned=pinned)
        if missing and pinned is None and described.task_queue != self._task_queue:
            missing += (
                f"; {described.id} was started there, not on task queue {self._task_queue!r} of this client, "
                "and stays until its run ends: serve that queue, or terminate the run (its thread is kept) "
                "and ask again with the same message id, or delete the session"
            )
        return missing

    async def _describe_untaken_start(self, execution: Execution) -> str:
        async def untaken() -> str:
            if isinstance(execution, ActivityRun):
                return await self._describe_untaken_activity(execution)
            return await self._describe_unpolled_calls(await self._describe_execution(execution))

        return await look_up_or(str(execution), untaken(), "")

    async def _describe_unpolled_calls(self, described: WorkflowExecutionDescription) -> str:
        """That no worker takes a call that waits for one.

        It proves less than `_describe_unpolled_queue`: workers whose slots are all taken do not ask either.
        """
        for each in described.raw_description.pending_activities:
            waited = time.time() - to_millis(each.scheduled_time) / 1000
            scheduled = each.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
            if scheduled and waited >= _TAKEN_SECONDS:
                queue = each.activity_options.task_queue.name or described.task_queue
                return await self._describe_untaken_call(queue, waited, PinnedRun.of(described))
        return ""

    async def _describe_untaken_call(self, queue: str, waited: float, pinned: PinnedRun | None = None) -> str:
        """That no worker takes calls: none is there, or those that are have no free slot.

        Args:
            queue: Whose.
            waited: For so many seconds one has waited.
            pinned: The run that it is for, if only workers of one version get it.
        """
        silent = min(waited, POLL_SECONDS)
        missing = await self._queues.describe_missing_pollers(queue, silent, CALLS, pinned)
        if not missing:
            return ""
        if pinned is None and (idle := await self._queues.describe_idle_queue(queue, silent)):
            return idle
        for each in await self._queues.list_pollers(queue, self._client.namespace):
            # Whoever has asked for workflow tasks since the call waits lives, and did not take it.
            asked = seconds_since_poll(each) < silent - 1
            if asked and (pinned is None or pinned.is_served_by(each)):
                return (
                    f"workers of task queue {queue!r} live and take no calls for {silent:.0f} s: all their "
                    "activity slots are taken, by model calls and tools; start more workers, or raise "
                    "HELIX_MAX_CONCURRENT_ACTIVITIES"
                )
        return missing


def _seconds_untaken(info: ActivityExecutionInfo) -> float:
    """For how long an activity has waited for its first worker; 0 if it does not."""
    waits = info.run_state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED and info.attempt <= 1
    return time.time() - to_millis(info.schedule_time) / 1000 if waits else 0.0


def _longest_wait(described: WorkflowExecutionDescription) -> float:
    """For how long an execution's workflow task, or an activity of it, has waited for a worker."""
    raw = described.raw_description
    scheduled = [
        each.scheduled_time
        for each in raw.pending_activities
        if each.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    ]
    task = raw.pending_workflow_task
    if task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED:
        scheduled.append(task.original_scheduled_time)
    return max((time.time() - to_millis(each) / 1000 for each in scheduled), default=0.0)


def describe_task_timeout(event: HistoryEvent) -> str:
    """Why a workflow task timed out, by the event that tells of it."""
    kind = event.workflow_task_timed_out_event_attributes.timeout_type
    if kind == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START:
        return "no worker took it in time"
    return "it timed out: the worker that had taken it froze, died or is overloaded"


_SILENT: Final = "TimeoutError: activity Heartbeat timeout"
"""What Temporal says of an attempt whose worker was killed, or is frozen."""


def _is_kept_from_opening(call: FailingCall) -> bool:
    """Whether it is the open of the session itself, and a store does not answer."""
    kind, _ = split_text(call.error)
    return call.activity == _OPEN and not call.workflow_id and kind == StoreUnavailableError.__name__


def _describe_call(call: FailingCall) -> str:
    where = f" of {call.workflow_id}" if call.workflow_id else ""
    since = f", since {_format_ago(call.since)}" if call.since else ""
    by = f", last at worker {call.worker!r}" if call.worker else ""
    why = "the worker gave no sign of life, and it is tried again" if call.error == _SILENT else call.error
    return f"{call.activity}{where} fails, attempt {call.attempt}{since}{by}: {why}"


def describe_calls(calls: Iterable[FailingCall]) -> str:
    """Failing calls, as one sentence."""
    return "; ".join(map(_describe_call, calls))


def _format_ago(ms: int) -> str:
    return f"{max(time.time() - ms / 1000, 0):.0f} s"
