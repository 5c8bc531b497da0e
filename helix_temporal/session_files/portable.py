"""What of a state and of a workflow's record a file may hold: what says what the session is.

The same functions make it of what is stored, and tell of a file whether somebody else wrote more into it.
"""

from typing import Any, Final

from helix_temporal.models.states import SessionState, SessionStatus
from helix_temporal.models.stored_messages import Head
from helix_temporal.session.record import SessionRecord

STATE_LEFT_OUT: Final[dict[str, Any]] = {
    "thread_id": None,
    "current_run_id": None,
    "pending_client_tool_calls": {},
    "completed_client_tool_calls": {},
    "client_tool_call_ownership": {},
    "suspension_context": None,
    "suspended_awaiting_children": (),
    "suspended_step_id": None,
    "tracing_context": None,
    "workspaces": (),
    "cleanup_pending": False,
}
"""Fields of a state that belong to a store, to what runs, or to other systems.

A session of a file waits for nothing, and has the thread of its own id: a file cannot name another's.
"""

RECORD_KEPT: Final = (
    "agent", "metadata", "instructions", "turns", "steps", "usage", "values", "summary", "options",
)  # fmt: skip
"""Fields of a session workflow's record that say what the session is, rather than what it is at."""


def make_portable_state(state: SessionState, head: Head, top: str | None) -> SessionState:
    """The state as a file has it: nothing runs, nothing waits, and no session outside the file is above it.

    Args:
        state: As it is stored.
        head: Where the messages of the file end.
        top: The first session of the file; None for itself.
    """
    above: dict[str, str | None] = {"parent_session_id": None, "root_session_id": None}
    if top is not None:
        above = {"root_session_id": None if state.root_session_id is None else top}
    return state.model_copy(
        update={
            **STATE_LEFT_OUT,
            **above,
            "head": state.head if state.head.position <= head.position else head,
            "status": SessionStatus.ACTIVE if state.status is SessionStatus.PAUSED else state.status,
            "stream_id": state.stream_id if state.stream_id == state.session_id else None,
        }
    )


def make_portable_record(record: SessionRecord, head: Head) -> SessionRecord:
    """A session workflow's record as a file has it."""
    kept = {name: getattr(record, name) for name in RECORD_KEPT}
    if record.summary is not None and record.summary.upto.position > head.position:
        kept["summary"] = None
    return SessionRecord(**kept)


def list_differences(one: SessionState | SessionRecord, other: SessionState | SessionRecord) -> list[str]:
    """Names of the fields in which they differ."""
    before, after = one.model_dump(), other.model_dump()
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
