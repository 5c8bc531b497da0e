"""Which runs belong to a part of a thread, found without reading all runs of the session."""

from collections.abc import Sequence
from typing import Final

from helix_temporal.models.checkpoints import Run
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.views.conversation import ThreadPart

_PAGE: Final = 100
_MOST_PAGES: Final = 4
"""Of runs for one page of a conversation: a turn that was tried hundreds of times shows its newest tries."""
_PROBE: Final = 16
_MOST_PROBES: Final = 40


async def read_runs(store: SessionStore, session_id: str, part: ThreadPart) -> tuple[Run, ...]:
    """Runs that began in a part of the thread, and that of the turn in whose middle it begins, if it does.

    Their numbers grow with time, and their places in the thread do as well, unless turns were taken back:
    then later runs begin before earlier ones.
    """
    newest = (await store.list_runs(session_id, limit=1, count=False)).items
    if not newest:
        return ()
    through = newest[0].turn
    if part.stop < part.head:
        last = await _find_last_run(store, session_id, through, part.stop)
        if last is None:
            return ()
        through = last.turn
    found: list[Run] = []
    for _ in range(_MOST_PAGES):
        page = await store.list_runs(session_id, limit=_PAGE, through_turn=through, count=False)
        for run in page.items:
            found.append(run)
            if _is_before(run, part):
                return tuple(found)
        if not page.has_more:
            break
        through = page.items[-1].turn - 1
    return tuple(found)


def _is_before(run: Run, part: ThreadPart) -> bool:
    """Whether no older run began in the part: what it kept stands before it."""
    return run.start_head.position < part.first


async def _find_last_run(store: SessionStore, session_id: str, newest: int, stop: int) -> Run | None:
    """The newest run that began before a position, by halving; None if there is none.

    Where turns were taken back it may be one of those: then those at hand are looked through.
    """
    low, high = 1, newest
    found: Run | None = None
    for _ in range(_MOST_PROBES):
        if low > high:
            break
        middle = (low + high) // 2
        runs = await _read_some(store, session_id, min(middle + _PROBE // 2, high))
        if not runs:
            break
        before = [run for run in runs if run.start_head.position < stop]
        if before:
            found = before[0] if found is None or before[0].turn > found.turn else found
            low = max(runs[0].turn, middle) + 1 if before[0] is runs[0] else high + 1
        else:
            high = runs[-1].turn - 1
    return found


async def _read_some(store: SessionStore, session_id: str, through: int) -> Sequence[Run]:
    return (await store.list_runs(session_id, limit=_PROBE, through_turn=through, count=False)).items
