"""How far sessions, runs, calls and schedules are: a word, and the tone in which it is shown."""

from typing import Final, Literal, NamedTuple

from helix_temporal.inspector.live_turn import LiveStatus
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import SessionStatus
from helix_temporal.views.models import (
    ConversationCall,
    ScheduleFacts,
    SessionOverview,
    SessionView,
    TurnAttempt,
)

Tone = Literal["calm", "good", "busy", "wait", "bad"]
SESSION_WORDS: Final[dict[SessionStatus, tuple[str, Tone]]] = {
    SessionStatus.ACTIVE: ("active", "good"),
    SessionStatus.PAUSED: ("waiting", "wait"),
    SessionStatus.INTERRUPTED: ("interrupted", "wait"),
    SessionStatus.COMPLETED: ("completed", "calm"),
    SessionStatus.FAILED: ("failed", "bad"),
}
"""One word for each, in lists, in trees, on a session's page and in the filter."""
_WAITING: Final = SESSION_WORDS[SessionStatus.PAUSED]
_RUN_WORDS: Final[dict[RunStatus, tuple[str, Tone]]] = {
    RunStatus.RUNNING: ("running", "busy"),
    RunStatus.COMPLETED: ("completed", "calm"),
    RunStatus.FAILED: ("failed", "bad"),
    RunStatus.INTERRUPTED: ("interrupted", "wait"),
    RunStatus.ABORTED: ("aborted", "bad"),
    RunStatus.SUSPENDED_CLIENT_TOOL: ("waiting for an answer", "wait"),
    RunStatus.SUSPENDED_AWAITING_CHILDREN: ("waiting for sub-agents", "wait"),
    RunStatus.SUSPENDED_STEP_PARTIAL: ("waiting in a step", "wait"),
    RunStatus.SUPERSEDED: ("superseded", "calm"),
}
_CALL_WORDS: Final[dict[str, tuple[str, Tone]]] = {
    "running": ("running", "busy"),
    "waiting": ("waiting", "wait"),
    "done": ("done", "good"),
    "failed": ("failed", "bad"),
    "denied": ("denied", "bad"),
    "expired": ("expired", "bad"),
    "unanswered": ("no result", "wait"),
}
OPEN_CALLS: Final = frozenset({"failed", "waiting", "denied", "expired"})
"""Calls that a page shows open: somebody has to look at them."""


class Mark(NamedTuple):
    """A word with the tone in which it is shown."""

    word: str
    tone: Tone


def mark_session(overview: SessionOverview) -> Mark:
    """What a session is."""
    return Mark("not known", "calm") if overview.status is None else Mark(*SESSION_WORDS[overview.status])


def mark_now(session: SessionView) -> Mark:
    """What a session does at present: ``running``, ``waiting``, or its last status."""
    return mark_followed(session, find_progress(session))


def find_progress(session: SessionView) -> LiveStatus:
    """How far its turn is, by the stores."""
    run = session.live_run
    if run is not None and run.status is RunStatus.RUNNING:
        return "running"
    return "waiting" if run is not None or session.waiting else "idle"


def mark_followed(session: SessionView, progress: LiveStatus) -> Mark:
    """As `mark_now`, where the session's stream tells how far its turn is."""
    if progress == "idle":
        return mark_session(session.overview)
    return Mark(*_RUN_WORDS[RunStatus.RUNNING]) if progress == "running" else Mark(*_WAITING)


def mark_run(attempt: TurnAttempt) -> Mark:
    """How far a run of a turn is."""
    return Mark(*_RUN_WORDS[attempt.status])


def mark_call(call: ConversationCall) -> Mark:
    """How far a tool call is."""
    return Mark(*_CALL_WORDS[call.status])


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
