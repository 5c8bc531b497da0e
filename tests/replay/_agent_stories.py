"""Sessions whose agents call each other, or wait for people."""

import asyncio
from typing import Final

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, agent_tool, ask_user
from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.models.messages import ToolCall, Usage
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.testing.serving import Served
from tests.replay._stories import Story

KINDS = ("new", "fork", "continue")


class Speaker:
    """Asks the tool that the first word names for each further word; tells the results, or repeats."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        last, usage = request.messages[-1], Usage(input_tokens=len(request.messages), output_tokens=1)
        name, *words = last.text.split()
        if last.role == "tool" or name not in {*KINDS, "far", "ask_user"}:
            if name == "slow":
                await asyncio.sleep(20)
            return ModelResponse(f"{len(request.messages)}: {last.text}"[:60], usage=usage)
        what = "question" if name == "ask_user" else "task"
        calls = tuple(
            ToolCall(id=f"call_{at}", name=name, arguments={what: word.replace("+", " ")})
            for at, word in enumerate(words)
        )
        return ModelResponse(tool_calls=calls, usage=usage)


def agents() -> list[Agent]:
    """One that calls itself in all ways, and asks people."""
    tools = [agent_tool(kind, agent="speaker", thread=kind) for kind in ("new", "fork", "continue")]
    far = agent_tool("far", agent="speaker", task_queue="replay-nobody", start_within=0.5)
    return [Agent(name="speaker", model=Speaker(), tools=[*tools, far, ask_user()])]


async def children(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """All kinds of threads, side by side, one after the other, and below each other."""
    sid, sessions = f"{prefix}-children", served.sessions
    for text in ("hello", "new one two", "fork three", "continue four five", "continue six", "new new+seven"):
        await sessions.ask(sid, text, agent="speaker")
    return [*await _finish(sessions, sid), *[(each, None) for each in await _below(served, sid)]]


async def child_waits(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """A question of a sub-agent, answered at the root; one that is interrupted."""
    sid, sessions = f"{prefix}-waits", served.sessions
    await sessions.ask(sid, "new ask_user+colour?", agent="speaker", message_id="one")
    (call,) = await sessions.session(sid).get_pending_calls()
    await sessions.session(sid).submit_tool_result(call, "blue", wait=True)
    await sessions.ask(sid, "continue ask_user+size?", message_id="two")
    await sessions.session(sid).stop()
    await sessions.ask(sid, "continue ask_user+size?", message_id="two")
    return [*await _finish(sessions, sid), *[(each, None) for each in await _below(served, sid)]]


async def child_abort(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """A turn that is aborted while its sub-agent thinks."""
    sid, sessions = f"{prefix}-abort", served.sessions
    await sessions.ask(sid, "hello", agent="speaker")
    asked = asyncio.create_task(sessions.ask(sid, "new slow+one", agent="speaker"))
    while not (below := await _below(served, sid)):  # noqa: ASYNC110 (another process tells)
        await asyncio.sleep(0.05)
    await sessions.session(sid).stop(abort=True)
    await asked
    await sessions.ask(sid, "hello again")
    return [*await _finish(sessions, sid), *[(each, None) for each in below]]


async def child_unserved(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """A call to a task queue that nobody serves; the turn goes on."""
    sid, sessions = f"{prefix}-unserved", served.sessions
    await sessions.ask(sid, "far one", agent="speaker")
    return await _finish(sessions, sid)


async def waits(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """Questions of the session itself: answered while it waits, and after it has ended."""
    found: list[tuple[str, str | None]] = []
    for suspend in ("wait", "exit"):
        sid = f"{prefix}-{suspend}"
        options = SessionOptions.model_validate({"suspend": suspend, "idle_timeout": 60})
        sessions = served.create_client(options)
        await sessions.ask(sid, "ask_user colour? size?", agent="speaker", message_id="one")
        for call in await sessions.session(sid).get_pending_calls():
            await sessions.session(sid).submit_tool_result(call, "blue", wait=True)
        await sessions.ask(sid, "ask_user colour? size?", agent="speaker", message_id="one")
        found += await _finish(sessions, sid)
    return found


async def _finish(sessions: SessionClient, session_id: str) -> list[tuple[str, str | None]]:
    await sessions.session(session_id).close()
    await sessions.session(session_id).result()
    return [(workflow_id(session_id), None)]


async def _below(served: Served, session_id: str) -> list[str]:
    """Workflows of the sub-agents that a session has called."""
    handle = served.client.get_workflow_handle(workflow_id(session_id))
    found: dict[str, None] = {}
    for event in (await handle.fetch_history()).events:
        started = event.child_workflow_execution_started_event_attributes
        if started.workflow_execution.workflow_id:
            found[started.workflow_execution.workflow_id] = None
    return list(found)


AGENTS: Final[dict[str, Story]] = {
    story.__name__: story for story in (children, child_waits, child_abort, child_unserved, waits)
}
"""By name, as `_stories.STORIES`."""
