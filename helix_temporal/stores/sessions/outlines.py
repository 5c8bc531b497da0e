"""A session's outline in the slice of its thread: from it a row is made again that its store has lost.

Sessions in Redis are lost with it, and their archived threads are not.  A thread that the session store
itself has, rather than a session workflow, therefore says what its session began with, and its custom state.
"""

from typing import Any, Final

from pydantic import Field, ValidationError

from helix_temporal.errors import HelixError
from helix_temporal.models.base import canonical_json
from helix_temporal.models.states import CreateSession, SessionState, StoredModel
from helix_temporal.session.projection import fields_of_record
from helix_temporal.session.record import parse_record
from helix_temporal.stores.protocols.session_rows import SessionCommit, SessionRows, SessionView, StoredState
from helix_temporal.stores.protocols.threads import ThreadFacts, ThreadStore, find_facts
from helix_temporal.stores.sessions.decisions import encode_model

_OF_THREAD: Final = frozenset({"head"})
_KEPT: Final = (set(CreateSession.model_fields) - _OF_THREAD) | {
    *("session_id", "version", "step_count", "created_at", "updated_at"),
}


class Outline(StoredModel):
    """What a thread's slice says of its session; `SessionRecord`, which is a workflow's, reads it as empty.

    Attributes:
        helix_session: Its state, without what only rows hold: runs, calls that wait, checkpoints.
        max_epoch: Its fence.
    """

    helix_session: SessionState
    max_epoch: int = Field(default=0, ge=0)


def owner_of(session_id: str) -> str:
    """Who has the thread of a session that is used without a workflow."""
    return f"session/{session_id}"


def encode_outline(state: SessionState, max_epoch: int) -> bytes:
    """The slice of the thread of a session in this state."""
    session = state.model_dump(mode="json", include=_KEPT, exclude_defaults=True)
    return canonical_json({"helix_session": session, "max_epoch": max_epoch})


def parse_outline(data: bytes) -> Outline | None:
    """Inverse of `encode_outline`; None for the slice of a workflow, and for an empty one."""
    try:
        return Outline.model_validate_json(data) if data else None
    except (ValidationError, HelixError):
        return None


def may_carry_outline(session_id: str, owner: str, data: bytes) -> bool:
    """Whether a thread's slice is the session store's to write."""
    return owner == owner_of(session_id) and (not data or parse_outline(data) is not None)


async def find_lost_thread(threads: ThreadStore, session_id: str, view: SessionView) -> ThreadFacts | None:
    """The thread of a session of which the session store knows nothing, not even that it was deleted."""
    if not threads.archives or view.state is not None or view.revision:
        return None
    return await find_facts(threads, session_id)


async def restore_row(rows: SessionRows, threads: ThreadStore, session_id: str, view: SessionView) -> bool:
    """Make a session's row again from its thread, if the store has lost it; whether to look again.

    Not that of a session workflow's thread: its next open makes it, and knows more of it.
    """
    lost = await find_lost_thread(threads, session_id, view)
    if lost is None or lost.owner != owner_of(session_id):
        return False
    outline = _outline_in(lost, session_id)
    if outline is not None:
        state, max_epoch = outline.helix_session, outline.max_epoch
    else:
        known = _fields_of_workflow(lost.slice)
        state = SessionState(session_id=session_id, created_at=view.now, updated_at=view.now, **known)
        max_epoch = 0
    stored = StoredState(state, encode_model(state, f"session {session_id!r}: state"))
    await rows.commit(SessionCommit(session_id, view.revision, max_epoch, state=stored))
    return True


async def read_outline(threads: ThreadStore, session_id: str, view: SessionView) -> Outline | None:
    """What `restore_row` makes a lost row of; None where nothing is lost, or the thread tells nothing."""
    lost = await find_lost_thread(threads, session_id, view)
    if lost is None or lost.owner != owner_of(session_id):
        return None
    return _outline_in(lost, session_id)


def _outline_in(facts: ThreadFacts, session_id: str) -> Outline | None:
    outline = parse_outline(facts.slice)
    return outline if outline is not None and outline.helix_session.session_id == session_id else None


def _fields_of_workflow(data: bytes) -> dict[str, Any]:
    """What a session workflow left in the slice of a thread that the session store has gone on with."""
    try:
        return fields_of_record(parse_record(data))
    except (ValidationError, HelixError):
        return {}
