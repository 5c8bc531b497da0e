"""What a page shows of a model's context is what the model got, in every step; what is not known is said."""

from collections.abc import Sequence
from typing import Any

import pytest

from helix_temporal.activities import Payloads, Stepper
from helix_temporal.agents import (
    Agent,
    AgentRegistry,
    Compaction,
    ContextPolicy,
    InstructionsContext,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
    tool,
)
from helix_temporal.errors import InvalidRequestError, NotFoundError, ThreadNotFoundError
from helix_temporal.models.messages import Message, ToolCall, Usage, decode_message, encode_message
from helix_temporal.models.steps import RunStepInput, StepInput
from helix_temporal.models.stored_messages import EMPTY, StoredMessage
from helix_temporal.session.record import encode_record, parse_record
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.views.context import (
    MOST_PARTS,
    SHOWN_CHARACTERS,
    Draft,
    apportion_tokens,
    describe_message,
    read_context,
    split_proportionally,
)
from helix_temporal.views.models import ContextPart, ModelContext

USED = Usage(input_tokens=1_001, output_tokens=7)


@tool
def look_up(order: str, *, days: int = 3) -> str:
    """Look an order up."""
    return f"{order} in {days}"


class Talk:
    """A session without Temporal, whose model keeps what it was given.

    Attributes:
        requests: Of the calls that gave an answer, in order.
        answers: Positions of these answers.
    """

    def __init__(self, *, used: Usage | None = USED, **options: Any) -> None:
        self.threads = HotThreads(MemoryThreads())
        self.requests: list[ModelRequest] = []
        self.answers: list[int] = []
        self.head, self._used, self._calls, self._count = EMPTY, used, 0, 0
        self.agent = Agent(
            **{"name": "a", "model": self, "instructions": "Be kind.", "tools": [look_up], **options}
        )
        self._stepper = Stepper(self.threads, AgentRegistry([self.agent]), Payloads(MemoryPayloads()))

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Sums up, asks for as many tools as it is told to, or answers."""
        if request.instructions.startswith("You keep the memory"):
            return ModelResponse(f"sum {len(self.requests)}", usage=Usage(input_tokens=50, output_tokens=5))
        self.requests.append(request)
        calls, self._calls = self._calls, 0
        asked = tuple(
            ToolCall(id=f"c{at}", name="look_up", arguments={"order": str(at)}) for at in range(calls)
        )
        return ModelResponse(f"answer {len(self.requests)}", tool_calls=asked, usage=self._used)

    async def say(self, text: str, *, calls: int = 0) -> None:
        """A turn: of one step, or of two with so many tool calls."""
        if not self.answers:
            await self.threads.open(OpenThread("t", 5, "o"))
        self._count += 1
        self._calls = calls
        await self._step(StepInput(id=f"m{self._count}", text=text))
        if calls:
            answer = self.head.last_id
            results = [
                StepInput(id=f"{answer}.{at}", text=f"found {at}", call=f"c{at}", name="look_up")
                for at in range(calls)
            ]
            await self._step(*results)

    async def talk(self, turns: int) -> None:
        """So many turns, each third one with two tool calls."""
        for number in range(turns):
            await self.say(f"question {number}", calls=2 if number % 3 == 2 else 0)

    async def _step(self, *inputs: StepInput) -> None:
        request = RunStepInput(session_id="t", agent="a", epoch=5, head=self.head, inputs=inputs)
        self.head = (await self._stepper.run(request)).head
        self.answers.append(self.head.position - 1)

    async def context(self, position: int, agent: Agent | None = None, **options: Any) -> ModelContext:
        """What a page shows."""
        return await read_context(self, {"a": agent or self.agent}, "t", "t", position, **options)

    async def contexts(self) -> list[ModelContext]:
        """Of all answers."""
        return [await self.context(each) for each in self.answers]

    async def stored(self) -> list[StoredMessage]:
        """The thread."""
        page = await self.threads.read(ReadPage("t", limit=10_000, committed_only=False, whole=False))
        return list(page.messages)

    async def copy(self, messages: Sequence[StoredMessage]) -> "Copy":
        """A thread with the same record and these messages."""
        copy = Copy(HotThreads(MemoryThreads()))
        await copy.threads.open(OpenThread("t", 5, "o"))
        record = parse_record((await self.threads.read_facts("t")).slice)
        await copy.threads.append(
            StepAppend("t", 5, EMPTY, tuple(messages), commits=True, slice=encode_record(record))
        )
        return copy


class Copy:
    """A thread that was written elsewhere."""

    def __init__(self, threads: HotThreads) -> None:
        self.threads = threads


def without_given(message: StoredMessage) -> StoredMessage:
    """A message as it was stored before steps told what they gave."""
    return encode_message(decode_message(message).model_copy(update={"given": None}))


def shown(context: ModelContext) -> list[tuple[str, str]]:
    """Roles and texts of the conversation in it."""
    kinds = {"summary", "message", "input"}
    return [(part.role, part.text) for part in context.parts if part.kind in kinds]


def given(request: ModelRequest) -> list[tuple[str, str]]:
    """The same of what the model really got."""
    return [(each.role, describe_message(each)) for each in request.messages]


def texts(context: ModelContext, kind: str) -> list[str]:
    return [part.text for part in context.parts if part.kind == kind]


WINDOWS: dict[str, dict[str, Any]] = {
    "all of it": {},
    "a window of messages": {"context": ContextPolicy(max_messages=7)},
    "a window that is less than a turn": {"context": ContextPolicy(max_messages=2)},
    "a window of tokens": {"context": ContextPolicy(max_tokens=60)},
    "summaries": {"compaction": Compaction(at_messages=6, keep_turns=1)},
    "summaries of what falls out": {
        "context": ContextPolicy(max_messages=6),
        "compaction": Compaction(at_messages=1_000, keep_turns=1),
    },
}


@pytest.mark.parametrize("options", WINDOWS.values(), ids=WINDOWS)
async def test_the_parts_are_what_the_model_was_given(options: dict[str, Any]) -> None:
    """Message by message, in each step of a conversation with tools."""
    talk = Talk(**options)
    await talk.talk(12)
    contexts = await talk.contexts()
    assert [shown(each) for each in contexts] == [given(each) for each in talk.requests]
    assert {(each.recorded, each.model) for each in contexts} == {(True, "Talk")}
    assert {each.instructions_changed for each in contexts} == {False}
    assert {tuple(texts(each, "instructions")) for each in contexts} == {("Be kind.",)}


@pytest.mark.parametrize(
    "name", [name for name in WINDOWS if not name.startswith("summaries")], ids=lambda name: name
)
async def test_what_no_step_told_is_worked_out_by_the_rule_of_steps(name: str) -> None:
    """Threads of earlier versions have nothing but their messages, and the agent is as it was."""
    talk = Talk(**WINDOWS[name])
    await talk.talk(12)
    older = await talk.copy(list(map(without_given, await talk.stored())))
    contexts = [await read_context(older, {"a": talk.agent}, "t", "t", each) for each in talk.answers]
    assert [shown(each) for each in contexts] == [given(each) for each in talk.requests]
    assert {each.recorded for each in contexts} == {False}
    assert {each.instructions_changed for each in contexts} == {None}
    assert all("worked out" in each.notes[0] for each in contexts)


@pytest.mark.parametrize("options", WINDOWS.values(), ids=WINDOWS)
async def test_tokens_add_up_to_what_the_provider_counted(options: dict[str, Any]) -> None:
    """Numbers that don't add up make people distrust the page; a summary's own call is no part of them."""
    talk = Talk(**options)
    await talk.talk(12)
    contexts = await talk.contexts()
    assert {sum(part.tokens for part in each.parts) for each in contexts} == {1_001}
    assert {each.provider_tokens.input for each in contexts if each.provider_tokens} == {1_001}
    assert not any(part.estimated for each in contexts for part in each.parts)


async def test_a_model_that_counts_nothing_gets_estimates() -> None:
    """Then no part claims to be the provider's."""
    talk = Talk(used=None)
    await talk.say("hello")
    context = await talk.context(1)
    assert context.provider_tokens is None
    assert all(part.estimated and part.tokens > 0 for part in context.parts)
    assert any("estimates" in note for note in context.notes)


async def test_steps_and_inputs_are_told_apart() -> None:
    """Which messages came with this step, and which were there before."""
    talk = Talk()
    await talk.say("hello")
    await talk.say("look", calls=2)
    last = await talk.context(talk.answers[-1], turn=2)
    assert (last.turn, last.step, last.answer, last.first, last.left_out) == (2, 2, 6, 0, 0)
    assert [(part.kind, part.position) for part in last.parts if part.position is not None] == [
        ("message", 0), ("message", 1), ("message", 2), ("message", 3), ("input", 4), ("input", 5),
    ]  # fmt: skip
    assert [part.name for part in last.parts if part.kind == "tools"] == ["look_up"]
    assert '"days"' in texts(last, "tools")[0]
    assert '[calls look_up {"order":"0"}]' in last.parts[5].text


async def test_a_step_far_from_the_begin_of_its_turn_has_its_number() -> None:
    """The turn begins before the window does."""
    talk = Talk(context=ContextPolicy(max_messages=2))
    await talk.say("look", calls=3)
    assert [(each.step, each.left_out) for each in await talk.contexts()] == [(1, 0), (2, 1)]


async def test_a_summary_is_found_after_newer_ones_took_its_place() -> None:
    """The record keeps the newest alone; its text stands once in the thread, however often it is given."""
    talk = Talk(compaction=Compaction(at_messages=12, keep_turns=1))
    await talk.talk(30)
    told = [decode_message(each).given for each in await talk.stored()]
    summaries = [each.summary for each in told if each is not None and each.summary is not None]
    written = [each.text for each in summaries if each.text]
    assert len(written) == len(set(written)) > 3
    assert len(summaries) > 2 * len(written)


async def test_a_summary_whose_answer_is_gone_is_said_to_be_gone() -> None:
    """Not an empty summary: the model did get one."""
    talk = Talk(compaction=Compaction(at_messages=6, keep_turns=1))
    await talk.talk(7)
    stored = await talk.stored()
    told = {at: decode_message(stored[at]).given for at in talk.answers}
    places = {
        at: each.summary.at for at, each in told.items() if each is not None and each.summary is not None
    }
    later, keeper = next((at, place) for at, place in places.items() if place is not None)
    stored[keeper] = without_given(stored[keeper])
    context = await read_context(await talk.copy(stored), {"a": talk.agent}, "t", "t", later)
    assert texts(context, "summary") == [""]
    assert any("text of the summary" in note for note in context.notes)
    assert sum(part.tokens for part in context.parts) == 1_001


async def test_an_agent_that_is_not_known_leaves_its_part_of_the_tokens() -> None:
    """The page of somebody who does not have the application's code."""
    talk = Talk()
    await talk.talk(4)
    context = await read_context(talk, {}, "t", "t", talk.answers[-1])
    assert shown(context) == given(talk.requests[-1])
    assert context.recorded
    assert context.parts[0].name == "instructions and tools"
    assert context.parts[0].tokens > 800
    assert sum(part.tokens for part in context.parts) == 1_001
    assert "agent is not known" in context.notes[0]


async def test_without_agent_and_record_messages_are_those_of_a_usual_policy() -> None:
    """The little that can be told is told, as what it is."""
    talk = Talk()
    await talk.talk(4)
    older = await talk.copy(list(map(without_given, await talk.stored())))
    context = await read_context(older, {}, "t", "t", talk.answers[-1])
    assert shown(context) == given(talk.requests[-1])
    assert not context.recorded
    assert len(context.notes) == 3


async def test_instructions_that_changed_since_are_told() -> None:
    """Else the page shows words that the model never had."""
    talk = Talk()
    await talk.say("hello")
    changed = Agent(name="a", model=ScriptedModel(["so"]), instructions="Be brief.", tools=[look_up])
    context = await talk.context(1, changed)
    assert (context.instructions_changed, context.model) == (True, "Talk")
    assert texts(context, "instructions") == ["Be brief."]
    assert any("have changed since" in note for note in context.notes)


async def test_tools_that_changed_since_are_told() -> None:
    """What a tool says of itself is a part of the prompt."""
    talk = Talk()
    await talk.say("hello")
    assert (await talk.context(1, Agent(name="a", model=talk, instructions="Be kind."))).instructions_changed


async def test_a_function_for_instructions_is_not_called() -> None:
    """It is the application's, made for a step, and may cost or change something."""
    called: list[str] = []

    def instructions(who: InstructionsContext) -> str:
        called.append(who.session_id)
        return "For today."

    talk = Talk(instructions=instructions)
    await talk.say("hello")
    context = await talk.context(1)
    assert called == ["t"]
    assert (texts(context, "instructions"), context.instructions_changed) == ([""], None)
    assert any("made by a function" in note for note in context.notes)
    assert sum(part.tokens for part in context.parts) == 1_001


async def test_pinned_instructions_are_those_of_the_session() -> None:
    """Whatever the agent says by now."""
    talk = Talk()
    await talk.say("hello")
    stored = await talk.stored()
    pinned = await talk.copy(stored)
    record = parse_record((await pinned.threads.read_facts("t")).slice)
    record = record.model_copy(update={"instructions": "Be kind."})
    await pinned.threads.save_slice("t", 5, encode_record(record), 1)
    changed = Agent(name="a", model=talk, instructions="Be brief.", tools=[look_up])
    context = await read_context(pinned, {"a": changed}, "t", "t", 1)
    assert texts(context, "instructions") == ["Be kind."]
    assert context.instructions_changed is False


async def test_an_answer_that_was_copied_to_another_place_is_not_believed() -> None:
    """Its positions are those of the thread from which it came."""
    talk = Talk()
    await talk.talk(2)
    stored = await talk.stored()
    first = encode_message(Message(id="before", role="user", content="before"))
    copy = await talk.copy([first, *stored])
    context = await read_context(copy, {"a": talk.agent}, "t", "t", talk.answers[-1] + 1)
    assert not context.recorded
    assert shown(context)[0] == ("user", "before")
    assert any("copied" in note for note in context.notes)


async def test_one_damaged_message_is_told_at_its_place() -> None:
    """The rest of what the model was given is there."""
    talk = Talk()
    await talk.talk(2)
    stored = await talk.stored()
    stored[1] = stored[1]._replace(body=b"{ no message")
    context = await read_context(await talk.copy(stored), {"a": talk.agent}, "t", "t", talk.answers[-1])
    assert shown(context)[1] == ("assistant", "")
    assert shown(context)[0] == given(talk.requests[-1])[0]
    assert "The message at position 1 is damaged." in context.notes


async def test_results_that_a_model_got_elsewhere_are_shown_as_it_got_them() -> None:
    """A call without a result gets one in its place, which is in no thread."""
    talk = Talk()
    await talk.threads.open(OpenThread("t", 5, "o"))
    broken = (
        Message(id="b1", role="user", content="look"),
        Message(id="b2", role="assistant", tool_calls=(ToolCall(id="c", name="look_up"),)),
    )
    appended = await talk.threads.append(
        StepAppend("t", 5, EMPTY, tuple(map(encode_message, broken)), commits=True)
    )
    talk.head = appended.head
    talk.answers.append(1)
    await talk.say("well?")
    context = await talk.context(talk.answers[-1])
    assert shown(context) == given(talk.requests[-1])
    assert [part.position for part in context.parts][-4:] == [0, 1, None, 2]
    assert any(note.startswith("1 results") for note in context.notes)


async def test_a_long_text_is_cut_and_the_oldest_of_many_messages_are_one_part() -> None:
    """A page stays small, and its sums stay right."""
    talk = Talk(context=ContextPolicy(max_messages=2_000, max_bytes=1024 * 1024))
    await talk.threads.open(OpenThread("t", 5, "o"))
    old = [
        Message(id=f"o{at}", role="assistant" if at % 2 else "user", content="x" * 2_500 if at > 990 else "y")
        for at in range(1_000)
    ]
    appended = await talk.threads.append(
        StepAppend("t", 5, EMPTY, tuple(map(encode_message, old)), commits=True)
    )
    talk.head, talk.answers = appended.head, [1]
    await talk.say("hello")
    context = await talk.context(talk.answers[-1])
    folded = context.parts[2]
    assert len(context.parts) == MOST_PARTS
    assert (folded.text, folded.position) == ("604 older messages", 0)
    assert (len(context.parts[-2].text), context.parts[-2].cut) == (SHOWN_CHARACTERS, 500)
    assert sum(part.tokens for part in context.parts) == 1_001


@pytest.mark.parametrize(
    ("position", "error"), [(0, InvalidRequestError), (2, NotFoundError), (99, NotFoundError)]
)
async def test_only_a_models_answer_has_a_context(position: int, error: type[Exception]) -> None:
    """A position from a link that was cut, or that somebody typed."""
    talk = Talk()
    await talk.say("hello")
    with pytest.raises(error, match="answer expected"):
        await talk.context(position)


async def test_a_thread_that_is_gone_is_told_as_that() -> None:
    """It was deleted while its page was open."""
    talk = Talk()
    with pytest.raises(ThreadNotFoundError):
        await talk.context(0)


async def test_nothing_is_written() -> None:
    """Whoever looks changes nothing."""
    talk = Talk(compaction=Compaction(at_messages=6, keep_turns=1))
    await talk.talk(6)
    before = (await talk.threads.read_facts("t"), await talk.stored())
    await talk.contexts()
    assert (await talk.threads.read_facts("t"), await talk.stored()) == before


@pytest.mark.parametrize(
    ("total", "weights", "shares"),
    [
        (10, [1, 1, 1], [4, 3, 3]),
        (0, [3, 4], [0, 0]),
        (7, [0, 0], [4, 3]),
        (5, [], []),
        (100, [1, 999], [0, 100]),
        (1_000_003, [1, 2, 3], [166_667, 333_334, 500_002]),
    ],
)
def test_shares_add_up_exactly(total: int, weights: list[int], shares: list[int]) -> None:
    """By the largest remainder, whatever the numbers."""
    assert split_proportionally(total, weights) == shares


def test_what_is_not_known_never_takes_from_what_is() -> None:
    """Estimates above the provider's count are scaled; then nothing is left for the unknown."""
    known = Draft(ContextPart(kind="message", tokens=80))
    unknown = Draft(ContextPart(kind="instructions"), is_known=False)
    assert [part.tokens for part in apportion_tokens([unknown, known], 100)] == [20, 80]
    assert [part.tokens for part in apportion_tokens([unknown, known], 40)] == [0, 40]
