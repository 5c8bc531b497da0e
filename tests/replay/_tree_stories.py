"""Trees of sessions that end while they wait for people: their histories are stored as in `_stories`."""

import asyncio
from typing import Final

from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.testing.serving import Served
from tests.replay._stories import Story

Runs = list[tuple[str, str | None]]


async def tree_answered(served: Served, prefix: str) -> Runs:
    """Two sub-agents ask; each answer starts the tree again."""
    sid, sessions = f"{prefix}-answered", _leaving(served)
    await sessions.ask(sid, "new ask_user+colour? ask_user+size?", agent="speaker", message_id="one")
    runs = await _left(served, sid)
    for call in await sessions.session(sid).get_pending_calls():
        await sessions.session(sid).submit_tool_result(call, "blue", wait=True)
        await sessions.session(sid).close()
        runs += await _left(served, sid)
    return list(dict.fromkeys(runs))


async def tree_given_up(served: Served, prefix: str) -> Runs:
    """A message holds the root, whose turn is then interrupted; another one that is aborted."""
    found: Runs = []
    for how in ("interrupt", "abort"):
        sid, sessions = f"{prefix}-{how}", _leaving(served)
        await sessions.ask(sid, "continue ask_user+colour?", agent="speaker", message_id="one")
        runs = await _left(served, sid)
        await sessions.send(sid, "hello", agent="speaker", message_id="two")
        while (await sessions.session(sid).get_status()).status != "suspended":  # noqa: ASYNC110 (another process tells)
            await asyncio.sleep(0.05)
        await sessions.session(sid).stop(abort=how == "abort")
        await sessions.ask(sid, "hello", message_id="two")
        await sessions.session(sid).close()
        found += [*runs, *await _left(served, sid)]
    return list(dict.fromkeys(found))


def _leaving(served: Served) -> SessionClient:
    return served.create_client(SessionOptions(suspend="exit", idle_timeout=60))


async def _left(served: Served, session_id: str) -> Runs:
    """The newest runs of a session and of those that it called, once it has ended."""
    root = served.client.get_workflow_handle(workflow_id(session_id))
    await root.result()
    names = {root.id: None}
    for event in (await root.fetch_history()).events:
        started = event.child_workflow_execution_started_event_attributes
        if started.workflow_execution.workflow_id:
            names[started.workflow_execution.workflow_id] = None
    return [(name, (await served.client.get_workflow_handle(name).describe()).run_id) for name in names]


TREES: Final[dict[str, Story]] = {story.__name__: story for story in (tree_answered, tree_given_up)}
"""By name, as `_stories.STORIES`."""
