"""A worker's log says once that a store is away, and once that it is back."""

import asyncio
import re
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from helix_temporal import outages
from helix_temporal.activities import _runtime
from helix_temporal.activities._runtime import repeat_while_away
from helix_temporal.client._server_check import find_silence
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.outages import StoreOutages, TemporalOutage
from helix_temporal.testing.proxy import FaultProxy
from tests.unit._web import until

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
        watch.note_failure()
        await asyncio.sleep(0.01)
    assert len(told(caplog)) == 1
    assert f"store away: threads, state: {GONE}" in told(caplog)[0]
    stores.away = {}
    await until(lambda: len(told(caplog)) > 1)
    assert len(told(caplog)) == 2
    assert re.fullmatch(r"store back: state, threads, after \d+ s", told(caplog)[1])
    await watch.stop()


async def test_nothing_is_asked_once_all_answer() -> None:
    """Nor before an activity fails."""
    stores = Stores()
    watch = StoreOutages(stores.find_unanswered)
    await asyncio.sleep(0.05)
    assert stores.asked == 0
    watch.note_failure()
    await asyncio.sleep(0.1)
    assert stores.asked == 1
    await watch.stop()


async def test_a_second_store_is_told_as_well(caplog: pytest.LogCaptureFixture) -> None:
    """While the first one is away."""
    stores = Stores(threads=GONE)
    watch = StoreOutages(stores.find_unanswered)
    watch.note_failure()
    await until(lambda: len(told(caplog)) == 1)
    stores.away["archive"] = "did not answer within 2 s"
    await until(lambda: len(told(caplog)) > 1)
    assert ["threads" in each for each in told(caplog)] == [True, False]
    await watch.stop()


async def test_a_worker_that_stops_asks_no_store() -> None:
    """They are about to be closed, and a question would open them again."""
    stores = Stores(threads=GONE)
    watch = StoreOutages(stores.find_unanswered)
    watch.note_failure()
    await watch.stop()
    asked = stores.asked
    watch.note_failure()
    await asyncio.sleep(0.05)
    assert stores.asked == asked


class KeepsAnswer(ActivityInboundInterceptor):
    """An activity that waits for its store."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 — the SDK's name
        """Waits."""
        return await repeat_while_away(self._append, "the answer", [0.02] * 100)

    async def _append(self) -> str:
        if self._stores.away:
            raise StoreUnavailableError("away")
        return "stored"


async def test_a_store_that_an_activity_waits_for_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """It may wait for two minutes before it fails, if it does at all."""
    stores = Stores(threads=GONE)
    watch = StoreOutages(stores.find_unanswered)
    asked: Any = None
    running = asyncio.create_task(watch.intercept_activity(KeepsAnswer(stores)).execute_activity(asked))
    await until(lambda: told(caplog) != [])
    assert ["store away: threads" in each for each in told(caplog)] == [True]
    stores.away = {}
    assert await running == "stored"
    await watch.stop()


async def test_what_is_given_up_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever saw that an answer is kept does not believe it to be there."""

    async def append() -> None:
        raise StoreUnavailableError("away")

    with pytest.raises(StoreUnavailableError):
        await repeat_while_away(append, "the answer", [0.0])
    lines = [each.getMessage() for each in caplog.records if each.name == _runtime.__name__]
    assert [each.split(" is ")[1][:5] for each in lines] == ["kept ", "given"]


async def test_temporal_that_is_away_is_told_once_and_once_that_it_is_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single late answer is no outage; the SDK logs each of its tries, in another form."""
    monkeypatch.setattr(outages, "LOOK_AT_TEMPORAL_EVERY", 0.0)
    answers = iter(["", "late", "", *["gone"] * 6, ""])
    asked = asyncio.Event()

    async def find_silence(_within: float) -> str:
        await asyncio.sleep(0)
        found = next(answers, None)
        if found is None:
            asked.set()
            await asyncio.sleep(60)
        return found or ""

    watching = asyncio.create_task(TemporalOutage(find_silence).watch())
    await asked.wait()
    watching.cancel()
    assert [each.partition(":")[0] for each in told(caplog)] == ["temporal away", "temporal back"]
    assert told(caplog)[0].startswith("temporal away: gone. This worker connects by itself")


async def test_a_server_is_silent_or_answers(temporal_address: str) -> None:
    """The same one, behind a proxy that holds all back."""
    there = await Client.connect(temporal_address)
    assert await find_silence(there, 5.0) == ""
    async with FaultProxy.start(temporal_address) as proxy:
        through = await Client.connect(proxy.address)
        proxy.freeze()
        assert f"{proxy.address} does not answer" in await find_silence(through, 0.5)
