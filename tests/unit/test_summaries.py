"""Summaries of what a model is no longer given: when they are made, of what, and what fails without harm."""

import asyncio
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import pytest

from helix_temporal.activities import Payloads, Stepper
from helix_temporal.activities.usage import UsageLog
from helix_temporal.agents import (
    Agent,
    AgentRegistry,
    Compaction,
    ContextPolicy,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
)
from helix_temporal.agents.context import CHUNK_BYTES, transcript_chunks, transcript_line
from helix_temporal.errors import InvalidConfigError, InvalidRequestError, StoreUnavailableError
from helix_temporal.models import messages
from helix_temporal.models.messages import Finish, Message, ToolCall, Usage
from helix_temporal.models.steps import RunStepInput, RunStepResult, StepInput
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.models.usage import UsageEntry
from helix_temporal.session.record import Summary, parse_record
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage, ThreadPage
from helix_temporal.stores.threads.hot_only import HotThreads

SAID = "Summary of the conversation so far; its messages are no longer shown:\n\n"


class Threads(HotThreads):
    """Threads that count what is read, and whose next append may fail, before or after it is done."""

    def __init__(self) -> None:
        super().__init__(MemoryThreads())
        self.read_messages = 0
        self.fails = self.loses = False

    async def read(self, request: ReadPage) -> ThreadPage:
        """See the class."""
        page = await super().read(request)
        self.read_messages += len(page.messages)
        return page

    async def append(self, step: StepAppend) -> Appended:
        """See the class."""
        if self.fails:
            self.fails = False
            raise ConnectionResetError("this attempt comes to nothing")
        appended = await super().append(step)
        if self.loses:
            self.loses = False
            raise ConnectionResetError("the answer was lost")
        return appended


class Ledger(MemoryUsage):
    """A usage store that may be away."""

    away = False

    async def record_entry(self, entry: UsageEntry) -> bool:
        """See the class."""
        if self.away:
            raise StoreUnavailableError("away")
        return await super().record_entry(entry)


class Talk:
    """A thread whose turns are one step each; what is summed up, and what the model is given.

    Attributes:
        sums: The texts that were to be summed up.
        summed: What the model that sums up answers.
        given: What the model was given in the newest step.
        silent: The model fails once.
        moves: Whoever tries again does so in another process.
    """

    def __init__(self, compaction: Compaction | None, context: ContextPolicy | None = None) -> None:
        self.threads, self.usage = Threads(), Ledger()
        self.sums: list[str] = []
        self.given: tuple[Message, ...] = ()
        self.summed: Callable[[int], Any] = lambda number: f"S{number}"
        self.head, self.turns = EMPTY, 0
        self.silent = self.moves = False
        agent = Agent(name="a", model=self, compaction=compaction, context=context or ContextPolicy())
        self.agents = AgentRegistry([agent])
        self.stepper = self.worker()

    def worker(self) -> Stepper:
        """A process that has seen nothing yet."""
        return Stepper(self.threads, self.agents, Payloads(MemoryPayloads()), used=UsageLog(self.usage))

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Sums up, or answers."""
        used = Usage(input_tokens=1)
        if request.instructions.startswith("You keep the memory"):
            self.sums.append(request.messages[0].text)
            answer = self.summed(len(self.sums))
            if isinstance(answer, ModelResponse):
                return answer
            text = await answer if asyncio.iscoroutine(answer) else answer
            return ModelResponse(content=text, usage=used, cost_usd=Decimal("0.0000001"))
        self.given = request.messages
        if self.silent:
            self.silent = False
            raise StoreUnavailableError("the provider is down")
        return ModelResponse(content=f"a{self.turns}", usage=used, cost_usd=Decimal("0.0123"))

    async def turn(self, text: str | None = None) -> RunStepResult:
        """One turn; it is tried again once."""
        if self.turns == 0:
            await self.threads.open(OpenThread("t", 5, "o"))
        self.turns += 1
        self.step = RunStepInput(
            session_id="t",
            agent="a",
            epoch=5,
            head=self.head,
            inputs=(StepInput(id=f"m{self.turns}", text=text or f"q{self.turns}"),),
        )
        try:
            result = await self.again()
        except (StoreUnavailableError, ConnectionResetError):
            self.stepper = self.worker() if self.moves else self.stepper
            result = await self.again()
        self.head = result.head
        return result

    async def again(self) -> RunStepResult:
        """An attempt of the newest step."""
        return await self.stepper.run(self.step)

    async def talk(self, turns: int) -> None:
        """So many turns."""
        for _ in range(turns):
            await self.turn()

    @property
    def texts(self) -> list[str]:
        """What the model was given in the newest step."""
        return [each.text for each in self.given]

    async def counted(self) -> dict[str, int]:
        """How many answers and summaries the usage store has, and what they used."""
        entries = await self.usage.get_entries("t")
        kinds = Counter(entry.id.partition("/")[0] for entry in entries)
        return {**kinds, "tokens": sum(entry.tokens.prompt for entry in entries if entry.kind == "tokens")}

    async def costs(self) -> dict[str, list[str]]:
        """What the usage store knows of the costs of answers and summaries."""
        found: dict[str, list[str]] = {}
        for entry in await self.usage.get_entries("t"):
            assert entry.kind == "tokens"
            found.setdefault(entry.id.partition("/")[0], []).append(f"{entry.cost_usd:f}")
        return found

    async def summary(self) -> Summary | None:
        """What is stored."""
        return parse_record((await self.threads.read_facts("t")).slice).summary


async def test_what_is_older_than_the_newest_turns_is_summed_up_once_so_much_was_said() -> None:
    """The model gets the summary and the newest turns; the thread still holds every word."""
    talk = Talk(Compaction(at_messages=6, keep_turns=1))
    await talk.talk(3)
    assert talk.sums == []
    await talk.turn()
    assert talk.texts == [SAID + "S1", "q3", "a3", "q4"]
    assert "user: q1\n\nassistant: a1\n\nuser: q2\n\nassistant: a2" in talk.sums[0]
    assert "q3" not in talk.sums[0]
    await talk.turn()
    assert talk.texts == [SAID + "S1", "q3", "a3", "q4", "a4", "q5"]
    assert (await talk.threads.read_facts("t")).head.position == 10


async def test_the_next_summary_is_made_of_the_last_one_and_what_was_said_since() -> None:
    """A long thread is never read whole again."""
    talk = Talk(Compaction(at_messages=6, keep_turns=1))
    await talk.talk(40)
    assert len(talk.sums) == 19
    assert "Summary so far:\n\nS18" in talk.sums[-1]
    assert talk.sums[-1].count("user: ") == 2
    # Each message is read for a summary once, and a few answers are looked up.
    assert talk.threads.read_messages <= 80


async def test_a_mark_in_tokens() -> None:
    """For those who know their model by its context's size."""
    talk = Talk(Compaction(at_tokens=200, keep_turns=1))
    await talk.turn("x" * 600)
    await talk.turn()
    assert talk.sums == []
    await talk.turn("y" * 200)
    await talk.turn()
    assert len(talk.sums) == 1


async def test_what_falls_out_of_the_context_is_summed_up_before_the_mark() -> None:
    """Nothing is in neither: neither shown nor summed up."""
    talk = Talk(Compaction(at_messages=1000, keep_turns=2), ContextPolicy(max_messages=5))
    await talk.talk(3)
    assert talk.sums == []
    await talk.turn()
    assert talk.texts == [SAID + "S1", "q2", "a2", "q3", "a3", "q4"]
    assert "q1" in talk.sums[0]
    assert "q2" not in talk.sums[0]


async def test_the_summary_counts_among_the_tokens_of_the_context() -> None:
    """The bound is the model's."""
    policy = ContextPolicy(max_tokens=100, count_tokens=lambda message: len(message.text))
    talk = Talk(Compaction(at_messages=4, keep_turns=1), policy)
    talk.summed = lambda _: "s" * 20
    await talk.turn("1" * 20)
    await talk.turn("2" * 20)
    await talk.turn("3" * 20)
    assert talk.texts[0] == SAID + "s" * 20
    assert sum(len(text) for text in talk.texts) <= 120


async def test_what_a_summary_used_is_counted_with_the_step() -> None:
    """It was paid for."""
    talk = Talk(Compaction(at_messages=2, keep_turns=1))
    first = await talk.turn()
    await talk.turn()
    third = await talk.turn()
    assert (first.usage, third.usage) == (Usage(input_tokens=1), Usage(input_tokens=2))
    assert parse_record((await talk.threads.read_facts("t")).slice).usage == Usage(input_tokens=4)


async def test_an_attempt_that_fails_afterwards_does_not_pay_twice() -> None:
    """The summary is kept for the next attempt, and stored with the step, once."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1))
    await talk.talk(2)
    talk.threads.fails = True
    result = await talk.turn()
    assert len(talk.sums) == 1
    assert result.usage == Usage(input_tokens=2)
    summary = await talk.summary()
    assert summary is not None
    assert (summary.text, summary.upto.position) == ("S1", 2)


async def test_a_summary_that_two_attempts_use_is_counted_once() -> None:
    """Two answers were paid for, and one summary."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1))
    await talk.talk(2)
    talk.threads.fails = True
    await talk.turn()
    assert await talk.counted() == {"step": 4, "summary": 1, "tokens": 5}


async def test_a_summary_that_is_made_anew_is_counted_anew() -> None:
    """Another process knows nothing of the first one, and the provider's bill has both."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1))
    await talk.talk(2)
    talk.moves = talk.threads.fails = True
    await talk.turn()
    assert await talk.counted() == {"step": 4, "summary": 2, "tokens": 6}


async def test_a_summary_whose_step_comes_to_nothing_is_counted() -> None:
    """It was paid for before the model failed, in a process that may not come back."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1))
    await talk.talk(2)
    talk.moves = talk.silent = True
    await talk.turn()
    assert await talk.counted() == {"step": 3, "summary": 2, "tokens": 5}


async def test_a_step_that_is_found_standing_counts_its_summary_once() -> None:
    """Its message says which part of its usage that was, and of which work."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1))
    await talk.talk(2)
    talk.moves = talk.threads.loses = True
    await talk.turn()
    assert await talk.counted() == {"step": 3, "summary": 1, "tokens": 4}


async def test_what_a_store_that_was_away_missed_is_made_good_by_the_next_attempt() -> None:
    """The thread holds the answer and, with it, what it and its summary took."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1))
    await talk.talk(2)
    talk.usage.away = True
    await talk.turn()
    assert (await talk.counted())["tokens"] == 2
    talk.usage.away = False
    await talk.again()
    assert await talk.counted() == {"step": 3, "summary": 1, "tokens": 4}


async def test_what_a_model_says_of_its_costs_is_recorded_exactly() -> None:
    """Nobody else knows the price; the answer's and the summary's are told apart, as their tokens are."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1))
    await talk.talk(3)
    assert await talk.costs() == {"step": ["0.0123"] * 3, "summary": ["0.0000001"]}
    rollup = await talk.usage.get_rollup("t")
    assert rollup is not None
    assert rollup.cost_usd == Decimal("0.0369001")


async def test_costs_that_a_store_missed_are_made_good_by_the_next_attempt() -> None:
    """They are in the thread with the answer: an invoice is not too low because a worker died."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1))
    await talk.talk(2)
    talk.usage.away = True
    await talk.turn()
    talk.usage.away, talk.stepper = False, talk.worker()
    await talk.again()
    assert await talk.costs() == {"step": ["0.0123"] * 3, "summary": ["0.0000001"]}


async def test_a_call_whose_tokens_nobody_knows_may_have_a_cost() -> None:
    """Some providers bill by the call."""
    talk = Talk(None)
    talk.agents = AgentRegistry(
        [Agent(name="a", model=ScriptedModel([ModelResponse("A", cost_usd=Decimal(2))]))]
    )
    talk.stepper = talk.worker()
    await talk.turn()
    assert await talk.costs() == {"step": ["2"]}


@pytest.mark.parametrize("bad", [0.5, Decimal(-1), Decimal("NaN")])
def test_a_cost_that_is_no_exact_amount_is_refused_where_it_is_made(bad: Any) -> None:
    """A float would be rounded in sums; the mistake is the model's."""
    with pytest.raises(InvalidRequestError, match="cost_usd"):
        ModelResponse("A", cost_usd=bad)


def test_a_cost_as_text_or_a_whole_number_is_kept_as_a_decimal() -> None:
    """What a provider's JSON has: sums of two texts ended the step."""
    found = [ModelResponse("A", cost_usd=each).cost_usd for each in (cast("Any", "0.01"), cast("Any", 1))]
    assert found == [Decimal("0.01"), Decimal(1)]
    assert [type(each) for each in found] == [Decimal, Decimal]


async def test_a_summary_names_the_model_that_made_it() -> None:
    """A small one costs less: sums by model go by its name."""
    small = ScriptedModel([ModelResponse("S", usage=Usage(input_tokens=5))])
    talk = Talk(Compaction(at_messages=4, keep_turns=1, model=small))
    await talk.talk(3)
    rollup = await talk.usage.get_rollup("t")
    assert rollup is not None
    assert {name: sums.prompt for name, sums in rollup.tokens_by_model.items()} == {
        "Talk": 3,
        "ScriptedModel": 5,
    }


async def test_a_summary_that_was_refused_is_paid_for_all_the_same() -> None:
    """The provider's bill has it."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1))
    talk.summed = lambda _: ModelResponse("", finish=Finish.REFUSAL, usage=Usage(input_tokens=3))
    await talk.talk(3)
    assert await talk.counted() == {"step": 3, "summary": 1, "tokens": 6}


def refuse(_: int) -> ModelResponse:
    return ModelResponse(content="I can't.", finish=Finish.REFUSAL)


def drop(_: int) -> str:
    raise asyncio.CancelledError


def fail(_: int) -> str:
    raise RuntimeError("down")


def hang(_: int) -> Any:
    return asyncio.sleep(60, "late")


@pytest.mark.parametrize(
    "how", [refuse, drop, fail, hang, lambda _: "  "], ids=["refuses", "drops", "fails", "hangs", "empty"]
)
async def test_a_summary_that_fails_never_fails_the_turn(how: Callable[[int], Any]) -> None:
    """The context is what it would be without; the next turn tries again."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1, timeout=1.0))
    talk.summed = how
    await talk.talk(3)
    assert talk.texts == ["q1", "a1", "q2", "a2", "q3"]
    talk.summed = lambda _: "at last"
    await talk.turn()
    assert talk.texts == [SAID + "at last", "q3", "a3", "q4"]


async def test_a_summary_that_is_too_long_is_cut() -> None:
    """The slice is written with each step, and must stay small."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1, max_bytes=7))
    talk.summed = lambda _: "ééééé"
    await talk.talk(3)
    summary = await talk.summary()
    assert summary is not None
    assert summary.text == "ééé"


async def test_of_a_long_thread_only_the_newest_part_is_summed_up_at_first() -> None:
    """Switching compaction on must not send a year of talk to a model."""
    talk = Talk(None)
    for _ in range(30):
        await talk.turn("x" * 30_000)
    agent = Agent(
        name="a", model=talk, compaction=Compaction(at_messages=4, keep_turns=1),
        context=ContextPolicy(max_messages=6),
    )  # fmt: skip
    talk.stepper = Stepper(talk.threads, AgentRegistry([agent]), Payloads(MemoryPayloads()))
    talk.threads.read_messages = 0
    await talk.turn()
    assert talk.threads.read_messages <= 40
    assert "messages before these are not shown" in talk.sums[0]
    assert talk.texts[0].startswith(SAID)


async def test_a_summary_of_another_timeline_is_not_given() -> None:
    """A message of that place is another one now: what was said of it does not hold."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1))
    await talk.talk(3)
    facts = await talk.threads.read_facts("t")
    state = parse_record(facts.slice)
    other = Summary(text="lies", upto=Head(position=2, last_id="never"))
    data = state.model_copy(update={"summary": other}).model_dump_json(exclude_defaults=True).encode()
    await talk.threads.save_slice("t", 5, data, facts.slice_version)
    talk.summed = fail
    await talk.turn()
    assert "lies" not in "".join(talk.texts)
    # Nor kept: a window that does not reach that far back could not tell any more.
    assert await talk.summary() is None


async def test_without_compaction_a_stored_summary_is_not_given() -> None:
    """Whoever switches it off gets the plain window back."""
    talk = Talk(Compaction(at_messages=4, keep_turns=1))
    await talk.talk(3)
    talk.stepper = Stepper(
        talk.threads, AgentRegistry([Agent(name="a", model=talk)]), Payloads(MemoryPayloads())
    )
    await talk.turn()
    assert talk.texts[:2] == ["q1", "a1"]


def test_tools_and_images_are_told_in_words() -> None:
    """Whichever model sums up: it need not know the tools, nor see."""
    call = ToolCall(id="c", name="look", arguments={"at": 1})
    asks = Message(id="m", role="assistant", content="Wait.", tool_calls=(call,))
    result = Message(id="r", role="tool", name="look", content="found", tool_call_id="c")
    picture = [
        messages.text_part("See"),
        messages.image_part(url="u"),
        messages.file_part(name="a.pdf"),
        messages.thinking_part("hm"),
    ]
    assert transcript_line(asks) == 'assistant: Wait. [calls look {"at":1}]'
    assert transcript_line(result) == "tool look: found"
    assert transcript_line(Message(id="u", role="user", content=picture)) == "user: See [image] [file a.pdf]"


def test_long_messages_are_shortened_and_much_talk_comes_in_pieces() -> None:
    """A pasted log of a megabyte is not worth its price twice."""
    long = transcript_line(Message(id="m", role="user", content="é" * 10_000))
    assert len(long.encode()) < 5_000
    assert "[…]" in long
    pieces = list(
        transcript_chunks([Message(id=f"m{at}", role="user", content="x" * 4_000) for at in range(40)])
    )
    assert len(pieces) == 3
    assert all(len(piece) <= CHUNK_BYTES + 100 for piece in pieces)
    wide = list(
        transcript_chunks([Message(id=f"m{at}", role="user", content="é" * 1_950) for at in range(40)])
    )
    assert all(len(piece.encode()) <= CHUNK_BYTES + 100 for piece in wide)


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"at_messages": 0},
        {"at_tokens": -1},
        {"at_messages": 5, "keep_turns": 0},
        {"at_messages": 5, "timeout": 0},
    ],
)
def test_a_compaction_that_makes_no_sense_is_refused(bad: dict[str, Any]) -> None:
    """At the start, not in the middle of somebody's conversation."""
    with pytest.raises(InvalidConfigError, match="compaction"):
        Compaction(**bad)


def test_what_is_no_compaction_is_refused() -> None:
    """``compaction=True`` would be silent otherwise."""
    with pytest.raises(InvalidConfigError, match="compaction: Compaction expected, got bool"):
        Agent(name="a", model=Talk(None), compaction=True)  # type: ignore[arg-type]
