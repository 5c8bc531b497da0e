"""Workers of two versions of one application, each in a process of its own, on one task queue."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from typing import Any

from temporalio import activity
from temporalio.common import RawValue

from helix_temporal.agents import Agent, Hooks, ModelRequest, ModelResponse, agent_tool, tool
from helix_temporal.models.messages import ToolCall, Usage
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker, connect

_CONTEXT = multiprocessing.get_context("spawn")


PAID = Usage(input_tokens=10, output_tokens=1)
"""What each model call uses."""


class Caller:
    """Calls the first tool that it is given, then says what came of it."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """One step."""
        last = request.messages[-1]
        if last.role == "tool":
            return ModelResponse(f"told: {last.text}", usage=PAID)
        if not request.tools:
            return ModelResponse(f"plain: {last.text}", usage=PAID)
        spec = request.tools[0]
        arguments: dict[str, Any] = {"task": last.text} if spec.name == "helper" else {}
        call = ToolCall(id="call-1", name=spec.name, arguments=arguments)
        return ModelResponse(tool_calls=(call,), usage=PAID)


@tool
def look_up() -> str:
    """Look it up."""
    return "found"


@tool(attempts=1)
def pay() -> str:
    """Pay once."""
    return "paid"


@tool(attempts=1, approval=True)
def sign() -> str:
    """Sign once, if somebody agrees."""
    return "signed"


def _greets(event: Any) -> str:
    return f"{event.text}!"


def agents(version: str) -> list[Agent]:
    """What a worker of this version serves."""
    model = Caller()
    if version == "old":
        names = ("tooled", "paying", "hooked", "leader", "manager", "signing")
        return [Agent(name=name, model=model) for name in names]
    return [
        Agent(name="added", model=model),
        Agent(name="tooled", model=model, tools=[look_up]),
        Agent(name="paying", model=model, tools=[pay]),
        Agent(name="signing", model=model, tools=[sign]),
        Agent(name="hooked", model=model, hooks=Hooks(before_user_message=_greets)),
        Agent(name="leader", model=model, tools=[agent_tool("helper", agent="added")]),
        Agent(name="manager", model=model, tools=[agent_tool("helper", agent="signing")]),
    ]


@activity.defn(dynamic=True)
async def take_anything(args: Sequence[RawValue]) -> dict[str, str]:
    """Of the application: it takes whatever its worker has no activity for."""
    return {}


async def shout(messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    """A transform."""
    return messages


def _run(settings: Settings, version: str, ready: Event) -> None:
    asyncio.run(_serve(settings, version, ready))


async def _die(*_: object) -> None:
    """As a node that is taken away once the step is in the thread, and before anybody heard of it."""
    os.kill(os.getpid(), signal.SIGKILL)


async def _serve(settings: Settings, version: str, ready: Event) -> None:
    transforms = {"new": {"shout": shout}, "killed": {"shout": _die}}.get(version, {})
    client, plugin = await connect(settings, agents(version), transforms=transforms)
    if version == "dying":
        plugin.backends.threads.archive_step = _die
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    identity = f"{version}-worker"
    async with HelixWorker(client, plugin, drain=1.0, identity=identity, activities=[take_anything]):
        ready.set()
        await stop.wait()


@asynccontextmanager
async def worker_processes(settings: Settings, versions: Sequence[str]) -> AsyncIterator[list[SpawnProcess]]:
    """A process for each of these versions, all on the same task queue, until the block ends."""
    started = []
    try:
        for version in versions:
            ready = _CONTEXT.Event()
            process = _CONTEXT.Process(target=_run, args=(settings, version, ready))
            process.start()
            started.append((process, ready))
        for version, (_, ready) in zip(versions, started, strict=True):
            assert await asyncio.to_thread(ready.wait, 60), f"the {version} worker does not start"
        yield [process for process, _ in started]
    finally:
        for process, _ in started:
            process.terminate()
        for process, _ in started:
            await asyncio.to_thread(process.join, 30)
