"""What an agent's tools, hooks and instructions get and do in a session of the façade, without a workflow."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from helix_temporal.agents import (
    Agent,
    InstructionsContext,
    Model,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
    ToolContext,
    ToolOutcome,
    tool,
)
from helix_temporal.errors import (
    AgentMismatchError,
    ApplicationCodeError,
    InvalidRequestError,
    StoreUnavailableError,
)
from helix_temporal.facade import Session, create_session, fork_session, resume_session
from helix_temporal.facade.documents import FileSessionStorage
from helix_temporal.models.facade import ErrorEvent, ResultEvent, SessionEvent, TextEvent
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import CallPolicy
from helix_temporal.models.states import SessionProperties
from helix_temporal.stores.memory.storage import MemorySessionStorage
from helix_temporal.stores.protocols.storage import SessionStorage


def calls(name: str, **arguments: str) -> Callable[[ModelRequest], ModelResponse]:
    """A script that calls a tool once a turn, and then repeats what it says."""

    def answer(request: ModelRequest) -> ModelResponse:
        last = request.messages[-1]
        if last.role != "user":
            return ModelResponse(content=last.text)
        asked = ToolCall(id=f"c-{last.id}", name=name, arguments=dict(arguments))
        return ModelResponse(tool_calls=(asked,))

    return answer


async def ask(session: Session, text: str) -> SessionEvent:
    """The last event."""
    await session.send(text)
    return [event async for event in session.receive()][-1]


@tool
def choose(plan: str) -> ToolOutcome:
    """Choose a plan."""
    return ToolOutcome(f"{plan} it is", state={"plan": plan, plan: True})


@pytest.fixture(params=["memory", "file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> SessionStorage:
    """One in memory, and one on disk."""
    return MemorySessionStorage() if request.param == "memory" else FileSessionStorage(tmp_path / "sessions")


def sales(plan: str) -> Agent:
    return Agent(name="sales", model=ScriptedModel(calls("choose", plan=plan)), tools=[choose])


async def test_tools_change_the_state_of_a_session(storage: SessionStorage) -> None:
    """As they do in a session workflow; another process finds it, and a fork begins with it."""
    session = await create_session(sales("small"), storage=storage)
    assert await session.get_state() == {}
    await ask(session, "the small one")
    assert await session.get_state() == {"plan": "small", "small": True}
    await session.close()
    again = await resume_session(session.id, sales("large"), storage=storage)
    await ask(again, "no, the large one")
    assert await again.get_state() == {"plan": "large", "small": True, "large": True}
    fork = await fork_session(session.id, sales("none"), storage=storage)
    assert await fork.get_state() == await again.get_state()


async def test_a_session_in_use_does_not_change_its_agent() -> None:
    """The other agent was dropped without a word."""
    storage = MemorySessionStorage()
    session = await create_session(sales("small"), storage=storage)
    other = Agent(name="support", model=ScriptedModel(["no"]))
    with pytest.raises(AgentMismatchError, match="open here with agent 'sales', not with 'support'"):
        await resume_session(session.id, other, storage=storage)
    assert await resume_session(session.id, sales("large"), storage=storage) is session
    await session.close()
    again = await resume_session(session.id, other, storage=storage)
    assert getattr(await ask(again, "hi"), "text", None) == "no"


async def test_a_turn_that_fails_changes_no_state() -> None:
    """Its messages do not count either."""

    def answer(request: ModelRequest) -> ModelResponse:
        if request.messages[-1].role == "user":
            return calls("choose", plan="small")(request)
        raise InvalidRequestError("the provider refuses")

    agent = Agent(name="sales", model=ScriptedModel(answer), tools=[choose])
    session = await create_session(agent, storage=MemorySessionStorage())
    assert isinstance(await ask(session, "the small one"), ErrorEvent)
    assert await session.get_state() == {}


async def test_a_tool_takes_the_steps_of_its_turn_back() -> None:
    """`ToolOutcome.rewind`: the model is asked again, and what tools of these steps changed is gone."""
    tried: list[str] = []

    @tool
    def book(seat: str) -> ToolOutcome:
        """Book a seat."""
        tried.append(seat)
        return ToolOutcome(f"{seat} booked", rewind=len(tried) == 1, state={f"try-{len(tried)}": seat})

    agent = Agent(name="cinema", model=ScriptedModel(calls("book", seat="A1")), tools=[book])
    session = await create_session(agent, storage=MemorySessionStorage())
    await ask(session, "a seat")
    assert tried == ["A1", "A1"]
    assert await session.get_state() == {"try-2": "A1"}
    assert [message.role for message in await session.get_messages()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_a_turn_that_ends_without_an_answer_has_none() -> None:
    """The result of a tool is no answer; a session workflow gives none either."""
    model = ScriptedModel(calls("choose", plan="small"))
    agent = Agent(name="sales", model=model, tools=[choose], max_steps=1)
    session = await create_session(agent, storage=MemorySessionStorage())
    assert await ask(session, "the small one") == ResultEvent(text=None)
    assert (await session.get_messages())[-1].text == "small it is"


class Flaky:
    """Raises an error at each attempt, and counts them as it is told of them."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.attempts: list[int] = []

    def run(self, context: ToolContext) -> str:
        """Fail."""
        self.attempts.append(context.attempt)
        raise self.error


async def told_of(flaky: Flaky, **limits: Any) -> str:
    """What the model is told of a tool that fails."""
    made = tool(name="flaky", **limits)(flaky.run)
    agent = Agent(name="a", model=ScriptedModel(calls("flaky")), tools=[made])
    ended = await ask(await create_session(agent, storage=MemorySessionStorage()), "go")
    assert isinstance(ended, ResultEvent)
    assert ended.text is not None
    return ended.text


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (KeyError("colour"), [1, 2, 3]),
        (OSError("reset"), [1, 2, 3, 4]),
        (StoreUnavailableError("away"), [1, 2, 3, 4]),
        (ApplicationCodeError("broken", attempts=2), [1, 2]),
        (InvalidRequestError("no"), [1]),
    ],
)
async def test_a_tool_that_fails_is_tried_as_often_as_by_a_worker(
    error: Exception, attempts: list[int]
) -> None:
    """A bug three times, what may pass as often as the tool says, what is permanent once."""
    flaky = Flaky(error)
    assert str(error) in await told_of(flaky, attempts=4)
    assert flaky.attempts == attempts


async def test_a_tool_is_not_tried_again_after_its_deadline() -> None:
    """Nobody waits for an attempt that may not begin."""
    flaky = Flaky(OSError("reset"))
    assert (await told_of(flaky, attempts=4, deadline=0.1)).endswith("OSError: reset")
    assert flaky.attempts == [1]


async def test_a_deadline_ends_the_attempt_that_runs() -> None:
    """It was ignored, and the turn waited."""
    attempts: list[int] = []

    @tool(attempts=4, deadline=2.5)
    async def slow(context: ToolContext) -> str:
        """Fail, then take for ever."""
        attempts.append(context.attempt)
        if context.attempt == 1:
            raise OSError("reset")
        await asyncio.Event().wait()
        return ""

    agent = Agent(name="a", model=ScriptedModel(calls("slow")), tools=[slow])
    ended = await ask(await create_session(agent, storage=MemorySessionStorage()), "go")
    assert isinstance(ended, ResultEvent)
    told = "tool 'slow': no result within 2.5 s, with all attempts; before: tool 'slow': OSError: reset"
    assert ended.text == f"The tool failed: {told}"
    assert attempts == [1, 2]


async def test_a_time_out_ends_an_attempt() -> None:
    """Another one follows, unless it was the last."""
    attempts: list[int] = []

    @tool(attempts=2, timeout=0.1)
    async def slow(context: ToolContext) -> str:
        """Take for ever."""
        attempts.append(context.attempt)
        await asyncio.Event().wait()
        return ""

    agent = Agent(name="a", model=ScriptedModel(calls("slow")), tools=[slow])
    ended = await ask(await create_session(agent, storage=MemorySessionStorage()), "go")
    assert isinstance(ended, ResultEvent)
    assert ended.text == "The tool failed: tool 'slow': no result within 0.1 s"
    assert attempts == [1, 2]


async def test_a_tool_without_a_time_out_has_that_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had none, and a tool that hangs held its turn for ever."""
    monkeypatch.setattr("helix_temporal.facade.local_turns._POLICY", CallPolicy(tool_start_to_close=0.1))

    @tool(attempts=1)
    async def hang() -> str:
        """Take for ever."""
        await asyncio.Event().wait()
        return ""

    agent = Agent(name="a", model=ScriptedModel(calls("hang")), tools=[hang])
    async with asyncio.timeout(5):
        ended = await ask(await create_session(agent, storage=MemorySessionStorage()), "go")
    assert ended == ResultEvent(text="The tool failed: tool 'hang': no result within 0.1 s")


class Failing:
    """A model that raises errors, one a call, and then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.calls = list(errors), 0

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Fail, or answer."""
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return ModelResponse(content="there")


async def asked(model: Model, text: str = "go") -> list[SessionEvent]:
    """All that happens in a first turn."""
    session = await create_session(Agent(name="a", model=model), storage=MemorySessionStorage())
    await session.send(text)
    return [event async for event in session.receive()]


@pytest.mark.parametrize(
    "error", [OSError("reset"), StoreUnavailableError("busy"), RuntimeError("odd"), KeyError("colour")]
)
async def test_a_model_is_asked_again_after_an_error_that_may_pass(error: Exception) -> None:
    """As by a worker; the turn was lost. Its answer is told once."""
    model = Failing(error)
    events = await asked(model)
    assert events[-1] == ResultEvent(text="there")
    assert [each.text for each in events if isinstance(each, TextEvent)] == ["there"]
    assert model.calls == 2


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (KeyError("colour"), 3),
        (InvalidRequestError("no"), 1),
        (ApplicationCodeError("broken", attempts=2), 2),
        (StoreUnavailableError("busy", retry_for_ms=150), 2),
        (ApplicationError("refused", non_retryable=True), 1),
    ],
)
async def test_a_model_is_not_asked_for_ever(error: Exception, attempts: int) -> None:
    """A bug fails the turn at the third attempt, a permanent error at once; both under their own names."""
    model = Failing(*[error] * 9)
    (*_, ended) = await asked(model)
    assert isinstance(ended, ErrorEvent)
    assert ended.error_type == type(error).__name__
    assert model.calls == attempts


async def test_a_model_that_hangs_ends_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt has the time that it has on a worker, and so have all of them together."""
    policy = CallPolicy(model_start_to_close=0.1, model_schedule_to_close=0.5)
    monkeypatch.setattr("helix_temporal.facade.local_turns._POLICY", policy)

    class Hanging:
        async def generate(self, request: ModelRequest) -> ModelResponse:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    async with asyncio.timeout(5):
        (*_, ended) = await asked(Hanging())
    assert ended == ErrorEvent(
        error_type="TimeoutError", message="TimeoutError: model of agent 'a': no answer within 0.1 s"
    )


async def test_metadata_reach_tools_and_instructions() -> None:
    """They are texts there, as in a session workflow; anything else of them is kept all the same."""
    seen: list[object] = []

    @tool
    def look(context: ToolContext) -> str:
        """Look at the session."""
        seen.append(context.metadata)
        return "seen"

    def instructions(context: InstructionsContext) -> str:
        seen.append(context.metadata)
        return "Be brief."

    agent = Agent(name="guide", model=ScriptedModel(calls("look")), tools=[look], instructions=instructions)
    session = await create_session(
        agent, storage=MemorySessionStorage(), metadata={"tenant": "acme", "size": 3}
    )
    await ask(session, "hello")
    assert seen == [{"tenant": "acme"}] * 3


async def test_metadata_of_a_session_that_is_there_are_refused() -> None:
    """They were dropped without a word."""
    storage = MemorySessionStorage()
    session = await create_session(sales("small"), storage=storage)
    with pytest.raises(InvalidRequestError, match="metadata is for a new session"):
        await create_session(sales("small"), storage=storage, resume=session.id, metadata={"a": "b"})
    with pytest.raises(InvalidRequestError, match="metadata is for a new session"):
        await create_session(sales("small"), storage=storage, fork=session.id, metadata={"a": "b"})


async def test_a_fork_takes_properties() -> None:
    """Given to `create_session` with ``fork`` they were dropped."""
    storage = MemorySessionStorage()
    session = await create_session(sales("small"), storage=storage, properties=SessionProperties(user_id="u"))
    fork = await create_session(
        sales("small"), storage=storage, fork=session.id, properties=SessionProperties(tags=("new",))
    )
    found = await storage.load(fork.id)
    assert found is not None
    assert (found.properties.user_id, found.properties.tags) == ("u", ("new",))
