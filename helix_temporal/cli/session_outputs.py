"""What commands of sessions and threads print with ``--json`` beside the models of `helix_temporal.views`."""

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

from pydantic import Field

from helix_temporal.models.streams import StoredChunk
from helix_temporal.stores.usage import sum_costs
from helix_temporal.views.conversation import find_kept_attempt
from helix_temporal.views.models import ConversationTurn, Millis, ShownTokens, ThreadPlace, TurnAttempt, View
from helix_temporal.views.usage import add_tokens


class TurnLine(View):
    """A turn in a list.

    Attributes:
        number: From 1; None where it is not known.
        start, stop: Positions in the thread: of its first message, and after its last.
        text: Beginning of its first message.
        answer: Beginning of its last answer's text.
        attempts: Runs at this place, also those that were thrown away.
    """

    number: int | None = None
    start: int
    stop: int
    at: Millis | None = None
    status: str | None = None
    unfinished: bool = False
    text: str = ""
    answer: str = ""
    attempts: int = 0
    tokens: ShownTokens = ShownTokens()
    cost_usd: str | None = None
    duration_ms: int | None = None
    tool_calls: int = 0
    failed_calls: int = 0


class TurnList(View):
    """Turns of a session, oldest first.

    Attributes:
        before: Is given to ``--before`` to list those before them; None at the begin.
        lost: Runs that belong to no turn of the thread any more.
        problem: What could not be read, and why.
    """

    session_id: str
    turns: tuple[TurnLine, ...] = ()
    before: int | None = None
    lost: tuple[TurnAttempt, ...] = ()
    problem: str | None = None


class StoredObject(View):
    """An object of an archive, and its size."""

    key: str
    bytes: int


class StoredThread(View):
    """A thread, and the objects that hold it.

    Attributes:
        last_id: Of its last message; empty where it has none.
        prefix: Of all its objects' keys; None where there is no archive.
    """

    place: ThreadPlace
    last_id: str = ""
    prefix: str | None = None
    objects: tuple[StoredObject, ...] = ()


class LiveLine(View):
    """A chunk of a session's stream, as ``--follow`` prints it.

    Attributes:
        sequence: In the stream, from 1.
        written_at: By the store's clock.
        chunk: Its fields by its ``type``.
    """

    sequence: int
    run_id: str = ""
    written_at: Millis = 0
    chunk: dict[str, Any] = Field(default_factory=dict)


def make_live_line(stored: StoredChunk) -> LiveLine:
    """The line of a chunk."""
    return LiveLine(
        sequence=stored.sequence,
        run_id=stored.run_id,
        written_at=stored.written_at,
        chunk=stored.chunk.model_dump(mode="json", exclude_unset=True),
    )


def make_lost_turn(attempt: TurnAttempt) -> ConversationTurn:
    """A run that belongs to no turn of the thread, as a turn without messages."""
    return ConversationTurn(number=attempt.turn, start=attempt.start, stop=attempt.start, attempts=(attempt,))


def make_turn_line(parts: Sequence[ConversationTurn], characters: int = 200) -> TurnLine:
    """The line of a turn, from all parts of it that were read, with so many characters of its texts."""
    first, last = parts[0], parts[-1]
    messages = [message for part in parts for message in part.messages]
    kept = find_kept_attempt(last.attempts)
    texts = [message.text for message in messages if message.role == "user"]
    answers = [message.text for message in messages if message.role == "assistant" and message.text]
    tokens, cost = _sum_parts(parts)
    return TurnLine(
        number=last.number if first.number is None else first.number,
        start=first.start,
        stop=last.stop,
        at=None if kept is None else kept.started_at,
        status=None if kept is None else kept.status.value,
        unfinished=last.unfinished,
        text=texts[0][:characters] if texts else "",
        answer=answers[-1][:characters] if answers else "",
        attempts=len(last.attempts),
        tokens=tokens,
        cost_usd=None if cost is None else str(cost),
        duration_ms=last.duration_ms,
        tool_calls=sum(part.tool_calls for part in parts),
        failed_calls=sum(part.failed_calls for part in parts),
    )


def _sum_parts(parts: Sequence[ConversationTurn]) -> tuple[ShownTokens, Decimal | None]:
    """What a turn used: each recorded call once, as parts may tell of calls of the whole run."""
    if len(parts) == 1:
        return parts[0].tokens, parts[0].cost_usd
    calls = {
        (call.at, call.step, call.model, call.tokens): call
        for part in parts
        for attempt in part.attempts
        for call in attempt.model_calls
        if attempt.kept
    }
    used = [call.tokens for call in calls.values()] or [part.tokens for part in parts]
    return reduce(add_tokens, used), sum_costs(call.cost_usd for call in calls.values())
