"""The schedules of maintenance as a page shows them, on a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import workflow
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from helix_temporal.maintenance import MaintenancePlan, ensure_schedules, maintenance_queue, remove_schedules
from helix_temporal.models.maintenance import KeepInput, SweepInput, SweepResult
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.views.models import ScheduleFacts
from helix_temporal.views.schedules import read_schedules

RARELY = MaintenancePlan(
    sweep=timedelta(days=2),
    evict=timedelta(days=2),
    keep=timedelta(days=2),
    cleanup=timedelta(days=2),
    wake=timedelta(days=2),
)


@workflow.defn(name="helix.keep")
class FailedKeep:
    """Upkeep that fails."""

    @workflow.run
    async def run(self, asked: KeepInput) -> None:
        """As where the key was taken away from the worker."""
        try:
            raise ValueError("inside")
        except ValueError as error:
            raise ApplicationError("the bucket refused it", type="ArchiveAccessError") from error


@workflow.defn(name="helix.sweep")
class DoneSweep:
    """A sweep that has nothing to do."""

    @workflow.run
    async def run(self, asked: SweepInput) -> SweepResult:
        """Nothing."""
        return SweepResult()


@asynccontextmanager
async def scheduled(client: Client, task_queue: str) -> AsyncIterator[None]:
    """Schedules, and a worker that serves two of them."""
    await ensure_schedules(client, task_queue, RARELY)
    worker = Worker(
        client,
        task_queue=maintenance_queue(task_queue),
        workflows=[FailedKeep, DoneSweep],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    try:
        async with worker:
            yield
    finally:
        await remove_schedules(client, task_queue)


async def wait_for_end(client: Client, task_queue: str, kind: str) -> ScheduleFacts:
    """A schedule once it has run."""
    while True:
        found = {each.kind: each for each in await read_schedules(client, task_queue)}[kind]
        if found.recent and found.recent[0].status not in {"", "running"}:
            return found
        await asyncio.sleep(0.05)


async def wait_for_run(client: Client, task_queue: str, kind: str) -> ScheduleFacts:
    """A schedule once it has begun to run."""
    while True:
        found = {each.kind: each for each in await read_schedules(client, task_queue)}[kind]
        if found.recent:
            return found
        await asyncio.sleep(0.05)


async def test_schedules_are_told_with_how_their_runs_ended(temporal_address: str, task_queue: str) -> None:
    """Upkeep that fails each night is found on a page, rather than by a disk that is full."""
    client = await Client.connect(temporal_address, data_converter=pydantic_data_converter)
    assert await read_schedules(client, task_queue) == ()
    async with scheduled(client, task_queue):
        before = await read_schedules(client, task_queue)
        assert [each.kind for each in before] == ["sweep", "evict", "keep", "cleanup", "wake"]
        assert {(each.paused, each.recent, each.problem) for each in before} == {(False, (), None)}
        assert {each.every for each in before} == {2 * 86_400_000}
        assert all(each.made_at for each in before)
        assert all(each.next_at for each in before)
        names = {each.kind: each.schedule_id for each in before}
        for kind in ("keep", "sweep"):
            await client.get_schedule_handle(names[kind]).trigger()
        keep = await wait_for_end(client, task_queue, "keep")
        sweep = await wait_for_end(client, task_queue, "sweep")
    assert (keep.recent[0].status, keep.recent[0].failure) == (
        "failed",
        "ArchiveAccessError: the bucket refused it",
    )
    assert (sweep.recent[0].status, sweep.recent[0].failure) == ("completed", None)
    assert sweep.recent[0].workflow_id.startswith(names["sweep"])


async def test_a_sweep_that_somebody_terminated_has_failed(temporal_address: str, task_queue: str) -> None:
    """Its work is not done, and the page must not say that it goes as planned."""
    client = await Client.connect(temporal_address, data_converter=pydantic_data_converter)
    await ensure_schedules(client, task_queue, RARELY)
    try:
        names = {each.kind: each.schedule_id for each in await read_schedules(client, task_queue)}
        # Nobody serves it.
        await client.get_schedule_handle(names["sweep"]).trigger()
        begun = await wait_for_run(client, task_queue, "sweep")
        await client.get_workflow_handle(begun.recent[0].workflow_id).terminate("an incident")
        (run,) = (await wait_for_end(client, task_queue, "sweep")).recent
    finally:
        await remove_schedules(client, task_queue)
    assert (run.status, run.is_failed) == ("terminated", True)
    assert run.failure is not None
    assert run.failure.startswith("TerminatedError")


async def test_a_schedule_that_is_paused_or_gone_is_told(temporal_address: str, task_queue: str) -> None:
    """Somebody paused it before a migration, and forgot it; or its making was refused."""
    client = await Client.connect(temporal_address, data_converter=pydantic_data_converter)
    async with scheduled(client, task_queue):
        names = {each.kind: each.schedule_id for each in await read_schedules(client, task_queue)}
        await client.get_schedule_handle(names["wake"]).pause(note="before the move")
        await client.get_schedule_handle(names["cleanup"]).delete()
        found = {each.kind: each for each in await read_schedules(client, task_queue)}
    assert (found["wake"].paused, found["wake"].note, found["wake"].next_at) == (True, "before the move", ())
    assert "helix-temporal maintenance" in (found["cleanup"].problem or "")


async def test_the_task_queue_is_that_of_the_settings(settings: Settings) -> None:
    """The page has a connection, and nothing else to name them by."""
    assert settings.temporal_address is not None
    client = await Client.connect(settings.temporal_address, plugins=[HelixPlugin(settings)])
    await ensure_schedules(client, settings.task_queue, RARELY)
    try:
        found = await read_schedules(client)
        assert len(found) == 5
        assert all(f"/{settings.task_queue}/" in each.schedule_id for each in found)
    finally:
        await remove_schedules(client, settings.task_queue)
