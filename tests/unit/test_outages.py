"""A worker's log says once that a store is away, and once that it is back."""

import asyncio

import pytest

from helix_temporal import outages
from helix_temporal.outages import StoreOutages

GONE = "StoreUnavailableError: Redis at 10.0.0.7:6379 did not answer (ConnectionRefusedError)"


class Stores:
    """Say who is away."""

    def __init__(self, **away: str) -> None:
        self.away, self.asked = away, 0

    async def find_unanswered(self, _within: float) -> dict[str, str]:
        """As `Backends.find_unanswered`."""
        self.asked += 1
        return dict(self.away)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other closely."""
    monkeypatch.setattr(outages, "LOOK_EVERY", 0.02)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == outages.__name__]


async def test_a_store_that_is_away_is_told_once_and_once_that_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However many attempts of activities fail meanwhile."""
    stores = Stores(threads=GONE, state=GONE)
    watch = StoreOutages(stores.find_unanswered)
    for _ in range(10):
        watch.note_failure(0.0)
        await asyncio.sleep(0.01)
    assert len(told(caplog)) == 1
    assert f"store away: threads, state: {GONE}" in told(caplog)[0]
    stores.away = {}
    await asyncio.sleep(0.1)
    assert len(told(caplog)) == 2
    assert "store back: state, threads, after" in told(caplog)[1]
    await watch.stop()


async def test_nothing_is_asked_once_all_answer() -> None:
    """Nor before an activity fails."""
    stores = Stores()
    watch = StoreOutages(stores.find_unanswered)
    await asyncio.sleep(0.05)
    assert stores.asked == 0
    watch.note_failure(0.0)
    await asyncio.sleep(0.1)
    assert stores.asked == 1
    await watch.stop()


async def test_a_second_store_is_told_as_well(caplog: pytest.LogCaptureFixture) -> None:
    """While the first one is away."""
    stores = Stores(threads=GONE)
    watch = StoreOutages(stores.find_unanswered)
    watch.note_failure(0.0)
    await asyncio.sleep(0.05)
    stores.away["archive"] = "did not answer within 2 s"
    await asyncio.sleep(0.05)
    assert ["threads" in each for each in told(caplog)] == [True, False]
    await watch.stop()


async def test_a_worker_that_stops_asks_no_store() -> None:
    """They are about to be closed, and a question would open them again."""
    stores = Stores(threads=GONE)
    watch = StoreOutages(stores.find_unanswered)
    watch.note_failure(0.0)
    await watch.stop()
    asked = stores.asked
    watch.note_failure(0.0)
    await asyncio.sleep(0.05)
    assert stores.asked == asked
