"""Checks of Temporal: the namespace, who polls the task queues, and which versions of workers get work."""

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    GetSystemInfoRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.client._server_check import check_temporal
from helix_temporal.client._task_queues import POLL_SECONDS
from helix_temporal.client._worker_versions import describe_idle_version, is_given_work
from helix_temporal.doctor.checks import Check, Probe, make_check
from helix_temporal.doctor.clocks import check_clock
from helix_temporal.doctor.shared import Shared
from helix_temporal.maintenance import maintenance_queue
from helix_temporal.models.amounts import format_duration
from helix_temporal.settings import Settings

SHORT_RETENTION: Final = timedelta(days=1)
_RPC: Final = timedelta(seconds=10)
_temporal: Final = partial(make_check, "temporal")
_WORKFLOWS: Final = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
_KINDS: Final = {"workflow tasks": _WORKFLOWS, "activities": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY}


def list_temporal_probes(client: Shared[Client], settings: Settings) -> list[Probe]:
    """Of the server, the namespace and the task queues of sessions and of maintenance.

    Args:
        client: Connects, once for all.
        settings: Where Temporal is.
    """

    async def look() -> Sequence[Check]:
        connected = await client.get()
        await check_temporal(connected)
        service = connected.workflow_service
        server = await service.get_system_info(GetSystemInfoRequest(), timeout=_RPC)
        said = f"Temporal {server.server_version or 'of unknown version'} at {settings.temporal_address}"
        return [_temporal("server", "ok", said), await _look_at_namespace(connected)]

    async def look_at_sessions() -> Sequence[Check]:
        return await _look_at_queue(await client.get(), settings.task_queue, "workers")

    async def look_at_maintenance() -> Sequence[Check]:
        return await _look_at_queue(await client.get(), maintenance_queue(settings.task_queue), "maintenance")

    return [
        Probe("temporal", "server", look),
        Probe("workers", "task queue", look_at_sessions, server="temporal"),
        Probe("maintenance", "task queue", look_at_maintenance, server="temporal"),
    ]


async def _look_at_namespace(client: Client) -> Check:
    request = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        found = await client.workflow_service.describe_namespace(request, timeout=_RPC)
    except RPCError as error:
        if error.status is not RPCStatusCode.PERMISSION_DENIED:
            raise
        said = f"{client.namespace!r}: this key may not describe it, so its retention is not known"
        return _temporal("namespace", "ok", said)
    return judge_namespace(client.namespace, found)


def judge_namespace(name: str, found: DescribeNamespaceResponse) -> Check:
    """What is to be said of a namespace's retention."""
    retention = found.config.workflow_execution_retention_ttl.ToTimedelta()
    said = f"{name!r} keeps closed executions for {_format_days(retention)}"
    if retention >= SHORT_RETENTION:
        return _temporal("namespace", "ok", said)
    advice = "results of turns and calls that are asked for later are gone; a day or more is expected"
    return _temporal("namespace", "warning", f"{said}: {advice}")


def _format_days(time_span: timedelta) -> str:
    hours = time_span / timedelta(hours=1)
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} hours"


async def _look_at_queue(client: Client, queue: str, about: str) -> list[Check]:
    found = {name: await _describe_queue(client, queue, kind) for name, kind in _KINDS.items()}
    checks = [judge_pollers(about, queue, {name: list(each.pollers) for name, each in found.items()})]
    checks += judge_versions(about, found["workflow tasks"])
    newest = [_seconds_of(each) for described in found.values() for each in described.pollers]
    # The server dates polls; it tells its time nowhere else.
    ahead = max(newest, default=0.0) - time.time()
    if ahead > 0:
        checks += [each for each in [check_clock("temporal", ahead)] if each.status != "ok"]
    return checks


async def _describe_queue(
    client: Client, queue: str, kind: "TaskQueueType.ValueType"
) -> DescribeTaskQueueResponse:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    return await client.workflow_service.describe_task_queue(request, timeout=_RPC)


def judge_pollers(about: str, queue: str, pollers: dict[str, list[PollerInfo]]) -> Check:
    """Who polls a task queue, by the kind of work; a poll without work ends after a minute."""
    now = time.time()
    there = {
        kind: {each.identity for each in found if now - _seconds_of(each) < POLL_SECONDS}
        for kind, found in pollers.items()
    }
    silent = [kind for kind, found in there.items() if not found]
    if not silent:
        names = sorted(set.union(*there.values()))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        # A worker that was stopped is listed for a while: its last poll tells.
        ago = min(max(now - _newest_of(found), 0.0) for found in pollers.values())
        last = f"last {format_duration(int(ago * 1000))} ago"
        said = f"{queue!r} is polled by {', '.join(names[:3])}{more}, {last}"
        return make_check(about, "task queue", "ok", said)
    what = "helix-temporal maintenance" if about == "maintenance" else "helix-temporal worker"
    nobody = f"nobody polls {queue!r} for {' and '.join(silent)}"
    if len(silent) < len(there):
        # A worker whose slots are all taken asks for no more activities.
        said = f"{nobody}, though workers are there: are all their slots taken?"
        return make_check(about, "task queue", "warning", said)
    said = f"{nobody}; start {what}, or set HELIX_TASK_QUEUE as the workers have it"
    return make_check(about, "task queue", "warning", said)


def judge_versions(about: str, found: DescribeTaskQueueResponse) -> list[Check]:
    """Versions of workers that poll and are given nothing; nothing is said where workers have none."""
    versions = {
        (each.deployment_options.deployment_name, each.deployment_options.build_id)
        for each in found.pollers
        if each.deployment_options.build_id
    }
    idle = [each for each in sorted(versions) if not is_given_work(*each, found.versioning_info)]
    if versions and not idle:
        said = f"{', '.join(build for _, build in sorted(versions))} current or ramping"
        return [make_check(about, "versions", "ok", said)]
    return [
        make_check(about, "versions", "warning", f"workers serve {describe_idle_version(*each)}")
        for each in idle
    ]


def _newest_of(pollers: Iterable[PollerInfo]) -> float:
    return max(map(_seconds_of, pollers))


def _seconds_of(poller: PollerInfo) -> float:
    return poller.last_access_time.ToMicroseconds() / 1e6
