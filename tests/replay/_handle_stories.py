"""Sessions whose turns were taken back: their histories are stored as those of `_stories`."""

import asyncio
from typing import Final

from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.errors import HelixError
from helix_temporal.models.handles import ListTurnsInput, ShowSessionInput
from helix_temporal.models.store_calls import ListCheckpointsInput
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.models.threads import ReadMessagesInput
from helix_temporal.testing.serving import Served
from helix_temporal.workflows import LookRequest, LookWorkflow
from tests.replay._stories import Story


async def taken_back(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """By count, to a checkpoint, asked anew, twice under one id, in vain, and between messages."""
    sid, sessions = f"{prefix}-taken-back", served.sessions
    handle = sessions.session(sid, agent="player")
    for text in ("one", "tools a", "three"):
        await handle.ask(text)
    await handle.rewind_to_turn(-1, operation_id="op-1")
    await handle.rewind_to_turn(-1, operation_id="op-1")
    await handle.regenerate(operation_id="op-2")
    try:
        await handle.rewind_to_turn(9)
    except HelixError:
        await handle.restore_checkpoint((await handle.list_checkpoints()).items[-1].id)
    await asyncio.gather(handle.ask("four"), handle.rewind_to_turn(-1), handle.ask("five"))
    return await _finish(sessions, sid)


async def rewind(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """Rewound while it runs, and to what is no head."""
    sid, sessions = f"{prefix}-rewind", served.sessions
    await sessions.ask(sid, "one", agent="player")
    head = (await sessions.session(sid).get_status()).head
    await sessions.ask(sid, "two")
    await sessions.session(sid).rewind(EMPTY)
    await sessions.ask(sid, "uno")
    try:
        await sessions.session(sid).rewind(head)
    except HelixError:
        await sessions.ask(sid, "due")
    return await _finish(sessions, sid)


async def edited(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """The fork in which a past message is another one."""
    sid, target, sessions = f"{prefix}-edited", f"{prefix}-edited-fork", served.sessions
    handle = sessions.session(sid, agent="player")
    await handle.ask("one")
    await handle.ask("two", message_id="m-two")
    await handle.edit("m-two", "TWO", target)
    return [*await _finish(sessions, sid), *await _finish(sessions, target)]


async def stopped_by_run(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """Stops of a run that is under way, and of one that is not."""
    sid, sessions = f"{prefix}-stopped-by-run", served.sessions
    handle = sessions.session(sid, agent="player")
    asked = asyncio.create_task(handle.ask("slow"))
    run_id: str | None = None
    while run_id is None:
        run_id = (await handle.wait_for_change(timeout=30)).run_id
    await handle.stop(abort=True, run_id="another")
    await handle.stop(abort=True, run_id=run_id)
    await asked
    return await _finish(sessions, sid)


async def look(served: Served, prefix: str) -> list[tuple[str, str | None]]:
    """The short workflow around a look at a session."""
    sid = f"{prefix}-looked-at"
    await served.sessions.ask(sid, "one", agent="player")
    requests = (
        LookRequest(show=ShowSessionInput(session_id=sid)),
        LookRequest(usage=ShowSessionInput(session_id=sid)),
        LookRequest(turns=ListTurnsInput(thread_id=sid)),
        LookRequest(checkpoints=ListCheckpointsInput(session_id=sid)),
        LookRequest(messages=ReadMessagesInput(thread_id=sid)),
    )
    for number, request in enumerate(requests):
        await served.client.execute_workflow(
            LookWorkflow.run,
            request,
            id=f"{prefix}-look-{number}",
            task_queue=served.plugin.settings.task_queue,
        )
    await _finish(served.sessions, sid)
    return [(f"{prefix}-look-{number}", None) for number in range(len(requests))]


async def _finish(sessions: SessionClient, session_id: str) -> list[tuple[str, str | None]]:
    await sessions.session(session_id).close()
    await sessions.session(session_id).result()
    return [(workflow_id(session_id), None)]


HANDLE: Final[dict[str, Story]] = {
    story.__name__: story for story in (taken_back, rewind, edited, stopped_by_run, look)
}
"""By name, as `_stories.STORIES`."""
