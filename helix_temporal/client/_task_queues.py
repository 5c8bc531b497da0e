"""What the server knows of a task queue: who polls it, for which versions, and how much waits there."""

import asyncio
import shlex
import time
from collections.abc import Collection, Iterable
from typing import Final

from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.enums.v1 import TaskQueueType, VersioningBehavior, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    ListNamespacesRequest,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.client._looks import RPC, SharedLooks, to_millis
from helix_temporal.client._worker_versions import describe_idle_version, is_given_work
from helix_temporal.models.ids import session_workflow_prefix

POLL_SECONDS: Final = 75.0
"""A worker asks for work at least once a minute; the server remembers it for five."""
CALLS: Final = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
_TASKS: Final = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
_VERSIONED: Final = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
_NAMESPACES: Final = 20
_SYSTEM: Final = "temporal-system"
_NEWEST: Final = 20
"""Executions of sessions whose task queues are looked at."""
_SLOTS: Final = ", or are all its activity slots taken (HELIX_MAX_CONCURRENT_ACTIVITIES)"
_NO_POLLER: Final = "no poller seen"
_REPORT_STATS: Final = "report_stats"
"""Older SDKs cannot ask for it."""


class TaskQueues:
    """Tells of task queues in sentences for people.

    Args:
        known: Queues where workers may be, as far as settings say.
        deployment: The name of the sessions' deployment.
        looks: Shared with whoever asks the same server.
    """

    def __init__(self, client: Client, known: Collection[str], deployment: str, looks: SharedLooks) -> None:
        self._client, self._known, self._deployment = client, frozenset(known), deployment
        self._looks = looks

    async def describe_missing_pollers(
        self,
        queue: str,
        silent: float = POLL_SECONDS,
        kind: "TaskQueueType.ValueType" = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        pinned: "PinnedRun | None" = None,
    ) -> str:
        """That no worker polls, where, and where there are workers instead; empty if one polls.

        Args:
            queue: Which.
            silent: Workers that have not asked for work for so many seconds are gone.
            kind: Of work.
            pinned: The run that it is for, if only workers of one version get it.
        """
        namespace = self._client.namespace
        try:
            described = await self._describe_queue(queue, namespace, kind)
        except RPCError as error:
            if error.status is not RPCStatusCode.PERMISSION_DENIED:
                raise
            return ""  # not everybody may look: nothing is known
        pollers = list(described.pollers)
        if pinned is not None:
            pollers = [each for each in pollers if pinned.is_served_by(each)]
        if pollers:
            newest = max(pollers, key=lambda each: to_millis(each.last_access_time))
            ago = seconds_since_poll(newest)
            # Workers without work to take poll a minute long, however long something waits for them.
            if pinned is None and ago < POLL_SECONDS:
                idle = _describe_no_target(queue, described, silent)
                if idle or ago < silent:
                    return idle
            elif ago < silent:
                return ""
            if pinned is not None:
                return pinned.describe_missing(queue, f" for {ago:.0f} s")
            return (
                f"no worker has polled task queue {queue!r} in namespace {namespace!r} for {ago:.0f} s; "
                f"the last was {newest.identity!r}: does it still run{_SLOTS if kind == CALLS else ''}?"
            )
        if pinned is not None:
            return pinned.describe_missing(queue)
        said = f"no worker polls task queue {queue!r} in namespace {namespace!r}"
        return "; ".join([said, *await self._find_other_workers(queue)])

    async def describe_backlog(self, queue: str, least: float = 0.0) -> str:
        """How much waits on a task queue, where the server tells it; nothing if little does.

        Args:
            queue: Which.
            least: What has waited for less, in seconds, is left out.
        """
        told = []
        for kind, what in ((_TASKS, "workflow tasks"), (CALLS, "activities")):
            described = await self._describe_queue(queue, self._client.namespace, kind, stats=True)
            stats = getattr(described, "stats", None)
            if stats is None or stats.approximate_backlog_count <= 1:
                continue
            oldest = stats.approximate_backlog_age.ToTimedelta().total_seconds()
            if oldest >= least:
                told.append(f"{stats.approximate_backlog_count} {what}, the oldest for {oldest:.0f} s")
        return f" (there wait {' and '.join(told)})" if told else ""

    async def describe_idle_queue(self, queue: str, silent: float) -> str:
        """`_describe_no_target`, by who asks for calls."""
        described = await self._describe_queue(queue, self._client.namespace, CALLS)
        return _describe_no_target(queue, described, silent)

    async def _find_other_workers(self, queue: str) -> list[str]:
        """Where there are workers that could be meant: another queue, or another namespace."""
        namespace = self._client.namespace
        queues = sorted((self._known | await self._list_session_queues()) - {queue})
        here = await asyncio.gather(*(self.list_pollers(each, namespace) for each in queues))
        said = [
            f"workers poll task queue {each!r} there"
            for each, pollers in zip(queues, here, strict=True)
            if are_there(pollers)
        ]
        try:
            request = ListNamespacesRequest(page_size=_NAMESPACES)
            found = await self._client.workflow_service.list_namespaces(request, timeout=RPC)
        except RPCError:
            return said  # not everybody may list them
        others = sorted({each.namespace_info.name for each in found.namespaces} - {namespace, _SYSTEM})
        there = await asyncio.gather(*(self.list_pollers(queue, each) for each in others))
        served = [
            f"workers poll it in namespace {each!r}"
            for each, pollers in zip(others, there, strict=True)
            if are_there(pollers)
        ]
        return [*said, *served]

    async def _list_session_queues(self) -> frozenset[str]:
        """Task queues of the deployment's newest sessions."""
        request = ListWorkflowExecutionsRequest(
            namespace=self._client.namespace,
            page_size=_NEWEST,
            query=f"WorkflowId STARTS_WITH '{session_workflow_prefix(self._deployment)}'",
        )
        try:
            found = await self._client.workflow_service.list_workflow_executions(request, timeout=RPC)
        except RPCError:
            return frozenset()  # not every server can, and not everybody may, list them
        return frozenset(each.task_queue for each in found.executions)

    async def list_pollers(
        self,
        queue: str,
        namespace: str,
        kind: "TaskQueueType.ValueType" = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    ) -> list[PollerInfo]:
        """Who has asked for work of a queue, as far as it can be seen."""
        try:
            return list((await self._describe_queue(queue, namespace, kind)).pollers)
        except RPCError as error:
            if error.status is not RPCStatusCode.PERMISSION_DENIED:
                raise
            return []

    async def _describe_queue(
        self, queue: str, namespace: str, kind: "TaskQueueType.ValueType", *, stats: bool = False
    ) -> DescribeTaskQueueResponse:
        """What the server knows of a queue."""
        return await self._looks.look_up(
            (queue, namespace, kind, stats), self._look_up_queue, queue, namespace, kind, stats
        )

    async def _look_up_queue(
        self, queue: str, namespace: str, kind: "TaskQueueType.ValueType", stats: bool
    ) -> DescribeTaskQueueResponse:
        request = DescribeTaskQueueRequest(
            namespace=namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
        )
        if stats and _REPORT_STATS in request.DESCRIPTOR.fields_by_name:
            setattr(request, _REPORT_STATS, True)
        try:
            return await self._client.workflow_service.describe_task_queue(request, timeout=RPC)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return DescribeTaskQueueResponse()


class PinnedRun:
    """A run whose tasks only workers of one version get."""

    def __init__(self, workflow_id: str, version: WorkerDeploymentVersion) -> None:
        self._workflow_id, self._version = workflow_id, version

    @classmethod
    def of(cls, described: WorkflowExecutionDescription) -> "PinnedRun | None":
        """The newest run of an execution, if it is one."""
        info = described.raw_description.workflow_execution_info.versioning_info
        override = info.versioning_override
        if override.HasField("pinned"):
            return cls(described.id, override.pinned.version)
        pinned = info.behavior == VersioningBehavior.VERSIONING_BEHAVIOR_PINNED and not override.auto_upgrade
        return cls(described.id, info.deployment_version) if pinned else None

    def is_served_by(self, poller: PollerInfo) -> bool:
        """Whether a worker is of its version."""
        found, version = poller.deployment_options, self._version
        return (found.deployment_name, found.build_id) == (version.deployment_name, version.build_id)

    def describe_missing(self, queue: str, since: str = "") -> str:
        """That no worker of its version polls, and what to do."""
        version = self._version
        return (
            f"the run is pinned to build {version.build_id!r} of worker deployment "
            f"{version.deployment_name!r}, and no worker of that build has polled task queue {queue!r}"
            f"{since}; start one, or let the run go on with another build (temporal workflow update-options "
            f"--workflow-id {shlex.quote(self._workflow_id)} --versioning-override-behavior auto_upgrade)"
        )


def seconds_since_poll(poller: PollerInfo) -> float:
    return time.time() - to_millis(poller.last_access_time) / 1000


def are_there(pollers: Iterable[PollerInfo]) -> bool:
    """Whether one of them polls now: the server remembers those that have gone for five minutes."""
    return any(seconds_since_poll(each) < POLL_SECONDS for each in pollers)


def _describe_no_target(queue: str, described: DescribeTaskQueueResponse, silent: float) -> str:
    """That workers poll a queue, and all are of versions that are given no work.

    Args:
        queue: Which.
        described: What the server says of it; it remembers workers that are gone for five minutes.
        silent: For so many seconds work waits that one without a version would have taken at once.
    """
    there = [each for each in described.pollers if seconds_since_poll(each) < POLL_SECONDS]
    found = [each.deployment_options for each in there if _is_versioned(each)]
    if any(seconds_since_poll(each) < silent for each in there if not _is_versioned(each)):
        return ""
    options = [(each.deployment_name, each.build_id) for each in found]
    if not options or any(is_given_work(*each, described.versioning_info) for each in options):
        return ""
    return f"workers poll task queue {queue!r} as {describe_idle_version(*options[0])}"


def _is_versioned(poller: PollerInfo) -> bool:
    return poller.deployment_options.worker_versioning_mode == _VERSIONED


def says_no_worker(error: RPCError) -> bool:
    """Whether the server itself says that no worker polls: it waits for none then."""
    return error.status is RPCStatusCode.FAILED_PRECONDITION and _NO_POLLER in str(error)
