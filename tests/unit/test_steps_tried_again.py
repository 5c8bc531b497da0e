"""A step that is tried again pays for no second answer where the first one is in the archive alone."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities import Payloads, Stepper
from helix_temporal.activities._runtime import application_error, workflow_run
from helix_temporal.agents import Agent, AgentRegistry, ModelRequest, ModelResponse, ScriptedModel
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import HeadMovedError, PayloadNotFoundError, StoreUnavailableError
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.steps import EndTurnInput, RunStepInput, RunStepResult, StepInput
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.testing.faults import BlobFault, FaultyBlobs

REQUEST = RunStepInput(
    session_id="t", agent="a", epoch=5, head=EMPTY, inputs=(StepInput(id="u", text="hello"),)
)
BY_REFERENCE = REQUEST.model_copy(update={"inputs": (StepInput(id="u", ref="lost"),)})


class LossyPayloads(MemoryPayloads):
    """Loses what it has, or does not answer; something may happen just before it says that it has nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def get_payload(self, thread_id: str, key: str) -> bytes | None:
        """As `PayloadStore.get_payload`."""
        if self.down:
            raise StoreUnavailableError("no answer")
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await super().get_payload(thread_id, key)


class Place:
    """A thread over an archive, and a model that answers twice."""

    def __init__(self) -> None:
        self.hot, self.blobs = MemoryThreads(), FaultyBlobs(MemoryBlobs())
        self.threads = TieredThreads(self.hot, self.blobs)
        self.model = ScriptedModel([ModelResponse(content="first"), ModelResponse(content="second")])
        self.payloads = LossyPayloads()
        self.agent_with(self.model)

    def agent_with(self, model: ScriptedModel) -> None:
        """From now on the agent has this model."""
        agents = AgentRegistry([Agent(name="a", model=model)])
        self.stepper = Stepper(self.threads, agents, Payloads(self.payloads))

    async def run(self, attempt: int, request: RunStepInput | EndTurnInput = REQUEST) -> RunStepResult:
        """One attempt of the step, or of the end of a turn."""
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, attempt=attempt)
        if isinstance(request, EndTurnInput):
            return await environment.run(self.stepper.end_turn, request)
        return await environment.run(self.stepper.run, request)

    async def loses_after(self, request: RunStepInput | EndTurnInput) -> None:
        """An attempt that was taken for dead archives its step; then Redis goes back to before it."""
        copy = await self.hot.read_snapshot("t", 0)
        assert copy is not None
        await self.run(1, request)
        await self.threads.evict("t", 5)
        await self.hot.install(copy.header, copy.messages, replace=False)

    async def with_call(self) -> tuple[EndTurnInput, EndTurnInput]:
        """A turn that waits for a tool's result: its end, with the result and with a payload that is gone."""
        call = ToolCall(id="c", name="look")
        self.agent_with(ScriptedModel([ModelResponse(tool_calls=(call,))]))
        head = (await self.run(1)).head
        result = StepInput(id=f"{head.last_id}.0", text="seen", call="c", name="look")
        ends = EndTurnInput(session_id="t", epoch=5, head=head, inputs=(result,))
        lost = result.model_copy(update={"text": "", "ref": "lost"})
        return ends, ends.model_copy(update={"inputs": (lost,)})


@pytest.fixture
async def place() -> Place:
    """With the thread open."""
    place = Place()
    state = SessionRecord(writer=ActivityEnvironment().run(workflow_run))
    await place.threads.open(OpenThread("t", 5, "o", slice=state.model_dump_json().encode()))
    return place


async def test_a_step_whose_thread_went_back_is_not_paid_for_again(place: Place) -> None:
    """A Redis that fails over after the answer was archived, and before anybody heard of it."""
    copy = await place.hot.read_snapshot("t", 0)
    assert copy is not None
    await place.run(1)
    await place.threads.evict("t", 5)
    await place.hot.install(copy.header, copy.messages, replace=False)
    with pytest.raises(HeadMovedError):
        await place.run(2)
    assert place.model.calls == 1


async def test_a_step_that_left_nothing_is_made_on_its_second_attempt(place: Place) -> None:
    """The archive is where the hot thread is."""
    result = await place.run(2)
    assert (result.text, place.model.calls) == ("first", 1)


async def test_a_first_attempt_asks_the_archive_nothing(place: Place) -> None:
    """A plain turn is one write to it."""
    place.blobs.forget()
    await place.run(1)
    assert (place.blobs.count("get"), place.blobs.count("put")) == (0, 1)


async def test_only_attempts_of_one_step_have_its_key(place: Place) -> None:
    """A turn that came to nothing is followed by another at its place, which gets no answer of the first."""
    keys: list[str] = []

    def answer(request: ModelRequest) -> str:
        keys.append(request.step_key)
        if len(keys) < 4:
            raise ConnectionError("no answer")
        return "there"

    place.agent_with(ScriptedModel(answer))
    first = REQUEST.model_copy(update={"run_id": "first"})
    other = first.model_copy(update={"run_id": "other", "inputs": (StepInput(id="v", text="bye"),)})
    for attempt, request in [(1, first), (2, first), (1, other)]:
        with pytest.raises(ApplicationError, match="no answer"):
            await place.run(attempt, request)
    await place.run(2, other)
    assert (keys[0], keys[2]) == (keys[1], keys[3])
    assert keys[0] != keys[2]


async def test_a_payload_that_is_gone_is_not_looked_for_for_ever(place: Place) -> None:
    """The third attempt says so, and names the message."""
    for attempt in (1, 2):
        with pytest.raises(StoreUnavailableError):
            await place.run(attempt, BY_REFERENCE)
    with pytest.raises(PayloadNotFoundError, match="message 'u'") as caught:
        await place.run(3, BY_REFERENCE)
    assert caught.value.facts == {"message_id": "u"}
    assert application_error(caught.value).non_retryable


async def test_a_store_that_does_not_answer_has_lost_nothing(place: Place) -> None:
    """However often it was asked."""
    place.payloads.down = True
    with pytest.raises(StoreUnavailableError):
        await place.run(30, BY_REFERENCE)


async def test_a_payload_that_the_step_has_used_meanwhile_is_not_wanted(place: Place) -> None:
    """An attempt that was taken for dead made the step while this one looked for its payload."""
    place.payloads.meanwhile = lambda: place.run(1)
    result = await place.run(3, BY_REFERENCE)
    assert (result.text, place.model.calls) == ("first", 1)


async def test_a_step_is_tried_again_while_the_archive_is_down(place: Place) -> None:
    """Sessions go on meanwhile; the step's own end tells what became of it."""
    place.blobs.fail(BlobFault.ERROR_BEFORE, method="get")
    assert (await place.run(2)).text == "first"


async def test_a_payload_whose_step_is_in_the_archive_alone_is_not_gone(place: Place) -> None:
    """The archive was asked before that attempt came to its end, and Redis has lost the step since."""
    place.payloads.meanwhile = lambda: place.loses_after(REQUEST)
    with pytest.raises(HeadMovedError):
        await place.run(3, BY_REFERENCE)
    assert place.model.calls == 1


async def test_a_payload_is_not_gone_while_the_archive_does_not_answer(place: Place) -> None:
    """Its step may be there."""

    async def lose() -> None:
        await place.loses_after(REQUEST)
        place.blobs.fail(BlobFault.ERROR_BEFORE, method="get")

    place.payloads.meanwhile = lose
    with pytest.raises(StoreUnavailableError):
        await place.run(3, BY_REFERENCE)
    with pytest.raises(HeadMovedError):
        await place.run(4, BY_REFERENCE)
    assert place.model.calls == 1


async def test_results_that_an_earlier_attempt_took_are_not_wanted(place: Place) -> None:
    """It was taken for dead, and ended the turn while this one looked for a result's payload."""
    ends, lost = await place.with_call()
    place.payloads.meanwhile = lambda: place.run(1, ends)
    result = await place.run(3, lost)
    assert result.head.position == ends.head.position + 1


async def test_results_whose_end_of_turn_is_in_the_archive_alone_are_not_gone(place: Place) -> None:
    """As of a step's own."""
    ends, lost = await place.with_call()
    place.payloads.meanwhile = lambda: place.loses_after(ends)
    with pytest.raises(HeadMovedError):
        await place.run(3, lost)


async def test_a_result_that_is_gone_is_not_looked_for_for_ever(place: Place) -> None:
    """The third attempt says so."""
    _, lost = await place.with_call()
    with pytest.raises(PayloadNotFoundError):
        await place.run(3, lost)


async def test_an_answer_that_comes_while_the_archive_is_asked_is_not_paid_for_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive answers late; meanwhile the attempt that was taken for dead comes to its end."""
    confirm_head = place.threads.confirm_head

    async def slowly(thread_id: str, epoch: int, head: Head) -> None:
        await confirm_head(thread_id, epoch, head)
        await place.run(1)

    monkeypatch.setattr(place.threads, "confirm_head", slowly)
    result = await place.run(2)
    assert (result.text, place.model.calls) == ("first", 1)
