"""A worker all of whose activity slots are taken says so: to probes, and once in its log."""

import asyncio

import pytest

from helix_temporal import slots
from helix_temporal.slots import ActivitySlots

TOOL, READ = "support.look_up", "helix.threads.read"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours in a blink."""
    for name, seconds in (("TOLD_AFTER", 0.1), ("TOLD_EVERY", 60.0), ("REFILLED_WITHIN", 0.05)):
        monkeypatch.setattr(slots, name, seconds)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == slots.__name__]


async def test_slots_that_stay_taken_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With what has them, what waits, and what to do; and again once one is free."""
    counted = ActivitySlots(2, "queue")
    counted.take(TOOL)
    counted.take(TOOL)
    await asyncio.sleep(0.35)
    assert len(told(caplog)) == 1
    for each in ("'queue'", "all 2 activity slots", f"2 {TOOL}", "HELIX_MAX_CONCURRENT_ACTIVITIES"):
        assert each in told(caplog)[0]
    counted.free(TOOL)
    await asyncio.sleep(0.25)
    assert len(told(caplog)) == 2
    assert "free again" in told(caplog)[1]
    counted.stop()


async def test_a_slot_that_is_taken_again_at_once_was_not_free(caplog: pytest.LogCaptureFixture) -> None:
    """Between two tools of a queue that is full there is a moment in which the worker polls."""
    counted = ActivitySlots(1, "queue")
    for _ in range(15):
        counted.take(TOOL)
        await asyncio.sleep(0.02)
        counted.free(TOOL)
    taken = counted.taken_for
    assert taken is not None
    assert taken > 0.2
    assert len(told(caplog)) == 1
    counted.stop()


async def test_a_worker_that_is_full_for_a_moment_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """And tells probes no more."""
    counted = ActivitySlots(1, "queue")
    counted.take(READ)
    assert "for 0 s" in counted.describe()["activities"]
    counted.free(READ)
    await asyncio.sleep(0.2)
    assert counted.describe() == {}
    assert told(caplog) == []
    counted.stop()


async def test_a_worker_of_unknown_size_is_never_full() -> None:
    """It has a tuner of its program's."""
    counted = ActivitySlots(None)
    counted.take(TOOL)
    assert not counted.are_all_taken
    assert counted.describe() == {}
