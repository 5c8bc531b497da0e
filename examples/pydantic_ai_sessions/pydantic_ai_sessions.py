"""A conversation of pydantic-ai that waits for leave, is resumed by another process, and forked."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic_ai import Agent, DeferredToolRequests, Tool
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.pydantic_ai import HelixConversationStore


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """What the scripted model says."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(str(last.content))])
    if "cancel" in str(last.content).lower():
        return ModelResponse(parts=[ToolCallPart("cancel", {"order": "NL-20417"})])
    return ModelResponse(parts=[TextPart("Nothing was cancelled.")])


def cancel(order: str) -> str:
    """Cancels an order."""
    return f"{order} is cancelled."


agent = Agent(
    FunctionModel(answer),
    output_type=[str, DeferredToolRequests],
    tools=[Tool(cancel, requires_approval=True)],
)


@asynccontextmanager
async def opened() -> AsyncIterator[HelixConversationStore]:
    """The store, with connections of its own."""
    backends = Backends(Settings.from_env(os.environ))
    try:
        yield HelixConversationStore(backends.sessions)
    finally:
        await backends.close()


async def ask() -> None:
    """The first process: it ends while the run waits."""
    async with opened() as store:
        result = await agent.run("Cancel my order.", conversation=Conversation(conversation_id="orders-1"))
        await store.save(result, scope="user-42")
        for call in result.output.approvals:
            print(f"first process   waits for leave to: {call.tool_name} {call.args}")


async def resume() -> None:
    """The second process."""
    async with opened() as store:
        conversation = await store.load("orders-1", scope="user-42")
        results = conversation.deferred_tool_requests.build_results(approve_all=True)
        result = await agent.run(conversation=conversation, deferred_tool_results=results)
        await store.save(result)
        print(f"second process  {result.output}")

        fork = await store.fork("orders-1", new_conversation_id="orders-2")
        result = await agent.run("What else did you do?", conversation=fork)
        await store.save(result)
        print(f"a fork          {result.output}")
        for record in await store.list_conversations(scope="user-42"):
            entries = await store.load_entries(record.conversation_id)
            print(f"stored          {record.conversation_id}: {len(entries)} messages")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if not any(name in os.environ for name in ("HELIX_REDIS_URL", "HELIX_POSTGRES_DSN")):
            os.environ.setdefault("HELIX_DATA_DIRECTORY", folder)
        asyncio.run(ask())
        asyncio.run(resume())
