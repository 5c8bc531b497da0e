"""The application's values of a session, now and at checkpoints."""

import asyncio

from helix_temporal.errors import CheckpointNotFoundError, InvalidMessageError, TooLargeError
from helix_temporal.models.checkpoints import Checkpoint, CheckpointMeta
from helix_temporal.models.states import SessionState
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.differences import compare_values
from helix_temporal.views.models import CheckpointList, CheckpointOverview, StateAt, StateComparison


async def read_state(viewed: ViewedSessions, state: SessionState, checkpoint_id: str | None) -> StateAt:
    """A session's values, at a checkpoint or as they are now.

    Raises:
        CheckpointNotFoundError: The session has no such checkpoint.
    """
    if checkpoint_id is None:
        return StateAt(session_id=state.session_id, version=state.version, values=state.custom_state)
    found = await _load_checkpoint(viewed, state.session_id, checkpoint_id)
    return StateAt(
        session_id=state.session_id,
        checkpoint=overview_of_checkpoint(found),
        version=found.version,
        values=found.state.custom_state,
    )


async def compare_states(
    viewed: ViewedSessions, state: SessionState, before: str, after: str | None
) -> StateComparison:
    """Where the values at a checkpoint differ from those at another one, or from the present ones.

    Raises:
        CheckpointNotFoundError: The session has no such checkpoint.
    """
    old = await read_state(viewed, state, before)
    new = await read_state(viewed, state, after)
    # In a thread: states may have 16 MiB, and whoever shows them shows others meanwhile.
    differences = await asyncio.to_thread(compare_values, old.values, new.values)
    return StateComparison(
        session_id=state.session_id,
        before=old.checkpoint,
        after=new.checkpoint,
        differences=differences.found,
        cut=differences.cut,
    )


async def list_checkpoints(
    viewed: ViewedSessions, session_id: str, limit: int, cursor: str | None
) -> CheckpointList:
    """A page of checkpoints, newest first; none where there is no session store.

    Raises:
        InvalidCursorError: The cursor is none of this list.
        InvalidRequestError: The limit is not 1 to 200.
    """
    if viewed.sessions is None:
        return CheckpointList(session_id=session_id)
    page = await viewed.sessions.list_checkpoints(session_id, limit=limit, cursor=cursor)
    return CheckpointList(
        session_id=session_id,
        checkpoints=tuple(overview_of_checkpoint(each) for each in page.items),
        next_cursor=page.next_cursor,
    )


def overview_of_checkpoint(checkpoint: CheckpointMeta) -> CheckpointOverview:
    """A checkpoint in a list."""
    return CheckpointOverview(
        checkpoint_id=checkpoint.id,
        seq=checkpoint.seq,
        version=checkpoint.version,
        step=checkpoint.step_count,
        run_id=checkpoint.run_id,
        status=checkpoint.status,
        position=checkpoint.head.position,
        at=checkpoint.at,
        superseded_by=checkpoint.superseded_by,
        tool_calls=checkpoint.promoted_tool_call_ids,
    )


async def _load_checkpoint(viewed: ViewedSessions, session_id: str, checkpoint_id: str) -> Checkpoint:
    found: Checkpoint | None = None
    if viewed.sessions is not None:
        try:
            found = await viewed.sessions.get_checkpoint(session_id, checkpoint_id)
        except (InvalidMessageError, TooLargeError):
            found = None  # no checkpoint has such an id
    if found is None:
        raise CheckpointNotFoundError(
            f"session {session_id!r} has no checkpoint {checkpoint_id[:200]!r}: it was pruned, or is another "
            "session's; list the checkpoints"
        )
    return found
