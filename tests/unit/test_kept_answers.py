"""A model's answer is kept while the store of its thread is away: the model is asked, and paid, once."""

import asyncio
import logging
import re
from datetime import timedelta
from typing import Final

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities import Payloads, Stepper, kept_answers
from helix_temporal.activities._runtime import wait_for_drain_end, workflow_run
from helix_temporal.agents import Agent, AgentRegistry, ModelResponse, ScriptedModel
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import FencedError, StoreUnavailableError
from helix_temporal.models.steps import RunStepInput, RunStepResult, StepInput
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.session.record import SessionRecord
from helix_temporal.slots import ActivitySlots
from helix_temporal.stores.memory import MemoryPayloads, MemoryThreads
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.testing.faulty_hot import Fault, FaultyHot, HotCall

REQUEST: Final = RunStepInput(
    session_id="t", agent="a", epoch=5, head=EMPTY, inputs=(StepInput(id="u", text="hello"),)
)


Attempt = asyncio.Task[RunStepResult]


class Place:
    """A thread whose hot tier fails its next appends as told, and a model."""

    def __init__(self) -> None:
        self.memory, self.tried = MemoryThreads(), asyncio.Event()
        self.faults: list[Fault] = []
        self.hot = FaultyHot(self.memory, self._fail_append)
        self.threads = TieredThreads(self.hot, MemoryBlobs())
        self.model = ScriptedModel([ModelResponse(content="first")])
        agents = AgentRegistry([Agent(name="a", model=self.model)])
        self.stepper = Stepper(self.threads, agents, Payloads(MemoryPayloads()))

    def _fail_append(self, call: HotCall) -> Fault | None:
        if call.method != "append":
            return None
        self.tried.set()
        return self.faults.pop(0) if self.faults else None

    @property
    def appends(self) -> int:
        """How often an append was tried."""
        return sum(call.method == "append" for call in self.hot.calls)

    async def run(self, environment: ActivityEnvironment | None = None) -> RunStepResult:
        """One attempt of the step."""
        return await (environment or ActivityEnvironment()).run(self.stepper.run, REQUEST)

    async def count_messages(self) -> int:
        """How many messages the thread has."""
        header = await self.memory.read_header("t")
        assert header is not None
        return header.head.position


@pytest.fixture
async def place() -> Place:
    """With the thread open."""
    place = Place()
    state = SessionRecord(writer=ActivityEnvironment().run(workflow_run))
    await place.threads.open(OpenThread("t", 5, "o", slice=state.model_dump_json().encode()))
    return place


@pytest.mark.parametrize("fault", Fault)
async def test_an_answer_is_appended_once_its_store_is_back(place: Place, fault: Fault) -> None:
    """Whether the append that was not answered took effect or not: the answer stands once."""
    place.faults = [fault, fault]
    result = await place.run()
    assert (result.text, place.model.calls, await place.count_messages()) == ("first", 1, 2)


async def test_an_append_that_comes_late_changes_nothing(place: Place) -> None:
    """Redis ran the script after its client had gone, and after it was sent again."""
    place.faults = [Fault.LATE]
    await place.run()
    assert await place.hot.land_late() == 1
    assert await place.count_messages() == 2


async def test_the_log_tells_once_that_an_answer_waits_and_once_that_it_is_stored(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever looks why a turn is slow finds it; a line for each try would hide it."""
    place.faults = [Fault.ERROR_BEFORE] * 3
    with caplog.at_level(logging.WARNING, logger="helix_temporal"):
        await place.run()
    kept, stored = (record.getMessage() for record in caplog.records)
    assert kept.startswith("thread 't': the answer of the model is kept in memory while a store is away: hot")
    assert re.match(r"thread 't': the answer of the model is stored, after \d+\.\d", stored)


async def test_a_newer_open_is_not_waited_for(place: Place) -> None:
    """Whoever was replaced while the store was away ends with the first answer that says so."""
    place.faults = [Fault.ERROR_BEFORE]
    attempt = asyncio.create_task(place.run())
    await place.tried.wait()
    await place.threads.open(OpenThread("t", 6, "other"))
    with pytest.raises(FencedError):
        await attempt
    assert place.appends == 2


async def test_a_store_that_stays_away_fails_the_attempt(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever: a later attempt asks the model again."""
    monkeypatch.setattr(kept_answers, "STORE_AWAY_PAUSES", (0.0, 0.0))
    place.faults = [Fault.ERROR_BEFORE] * 3
    with pytest.raises(StoreUnavailableError):
        await place.run()
    assert ((await place.run()).text, place.model.calls) == ("first", 2)


async def test_an_attempt_that_waits_is_cancelled_at_once(place: Place) -> None:
    """A worker that must stop does not wait for a store."""
    place.faults = [Fault.ERROR_BEFORE] * 100
    attempt = asyncio.create_task(place.run())
    await place.tried.wait()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert await place.count_messages() == 0


GIVEN_UP: Final = [
    ActivityCancellationDetails(timed_out=True),
    ActivityCancellationDetails(not_found=True),
]
"""Temporal heard nothing of the attempt in time; or it answers a heartbeat that it knows no such attempt."""


CANCELLED: Final = ActivityCancellationDetails(cancel_requested=True)


async def give_up(place: Place, details: ActivityCancellationDetails) -> tuple[ActivityEnvironment, Attempt]:
    """An attempt that keeps an answer, and that Temporal has given up."""
    environment = ActivityEnvironment()
    attempt = asyncio.create_task(place.run(environment))
    await place.tried.wait()
    environment.cancel(details)
    return environment, attempt


@pytest.mark.parametrize("details", GIVEN_UP)
async def test_an_attempt_that_was_given_up_stores_its_answer(
    place: Place, details: ActivityCancellationDetails
) -> None:
    """Temporal was away as well: the next attempt waits for the answer, and does not pay for another."""
    place.faults = [Fault.ERROR_BEFORE] * 3
    _, attempt = await give_up(place, details)
    second = await place.run()
    assert (second.text, place.model.calls, await place.count_messages()) == ("first", 1, 2)
    assert (await attempt).text == "first"


async def test_it_ends_with_its_worker(place: Place) -> None:
    """Nobody tells it to, as Temporal has forgotten it: the worker would wait for two minutes."""
    place.faults = [Fault.ERROR_BEFORE] * 100
    environment, attempt = await give_up(place, GIVEN_UP[0])
    assert not (await asyncio.wait([attempt], timeout=0.2))[0]
    environment.worker_shutdown()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert await place.count_messages() == 0


async def test_a_worker_that_drains_lets_it_wait(place: Place) -> None:
    """As one that Temporal has not given up: the store may be back before the drain is over."""
    place.faults = [Fault.ERROR_BEFORE] * 5
    slots = ActivitySlots(10)
    wait_for_drain_end.set(slots.wait_for_drain_end)
    environment, attempt = await give_up(place, GIVEN_UP[0])
    slots.begin_drain(timedelta(seconds=60))
    environment.worker_shutdown()
    assert ((await attempt).text, await place.count_messages()) == ("first", 2)


async def test_it_ends_with_the_drain(place: Place) -> None:
    """Its worker would end minutes later than it was told to."""
    place.faults = [Fault.ERROR_BEFORE] * 100
    slots = ActivitySlots(10)
    wait_for_drain_end.set(slots.wait_for_drain_end)
    environment, attempt = await give_up(place, GIVEN_UP[0])
    slots.begin_drain(timedelta(seconds=0.1))
    environment.worker_shutdown()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert await place.count_messages() == 0


@pytest.mark.parametrize(("details", "stands"), [(CANCELLED, False), (GIVEN_UP[0], True)])
async def test_whoever_cancels_the_next_attempt_means_the_answer_as_well(
    place: Place, details: ActivityCancellationDetails, *, stands: bool
) -> None:
    """A turn that was aborted stood in the thread, eight seconds after that was said to be done."""
    place.faults = [Fault.ERROR_BEFORE] * 6
    _, attempt = await give_up(place, GIVEN_UP[0])
    environment = ActivityEnvironment()
    second = asyncio.create_task(place.run(environment))
    await asyncio.sleep(0.05)
    environment.cancel(details)
    with pytest.raises(asyncio.CancelledError):
        await second
    await asyncio.wait([attempt])
    assert (attempt.cancelled(), await place.count_messages()) == (not stands, 2 if stands else 0)


async def test_the_next_attempt_asks_the_model_where_the_earlier_one_gave_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its store stayed away."""
    monkeypatch.setattr(kept_answers, "STORE_AWAY_PAUSES", (0.0, 0.2))
    place.faults = [Fault.ERROR_BEFORE] * 100
    _, attempt = await give_up(place, GIVEN_UP[0])
    second = asyncio.create_task(place.run())
    with pytest.raises(StoreUnavailableError):
        await attempt
    place.faults.clear()
    assert ((await second).text, place.model.calls) == ("first", 2)


@pytest.mark.parametrize("reason", ["cancel_requested", "worker_shutdown", "paused", "reset"])
async def test_whom_somebody_cancels_stops_at_once(place: Place, reason: str) -> None:
    """Also where Temporal has given the attempt up."""
    place.faults = [Fault.ERROR_BEFORE] * 100
    details = ActivityCancellationDetails(timed_out=True, **{reason: True})
    _, attempt = await give_up(place, details)
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert await place.count_messages() == 0
