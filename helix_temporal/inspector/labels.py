"""What sessions, turns, runs and parts of a context are called on pages, and which runs are told apart."""

from typing import Final

from pydantic import JsonValue

from helix_temporal.views.children import MAX_CHILDREN
from helix_temporal.views.conversation import find_kept_attempt
from helix_temporal.views.models import (
    ContextPart,
    ConversationPage,
    ConversationTurn,
    SessionOverview,
    SessionView,
    TurnAttempt,
    WaitingFor,
)

_WAITS: Final = {
    "approval": "approval",
    "client": "the client's result",
    "sub_agent": "a sub-agent",
}
PART_NAMES: Final = {
    "instructions": "Instructions",
    "tools": "Tools",
    "summary": "Summary",
    "message": "Messages",
    "input": "Input",
}


def name_wait(waiting: WaitingFor) -> str:
    """For what somebody waits, after "waits for"."""
    return _WAITS[waiting.kind]


def name_session(overview: SessionOverview) -> str:
    """The title; of a sub-agent's session without one its agent, as its id was made by us; else the id."""
    made = overview.agent if overview.parent_session_id is not None else ""
    return overview.title or made or overview.session_id


def list_open(conversation: ConversationPage) -> tuple[ConversationTurn, ...]:
    """The turns of the newest page that are not told for good: under way, or with an end not recorded yet.

    A turn's messages are in the thread a moment before its run is recorded as ended, and sometimes before
    the run itself is recorded, which has the turn's number.
    """
    newest = conversation.turns[-1:]
    counted = any(each.number is not None for each in conversation.turns)
    return tuple(
        each
        for each in conversation.turns
        if each.unfinished or (each in newest and not _is_recorded(each, counted=counted))
    )


def _is_recorded(turn: ConversationTurn, *, counted: bool) -> bool:
    """Whether a turn has what its run tells; where no turn has a number, nobody records runs."""
    kept = find_kept_attempt(turn.attempts)
    return (turn.number is not None or not counted) and (kept is None or not kept.status.live)


def is_running(turn: ConversationTurn, attempt: TurnAttempt) -> bool:
    """Whether an attempt is under way: one whose turn is stored as a whole only has no end recorded yet."""
    return attempt.status.live and turn.unfinished


def name_turn(turn: ConversationTurn) -> str:
    """A turn's name on the page."""
    return f"Turn {turn.number}" if turn.number is not None else f"From message {turn.start}"


def anchor_turn(turn: ConversationTurn) -> str:
    """A turn's anchor on its page: ``turn-17``."""
    return f"turn-{turn.number}" if turn.number is not None else f"at-{turn.start}"


def split_attempts(turn: ConversationTurn) -> tuple[tuple[TurnAttempt, ...], TurnAttempt | None]:
    """The attempts of a turn that were thrown away, and the one whose messages are in the thread."""
    return tuple(filter(is_discarded, turn.attempts)), find_kept_attempt(turn.attempts)


def is_discarded(attempt: TurnAttempt) -> bool:
    """Whether a run was thrown away; one under way has left nothing in the thread yet, and may still."""
    return not attempt.kept and not attempt.status.live


def list_lost(conversation: ConversationPage, wanted: TurnAttempt | None = None) -> tuple[TurnAttempt, ...]:
    """Attempts that were thrown away and belong to no turn of the thread, with the one that is wanted."""
    found = {each.turn: each for each in conversation.lost if is_discarded(each)}
    if wanted is not None and is_discarded(wanted):
        found[wanted.turn] = wanted
    return tuple(found[turn] for turn in sorted(found))


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
    return PART_NAMES[kind]


def name_context_part(part: ContextPart) -> str:
    """One part of a context in its list: a tool's or a speaker's name, else its kind."""
    if part.name:
        return part.name
    return part.role.capitalize() if part.role and part.kind in {"message", "input"} else name_part(part.kind)


def show_metadata(metadata: dict[str, JsonValue]) -> tuple[tuple[str, str], ...]:
    """Metadata whose values are plain, as text."""
    plain = ((key, value) for key, value in metadata.items() if isinstance(value, str | int | float | bool))
    return tuple((key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in plain)


def count_children(session: SessionView) -> str:
    """How many sub-agents' sessions there are to see, as far as they are looked at."""
    count = len(session.children)
    return f"{count}+" if count >= MAX_CHILDREN else str(count)
