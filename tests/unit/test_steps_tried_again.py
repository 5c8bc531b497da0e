"""A step that is tried again pays for no second answer where the first one is in the archive alone."""

from dataclasses import replace

import pytest
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities import Payloads, Stepper
from helix_temporal.agents import Agent, AgentRegistry, ModelResponse, ScriptedModel
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import HeadMovedError
from helix_temporal.models.records import EMPTY
from helix_temporal.models.steps import RunStepInput, RunStepResult, StepInput
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.testing.faults import FaultyBlobs

REQUEST = RunStepInput(
    session_id="t", agent="a", epoch=5, head=EMPTY, inputs=(StepInput(id="u", text="hello"),)
)


class Place:
    """A thread over an archive, and a model that answers twice."""

    def __init__(self) -> None:
        self.hot, self.blobs = MemoryThreads(), FaultyBlobs(MemoryBlobs())
        self.threads = TieredThreads(self.hot, self.blobs)
        self.model = ScriptedModel([ModelResponse(content="first"), ModelResponse(content="second")])
        agents = AgentRegistry([Agent(name="a", model=self.model)])
        self.stepper = Stepper(self.threads, agents, Payloads(MemoryPayloads()))

    async def run(self, attempt: int) -> RunStepResult:
        """One attempt of the step."""
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, attempt=attempt)
        return await environment.run(self.stepper.run, REQUEST)


@pytest.fixture
async def place() -> Place:
    """With the thread open."""
    place = Place()
    await place.threads.open(OpenThread("t", 5, "o"))
    return place


async def test_a_step_whose_record_went_back_is_not_paid_for_again(place: Place) -> None:
    """A Redis that fails over after the answer was archived, and before anybody heard of it."""
    copy = await place.hot.snapshot("t", 0)
    assert copy is not None
    await place.run(1)
    await place.threads.evict("t", 5)
    await place.hot.install(copy.header, copy.records, replace=False)
    with pytest.raises(HeadMovedError):
        await place.run(2)
    assert place.model.calls == 1


async def test_a_step_that_left_nothing_is_made_on_its_second_attempt(place: Place) -> None:
    """The archive is where the record is."""
    result = await place.run(2)
    assert (result.text, place.model.calls) == ("first", 1)


async def test_a_first_attempt_asks_the_archive_nothing(place: Place) -> None:
    """A plain turn is one write to it."""
    place.blobs.forget()
    await place.run(1)
    assert (place.blobs.count("get"), place.blobs.count("put")) == (0, 1)
