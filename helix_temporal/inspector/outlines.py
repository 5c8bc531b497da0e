"""What is shown of a session, decided apart from HTML: names of states, titles, places, bars."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from pydantic import JsonValue

from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import ErrorInfo, SessionStatus
from helix_temporal.views.models import (
    ContextPart,
    ConversationCall,
    ConversationPage,
    ConversationTurn,
    ModelContext,
    ScheduleFacts,
    SegmentPlace,
    SessionOverview,
    SessionView,
    ThreadPlace,
    TurnAttempt,
    WaitingFor,
)

Tone = Literal["calm", "good", "busy", "wait", "bad"]
BAR: Final = 1000
"""Units in the width of a bar."""

_SESSION_TONES: Final[dict[SessionStatus, Tone]] = {
    SessionStatus.ACTIVE: "good",
    SessionStatus.PAUSED: "wait",
    SessionStatus.INTERRUPTED: "wait",
    SessionStatus.COMPLETED: "calm",
    SessionStatus.FAILED: "bad",
}
_RUN_WORDS: Final[dict[RunStatus, tuple[str, Tone]]] = {
    RunStatus.RUNNING: ("running", "busy"),
    RunStatus.COMPLETED: ("completed", "calm"),
    RunStatus.FAILED: ("failed", "bad"),
    RunStatus.INTERRUPTED: ("interrupted", "wait"),
    RunStatus.ABORTED: ("aborted", "bad"),
    RunStatus.SUSPENDED_CLIENT_TOOL: ("waits for an answer", "wait"),
    RunStatus.SUSPENDED_AWAITING_CHILDREN: ("waits for sub-agents", "wait"),
    RunStatus.SUSPENDED_STEP_PARTIAL: ("waits in a step", "wait"),
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
_WAITS: Final = {
    "approval": "approval",
    "client": "the client's result",
    "sub_agent": "a sub-agent",
}
_PART_NAMES: Final = {
    "instructions": "Instructions",
    "tools": "Tools",
    "summary": "Summary",
    "message": "Messages",
    "input": "Input",
}
OPEN_CALLS: Final = frozenset({"failed", "waiting", "denied", "expired"})
"""Calls that a page shows open: somebody has to look at them."""


class Mark(NamedTuple):
    """A word with the tone in which it is shown."""

    word: str
    tone: Tone


class Slice(NamedTuple):
    """A piece of a bar: from ``start``, ``width`` wide, in units of which the bar has `BAR`."""

    name: str
    start: float
    width: float
    amount: int


def mark_session(overview: SessionOverview) -> Mark:
    """What a session is."""
    return Mark(overview.status.value, _SESSION_TONES[overview.status])


def mark_now(session: SessionView) -> Mark:
    """What a session does at present: ``running``, ``waiting``, ``idle``, or its last status."""
    run = session.live_run
    if run is not None and run.status is RunStatus.RUNNING:
        return Mark("running", "busy")
    if run is not None or session.waiting:
        return Mark("waiting", "wait")
    status = session.overview.status
    return Mark("idle", "calm") if status is SessionStatus.ACTIVE else mark_session(session.overview)


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


def name_wait(waiting: WaitingFor) -> str:
    """For what somebody waits, after "waits for"."""
    return _WAITS[waiting.kind]


def name_session(overview: SessionOverview) -> str:
    """The title; of a sub-agent's session without one its agent, as its id was made by us; else the id."""
    made = overview.agent if overview.parent_session_id is not None else ""
    return overview.title or made or overview.session_id


def name_turn(turn: ConversationTurn) -> str:
    """A turn's name on the page."""
    return f"Turn {turn.number}" if turn.number is not None else f"From message {turn.start}"


def anchor_turn(turn: ConversationTurn) -> str:
    """A turn's anchor on its page: ``turn-17``."""
    return f"turn-{turn.number}" if turn.number is not None else f"at-{turn.start}"


def split_attempts(turn: ConversationTurn) -> tuple[tuple[TurnAttempt, ...], TurnAttempt | None]:
    """The attempts of a turn that were thrown away, and the one whose messages are in the thread."""
    kept = [each for each in turn.attempts if each.kept]
    return tuple(filter(is_discarded, turn.attempts)), kept[-1] if kept else None


def is_discarded(attempt: TurnAttempt) -> bool:
    """Whether a run was thrown away; one under way has left nothing in the thread yet, and may still."""
    return not attempt.kept and not attempt.status.live


def list_lost(conversation: ConversationPage) -> tuple[TurnAttempt, ...]:
    """Attempts that were thrown away and belong to no turn of the thread."""
    return tuple(filter(is_discarded, conversation.lost))


def describe_error(error: ErrorInfo) -> str:
    """An error's type and message; the type once, as some messages begin with it."""
    if not error.type or error.message.startswith(error.type):
        return error.message
    return f"{error.type}: {error.message}" if error.message else error.type


def find_reason(attempt: TurnAttempt) -> str:
    """Why a run ended as it did, where that says more than its status; empty where it doesn't."""
    if attempt.error is not None and not attempt.kept:
        return attempt.error.message
    plain = {attempt.status.value, "suspended", "completed", "failed"}
    return attempt.reason if attempt.reason and attempt.reason not in plain else ""


def measure_attempt(attempt: TurnAttempt) -> int | None:
    """How long a run took, in milliseconds; None while it goes on."""
    if attempt.started_at is None or attempt.ended_at is None:
        return None
    return max(0, attempt.ended_at - attempt.started_at)


def sum_tokens(attempt: TurnAttempt) -> int:
    """All tokens of a run's model calls."""
    return sum(each.tokens.total for each in attempt.model_calls)


def find_answer(turn: ConversationTurn) -> int | None:
    """The position of a turn's last message of the model; None where it has none yet."""
    return next((each.position for each in reversed(turn.messages) if each.role == "assistant"), None)


def is_long(text: str) -> bool:
    """Whether a text is folded on the page."""
    return len(text) > 1800 or text.count("\n") > 28


def name_part(kind: str) -> str:
    """A kind of context part as a heading."""
    return _PART_NAMES[kind]


def name_context_part(part: ContextPart) -> str:
    """One part of a context in its list: a tool's or a speaker's name, else its kind."""
    if part.name:
        return part.name
    return part.role.capitalize() if part.role and part.kind in {"message", "input"} else name_part(part.kind)


def slice_context(context: ModelContext) -> tuple[Slice, ...]:
    """The bar of a context: tokens by kind of part, in the order in which the model gets them."""
    sums = {kind: sum_part_tokens(context.parts, kind) for kind in _PART_NAMES}
    return slice_bar(sums.items())


def sum_part_tokens(parts: Iterable[ContextPart], kind: str | None = None) -> int:
    """Tokens of all parts, or of those of one kind."""
    return sum(each.tokens for each in parts if kind is None or each.kind == kind)


def slice_bar(amounts: Iterable[tuple[str, int]]) -> tuple[Slice, ...]:
    """Amounts as pieces of one bar, side by side; what is nothing has none."""
    given = [(name, amount) for name, amount in amounts if amount > 0]
    whole = sum(amount for _, amount in given)
    pieces: list[Slice] = []
    start = 0.0
    for name, amount in given:
        width = BAR * amount / whole
        pieces.append(Slice(name, round(start, 2), round(width, 2), amount))
        start += width
    return tuple(pieces)


def slice_thread(place: ThreadPlace, segments: Sequence[SegmentPlace]) -> tuple[Slice, ...]:
    """A thread as a strip: its segments, what only the hot store has, and the turn under way."""
    archived = min(place.archived or 0, place.messages)
    older = segments[0].first if segments else archived
    inside = [(each.name, min(each.stop, archived) - each.first) for each in segments]
    hot = place.messages - archived if place.hot else 0
    return slice_bar([("older", older), *inside, ("hot", hot), ("unfinished", place.unfinished)])


def merge_segments(segments: Sequence[SegmentPlace], most: int = 60) -> tuple[SegmentPlace, ...]:
    """At most so many segments: neighbours are drawn as one where there are more."""
    if len(segments) <= most:
        return tuple(segments)
    step = -(-len(segments) // most)
    groups = [segments[at : at + step] for at in range(0, len(segments), step)]
    return tuple(
        SegmentPlace(
            name=f"{group[0].name} … {group[-1].name}" if len(group) > 1 else group[0].name,
            first=group[0].first,
            stop=group[-1].stop,
            bytes=sum(each.bytes for each in group),
        )
        for group in groups
    )


def show_metadata(metadata: dict[str, JsonValue]) -> tuple[tuple[str, str], ...]:
    """Metadata whose values are plain, as text."""
    plain = ((key, value) for key, value in metadata.items() if isinstance(value, str | int | float | bool))
    return tuple((key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in plain)


def count_findings(count: int) -> str:
    """How much is wrong with a thread."""
    return "One thing is wrong" if count == 1 else f"{count} things are wrong"
