"""Sessions of the façade that a session workflow runs."""

from collections.abc import AsyncIterator

import pytest

from helix_temporal.agents import (
    Agent,
    Hooks,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
    ToolContext,
    ToolOutcome,
    tool,
)
from helix_temporal.errors import InvalidRequestError, SessionNotFoundError
from helix_temporal.facade import Session, create_session, delete_session, fork_session, resume_session
from helix_temporal.models.agents import UserMessageDecision
from helix_temporal.models.facade import ErrorEvent, ResultEvent, SessionEvent
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.states import SessionProperties
from helix_temporal.stores.memory.storage import MemorySessionStorage
from helix_temporal.testing import HelixEnv, helix_env


@tool
def choose(plan: str, context: ToolContext) -> ToolOutcome:
    """Choose a plan."""
    return ToolOutcome(f"{plan} for {context.metadata.get('tenant')}", state={"plan": plan})


def answer(request: ModelRequest) -> ModelResponse:
    last = request.messages[-1]
    if last.role == "tool":
        return ModelResponse(content=last.text)
    call = ToolCall(id=f"c-{last.id}", name="choose", arguments={"plan": last.text})
    return ModelResponse(tool_calls=(call,))


sales = Agent(name="sales", model=ScriptedModel(answer), tools=[choose])


@pytest.fixture
async def env() -> AsyncIterator[HelixEnv]:
    async with helix_env([sales]) as env:
        yield env


async def ask(session: Session, text: str) -> str:
    """The last message after a turn."""
    await session.send(text)
    _ = [event async for event in session.receive()]
    return (await session.get_messages())[-1].text


async def last_event(session: Session, text: str, message_id: str | None = None) -> SessionEvent:
    """How the turn ended."""
    await session.send(text, message_id=message_id)
    return [event async for event in session.receive()][-1]


async def test_metadata_arrive_at_the_agent(env: HelixEnv) -> None:
    """They were dropped: tools and hooks that look for a tenant found none."""
    session = await create_session(sales, client=env.sessions, metadata={"tenant": "acme"})
    assert await ask(session, "small") == "small for acme"
    state = await env.sessions.session(session.id).get_state()
    assert state is not None
    assert state.metadata["tenant"] == "acme"


async def test_metadata_that_a_workflow_cannot_take_are_refused(env: HelixEnv) -> None:
    """The name and the type are told, not the value."""
    with pytest.raises(InvalidRequestError, match="metadata 'size' is int; a session workflow takes texts"):
        await create_session(sales, client=env.sessions, metadata={"size": 3})


async def test_an_unknown_session_is_not_resumed(env: HelixEnv) -> None:
    """It was begun anew, under an id that may be misspelt."""
    with pytest.raises(SessionNotFoundError, match="'nobody'"):
        await resume_session("nobody", sales, client=env.sessions)
    with pytest.raises(SessionNotFoundError, match="'nobody'"):
        await create_session(sales, client=env.sessions, resume="nobody")
    with pytest.raises(SessionNotFoundError, match="'nobody'"):
        await fork_session("nobody", sales, client=env.sessions)


async def test_a_session_is_resumed_also_after_its_workflow_has_ended(env: HelixEnv) -> None:
    """And one that runs."""
    session = await create_session(sales, client=env.sessions, metadata={"tenant": "acme"})
    await ask(session, "small")
    running = await resume_session(session.id, sales, client=env.sessions)
    assert await running.get_state() == {"plan": "small"}
    await env.sessions.session(session.id).close()
    await env.sessions.session(session.id).result()
    ended = await create_session(sales, client=env.sessions, resume=session.id)
    assert await ask(ended, "large") == "large for acme"
    assert await ended.get_state() == {"plan": "large"}
    fork = await fork_session(session.id, sales, client=env.sessions)
    assert len(await fork.get_messages()) == 8


async def test_an_expired_session_says_so(env: HelixEnv) -> None:
    """As the local one does: by an event of that name."""
    session = await create_session(sales, client=env.sessions)
    await ask(session, "small")
    await env.sessions.session(session.id).close()
    await env.sessions.session(session.id).result()
    await env.sessions.session(session.id).set_properties(SessionProperties(expires_at=1))
    await session.send("large")
    (*_, event) = [event async for event in session.receive()]
    assert isinstance(event, ErrorEvent)
    assert event.error_type == "SessionExpiredError"


async def test_a_message_that_the_hook_refuses_is_told_as_in_a_local_session() -> None:
    """It came as a result without text, and nobody learned why."""
    hooks = Hooks(before_user_message=lambda event: UserMessageDecision(refuse=f"not {event.text!r}"))
    strict = Agent(name="strict", model=ScriptedModel(["Yes."]), hooks=hooks)
    local = await create_session(strict, storage=MemorySessionStorage())
    async with helix_env([strict]) as env:
        session = await create_session(strict, client=env.sessions)
        await session.send("this")
        told = [event async for event in session.receive()]
    assert isinstance(told[-1], ErrorEvent)
    assert "not 'this'" in told[-1].message
    await local.send("this")
    assert [event async for event in local.receive()] == told


async def test_a_turn_ends_as_in_a_local_session() -> None:
    """Without an answer after the last step allowed, and with its own for a message that is sent again."""
    brief = Agent(name="brief", model=ScriptedModel(answer), tools=[choose], max_steps=1)
    local = await create_session(brief, storage=MemorySessionStorage())
    async with helix_env([brief, sales]) as env:
        session = await create_session(brief, client=env.sessions)
        assert await last_event(session, "small") == await last_event(local, "small")
        for each in (
            await create_session(sales, client=env.sessions),
            await create_session(sales, storage=MemorySessionStorage()),
        ):
            await last_event(each, "small", "m1")
            await last_event(each, "large", "m2")
            assert await last_event(each, "small", "m1") == ResultEvent(text="small for None")


async def test_a_storage_beside_a_client_is_refused(env: HelixEnv) -> None:
    """It was ignored: who gave it looked for the session there, and found none."""
    storage = MemorySessionStorage()
    with pytest.raises(InvalidRequestError, match="storage and client are both given"):
        await create_session(sales, client=env.sessions, storage=storage)
    with pytest.raises(InvalidRequestError, match="storage and client are both given"):
        await resume_session("s", sales, client=env.sessions, storage=storage)
    with pytest.raises(InvalidRequestError, match="storage and client are both given"):
        await fork_session("s", sales, client=env.sessions, storage=storage)


async def test_usage_is_not_copied_where_it_cannot_be(env: HelixEnv) -> None:
    """A fork by the workflow counts from nothing, whatever was asked for."""
    with pytest.raises(InvalidRequestError, match="copy_usage"):
        await fork_session("s", sales, client=env.sessions, copy_usage=True)


async def test_a_session_of_a_client_is_deleted_as_the_client_does(env: HelixEnv) -> None:
    """One function for both kinds; what it removed is told the same way."""
    session = await create_session(sales, client=env.sessions)
    await ask(session, "small")
    result = await delete_session(session.id, client=env.sessions)
    assert session.id in result.sessions
    assert result.removed["thread"] == 1
    with pytest.raises(SessionNotFoundError):
        await resume_session(session.id, sales, client=env.sessions)
    with pytest.raises(InvalidRequestError, match="both given"):
        await delete_session(session.id, client=env.sessions, storage=MemorySessionStorage())
