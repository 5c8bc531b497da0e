"""What tools change of the state is the same wherever a session runs: here, in a workflow, on its stream."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from jsonpatch import JsonPatch

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, ScriptedModel, ToolOutcome, tool
from helix_temporal.facade import Session, create_session
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.streams import StatePatch
from helix_temporal.stores.memory.storage import MemorySessionStorage
from helix_temporal.testing import HelixEnv, helix_env

CALLS = 12
"""Their numbers do not sort as text does."""


@tool
async def put(number: int, of: int) -> ToolOutcome:
    """Put something into the cart; the last call is the first to end."""
    await asyncio.sleep(0.02 * (of - number))
    return ToolOutcome(f"{number}", state={"cart": [number], "last": number, str(10**19): number})


def answer(request: ModelRequest) -> ModelResponse:
    last = request.messages[-1]
    if last.role == "tool":
        return ModelResponse(content="done")
    of = int(last.text)
    calls = [
        ToolCall(id=f"c-{last.id}-{number}", name="put", arguments={"number": number, "of": of})
        for number in range(of)
    ]
    return ModelResponse(tool_calls=tuple(calls))


shop = Agent(name="shop", model=ScriptedModel(answer), tools=[put])


@pytest.fixture
async def env() -> AsyncIterator[HelixEnv]:
    async with helix_env([shop]) as env:
        yield env


async def run_turn(session: Session, text: str) -> None:
    await session.send(text)
    _ = [event async for event in session.receive()]


@pytest.mark.parametrize("where", ["here", "in a workflow"])
async def test_values_replace_those_before_in_the_order_of_the_calls(env: HelixEnv, where: str) -> None:
    """Lists of a workflow's session grew, call 9 came after call 11, and here the last to end counted."""
    here = where == "here"
    session = await create_session(
        shop, storage=MemorySessionStorage() if here else None, client=None if here else env.sessions
    )
    await run_turn(session, "1")
    assert await session.get_state() == {"cart": [0], "last": 0, str(10**19): 0}
    await run_turn(session, f"{CALLS}")
    last = CALLS - 1
    assert await session.get_state() == {"cart": [last], "last": last, str(10**19): last}


async def test_who_applies_the_patches_of_a_stream_has_the_state(env: HelixEnv) -> None:
    """One call a turn: those of several come as they end."""
    handle = env.sessions.session("shop-1", agent="shop")
    state: dict[str, Any] = {}
    for _ in range(2):
        await handle.ask("1")
    await handle.close()
    await handle.result()
    async for stored in handle.stream():
        if isinstance(stored.chunk, StatePatch):
            state = JsonPatch(list(stored.chunk.patches)).apply(state)
    found = await handle.get_state()
    assert found is not None
    assert found.custom_state == state == {"cart": [0], "last": 0, str(10**19): 0}
