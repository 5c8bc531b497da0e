"""The façade in one process: nobody can be waited for, and the model is told."""

from typing import Any

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, ask_user, tool
from helix_temporal.facade import create_session
from helix_temporal.models.facade import ResultEvent
from helix_temporal.models.messages import ToolCall
from helix_temporal.stores.memory.storage import MemorySessionStorage

RAN: list[str] = []


@tool(approval=True)
def wipe() -> str:
    """Wipe the disk."""
    RAN.append("wiped")
    return "wiped"


class Asking:
    """Asks for everything, then tells what it got."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Two calls, then their results."""
        if request.messages[-1].role == "user":
            calls: tuple[tuple[str, dict[str, Any]], ...] = (("wipe", {}), ("ask_user", {"question": "?"}))
            return ModelResponse(
                tool_calls=tuple(
                    ToolCall(id=f"c{at}", name=name, arguments=arguments)
                    for at, (name, arguments) in enumerate(calls)
                )
            )
        return ModelResponse(" | ".join(each.text for each in request.messages[-2:]))


async def test_calls_that_need_somebody_fail_there() -> None:
    """And what was to be approved does not run."""
    agent = Agent(name="a", model=Asking(), tools=[wipe, ask_user()])
    session = await create_session(agent, storage=MemorySessionStorage())
    await session.send("go")
    last = [event async for event in session.receive()][-1]
    assert isinstance(last, ResultEvent)
    assert last.text == " | ".join(["Nobody can answer this call here."] * 2)
    assert RAN == []
