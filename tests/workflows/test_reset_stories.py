"""Stories of sessions, each reset to every point of its history: what was told stays, and is paid for once.

Here some points of each; all of them with ``pytest -m campaign tests/workflows/test_reset_stories.py``.
"""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import CancelledError

from helix_temporal.agents import ModelRequest, ModelResponse, ToolContext, ToolOutcome
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import AskResult, AskStatus
from tests.workflows._desk import Answer, Gate
from tests.workflows.conftest import Crew, Stand
from tests.workflows.test_inbox import until_waiting
from tests.workflows.test_reset import reset

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

SOME = 4
LONG = "." * 10_000
KNOWN = 95
"""Plain turns whose messages a session knows for certain: the newest 200 messages have their ids."""
Point = tuple[str, int]


@dataclass
class Told:
    """What users of one session were told, and what its tools did.

    Attributes:
        cost: Model calls of one plain turn.
        answers: The answer that each message got, by its id; it stays the same for ever.
        effects: Keys under which a tool has done something, by what it did.
        gate: Holds the next plain answer.
    """

    stand: Stand
    sid: str
    agent: str = "main"
    cost: int = 1
    options: dict[str, object] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    effects: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    gate: Gate | None = None

    def __post_init__(self) -> None:
        self.stand.desk.scripts[self.sid] = self._answer
        self.stand.desk.acts[self.sid] = self._act

    async def ask(self, text: str, message_id: str | None = None) -> AskResult:
        """Ask, under the same id whenever the text is the same."""
        name = message_id or f"m-{text[:20]}"
        client = self.stand.client(**self.options)
        result = await client.ask(self.sid, text, agent=self.agent, message_id=name, timeout=100)
        if result.status is not AskStatus.SUSPENDED:
            self.heard(name, result)
        return result

    def heard(self, name: str, result: AskResult) -> None:
        """A message was answered."""
        assert (name, result.status) == (name, AskStatus.ANSWERED)
        assert result.answer is not None
        assert self.answers.setdefault(name, result.answer.id) == result.answer.id

    @property
    def paid(self) -> int:
        """Model calls up to now, of sub-agents, too."""
        if isinstance(self.stand, Crew):
            heard = self.stand.team.heard
            return sum(len(heard[each]) for each in [*heard] if each.split(">")[0] == self.sid)
        return len(self.stand.desk.requests[self.sid])

    async def _answer(self, request: ModelRequest) -> Answer:
        """``tool x`` has tools do x at once, ``tools x`` in two steps and at length; else an answer."""
        answers = [each.role for each in request.messages]
        steps = answers[::-1].index("user")
        word, _, what = request.messages[len(answers) - 1 - steps].text.partition(" ")
        steps = answers[len(answers) - steps :].count("assistant")
        if word == "tool" and steps == 0:
            return _calls("act", f"{what}-a", f"{what}-b")
        if word == "tools" and steps < 2:
            return _calls("act", f"{what}-{steps}", padding=LONG)
        if word == "locate" and steps == 0:
            return _calls("locate", what)
        gate, self.gate = self.gate, None
        if gate is not None:
            await gate.passing()
        return f"{len(answers)}: {uuid.uuid4().hex[:6]}"

    async def _act(self, what: str, context: ToolContext) -> ToolOutcome:
        """Each time it comes to something else, which it leaves in the state, too."""
        name, came_to = what.strip("."), uuid.uuid4().hex[:6]
        self.effects[name].add(context.key)
        return ToolOutcome(f"{came_to} {what}", state={name: came_to})


def _calls(name: str, *actions: str, **others: Any) -> ModelResponse:
    return ModelResponse(
        tool_calls=tuple(
            ToolCall(id=f"call_{at}", name=name, arguments={"what": what, **others})
            for at, what in enumerate(actions)
        )
    )


# ---- the stories --------------------------------------------------------------------------------------


async def plain(told: Told) -> None:
    """Turns, some of whose messages are sent again."""
    for text in ("one", "two", "one", "three", "two"):
        await told.ask(text)


async def met(told: Told) -> None:
    """Messages that come during a turn are answered in one turn, which has tools; and again."""
    for round_ in ("1", "2"):
        told.gate = gate = Gate()
        asks = [asyncio.create_task(told.ask(f"first {round_}"))]
        await gate.reached.wait()
        for number, text in enumerate((f"a {round_}", f"{LONG} {round_}", f"tool {round_}"), 1):
            asks.append(asyncio.create_task(told.ask(text, f"m-{round_}-{number}")))
            await until_waiting(told.stand.sessions, told.sid, number)
        gate.opened.set()
        await asyncio.gather(*asks)
        await told.ask(f"later {round_}")


async def tools(told: Told) -> None:
    """Turns of several steps, with large results and large arguments."""
    for text in ("tool x", "tools y", "plain", "tools z"):
        await told.ask(text)


async def long_ones(told: Told) -> None:
    """Messages by reference, with tools."""
    for text in (f"1{LONG}", f"tool 2{LONG[:9_000]}", f"3{LONG}"):
        await told.ask(text, f"m-{text[:6]}")


async def people(told: Told) -> None:
    """A turn that waits for somebody; messages come meanwhile, and meet."""
    await told.ask("one")
    waits = await told.ask("locate me")
    asks = []
    for number, text in enumerate(("a", "b"), 1):
        asks.append(asyncio.create_task(told.ask(text)))
        await until_waiting(told.stand.sessions, told.sid, number)
    await told.stand.sessions.session(told.sid).submit_tool_result(
        waits.pending[0], "Bonn", wait=True, timeout=60
    )
    await asyncio.gather(*asks)
    await told.ask("locate me")
    await told.ask("two")


async def moved(told: Told) -> None:
    """Continued as new after each second turn."""
    for text in ("one", "tool 1", "two", "three", "tools 2", "four"):
        await told.ask(text)


async def taken_back(told: Told) -> None:
    """Turns go, and are asked anew."""
    for text in ("one", "tool 1", "two"):
        await told.ask(text)
    await told.stand.sessions.session(told.sid).rewind_to_turn(1, operation_id="op-1")
    del told.answers["m-tool 1"], told.answers["m-two"]
    await told.ask("three")
    await told.stand.sessions.session(told.sid).regenerate(operation_id="op-2")
    del told.answers["m-three"]
    await told.ask("tool 4")


async def sub_agents(told: Told) -> None:
    """Each turn calls a sub-agent."""
    for text in ("one", "two", "three"):
        await told.ask(text)


# ---- every point --------------------------------------------------------------------------------------


async def points(told: Told) -> list[Point]:
    """Runs of the session's execution, and events to which they may be reset."""
    found: list[Point] = []
    run_id = (await told.stand.handle(told.sid).describe()).run_id
    while run_id:
        events = await told.stand.events(told.sid, run_id)
        found = [
            *(
                (run_id, each.event_id)
                for each in events
                if each.HasField("workflow_task_completed_event_attributes")
            ),
            *found,
        ]
        run_id = events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    return found


async def check_points(told: Told, wanted: list[Point]) -> None:
    """Reset to each, each time from the history of the story itself; the session serves on."""
    before, paid = await told.stand.messages(told.sid), told.paid
    for number, (run_id, event_id) in enumerate(wanted):
        await reset(told.stand, told.sid, event_id, run_id)
        if number % 3 == 1:
            # Twice, the second time before the first has found its way.
            await reset(told.stand, told.sid, event_id, run_id)
        await told.ask(f"after {number}")
        after = await told.stand.messages(told.sid)
        assert after[: len(before)] == before, (run_id, event_id)
        paid += told.cost
        assert told.paid == paid, (run_id, event_id)
        before = after
    assert {what: len(keys) for what, keys in told.effects.items() if len(keys) > 1} == {}
    for name in [*told.answers][-KNOWN:]:
        await told.ask("again", name)
    assert told.paid == paid
    await check_state(told)
    await check_cancelled(told, *wanted[len(wanted) // 2])


async def check_state(told: Told) -> None:
    """The state has of each tool what its newest result in the thread says."""
    results = [each.text for each in await told.stand.messages(told.sid) if each.role == "tool"]
    acts = [text.split(" ", 1) for text in results if text[:6].isalnum() and text[6:7] == " "]
    state = await told.stand.sessions.session(told.sid).get_state()
    assert state is not None
    assert state.custom_state == {what.strip("."): came_to for came_to, what in acts}


async def check_cancelled(told: Told, run_id: str, event_id: int) -> None:
    """Cancelled while it finds its way: the next execution goes on with all that was there."""
    before, paid = await told.stand.messages(told.sid), told.paid
    await reset(told.stand, told.sid, event_id, run_id)
    await asyncio.sleep(0.5)
    # The branch, or the run as which it went on: a cancel of one that has ended does nothing.
    handle = told.stand.handle(told.sid)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as ended:
        await handle.result()
    assert isinstance(ended.value.cause, CancelledError)
    await told.ask("at last")
    assert (await told.stand.messages(told.sid))[: len(before)] == before
    assert told.paid == paid + told.cost
    await check_state(told)
    audit = await told.stand.served.plugin.backends.tiered.upkeep.audit(told.sid)
    assert audit.problems == ()


STORIES: dict[str, tuple[Callable[[Told], Awaitable[None]], dict[str, Any]]] = {
    "plain": (plain, {}),
    "met": (met, {}),
    "tools": (tools, {}),
    "long": (long_ones, {}),
    "people": (people, {"agent": "people"}),
    "moved": (moved, {"options": {"max_turns_per_run": 2}}),
    "taken_back": (taken_back, {}),
}


async def play(told: Told, name: str, *, every: bool) -> None:
    """The story, then some points of it, or all."""
    await STORIES[name][0](told)
    found = await points(told)
    step = 1 if every else max(len(found) // SOME, 1)
    await check_points(told, found[::step])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", STORIES)
async def test_a_story_is_reset_to_some_points(stand: Stand, sid: str, name: str) -> None:
    """Nothing told is lost, nothing that stands is paid again, no tool works under two keys."""
    await play(Told(stand, sid, **STORIES[name][1]), name, every=False)


@pytest.mark.timeout(300)
async def test_sub_agents_are_reset_to_some_points(crew: Crew, sid: str) -> None:
    """The same where tools are sub-agents."""
    told = Told(crew, sid, agent="new", cost=3)
    await sub_agents(told)
    found = await points(told)
    await check_points(told, found[:: max(len(found) // SOME, 1)])


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", STORIES)
async def test_a_story_is_reset_to_every_point(stand: Stand, sid: str, name: str) -> None:
    """The same, everywhere."""
    await play(Told(stand, sid, **STORIES[name][1]), name, every=True)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
async def test_sub_agents_are_reset_to_every_point(crew: Crew, sid: str) -> None:
    """The same where tools are sub-agents."""
    told = Told(crew, sid, agent="new", cost=3)
    await sub_agents(told)
    await check_points(told, await points(told))


@pytest.mark.campaign
@pytest.mark.timeout(3600)
async def test_hundreds_of_turns_are_found_again(stand: Stand, sid: str) -> None:
    """All their messages are applied again at once."""
    told = Told(stand, sid)
    for number in range(200):
        await told.ask(f"{number}")
    found = await points(told)
    await check_points(told, [found[0], found[1], found[len(found) // 2]])
