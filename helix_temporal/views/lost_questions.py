"""What was asked in turns that left nothing in the thread, as the stream tells while it is kept."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from helix_temporal.errors import HelixError
from helix_temporal.models.checkpoints import Run
from helix_temporal.stores.streams.turns import find_begin_of_run
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.conversation import Conversation
from helix_temporal.views.models import TurnAttempt

_MOST: Final = 5
"""Attempts on a page whose questions are looked for, the newest."""
_PATIENCE: Final = 1.0
"""Seconds for all of them: they are shown beside what counts."""

Questions = Mapping[str, tuple[str, ...]]
"""What was asked, by the run's id."""


async def add_questions(
    viewed: ViewedSessions, session_id: str, made: Conversation, runs: Sequence[Run]
) -> Conversation:
    """A conversation with what was asked in attempts that failed or were aborted and left nothing.

    They stay as they are where nobody knows.  What was in the thread and was taken back is not told.
    """
    attempts = [*made.lost, *(attempt for turn in made.turns for attempt in turn.attempts)]
    lost = {each.run_id for each in attempts if not (each.kept or each.status.live or each.is_gone)}
    asked = await _read_questions(viewed, session_id, [run for run in runs if run.run_id in lost])
    if not asked:
        return made
    turns = tuple(
        turn.model_copy(update={"attempts": _with_questions(turn.attempts, asked)}) for turn in made.turns
    )
    return Conversation(turns, _with_questions(made.lost, asked))


def _with_questions(attempts: Sequence[TurnAttempt], asked: Questions) -> tuple[TurnAttempt, ...]:
    return tuple(each.model_copy(update={"asked": asked.get(each.run_id, ())}) for each in attempts)


async def _read_questions(viewed: ViewedSessions, session_id: str, runs: Sequence[Run]) -> Questions:
    found: dict[str, tuple[str, ...]] = {}
    if viewed.streams is None or not runs:
        return found
    # The stream decides nothing: whatever is wrong with it, the page has the rest.
    with contextlib.suppress(HelixError, TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            for run in sorted(runs, key=lambda run: run.turn)[-_MOST:]:
                begun = await find_begin_of_run(viewed.streams, session_id, run.run_id, run.start_sequence)
                if begun is not None:
                    found[run.run_id] = begun.texts
    return found
