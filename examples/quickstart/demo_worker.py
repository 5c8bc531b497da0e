"""The demo's worker: plays a recorded conversation again and notes in a file what it does.

``python demo_worker.py CONVERSATION NOTES HOLD``; the demo starts it, kills it, and starts it again.
"""

import asyncio
import dataclasses
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from helix_temporal import Agent, HelixWorker, ModelRequest, ModelResponse, Settings, ToolContext, connect
from helix_temporal.agents import Model, StreamingModel, Tool, call_model
from helix_temporal.blobs import BlobStore
from helix_temporal.testing.recorded import read_conversation, replay_agent

Note = Callable[..., None]
Hold = Callable[[str], Awaitable[None]]


def notebook(path: str) -> Note:
    """A function that adds a line to the file at once: what was noted outlives a killed process."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(what: str, **facts: str | int) -> None:
        os.write(file, json.dumps({"what": what, "pid": os.getpid(), **facts}).encode() + b"\n")

    return note


def holder(path: str) -> Hold:
    """A function that waits, at the moment that the file names, for the kill that is to come."""

    def is_now(moment: str) -> bool:
        file = Path(path)
        return file.exists() and file.read_text() == moment

    async def hold(moment: str) -> None:
        if is_now(moment):
            await asyncio.sleep(30)

    return hold


class NotedModel:
    """Notes when a model call begins, and when its answer is there: that is what one pays for."""

    def __init__(self, model: Model | StreamingModel, note: Note, hold: Hold) -> None:
        self._model, self._note, self._hold = model, note, hold

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """As the model itself."""
        self._note("model", step=request.step_key)
        await self._hold("model")
        response = await call_model(self._model, request)
        self._note("answer", step=request.step_key)
        return response


class NotedTool:
    """Notes when a tool begins and ends."""

    def __init__(self, tool: Tool, note: Note, hold: Hold) -> None:
        self._tool, self._note, self._hold = tool, note, hold

    async def __call__(self, arguments: Mapping[str, Any], context: ToolContext, /) -> Any:
        """As the tool itself."""
        self._note("tool", name=self._tool.name, key=context.key)
        await self._hold("tool")
        outcome = await self._tool.call_handler(arguments, context)
        self._note("result", name=self._tool.name, key=context.key)
        return outcome


def noted(agent: Agent, note: Note, hold: Hold) -> Agent:
    """The same agent, under observation."""
    tools = [dataclasses.replace(tool, handler=NotedTool(tool, note, hold)) for tool in agent.tools]
    return dataclasses.replace(agent, model=NotedModel(agent.model, note, hold), tools=tools)


def note_uploads(blobs: BlobStore, note: Note) -> None:
    """Note the size of every object that is written."""
    put = blobs.put

    async def noted_put(key: str, data: bytes, **condition: Any) -> str:
        etag = await put(key, data, **condition)
        note("put", key=key, bytes=len(data))
        return etag

    blobs.put = noted_put  # type: ignore[method-assign]


def end_with_parent() -> None:
    """The demo holds the other end of our input: when it is gone, so are we."""
    # Not through sys.stdin, whose lock this thread would hold when the interpreter ends.
    os.read(0, 1)
    os._exit(3)


async def main(conversation: str, notes: str, hold: str) -> None:
    """Serve until SIGTERM."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    note = notebook(notes)
    agent = replay_agent(read_conversation(conversation), "support", model_delay=0.05, tool_delay=0.05)
    client, helix = await connect(Settings.from_env(os.environ), [noted(agent, note, holder(hold))])
    note_uploads(helix.backends.blobs, note)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with HelixWorker(client, helix):
        note("ready")
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
