"""ADK's runner over a durable session: two processes, one conversation.  See README.md."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.errors import StaleSessionError
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.google_adk import HelixArtifactService, HelixSessionService

NAMES: dict[str, Any] = {"app_name": "shop", "user_id": "ann"}


class Scripted(BaseLlm):
    """Stands in for a model: looks the order up, and says what the tool has said."""

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002 (it answers in one piece)
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = llm_request.contents[-1].parts or []
        if parts and parts[-1].function_response:
            part = types.Part(text=str(parts[-1].function_response.response["result"]))
        elif "order" in (parts[-1].text or ""):
            part = types.Part(function_call=types.FunctionCall(name="find_order", args={"order": "NL-20417"}))
        else:
            spoken = sum(each.role == "user" and bool(each.parts[0].text) for each in llm_request.contents)
            part = types.Part(text=f"You have asked me {spoken} times.")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def find_order(order: str, tool_context: ToolContext) -> str:
    """Finds an order, and keeps its slip."""
    tool_context.state["order"] = order
    tool_context.state["user:orders_seen"] = tool_context.state.get("user:orders_seen", 0) + 1
    version = await tool_context.save_artifact("slip.txt", types.Part(text=f"Slip of {order}"))
    return f"{order} is on its way (slip.txt, version {version})."


async def talk(*lines: str) -> None:
    """Some turns of the conversation, in whatever process this is."""
    backends = Backends(Settings.from_env(os.environ))
    assert backends.sessions is not None
    assert backends.records is not None
    sessions = HelixSessionService(backends.sessions)
    agent = LlmAgent(name="support", model=Scripted(model="scripted"), tools=[find_order])
    artifacts = HelixArtifactService(backends.records)
    async with Runner(
        app_name="shop", agent=agent, session_service=sessions, artifact_service=artifacts
    ) as runner:
        if await sessions.get_session(**NAMES, session_id="s1") is None:
            await sessions.create_session(**NAMES, session_id="s1")
        for line in lines:
            message = types.Content(role="user", parts=[types.Part(text=line)])
            async for event in runner.run_async(user_id="ann", session_id="s1", new_message=message):
                for part in event.content.parts if event.content else ():
                    if part.text:
                        print(f"process {os.getpid()}: {line} {part.text}")
    await backends.close()


async def show() -> None:
    """What is stored; and what becomes of a writer that has not seen the last event, and of a repeat."""
    backends = Backends(Settings.from_env(os.environ))
    assert backends.sessions is not None
    sessions = HelixSessionService(backends.sessions)
    one, two = [await sessions.get_session(**NAMES, session_id="s1") for _ in range(2)]
    assert one is not None
    assert two is not None
    print(f"{len(one.events)} events, state {one.state}")
    event = Event(author="support", invocation_id="note")
    await sessions.append_event(one, event)
    await sessions.append_event(one, event)
    try:
        await sessions.append_event(two, Event(author="support", invocation_id="late"))
    except StaleSessionError:
        print("a writer that had not seen the last event was refused")
    found = await sessions.get_session(**NAMES, session_id="s1")
    assert found is not None
    print(f"{len(found.events)} events: one more, though it was appended twice")
    await backends.close()


def main() -> None:
    """The first turn here, the second one in another process."""
    if len(sys.argv) > 1:
        asyncio.run(talk(*sys.argv[1:]))
        return
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("HELIX_DATA_DIRECTORY", directory)
        asyncio.run(talk("Where is my order?"))
        subprocess.run([sys.executable, __file__, "How often have I asked?"], check=True)
        asyncio.run(show())


if __name__ == "__main__":
    main()
