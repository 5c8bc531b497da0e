"""What statuses, errors and reasons are called where people read them; JSON has them as they are stored."""

from enum import StrEnum
from typing import Final, Literal

from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import ErrorInfo, SessionStatus
from helix_temporal.views.models import CallStatus, SessionView, TurnAttempt

Progress = Literal["idle", "running", "waiting"]
"""How far the newest turn of a session is."""
NOT_KNOWN: Final = "not known"
SESSION_WORDS: Final[dict[SessionStatus, str]] = {
    SessionStatus.ACTIVE: "active",
    SessionStatus.PAUSED: "waiting",
    SessionStatus.INTERRUPTED: "interrupted",
    SessionStatus.COMPLETED: "completed",
    SessionStatus.FAILED: "failed",
}
"""One word for each: in lists, in trees, of one session, and in filters."""
RUN_WORDS: Final[dict[RunStatus, str]] = {
    RunStatus.RUNNING: "running",
    RunStatus.COMPLETED: "completed",
    RunStatus.FAILED: "failed",
    RunStatus.INTERRUPTED: "interrupted",
    RunStatus.ABORTED: "aborted",
    RunStatus.SUSPENDED_CLIENT_TOOL: "waiting for an answer",
    RunStatus.SUSPENDED_AWAITING_CHILDREN: "waiting for sub-agents",
    RunStatus.SUSPENDED_STEP_PARTIAL: "waiting in a step",
    RunStatus.SUPERSEDED: "superseded",
}
CALL_WORDS: Final[dict[CallStatus, str]] = {
    "running": "running",
    "waiting": "waiting",
    "done": "done",
    "failed": "failed",
    "denied": "denied",
    "expired": "expired",
    "unanswered": "no result",
}
TAKEN_BACK: Final = "taken back"
"""A checkpoint before which the session went back."""


class StatusName(StrEnum):
    """What somebody may call a session's status: its word, or as it is stored."""

    ACTIVE = "active"
    WAITING = "waiting"
    PAUSED = "paused"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    FAILED = "failed"


def name_status(status: SessionStatus | None) -> str:
    """The word for a session's last status."""
    return NOT_KNOWN if status is None else SESSION_WORDS[status]


def find_named_status(name: StatusName) -> SessionStatus:
    """The status that has this name."""
    return next(each for each, word in SESSION_WORDS.items() if name.value in {word, each.value})


def find_progress(session: SessionView) -> Progress:
    """How far a session's turn is, by the stores."""
    run = session.live_run
    if run is not None and run.status is RunStatus.RUNNING:
        return "running"
    return "waiting" if run is not None or session.waiting else "idle"


def name_progress(session: SessionView, progress: Progress) -> str:
    """The word for what a session does: ``running``, ``waiting``, or its last status."""
    if progress == "idle":
        return name_status(session.overview.status)
    return RUN_WORDS[RunStatus.RUNNING] if progress == "running" else SESSION_WORDS[SessionStatus.PAUSED]


def describe_error(error: ErrorInfo) -> str:
    """An error's type and message; the type once, as some messages begin with it."""
    if not error.type or error.message.startswith(error.type):
        return error.message
    return f"{error.type}: {error.message}" if error.message else error.type


def describe_failure(session: SessionView) -> str:
    """Why a session ended or was interrupted; empty where it goes on.

    Its state keeps the error of its failure also after somebody has begun another turn.
    """
    status = session.overview.status
    if status in {None, SessionStatus.ACTIVE, SessionStatus.PAUSED}:
        return ""
    if session.error is not None and status is SessionStatus.FAILED:
        return describe_error(session.error)
    return session.failure_reason or ""


def find_reason(attempt: TurnAttempt) -> str:
    """Why a run ended as it did, where that says more than its status; empty where it doesn't."""
    if attempt.error is not None and not attempt.kept:
        return describe_error(attempt.error)
    if attempt.is_gone:
        return "taken back or lost later"
    plain = {attempt.status.value, "suspended", "completed", "failed"}
    return attempt.reason if attempt.reason and attempt.reason not in plain else ""
