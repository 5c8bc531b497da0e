"""Stores that a client reads itself, within an activity of the application."""

import asyncio
from typing import Any

from temporalio import activity
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.threads import ThreadActivities
from helix_temporal.client import SessionStores
from helix_temporal.client._reads import DirectReads
from helix_temporal.models.threads import ReadMessagesInput
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage, ThreadPage
from helix_temporal.stores.threads.hot_only import HotThreads


class Slow(HotThreads):
    """Takes as long as a beat."""

    async def read(self, request: ReadPage) -> ThreadPage:
        """After two seconds."""
        await asyncio.sleep(2)
        return await super().read(request)


async def test_reads_leave_the_heartbeats_of_the_activity_that_asks_alone() -> None:
    """They beat without its details, and its next attempt began anew."""
    threads = Slow(MemoryThreads())
    await threads.open(OpenThread("t", 1, "owner"))
    reads = DirectReads(SessionStores(threads=threads, usage=MemoryUsage()))
    environment, beats = ActivityEnvironment(), list[Any]()
    environment.on_heartbeat = lambda *details: beats.append(details)

    async def work() -> int:
        activity.heartbeat("row 1000")
        page = await reads.look_up(ThreadActivities.read, ReadMessagesInput(thread_id="t"))
        return len(page.messages)

    assert await environment.run(work) == 0
    assert beats == [("row 1000",)]
