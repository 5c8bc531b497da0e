"""What commands of sessions and threads print with ``--json`` beside the models of `helix_temporal.views`."""

from typing import Any

from pydantic import Field

from helix_temporal.models.streams import StoredChunk
from helix_temporal.views.models import ConversationTurn, Millis, ShownTokens, ThreadPlace, TurnAttempt, View


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


def make_turn_line(turn: ConversationTurn, characters: int = 200) -> TurnLine:
    """The line of a turn, with so many characters of its texts."""
    kept = [attempt for attempt in turn.attempts if attempt.kept]
    texts = [message.text for message in turn.messages if message.role == "user"]
    answers = [message.text for message in turn.messages if message.role == "assistant" and message.text]
    return TurnLine(
        number=turn.number,
        start=turn.start,
        stop=turn.stop,
        at=kept[-1].started_at if kept else None,
        status=kept[-1].status.value if kept else None,
        unfinished=turn.unfinished,
        text=texts[0][:characters] if texts else "",
        answer=answers[-1][:characters] if answers else "",
        attempts=len(turn.attempts),
        tokens=turn.tokens,
        cost_usd=None if turn.cost_usd is None else str(turn.cost_usd),
        duration_ms=turn.duration_ms,
        tool_calls=turn.tool_calls,
        failed_calls=turn.failed_calls,
    )
