"""Heartbeats come in time for the activity that sends them, whatever the settings of all activities say."""

import asyncio
import dataclasses
from datetime import timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities._runtime import heartbeat_in_background, heartbeat_with_progress
from helix_temporal.activities.maintenance import MaintenanceActivities
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.models.maintenance import KeepPartInput, KeepResult
from helix_temporal.stores.memory import MemoryThreads

EVERY = 3600.0
"""Seconds between heartbeats, as the settings say."""


class Beats:
    """An activity's environment, and its heartbeats."""

    def __init__(self, timeout: float | None) -> None:
        self.count, self.again = 0, asyncio.Event()
        self.environment = ActivityEnvironment()
        self.environment.on_heartbeat = self._count
        self.environment.info = dataclasses.replace(
            self.environment.info, heartbeat_timeout=None if timeout is None else timedelta(seconds=timeout)
        )

    def _count(self, *_details: object) -> None:
        self.count += 1
        if self.count == 2:
            self.again.set()


async def test_an_activity_with_a_short_time_out_heartbeats_more_often() -> None:
    """As a tool with a ``heartbeat`` of its own: it was taken for lost, attempt after attempt."""
    beats = Beats(timeout=0.3)

    async def run() -> None:
        async with heartbeat_with_progress(EVERY):
            await asyncio.wait_for(beats.again.wait(), 10)

    await beats.environment.run(run)
    assert beats.count >= 2


async def test_upkeep_heartbeats_within_its_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """``HELIX_TIMEOUT_HEARTBEAT_EVERY`` of more than 30 s stopped maintenance."""
    beats, tiers = Beats(timeout=0.3), TieredThreads(MemoryThreads(), MemoryBlobs())

    async def tell_time_late() -> float:
        await asyncio.wait_for(beats.again.wait(), 10)
        return 1.0

    monkeypatch.setattr(tiers.upkeep, "tell_time", tell_time_late)
    activities = MaintenanceActivities(MemoryThreads(), tiers, tiers.upkeep, beat_every=EVERY)
    found: KeepResult = await beats.environment.run(activities.keep_part, KeepPartInput())
    assert found.since == 1.0


@pytest.mark.parametrize("timeout", [None, 60.0])
async def test_the_settings_count_where_they_are_soon_enough(timeout: float | None) -> None:
    """A heartbeat has a price."""
    beats = Beats(timeout)

    async def run() -> None:
        async with heartbeat_in_background(0.05, tuple):
            await asyncio.wait_for(beats.again.wait(), 10)

    await beats.environment.run(run)
    assert beats.count >= 2
