"""How long an operation of a store waits for a worker that is busy with calls of models."""

import asyncio
import statistics
import uuid
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from bench._describing_workflow import Describing, DescribingWorkflow
from bench._lab import Lab
from bench._report import Row, told
from bench._workers import worker
from helix_temporal.client import SessionClient
from helix_temporal.models.ids import workflow_id
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings


async def waits(lab: Lab) -> list[Row]:
    """Without, and with many calls of models under way in the same worker."""
    settings, calls = lab.own(), lab.sizes.model_calls
    client = await Client.connect(lab.settings.temporal_address, plugins=[HelixPlugin()])
    options = SessionOptions(idle_timeout=3600)
    sessions = SessionClient(client, task_queue=settings.task_queue, options=options)
    async with worker("helix", settings):
        await sessions.ask("described", "hello", agent="plain")
        lab.say("waits: no calls of models")
        quiet = await _measure(lab, client, settings)
        lab.say(f"waits: {calls} calls of models")
        asks = [asyncio.create_task(_ask_waiting(sessions, at)) for at in range(calls)]
        try:
            await _wait_for_calls(client, calls)
            busy = await _measure(lab, client, settings)
        finally:
            for each in asks:
                each.cancel()
            await asyncio.gather(*asks, return_exceptions=True)
    note = f"from scheduled to begun, p99 of {lab.sizes.described}"
    name = f"a store's operation waits beside {calls} calls of models"
    return [
        told("a store's operation waits, no calls of models", "ms", [_p99(quiet)], note=note),
        told(name, "ms", [_p99(busy)], at_most=50.0, note=f"{note}; median {statistics.median(busy):.1f}"),
    ]


async def _ask_waiting(sessions: SessionClient, number: int) -> None:
    await sessions.ask(f"waiting-{number}", "hello", agent="waiting")


async def _wait_for_calls(client: Client, calls: int) -> None:
    """Until the worker has begun each of them, as the server says."""
    for at in range(calls):
        handle = client.get_workflow_handle(workflow_id(f"waiting-{at}"))
        async with asyncio.timeout(300):
            while not await _has_begun(handle):  # noqa: ASYNC110 (nobody tells)
                await asyncio.sleep(0.1)


async def _has_begun(handle: WorkflowHandle[Any, Any]) -> bool:
    try:
        found = await handle.describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    pending = found.raw_description.pending_activities
    return any(each.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED for each in pending)


async def _measure(lab: Lab, client: Client, settings: Settings) -> list[float]:
    """Milliseconds that each of the operations waited."""
    queue = f"{settings.task_queue}-asking"
    start = Describing(thread_id="described", task_queue=settings.task_queue, times=lab.sizes.described)
    asking = Client(client.service_client, namespace=client.namespace, data_converter=client.data_converter)
    async with Worker(asking, task_queue=queue, workflows=[DescribingWorkflow]):
        handle = await asking.start_workflow(
            DescribingWorkflow.run, start, id=f"bench-{uuid.uuid4().hex}", task_queue=queue
        )
        await handle.result()
        return _waited(await handle.fetch_history())


def _waited(history: WorkflowHistory) -> list[float]:
    scheduled = {event.event_id: event.event_time for event in history.events}
    begun = [event for event in history.events if event.HasField("activity_task_started_event_attributes")]
    return [
        (
            event.event_time.ToNanoseconds()
            - scheduled[event.activity_task_started_event_attributes.scheduled_event_id].ToNanoseconds()
        )
        / 1e6
        for event in begun
    ]


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]
