"""What a step tells of its model's context: where it is kept, what it costs, and where it must not go."""

from collections.abc import Sequence
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities import Payloads, Stepper, ThreadActivities
from helix_temporal.agents import Agent, AgentRegistry, Compaction, ScriptedModel, tool
from helix_temporal.coldtier.zeitlich_format import RowWriter
from helix_temporal.models.foreign_rows.zeitlich import extras_of
from helix_temporal.models.messages import (
    GivenContext,
    GivenSummary,
    Message,
    decode_message,
    encode_message,
)
from helix_temporal.models.steps import RunStepInput, StepInput
from helix_temporal.models.stored_messages import EMPTY, StoredMessage
from helix_temporal.models.threads import ForkThreadInput
from helix_temporal.session.record import Summary, encode_record, parse_record
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage
from helix_temporal.stores.threads.hot_only import HotThreads

TOLD = GivenContext(
    first=4, stop=9, summary=GivenSummary(upto=4, text="They met."), prompt="0123456789abcdef"
)


class Place:
    """A thread, and a stepper whose agent answers by script."""

    def __init__(self, **options: Any) -> None:
        self.threads = HotThreads(MemoryThreads())
        self.agent = Agent(**{"name": "a", "model": ScriptedModel(lambda _: "so"), **options})
        self.stepper = Stepper(self.threads, AgentRegistry([self.agent]), Payloads(MemoryPayloads()))
        self.head = EMPTY

    async def say(self, *texts: str) -> None:
        """A turn for each text."""
        if self.head == EMPTY:
            await self.threads.open(OpenThread("t", 5, "o"))
        for text in texts:
            inputs = (StepInput(id=f"m{self.head.position}", text=text),)
            step = RunStepInput(session_id="t", agent="a", epoch=5, head=self.head, inputs=inputs)
            self.head = (await self.stepper.run(step)).head

    async def messages(self, thread_id: str = "t") -> list[Message]:
        """All of a thread."""
        page = await self.threads.read(ReadPage(thread_id, committed_only=False))
        return [decode_message(each) for each in page.messages]

    async def told(self) -> list[GivenContext]:
        """What the answers tell, in order."""
        return [each.given for each in await self.messages() if each.given is not None]

    async def summary(self) -> Summary | None:
        """The record's."""
        return parse_record((await self.threads.read_facts("t")).slice).summary


async def test_an_answer_tells_where_its_context_began_and_ended() -> None:
    """Nobody has to guess it from an agent that has changed since."""
    place = Place(instructions="Be kind.")
    await place.say("one", "two")
    prompt = place.agent.digest_prompt("Be kind.")
    told = GivenContext(prompt=prompt, model="ScriptedModel")
    assert await place.told() == [told.model_copy(update={"stop": stop}) for stop in (1, 3)]
    assert [each.given for each in await place.messages() if each.role == "user"] == [None, None]


async def test_it_costs_an_answer_less_than_a_hundred_bytes() -> None:
    """Threads are long, and each step has it."""
    place = Place(instructions="Be kind.")
    await place.say("one", "two")
    answer = (await place.messages())[-1]
    without = answer.model_copy(update={"given": None})
    assert 0 < len(encode_message(answer).body) - len(encode_message(without).body) < 100


async def test_a_summary_is_kept_once_and_named_after_that() -> None:
    """Its text may have 16 KiB."""
    compaction = Compaction(at_messages=6, keep_turns=1, model=ScriptedModel(lambda _: "They met."))
    place = Place(compaction=compaction)
    await place.say("one", "two", "three", "four", "five")
    summaries = [each.summary for each in await place.told()]
    assert summaries[3:] == [GivenSummary(upto=4, text="They met."), GivenSummary(upto=4, at=7)]
    kept = await place.summary()
    assert kept is not None
    assert kept.kept == 7


async def test_a_summary_of_an_earlier_version_is_kept_with_the_next_answer() -> None:
    """A record that knows no place where the text is kept."""
    place = Place(compaction=Compaction(at_messages=100))
    await place.say("one")
    facts = await place.threads.read_facts("t")
    summary = Summary(text="They met.", upto=place.head)
    record = parse_record(facts.slice).model_copy(update={"summary": summary})
    await place.threads.save_slice("t", 5, encode_record(record), facts.slice_version)
    await place.say("two", "three")
    summaries = [each.summary for each in await place.told()]
    assert summaries[1:] == [GivenSummary(upto=2, text="They met."), GivenSummary(upto=2, at=3)]


async def test_messages_that_are_changed_on_the_way_lose_it() -> None:
    """A transform that takes a name out of a thread takes it out of the summary as well."""
    place = Place(
        compaction=Compaction(at_messages=2, keep_turns=1, model=ScriptedModel(lambda _: "Eva met."))
    )
    await place.say("I am Eva", "well", "so")

    async def anonymise(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        return list(messages)

    activities = ThreadActivities(place.threads, transforms={"anonymise": anonymise})
    fork = ForkThreadInput(source_id="t", target_id="f", transform="anonymise")
    await ActivityEnvironment().run(activities.fork, fork)
    forked = await place.messages("f")
    assert [each.text for each in forked] == [each.text for each in await place.messages()]
    assert all(each.given is None for each in forked)


async def test_a_copy_keeps_it() -> None:
    """Positions in a fork are those of its source."""
    place = Place()
    await place.say("one", "two")
    await ActivityEnvironment().run(
        ThreadActivities(place.threads).fork, ForkThreadInput(source_id="t", target_id="f")
    )
    assert await place.messages("f") == await place.messages()


@pytest.mark.parametrize("adapter", ["anthropic", "googleGenAI", "langChain"])
def test_archives_of_zeitlich_keep_it(adapter: str) -> None:
    """Among what their rows have no place for."""
    answer = Message(id="m", role="assistant", content="hi", given=TOLD)
    assert extras_of(RowWriter(adapter).write_row(answer))["given"] == TOLD


def test_a_message_without_it_has_the_bytes_that_it_had() -> None:
    """Messages of other systems and of users, and all that earlier versions wrote, are as they were."""
    assert encode_message(Message(id="m", role="assistant", content="hi")).body == (
        b'{"content":"hi","role":"assistant"}'
    )


def test_a_reader_of_an_earlier_version_is_not_disturbed() -> None:
    """During a roll-out both read one thread; what a later one adds is not in the way either."""
    stored = encode_message(Message(id="m", role="assistant", content="hi", given=TOLD))
    assert decode_message(stored).given == TOLD
    later = stored._replace(body=stored.body.replace(b'"first":4', b'"first":4,"later":true'))
    assert decode_message(later).given == TOLD


@tool
def look(order: str) -> str:
    """Look."""
    return order


def test_a_digest_stands_for_instructions_and_tools() -> None:
    """The same ones have the same digest in each process; any other ones another."""
    plain = Agent(name="a", model=ScriptedModel(["x"]))
    able = Agent(name="b", model=ScriptedModel(["x"]), tools=[look])
    digests = [each.digest_prompt(text) for each in (plain, able) for text in ("", "Be kind.", "Be kind")]
    assert len(set(digests)) == 6
    assert {len(each) for each in digests} == {16}
    assert plain.digest_prompt("Be kind.") == "3099cddce58a0923"
