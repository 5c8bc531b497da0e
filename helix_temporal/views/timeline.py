"""What a session ran: its runs, newest first, also those that were thrown away."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.errors import InvalidCursorError
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.states import SessionState
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.conversation import attempt_of
from helix_temporal.views.models import RunList
from helix_temporal.views.problems import PARTIAL_READ_ERRORS, describe_problem
from helix_temporal.views.storage import find_thread
from helix_temporal.views.turn_pages import FEW_STEPS, read_entries
from helix_temporal.views.usage import RecordedUsage

_DIGITS: Final = 15


@dataclass(frozen=True, slots=True)
class TimelinePlace:
    """Where a list of runs goes on.

    Attributes:
        lowest: The lowest place in the thread at which a newer run began; at first the thread's end, or None
            where that is not known.
        cursor: Of the session store; None for the newest runs.
    """

    lowest: int | None = None
    cursor: str | None = None

    def encode(self) -> str:
        """The place as text."""
        return f"{'' if self.lowest is None else self.lowest}.{self.cursor}"

    @classmethod
    def parse(cls, text: str) -> "TimelinePlace":
        """Inverse of `encode`.

        Raises:
            InvalidCursorError: It is no such text.
        """
        lowest, dot, cursor = text.partition(".")
        digits = lowest.isascii() and lowest.isdigit() and len(lowest) <= _DIGITS
        if not dot or not cursor or (lowest and not digits):
            raise InvalidCursorError("the cursor is not one that this list gave; begin without one")
        return cls(int(lowest) if lowest else None, cursor)


async def list_runs(viewed: ViewedSessions, state: SessionState, limit: int, cursor: str | None) -> RunList:
    """A page of runs, newest first; in a session of up to 500 steps with their model calls.

    Some stores read all that a session used to tell a part of it: for a long one that takes seconds.

    Raises:
        InvalidCursorError: The cursor is none of this list.
        InvalidRequestError: The limit is not 1 to 200.
    """
    session_id, problem = state.session_id, None
    if viewed.sessions is None:
        return RunList(session_id=session_id)
    if cursor is not None:
        place = TimelinePlace.parse(cursor)
    else:
        found = await find_thread(viewed.threads, state.messages_thread_id)
        head = None if found.facts is None else found.facts.head.position
        place, problem = TimelinePlace(head), found.problem
    page = await viewed.sessions.list_runs(session_id, limit=limit, cursor=place.cursor, count=False)
    usage = RecordedUsage()
    try:
        if state.step_count <= FEW_STEPS:
            entries, _ = await read_entries(viewed, session_id, page.items)
            usage = RecordedUsage.of(entries)
    except PARTIAL_READ_ERRORS as error:
        problem = problem or describe_problem(error)
    kept, lowest = find_kept_runs(page.items, place.lowest)
    runs = tuple(attempt_of(run, usage, kept=run.run_id in kept) for run in page.items)
    following = TimelinePlace(lowest, page.next_cursor).encode() if page.next_cursor else None
    return RunList(session_id=session_id, runs=runs, next_cursor=following, problem=problem)


def find_kept_runs(runs: Sequence[Run], lowest: int | None) -> tuple[frozenset[str], int | None]:
    """The ids of those whose messages are in the thread, and the lowest place at which one of all began.

    A run is not kept that was discarded, and none at whose begin, or before it, a newer one began: then its
    messages were taken back, or there were none.  A list of runs has to tell it by the places at which they
    began, as it reads no messages.  A page of a conversation has the messages, but not all newer runs: there
    a run is kept whose head is in the thread, and which is the newest of those that began at it.

    Args:
        runs: Newest first.
        lowest: See `TimelinePlace`.
    """
    kept: set[str] = set()
    for run in runs:
        start = run.start_head.position
        if not run.status.is_discarded and (run.status.live or lowest is None or start < lowest):
            kept.add(run.run_id)
        lowest = start if lowest is None else min(lowest, start)
    return frozenset(kept), lowest
