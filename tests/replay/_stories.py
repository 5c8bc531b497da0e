"""Sessions whose histories are stored: one of each kind, made the same way for every version."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.exceptions import ApplicationError

from helix_temporal.agents import Agent, Hooks, ModelRequest, ModelResponse, ToolContext, ToolOutcome, tool
from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.errors import SessionFailedError
from helix_temporal.models.maintenance import CleanupInput, CleanUpOldInput, KeepInput, SweepInput
from helix_temporal.models.messages import ToolCall, Usage
from helix_temporal.models.sessions import ForkFrom, SessionOptions
from helix_temporal.models.steps import PutTextInput
from helix_temporal.testing.serving import Served
from helix_temporal.workflows import (
    CleanupWorkflow,
    KeepWorkflow,
    SweepWorkflow,
    ThreadRequest,
    ThreadWorkflow,
)

Story = Callable[[Served, str], Awaitable[list[tuple[str, str | None]]]]
"""Plays a story under a prefix for ids; gives the workflow id and run id of each history to keep."""


class Player:
    """A model that does what the last message says."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        last = request.messages[-1]
        usage = Usage(input_tokens=len(request.messages), output_tokens=1)
        if last.role == "tool":
            return ModelResponse(f"tools said {last.text}", usage=usage)
        word, _, rest = last.text.partition(" ")
        if word == "tools":
            names = rest.split()
            return ModelResponse(
                tool_calls=tuple(
                    ToolCall(id=f"call_{at}", name="do", arguments={"what": name})
                    for at, name in enumerate(names)
                ),
                usage=usage,
            )
        if word == "slow":
            await asyncio.sleep(20)
        if word == "fail":
            raise ApplicationError("on purpose", type="PlayedError", non_retryable=True)
        return ModelResponse(f"{len(request.messages)}: {last.text}", usage=usage)


@tool(attempts=1)
def do(what: str, context: ToolContext) -> ToolOutcome:
    """Do what is said."""
    if what == "fail":
        raise RuntimeError(what)
    return ToolOutcome(what, wait=what == "wait", usage=Usage(input_tokens=1))


async def _listen(event: Any) -> None:
    return None


def agents() -> list[Agent]:
    """Who plays."""
    hooks = dict.fromkeys(Hooks().__dataclass_fields__, _listen)
    return [
        Agent(name="player", model=Player(), tools=[do], max_steps=3),
        Agent(name="hooked", model=Player(), tools=[do], hooks=Hooks(**hooks)),
    ]


async def _finish(sessions: SessionClient, session_id: str) -> list[tuple[str, str | None]]:
    await sessions.session(session_id).close()
    await sessions.session(session_id).result()
    return [(workflow_id(session_id), None)]


async def plain(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """Turns without tools, a repeated message, a status query, an idle end that is not reached."""
    sid, sessions = f"{prefix}-plain", served.sessions
    for text in ("one", "two", "three"):
        await sessions.ask(sid, text, agent="player", message_id=text)
    await sessions.ask(sid, "one", message_id="one")
    await sessions.send(sid, "four", message_id="four")
    await sessions.ask(sid, "four", message_id="four")
    return await _finish(sessions, sid)


async def idle(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """A session that ends by itself."""
    sid, sessions = f"{prefix}-idle", served.create_client(SessionOptions(idle_timeout=1))
    await sessions.ask(sid, "one", agent="player")
    await sessions.session(sid).result()
    return [(workflow_id(sid), None)]


async def standard(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """One question, one answer."""
    sid, sessions = f"{prefix}-standard", served.create_client(SessionOptions(persistent=False))
    await sessions.ask(sid, "one", agent="player")
    await sessions.session(sid).result()
    return [(workflow_id(sid), None)]


async def tools(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """Tools side by side, failing and unknown ones, one that waits."""
    sid, sessions = f"{prefix}-tools", served.sessions
    for text in ("tools a", "tools a b c", "tools fail", "tools wait"):
        await sessions.ask(sid, text, agent="player")
    return await _finish(sessions, sid)


async def hooks(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """Every hook as an activity."""
    sid, sessions = f"{prefix}-hooks", served.sessions
    for text in ("one", "tools a b"):
        await sessions.ask(sid, text, agent="hooked", metadata={"tenant": "acme"})
    return await _finish(sessions, sid)


async def continue_as_new(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """Runs of two turns; each is a history of its own."""
    sid = f"{prefix}-continue"
    sessions, runs = served.create_client(SessionOptions(idle_timeout=60, max_turns_per_run=2)), []
    handle = served.client.get_workflow_handle(workflow_id(sid))
    for number in range(5):
        await sessions.ask(sid, f"q{number}", agent="player")
        runs.append((await handle.describe()).run_id)
    await _finish(sessions, sid)
    return [(workflow_id(sid), run_id) for run_id in dict.fromkeys(runs)]


async def cancel(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """A cancel while the model thinks."""
    sid, sessions = f"{prefix}-cancel", served.sessions
    await sessions.ask(sid, "one", agent="hooked")
    asked = asyncio.create_task(sessions.ask(sid, "slow", agent="hooked"))
    await _until_running(sessions, sid)
    handle = served.client.get_workflow_handle(workflow_id(sid))
    await handle.cancel()
    await asked
    await asyncio.gather(handle.result(), return_exceptions=True)
    return [(workflow_id(sid), None)]


async def failure(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """A model that fails for good, and an open that does."""
    sid, sessions = f"{prefix}-failure", served.sessions
    await sessions.ask(sid, "one", agent="player")
    await sessions.ask(sid, "fail")
    await sessions.ask(f"{prefix}-missing", "one", agent="player", mode="continue", timeout=30)
    for each in (sid, f"{prefix}-missing"):
        try:
            await sessions.session(each).result()
        except SessionFailedError:
            continue
    return [(workflow_id(sid), None), (workflow_id(f"{prefix}-missing"), None)]


async def stops(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """An abort, and a turn that ends at its last step."""
    sid, sessions = f"{prefix}-stops", served.sessions
    await sessions.ask(sid, "one", agent="player")
    asked = asyncio.create_task(sessions.ask(sid, "slow"))
    await _until_running(sessions, sid)
    await sessions.session(sid).stop(abort=True)
    await asked
    await sessions.ask(sid, "two")
    return await _finish(sessions, sid)


async def fork(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """A session that begins as a part of another."""
    sid, sessions = f"{prefix}-fork", served.sessions
    for text in ("one", "two"):
        await sessions.ask(f"{sid}-source", text, agent="player")
    origin = ForkFrom(thread_id=f"{sid}-source", at=2)
    await sessions.ask(sid, "branch", agent="player", mode="fork", fork_from=origin)
    return [*await _finish(sessions, sid), *await _finish(sessions, f"{sid}-source")]


async def sweep(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """The maintenance worker: two pages, with upkeep; and upkeep of the archive."""
    queue = served.plugin.settings.task_queue
    for number in range(3):
        await served.sessions.ask(f"{prefix}-swept-{number}", "one", agent="player")
        await served.client.get_workflow_handle(workflow_id(f"{prefix}-swept-{number}")).terminate()
    swept = await served.client.start_workflow(
        SweepWorkflow.run, SweepInput(page=2, evict=True), id=f"{prefix}-sweep", task_queue=queue
    )
    await swept.result()
    kept = await served.client.start_workflow(
        KeepWorkflow.run, KeepInput(parts=(250, 251)), id=f"{prefix}-keep", task_queue=queue
    )
    await kept.result()
    return [
        (f"{prefix}-sweep", swept.first_execution_run_id),
        (f"{prefix}-sweep", None),
        (f"{prefix}-keep", None),
    ]


async def cleanup(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """All three parts of the clean-up of sessions."""
    await served.create_client(SessionOptions(persistent=False)).ask(
        f"{prefix}-cleaned", "one", agent="player"
    )
    await served.client.execute_workflow(
        CleanupWorkflow.run,
        CleanupInput(old=CleanUpOldInput(max_age_ms=2**40)),
        id=f"{prefix}-cleanup",
        task_queue=served.plugin.settings.task_queue,
    )
    return [(f"{prefix}-cleanup", None)]


async def thread(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """The short workflow around a change."""
    await served.create_client(SessionOptions(persistent=False)).ask(f"{prefix}-text", "one", agent="player")
    await served.client.execute_workflow(
        ThreadWorkflow.run,
        ThreadRequest(put_text=PutTextInput(thread_id=f"{prefix}-text", message_id="m", text="long")),
        id=f"{prefix}-thread",
        task_queue=served.plugin.settings.task_queue,
    )
    return [(f"{prefix}-thread", None)]


async def _until_running(sessions: SessionClient, session_id: str) -> None:
    while (await sessions.session(session_id).get_status()).status != "running":  # noqa: ASYNC110 (another process tells)
        await asyncio.sleep(0.02)


_ALL = (
    plain,
    idle,
    standard,
    tools,
    hooks,
    continue_as_new,
    cancel,
    failure,
    stops,
    fork,
    sweep,
    cleanup,
    thread,
)
STORIES: dict[str, Story] = {story.__name__: story for story in _ALL}
