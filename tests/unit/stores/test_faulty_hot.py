"""The hot tier that fails as told."""

import asyncio

import pytest

from helix_temporal.errors import StoreUnavailableError
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.testing.builders import a_step, grown, messages, opened
from helix_temporal.testing.faulty_hot import Fault, FaultyHot, HotCall, fails


async def test_an_error_before_has_no_effect() -> None:
    """The caller repeats, and the step is added once."""
    memory = MemoryThreads()
    await opened(memory, "t")
    hot = FaultyHot(memory, fails(at=1, fault=Fault.ERROR_BEFORE))
    with pytest.raises(StoreUnavailableError):
        await hot.append(a_step("t"))
    snapshot = await memory.read_snapshot("t", 0)
    assert snapshot is not None
    assert snapshot.messages == ()


async def test_a_lost_answer_has_its_effect() -> None:
    """The caller repeats, and finds what it did."""
    memory = MemoryThreads()
    await opened(memory, "t")
    hot = FaultyHot(memory, fails(at=1, fault=Fault.ANSWER_LOST))
    step = a_step("t")
    with pytest.raises(StoreUnavailableError):
        await hot.append(step)
    again = await hot.append(step)
    assert again is not None
    assert again.repeated


async def test_a_late_effect_comes_when_told() -> None:
    """A script that a stalled connection delivers long after its caller gave up."""
    memory = MemoryThreads()
    await opened(memory, "t")
    hot = FaultyHot(memory, fails(at=1, fault=Fault.LATE))
    step = a_step("t")
    with pytest.raises(StoreUnavailableError):
        await hot.append(step)
    other = await hot.append(a_step("t"))
    assert other is not None
    assert await hot.land_late() == 1
    snapshot = await memory.read_snapshot("t", 0)
    assert snapshot is not None
    assert snapshot.messages == other.messages


async def test_faults_can_be_counted_by_method() -> None:
    """A kill point is named by method and number."""
    memory = MemoryThreads()
    await opened(memory, "t")
    hot = FaultyHot(memory, fails(at=2, fault=Fault.ERROR_BEFORE, method="read_header"))
    await hot.read_header("t")
    await hot.read_snapshot("t", 0)
    with pytest.raises(StoreUnavailableError):
        await hot.read_header("t")
    await hot.read_header("t")
    assert [call.method for call in hot.calls] == [
        "read_header",
        "read_snapshot",
        "read_header",
        "read_header",
    ]


async def test_other_tasks_run_around_each_call() -> None:
    """What happens between a read and a write must be able to happen."""
    seen: list[HotCall] = []

    async def pause(call: HotCall) -> None:
        await asyncio.sleep(0)
        seen.append(call)

    hot = FaultyHot(MemoryThreads(), pause=pause)
    await hot.read_header("t")
    assert seen == [HotCall(1, "read_header", "t")] * 2


async def test_memory_can_be_wiped_and_rolled_back() -> None:
    """A restart without a disk, and a failover to a replica that lags."""
    memory = MemoryThreads()
    header = await grown(memory, "t", messages(2))
    backup = memory.backup()
    await memory.append(a_step("t", header.head))
    memory.wipe()
    assert await memory.read_header("t") is None
    memory.restore(backup)
    assert await memory.read_header("t") == header
