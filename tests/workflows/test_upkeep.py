"""The workflow of upkeep: what a run tells the next one, and how it ends."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio import activity
from temporalio.client import Client, ScheduleActionExecutionStartWorkflow, WorkflowFailureError
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Worker

from helix_temporal.maintenance import MaintenancePlan, ensure_schedules, maintenance_queue, remove_schedules
from helix_temporal.models.maintenance import (
    ARCHIVE_PARTS,
    KeepInput,
    KeepPartInput,
    KeepRecordsInput,
    KeepResult,
    RecordsKept,
)
from helix_temporal.workflows import KeepWorkflow

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

BEGAN = 1_700_000_000.0


@dataclass
class Keeper:
    """Upkeep of parts that is not really done.

    Attributes:
        asked: For which it was asked, in order.
        hangs: Parts whose upkeep does not end.
        failing: Parts with a thread that fails.
        broken: Parts whose upkeep fails as such.
    """

    client: Client
    queue: str
    asked: list[KeepPartInput] = field(default_factory=list)
    hangs: set[int] = field(default_factory=set)
    failing: set[int] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)
    hung: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn(name="helix.maintenance.keep_part")
    async def keep_part(self, request: KeepPartInput) -> KeepResult:
        """Say that it was done."""
        self.asked.append(request)
        while request.part in self.hangs:
            self.hung.set()
            activity.heartbeat()
            await asyncio.sleep(0.05)
        if request.part in self.broken:
            raise ApplicationError("broken", non_retryable=True)
        failures = int(request.part in self.failing)
        return KeepResult(seen=1, failures=failures, since=BEGAN + request.part)

    @activity.defn(name="helix.maintenance.keep_records")
    async def keep_records(self, request: KeepRecordsInput) -> RecordsKept:
        """There are none."""
        return RecordsKept()


@pytest_asyncio.fixture(loop_scope="session")
async def keeper(temporal_address: str) -> AsyncIterator[Keeper]:
    """A maintenance worker whose archive is none."""
    client = await Client.connect(temporal_address, data_converter=pydantic_data_converter)
    made = Keeper(client, f"t{uuid.uuid4().hex[:12]}")
    async with Worker(
        client,
        task_queue=maintenance_queue(made.queue),
        workflows=[KeepWorkflow],
        activities=[made.keep_part, made.keep_records],
        max_heartbeat_throttle_interval=timedelta(seconds=0.1),
    ):
        yield made


async def test_a_cancelled_run_ends(keeper: Keeper) -> None:
    """It went on with the next part, so that it had to be cancelled 256 times."""
    keeper.hangs = {1}
    running = await keeper.client.start_workflow(
        KeepWorkflow.run,
        KeepInput(parts=(0, 1, 2, 3)),
        id=f"keep-{uuid.uuid4().hex}",
        task_queue=maintenance_queue(keeper.queue),
    )
    await asyncio.wait_for(keeper.hung.wait(), 30)
    await running.cancel()
    with pytest.raises(WorkflowFailureError) as failed:
        await asyncio.wait_for(running.result(), 30)
    assert isinstance(failed.value.cause, CancelledError)
    assert [each.part for each in keeper.asked] == [0, 1]


async def run_schedule(keeper: Keeper, name: str, runs: int) -> list[KeepPartInput]:
    """Run it once more; what it asked for."""
    keeper.asked.clear()
    handle = keeper.client.get_schedule_handle(name)
    await handle.trigger()
    while len(found := (await handle.describe()).info.recent_actions) < runs:  # noqa: ASYNC110 (the server's)
        await asyncio.sleep(0.05)
    action = found[-1].action
    assert isinstance(action, ScheduleActionExecutionStartWorkflow)
    run = keeper.client.get_workflow_handle(action.workflow_id, run_id=action.first_execution_run_id)
    await run.result()
    return list(keeper.asked)


@pytest.mark.timeout(300)
async def test_a_failure_holds_back_its_own_part_alone(keeper: Keeper) -> None:
    """One damaged thread, and each run looked at all that had changed since the last run without."""
    # Of one group, so that a day that begins meanwhile brings none of them.
    keeper.failing, keeper.broken = {29}, {59}
    rarely = MaintenancePlan(keep=timedelta(days=400))
    names = await ensure_schedules(keeper.client, keeper.queue, rarely)
    (name,) = (each for each in names if each.endswith("/keep"))
    try:
        first = await run_schedule(keeper, name, 1)
        assert {each.part for each in first if each.since is None} == {*range(ARCHIVE_PARTS)}
        keeper.failing, keeper.broken = set(), set()
        second = await run_schedule(keeper, name, 2)
        whole = {each.part for each in second if each.since is None}
        assert {29, 59} <= whole
        assert {part for part in whole if part % 30 != 1} == {29, 59}
        assert {each.since for each in second} == {None, BEGAN - 600}
    finally:
        await remove_schedules(keeper.client, keeper.queue)
