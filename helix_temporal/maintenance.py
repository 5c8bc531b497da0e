"""Temporal Schedules of maintenance: what a session's own clean-up cannot cover.

A session that is terminated, times out or loses its worker for good runs no ``finally``.  What it left in
the hot tier is archived by the next sweep; each day the archive itself is compacted and cleared.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)

from helix_temporal._deployments import settings_of
from helix_temporal.activities.executions import unless_gone
from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.deployments import memo_of
from helix_temporal.models.maintenance import (
    ABANDONED_AFTER,
    CleanupInput,
    CleanUpOldInput,
    KeepInput,
    SweepInput,
)
from helix_temporal.models.waiting import WakeInput
from helix_temporal.settings import Settings
from helix_temporal.workflows import CleanupWorkflow, KeepWorkflow, SweepWorkflow, WakeWorkflow

_JOBS: Final = ("sweep", "evict", "keep", "cleanup", "wake")

_CATCH_UP: Final = timedelta(minutes=1)
"""A run that was missed for longer, and for longer than its interval, is not made up for: the next one
does its work.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePlan:
    """How often what is done.

    Attributes:
        sweep: Archive hot threads that their sessions did not: the longest time that a turn of a
            terminated session depends on the hot tier alone.
        evict: Also drop what is archived from the hot tier; a live session hydrates it again with its
            next step, so not too often.
        keep: Compact and clear what has changed of the archive, and a thirtieth of all for each day since the
            last time; and archive old records of sessions.
        audit: Read and verify that thirtieth then.
        abandoned: Age at which copies for a fork that never came to be, and texts and tool results that no
            step took, are deleted, where their thread has been at rest for as long.  Longer than any
            message may wait to be taken up.
        cleanup: End sessions that are past their time, and forget operations older than a week.
        delete_after: Delete sessions that nobody has changed for so long then, and those of their sub-agents
            with them; None keeps all.
        wake: Start sessions that ended while they waited for people, and whose deadline has passed: so
            much later than it the turn goes on.

    Raises:
        InvalidConfigError: An interval is shorter than a second, or an age than an hour.
    """

    sweep: timedelta = timedelta(minutes=1)
    evict: timedelta = timedelta(hours=1)
    keep: timedelta = timedelta(days=1)
    audit: bool = False
    abandoned: timedelta = timedelta(seconds=ABANDONED_AFTER)
    cleanup: timedelta = timedelta(hours=1)
    delete_after: timedelta | None = None
    wake: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        for name in ("sweep", "evict", "keep", "cleanup", "wake"):
            if getattr(self, name) < timedelta(seconds=1):
                raise InvalidConfigError(
                    f"maintenance plan: {name} is {getattr(self, name)}, at least a second expected"
                )
        if self.delete_after is not None and self.delete_after < timedelta(hours=1):
            raise InvalidConfigError(
                f"maintenance plan: delete_after is {self.delete_after}, at least an hour expected"
            )
        if self.abandoned < timedelta(hours=1):
            raise InvalidConfigError(
                f"maintenance plan: abandoned is {self.abandoned}, at least an hour expected: "
                "younger ones may be in use"
            )


def maintenance_queue(task_queue: str) -> str:
    """The task queue of maintenance workers: they serve no agents, so they share none with sessions."""
    return f"{task_queue}-maintenance"


async def ensure_schedules(
    client: Client, task_queue: str, plan: MaintenancePlan | None = None
) -> tuple[str, ...]:
    """Create the schedules of the maintenance jobs, or bring them up to date; their ids.

    May be repeated, by any number of workers.  A schedule that somebody paused stays paused.

    Args:
        client: Connected with `HelixPlugin`.
        task_queue: That of the session workers; the jobs run on `maintenance_queue` of it.
        plan: How often what is done; None for the defaults.
    """
    schedules = _build_schedules(client, task_queue, plan or MaintenancePlan())
    for name, schedule in schedules.items():
        await _ensure_schedule(client, name, schedule)
    return tuple(schedules)


def name_schedules(client: Client, task_queue: str) -> Mapping[str, str]:
    """`schedule_ids` of the deployment that a client is connected for."""
    return schedule_ids((settings_of(client) or Settings()).deployment.name, task_queue)


async def remove_schedules(client: Client, task_queue: str) -> None:
    """Remove those that are there; what is running ends by itself."""
    for name in _build_schedules(client, task_queue, MaintenancePlan()):
        with unless_gone():
            await client.get_schedule_handle(name).delete()


def schedule_ids(deployment_name: str, task_queue: str) -> dict[str, str]:
    """The ids of the schedules by what they do: ``sweep``, ``evict``, ``keep``, ``cleanup``, ``wake``."""
    return {kind: f"{deployment_name}-maintenance/{task_queue}/{kind}" for kind in _JOBS}


def _build_schedules(client: Client, task_queue: str, plan: MaintenancePlan) -> Mapping[str, Schedule]:
    deployment = (settings_of(client) or Settings()).deployment
    ids = schedule_ids(deployment.name, task_queue)
    runs: dict[str, tuple[Any, Any, timedelta]] = {
        ids["sweep"]: (SweepWorkflow.run, SweepInput(), plan.sweep),
        ids["evict"]: (SweepWorkflow.run, SweepInput(evict=True), plan.evict),
        ids["keep"]: (KeepWorkflow.run, _keep_input(plan), plan.keep),
        ids["cleanup"]: (CleanupWorkflow.run, _cleanup_input(plan), plan.cleanup),
        ids["wake"]: (WakeWorkflow.run, WakeInput(task_queue=task_queue), plan.wake),
    }
    return {
        name: Schedule(
            action=ScheduleActionStartWorkflow(
                run,
                argument,
                id=name,
                task_queue=maintenance_queue(task_queue),
                memo=memo_of(deployment),
            ),
            spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=every)]),
            policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=max(_CATCH_UP, every)),
        )
        for name, (run, argument, every) in runs.items()
    }


def _keep_input(plan: MaintenancePlan) -> KeepInput:
    return KeepInput(audit=plan.audit, records=True, abandoned_after=plan.abandoned.total_seconds())


def _cleanup_input(plan: MaintenancePlan) -> CleanupInput:
    if plan.delete_after is None:
        return CleanupInput()
    return CleanupInput(old=CleanUpOldInput(max_age_ms=int(plan.delete_after.total_seconds() * 1000)))


async def _ensure_schedule(client: Client, name: str, schedule: Schedule) -> None:
    try:
        await client.create_schedule(name, schedule)
    except ScheduleAlreadyRunningError:

        def renew_schedule(found: ScheduleUpdateInput) -> ScheduleUpdate:
            # The state says whether somebody paused it.
            schedule.state = found.description.schedule.state
            return ScheduleUpdate(schedule=schedule)

        await client.get_schedule_handle(name).update(renew_schedule)
