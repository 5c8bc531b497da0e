"""What a step tells while the stream's store fails it, and what it costs the step: nothing."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from helix_temporal.activities import Payloads, Stepper, kept_answers, stream_buffer
from helix_temporal.activities.live import Streaming
from helix_temporal.activities.usage import UsageLog
from helix_temporal.agents import Agent, AgentRegistry, ModelRequest, ModelResponse
from helix_temporal.errors import FencedError, HeadMovedError, StoreUnavailableError
from helix_temporal.models.agents import TextDelta
from helix_temporal.models.messages import Usage
from helix_temporal.models.steps import RunStepInput, RunStepResult, StepInput
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.models.streams import ChunkBase, RunEnded, RunStarted, StepCommitted, StreamLimits
from helix_temporal.stores.memory import MemoryPayloads, MemoryThreads
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.stores.streams.writer import Writing
from helix_temporal.stores.threads.hot_only import HotThreads

STEP = RunStepInput(
    session_id="s1",
    agent="a",
    epoch=5,
    head=EMPTY,
    inputs=(StepInput(id="m1", text="hello"),),
    run_id="r1",
)


class Model:
    """Says its words, each when it is let."""

    def __init__(self, *words: str) -> None:
        self.words = words

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        """See the class."""
        for word in self.words:
            yield TextDelta(word)
            await asyncio.sleep(0)
        yield ModelResponse("".join(self.words), usage=Usage(input_tokens=7, output_tokens=2))


class Threads(HotThreads):
    """Whose appends may fail, before or after they are done."""

    fails_before = fails_after = False

    async def append(self, step: StepAppend) -> Appended:
        """See the class."""
        if self.fails_before:
            raise HeadMovedError("elsewhere")
        appended = await super().append(step)
        if self.fails_after:
            raise StoreUnavailableError("the answer was lost")
        return appended


class Broken(MemoryStreams):
    """Whose writers hang, or fail, as long as ``ill`` says so."""

    ill: str | None = None

    async def create_writer(self, *args: Any, **options: Any) -> Writing:
        """See the class."""
        if self.ill == "hangs":
            await asyncio.Event().wait()
        if self.ill == "down":
            raise StoreUnavailableError("down")
        return await super().create_writer(*args, **options)


class Place:
    """A stepper over stores of its own."""

    def __init__(self, model: Model, streams: MemoryStreams | None = None) -> None:
        self.threads, self.usage = Threads(MemoryThreads()), MemoryUsage()
        self.streams = streams or Broken()
        self.stepper = Stepper(
            self.threads,
            AgentRegistry([Agent(name="a", model=model)]),
            Payloads(MemoryPayloads()),
            streams=Streaming(self.streams),
            used=UsageLog(self.usage),
        )

    async def run(self, step: RunStepInput = STEP) -> RunStepResult:
        """One attempt of the step, in a thread that is open."""
        await self.threads.open(OpenThread("s1", 5, "o"))
        return await self.stepper.run(step)

    def told(self) -> list[ChunkBase]:
        """All that the stream holds."""
        return self.streams.get_chunks_sync("s1")

    def types(self) -> list[str]:
        """The types of all that the stream holds."""
        return [chunk.type for chunk in self.told()]


WHOLE = ["run_started", "step_started", "text_delta", "step_committed", "usage", "run_ended"]


def without_pieces(types: Sequence[str]) -> list[str]:
    return [name for name in types if name != "text_delta"]


async def test_pieces_that_come_fast_are_joined() -> None:
    """A round trip a token would cost more than the model."""
    place = Place(Model(*(f"{number} " for number in range(1000))))
    await place.run()
    texts = [chunk.model_dump()["delta"] for chunk in place.told() if chunk.type == "text_delta"]
    assert "".join(texts) == "".join(f"{number} " for number in range(1000))
    assert len(texts) <= 20


async def test_a_step_that_is_found_standing_tells_nothing_twice() -> None:
    """A retried attempt whose first answer was lost: markers have keys, whoever writes them."""
    place = Place(Model("hi"))
    first = await place.run()
    told = place.types()
    again = await place.stepper.run(STEP)
    assert again.head == first.head
    assert place.types() == told == WHOLE


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (["hello"], ("hello",)),
        (["a" * 1_500, "b" * 1_500, "c"], ("a" * 1_500, "b" * 500)),
        (["é" * 2_001], ("é" * 2_000,)),
    ],
    ids=["short", "several", "long"],
)
async def test_a_turn_begins_with_what_was_asked(asked: list[str], shown: tuple[str, ...]) -> None:
    """Whoever follows a session sees the question before the thread has it; of a long one, the begin."""
    place = Place(Model("hi"))
    inputs = tuple(StepInput(id=f"m{at}", text=text) for at, text in enumerate(asked))
    await place.run(STEP.model_copy(update={"inputs": inputs}))
    begun = place.told()[0]
    assert isinstance(begun, RunStarted)
    assert begun.texts == shown
    assert begun.message_ids == tuple(each.id for each in inputs)


async def test_a_turn_begins_without_texts_where_chunks_are_small() -> None:
    """That it begins is more than what it says: clients find their turn by it."""
    place = Place(Model("hi"), MemoryStreams(limits=StreamLimits(max_chunk_bytes=1024)))
    await place.run(STEP.model_copy(update={"inputs": (StepInput(id="m1", text="x" * 2_000),)}))
    begun = place.told()[0]
    assert isinstance(begun, RunStarted)
    assert (begun.message_ids, begun.texts) == (("m1",), ())


@pytest.fixture
def _never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not answer stays away for longer than a step keeps its answer."""
    monkeypatch.setattr(kept_answers, "STORE_AWAY_PAUSES", ())


@pytest.mark.usefixtures("_never_waits")
async def test_a_step_that_stands_is_told_by_whoever_finds_it() -> None:
    """The attempt that put it there was killed before it could say so."""
    place = Place(Model("hi"))
    place.threads.fails_after = True
    with pytest.raises(StoreUnavailableError):
        await place.run()
    place.threads.fails_after = False
    await place.stepper.run(STEP)
    assert [name for name in place.types() if name in {"step_committed", "run_ended"}] == [
        "step_committed",
        "run_ended",
    ]
    assert place.types().count("run_started") == 1


@pytest.mark.usefixtures("_never_waits")
async def test_whoever_finds_a_step_tells_how_the_calls_ended_whose_results_it_took() -> None:
    """Calls that people or sub-agents answered have no tool that says so."""
    place = Place(Model("hi"))
    place.threads.fails_after = True
    await place.threads.open(OpenThread("s1", 5, "o"))
    result = StepInput(id="a0.0", text="said", call="c", name="person")
    step = STEP.model_copy(update={"inputs": (*STEP.inputs, result)})
    with pytest.raises(StoreUnavailableError):
        await place.stepper.run(step)
    await place.streams.delete_stream("s1")  # the worker died before it could write
    place.threads.fails_after = False
    await place.stepper.run(step)
    told = ["run_started", "tool_end", "step_committed", "usage", "run_ended"]
    assert place.types() == ["stream_resync", *told]


async def test_a_paid_call_whose_append_failed_is_counted_and_discarded() -> None:
    """The provider's bill has it; the thread, and the page, do not."""
    place = Place(Model("hi"))
    place.threads.fails_before = True
    with pytest.raises(HeadMovedError):
        await place.run()
    assert place.types()[-1] == "step_discarded"
    place.threads.fails_before = False
    await place.stepper.run(STEP)
    rollup = await place.usage.get_rollup("s1")
    assert rollup is not None
    assert (rollup.entry_count, rollup.tokens.prompt) == (2, 14)


async def test_a_repeat_counts_no_usage_twice() -> None:
    """The entry's id is the answer's."""
    place = Place(Model("hi"))
    await place.run()
    await place.stepper.run(STEP)
    rollup = await place.usage.get_rollup("s1")
    assert rollup is not None
    assert rollup.entry_count == 1


@pytest.mark.parametrize("ill", ["hangs", "down"])
async def test_a_step_does_without_its_stream(
    ill: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown decides nothing: an outage of the stream's store is a line in the log."""
    monkeypatch.setattr(stream_buffer, "PATIENCE", 0.05)
    streams = Broken()
    streams.ill = ill
    place = Place(Model("hi"), streams)
    with caplog.at_level(logging.WARNING):
        result = await place.run()
    assert result.text == "hi"
    assert "stream of session 's1' is off" in caplog.text


async def test_a_store_that_comes_back_is_told_that_the_step_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever missed the words reads them from the thread: the number of characters says so."""
    streams = Broken()
    streams.ill = "down"

    class Heals(Model):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            yield TextDelta("lost")
            await asyncio.sleep(0.05)
            streams.ill = None
            yield ModelResponse("lost and found")

    place = Place(Heals(), streams)
    await place.run()
    [committed] = [chunk for chunk in place.told() if isinstance(chunk, StepCommitted)]
    assert committed.characters == len("lost and found")
    assert isinstance(place.told()[-1], RunEnded)
    assert place.types()[0] == "run_started"
    assert "text_delta" not in place.types()


async def test_a_left_over_attempt_learns_it_from_its_stream() -> None:
    """It stops before it asks the model for more; a newer one has the session."""
    place = Place(Model("one ", "two ", "three"))
    newer = await place.streams.create_writer("s1", agent_id="r2", run_id="r2", fence=6)
    await newer.write(RunEnded(status="completed"))
    with pytest.raises(FencedError):
        await place.run()


async def test_a_left_over_attempt_that_has_its_answer_counts_what_it_cost() -> None:
    """It comes to nothing, and is on the bill."""
    place = Place(Model())
    streams = place.streams

    class LeftBehind(Model):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            newer = await streams.create_writer("s1", agent_id="r2", run_id="r2", fence=6)
            await newer.write(RunEnded(status="completed"))
            yield TextDelta("one")
            await asyncio.sleep(0.1)
            yield ModelResponse("one", usage=Usage(input_tokens=7, output_tokens=2))

    place = Place(LeftBehind(), streams)
    with pytest.raises(FencedError):
        await place.run()
    rollup = await place.usage.get_rollup("s1")
    assert rollup is not None
    assert (rollup.entry_count, rollup.tokens.prompt) == (1, 7)


async def test_text_with_half_a_character_is_shown() -> None:
    """Providers cut where they like; JSON holds no half of a pair."""

    class Halves(Model):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            for half in ("\ud83d", "\ude00", "\udfff"):
                yield TextDelta(half)
            yield ModelResponse("😀")

    place = Place(Halves())
    await place.run()
    texts = [chunk.model_dump()["delta"] for chunk in place.told() if chunk.type == "text_delta"]
    assert "".join(texts).endswith("�")


async def test_a_model_without_a_stream_is_shown_at_its_end() -> None:
    """In pieces that a store takes, however long it is."""

    class Whole:
        async def generate(self, request: ModelRequest) -> ModelResponse:
            return ModelResponse("x" * 40_000)

    place = Place(Whole())  # type: ignore[arg-type]
    await place.run()
    sizes = [len(chunk.model_dump()["delta"]) for chunk in place.told() if chunk.type == "text_delta"]
    assert sizes == [16384, 16384, 7232]
    assert without_pieces(place.types()) == [name for name in WHOLE if name not in {"text_delta", "usage"}]


async def test_a_silent_model_is_told_to_be_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers take a producer for gone that says nothing for long; one that thinks is not gone."""
    monkeypatch.setattr(stream_buffer, "BEAT", 0.02)
    streams = MemoryStreams()

    class Thinks(Model):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            for _ in range(1_000):
                await asyncio.sleep(0.02)
                info = await streams.get_info("s1")
                if info is not None and info.updated_at - info.created_at > 250:
                    alive.set()
                    break
            yield ModelResponse("at last")

    alive = asyncio.Event()
    await Place(Thinks(), streams).run()
    assert alive.is_set()
