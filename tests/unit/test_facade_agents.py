"""What an agent's tools, hooks and instructions get and do in a session of the façade, without a workflow."""

from collections.abc import Callable
from pathlib import Path

import pytest

from helix_temporal.agents import (
    Agent,
    InstructionsContext,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
    ToolContext,
    ToolOutcome,
    tool,
)
from helix_temporal.errors import InvalidRequestError
from helix_temporal.facade import Session, create_session, fork_session, resume_session
from helix_temporal.models.facade import ErrorEvent, ResultEvent, SessionEvent
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.states import SessionProperties
from helix_temporal.stores.file.storage import FileSessionStorage
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
