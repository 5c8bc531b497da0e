"""Which runs belong to a part of a thread, found without reading all runs of the session."""

from collections.abc import Sequence
from typing import Final

from helix_temporal.models.checkpoints import Run
from helix_temporal.models.store_calls import MAX_LIMIT
from helix_temporal.models.turns import starts_in
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.views.conversation import MessagesPart

_MOST_PAGES: Final = 4
"""Of runs for one page of a conversation: a turn that was tried hundreds of times shows its newest tries."""
_SCANNED: Final = 10
"""Pages of runs that are read where turns by the hundred were taken back."""
_PROBE: Final = 16
_MOST_PROBES: Final = 40


async def read_runs(store: SessionStore, session_id: str, part: MessagesPart) -> tuple[Run, ...]:
    """Runs that began in a part of the thread, and that of the turn in whose middle it begins, if it does.

    Their numbers grow with time, and their places in the thread do as well, unless turns were taken back:
    then later runs begin before earlier ones.
    """
    newest = await _read_some(store, session_id, None, 1)
    if not newest:
        return ()
    through = newest[0].turn
    if part.stop < part.head:
        last = await _find_last_run(store, session_id, through, part)
        if last is None:
            return ()
        through = last.turn
    found: list[Run] = []
    for _ in range(_MOST_PAGES):
        page = await _read_some(store, session_id, through, MAX_LIMIT)
        for run in page:
            found.append(run)
            if _is_before(run, part):
                return tuple(found)
        if len(page) < MAX_LIMIT:
            break
        through = page[-1].turn - 1
    return tuple(found)


def _is_before(run: Run, part: MessagesPart) -> bool:
    """Whether no older run began in the part: what it kept stands before it."""
    return run.start_head.position < part.first


async def _find_last_run(store: SessionStore, session_id: str, newest: int, part: MessagesPart) -> Run | None:
    """The newest run that began before the end of a part; None if there is none."""
    found = await _search_run(store, session_id, newest, part.stop)
    if found is not None:
        near = await _read_some(store, session_id, found.turn + MAX_LIMIT // 2, MAX_LIMIT)
        last = _newest_before(near, part.stop)
        if last is not None and _fits(part, near, last):
            return last
    return await _scan_runs(store, session_id, newest, part.stop)


async def _search_run(store: SessionStore, session_id: str, newest: int, stop: int) -> Run | None:
    """A run that began before a position and whose next one did not, by halving.

    It is the newest one if no turns were taken back.
    """
    low, high = 1, newest
    found: Run | None = None
    for _ in range(_MOST_PROBES):
        if low > high:
            break
        middle = min((low + high) // 2 + _PROBE // 2, high)
        runs = await _read_some(store, session_id, middle, _PROBE)
        if not runs:
            break
        before = _newest_before(runs, stop)
        if before is None:
            high = runs[-1].turn - 1
            continue
        found = before
        if before is not runs[0]:
            break
        low = before.turn + 1
    return found


def _newest_before(runs: Sequence[Run], stop: int) -> Run | None:
    return next((run for run in runs if run.start_head.position < stop), None)


def _fits(part: MessagesPart, near: Sequence[Run], last: Run) -> bool:
    """Whether a run is that of a part's last turn, by the ids of the messages in the thread.

    Where many turns were taken back, a run that began at the same place may have ended otherwise.

    Args:
        part: Messages of the thread as it is.
        near: Runs before and behind the last one.
        last: The newest of them that began before the part's end.
    """
    behind = [run for run in near if run.turn > last.turn and run.start_head.position == part.stop]
    if behind:
        return any(run.start_head.last_id == part.messages[-1].id for run in behind)
    starts = starts_in(part.messages, from_begin=part.first == 0)
    if starts:
        at = starts[-1]
        return last.start_head.last_id == part.messages[at - 1].id
    return last.start_head.position <= part.first


async def _scan_runs(store: SessionStore, session_id: str, newest: int, stop: int) -> Run | None:
    """The newest run that began before a position, looked for from the newest on, among some thousands."""
    through = newest
    for _ in range(_SCANNED):
        runs = await _read_some(store, session_id, through, MAX_LIMIT)
        found = _newest_before(runs, stop)
        if found is not None or len(runs) < MAX_LIMIT:
            return found
        through = runs[-1].turn - 1
    return None


async def _read_some(store: SessionStore, session_id: str, through: int | None, limit: int) -> Sequence[Run]:
    """Runs up to a turn, newest first."""
    page = await store.list_runs(session_id, limit=limit, through_turn=through, count=False)
    return page.items
