"""How far sessions, runs, calls and schedules are: a word, and the tone in which it is shown."""

from typing import Final, Literal, NamedTuple

from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import SessionStatus
from helix_temporal.views.models import (
    CallStatus,
    ConversationCall,
    ScheduleFacts,
    SessionOverview,
    SessionView,
    TurnAttempt,
)
from helix_temporal.views.words import (
    CALL_WORDS,
    RUN_WORDS,
    Progress,
    find_progress,
    name_progress,
    name_status,
)

Tone = Literal["calm", "good", "busy", "wait", "bad"]
_SESSION_TONES: Final[dict[SessionStatus, Tone]] = {
    SessionStatus.ACTIVE: "good",
    SessionStatus.PAUSED: "wait",
    SessionStatus.INTERRUPTED: "wait",
    SessionStatus.COMPLETED: "calm",
    SessionStatus.FAILED: "bad",
}
_PROGRESS_TONES: Final[dict[Progress, Tone]] = {"running": "busy", "waiting": "wait"}
_RUN_TONES: Final[dict[RunStatus, Tone]] = {
    RunStatus.RUNNING: "busy",
    RunStatus.COMPLETED: "calm",
    RunStatus.FAILED: "bad",
    RunStatus.INTERRUPTED: "wait",
    RunStatus.ABORTED: "bad",
    RunStatus.SUSPENDED_CLIENT_TOOL: "wait",
    RunStatus.SUSPENDED_AWAITING_CHILDREN: "wait",
    RunStatus.SUSPENDED_STEP_PARTIAL: "wait",
    RunStatus.SUPERSEDED: "calm",
}
_CALL_TONES: Final[dict[CallStatus, Tone]] = {
    "running": "busy",
    "waiting": "wait",
    "done": "good",
    "failed": "bad",
    "denied": "bad",
    "expired": "bad",
    "unanswered": "wait",
}
OPEN_CALLS: Final = frozenset({"failed", "waiting", "denied", "expired"})
"""Calls that a page shows open: somebody has to look at them."""


class Mark(NamedTuple):
    """A word with the tone in which it is shown."""

    word: str
    tone: Tone


def mark_session(overview: SessionOverview) -> Mark:
    """What a session is."""
    status = overview.status
    return Mark(name_status(status), "calm" if status is None else _SESSION_TONES[status])


def mark_now(session: SessionView) -> Mark:
    """What a session does at present: ``running``, ``waiting``, or its last status."""
    return mark_followed(session, find_progress(session))


def mark_followed(session: SessionView, progress: Progress) -> Mark:
    """As `mark_now`, where the session's stream tells how far its turn is."""
    if progress == "idle":
        return mark_session(session.overview)
    return Mark(name_progress(session, progress), _PROGRESS_TONES[progress])


def mark_run(attempt: TurnAttempt) -> Mark:
    """How far a run of a turn is."""
    return Mark(RUN_WORDS[attempt.status], _RUN_TONES[attempt.status])


def mark_call(call: ConversationCall) -> Mark:
    """How far a tool call is."""
    return Mark(CALL_WORDS[call.status], _CALL_TONES[call.status])


def is_open(call: ConversationCall) -> bool:
    """Whether a call is shown open."""
    return call.status in OPEN_CALLS


def mark_schedule(schedule: ScheduleFacts) -> Mark:
    """How a schedule of maintenance goes: its newest run counts."""
    if schedule.problem or (schedule.recent and schedule.recent[0].is_failed):
        return Mark("last run failed" if not schedule.problem else "not known", "bad")
    if schedule.paused:
        return Mark("paused", "wait")
    return Mark("running", "busy") if schedule.running else Mark("on schedule", "good")
