"""What tools change of the state: kept aside until their results are in the thread."""

import hashlib
from typing import Final

from helix_temporal.activities.checkpoints import find_committed_head
from helix_temporal.activities.state_changes import recreate_state
from helix_temporal.errors import SessionNotFoundError, TooLargeError
from helix_temporal.models.base import JsonObject, canonical_json
from helix_temporal.models.checkpoints import StagedChange
from helix_temporal.models.ids import CallKey
from helix_temporal.models.steps import ToolInput
from helix_temporal.session.projection import TurnToCommit
from helix_temporal.session.record import check_values, parse_record
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ThreadStore

_NAME_LETTERS: Final = 8
"""Of the hash that names a change: it has to differ from those of other attempts in the same turn alone."""


async def stage_tool_changes(
    store: SessionStore, threads: ThreadStore, request: ToolInput, changes: JsonObject
) -> str:
    """Keep aside what a tool changes; a state that its store has lost is made from the thread's slice.

    Returns:
        The name of the changes, for the tool's result: of several attempts, and runs after a reset, the
        changes of that one count whose result comes into the thread.

    Raises:
        FencedError: The session was opened again since the tool was asked for.
        TooLargeError: The changes are too large to travel.
    """
    if request.run_id is None:
        return ""
    check_values(changes)
    # Its position orders the steps of a turn, its name the calls of a step.
    call = CallKey.parse(request.key).in_session
    name = hashlib.sha256(canonical_json([call, changes])).hexdigest()[:_NAME_LETTERS]
    change = StagedChange(
        tool_call_id=f"{call}/{name}",
        merge_changes=changes,
        replaces_lists=True,
        timestamp=request.position,
        result=name,
    )
    session_id, run_id = request.session_id, request.run_id
    try:
        await store.stage_changes(session_id, run_id, change, epoch=request.epoch)
    except SessionNotFoundError:
        facts = await threads.read_facts(request.thread_id)
        at = await find_committed_head(threads, facts)
        await recreate_state(store, session_id, request.epoch, parse_record(facts.slice), at)
        await store.stage_changes(session_id, run_id, change, epoch=request.epoch)
    return name


async def drop_beyond(store: SessionStore, session_id: str, run_id: str, position: int, epoch: int) -> None:
    """Take away what a turn's tools staged in steps that the thread no longer holds."""
    rows = [row.change for row in await store.list_staged(session_id, run_id)]
    gone = [change for change in rows if change.timestamp > position]
    if gone and len(gone) == len(rows):
        await store.discard_staging(session_id, run_id, epoch=epoch)
        return
    for change in gone:
        # One by one, so that no crash takes those that stay: a change of nothing in the place of each.
        nothing = change.model_copy(update={"merge_changes": {}, "patches": ()})
        await store.stage_changes(session_id, run_id, nothing, epoch=epoch)


async def promote_what_fits(store: SessionStore, turn: TurnToCommit) -> int:
    """Promote a committed turn's staged changes, without those that can't be applied; how many."""
    try:
        found = await store.promote_staging(
            turn.session_id, turn.step_id, results=turn.results, on_conflict="warn", epoch=turn.epoch
        )
    except TooLargeError:
        await store.discard_staging(turn.session_id, turn.step_id, epoch=turn.epoch)
        return 0
    return found.promoted
