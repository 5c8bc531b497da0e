"""A state that lacks turns of its thread: its store was restored from a backup, or has lost them.

The thread has the turns; its slice says which values changed where in it.  What they changed is committed
with the newest turn, and the session's receipts say so, and what could not be known.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from helix_temporal.activities._slice_changes import lacking
from helix_temporal.activities._state_turns import Behind, Turn
from helix_temporal.errors import StateBehindThreadError
from helix_temporal.models.records import Kind
from helix_temporal.models.sessions import Receipt, SliceState
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore

_PAGE: Final = 500
_PAGE_BYTES: Final = 4 * 1024 * 1024
_MAX_PAGES: Final = 40
"""Turns beyond so many pages of messages are brought forward, but not counted."""
_STEPS: Final = frozenset({Kind.ANSWER, Kind.CALLS})

_log: Final = logging.getLogger(__name__)


async def brought(
    store: SessionStore, threads: ThreadStore, turn: Turn, stop: int, at: int
) -> tuple[Turn, tuple[Receipt, ...]]:
    """The newest turn, which ends at ``stop``, with what those before it changed since ``at``.

    Returns:
        The turn to commit, and what is to be said of it; nothing where only the newest
        turn was missing, and the slice has all of its changes.
    """
    kept = turn.kept
    starts, steps = await _turns(threads, turn.thread_id, at, stop)
    if kept.changes is None and len(starts) <= 1:
        return turn, ()
    unknown = _unknown(kept, starts) + await _lost_staging(store, turn)
    behind = Behind(at, lacking(kept, at, stop), steps)
    is_news = len(starts) > 1 or unknown
    notes = (_note(turn.session_id, at, len(starts), unknown),) if is_news else ()
    return replace(turn, behind=behind), notes


def lost_staging_note(kept: SliceState, session_id: str) -> tuple[Receipt, ...]:
    """What a state lacks that is made again from its thread's slice: what tools of the newest turn staged."""
    if kept.changes is None or not kept.changes.staged:
        return ()
    found = (
        f"{StateBehindThreadError.__name__}: the state was gone, and was made again from its thread; what "
        "tools changed in it in the newest turn is not, or not all, known"
    )
    _log.warning("session %r: %s", session_id, found)
    return (Receipt(name="state", ok=False, detail=found),)


def _unknown(kept: SliceState, starts: Sequence[int]) -> int:
    """Pure: turns whose changes the slice does not know, or not all of them."""
    if kept.changes is None:
        return len(starts) - 1
    return sum(1 for each in starts if each < kept.changes.since)


async def _lost_staging(store: SessionStore, turn: Turn) -> bool:
    """Whether tools of the newest turn changed the state, and its store has lost that."""
    changes = turn.kept.changes
    if changes is None or not changes.staged or turn.run_id is None:
        return False
    rows = await store.list_staged(turn.session_id, turn.run_id)
    return not {*changes.staged} <= {row.change.result for row in rows}


def _note(session_id: str, at: int, turns: int, unknown: int) -> Receipt:
    found = f"the state stood at {at}, {turns} turns before its thread, and was brought forward"
    if unknown:
        missing = f"; what {unknown} of them changed in it is not, or not all, known"
        found = f"{StateBehindThreadError.__name__}: {found}{missing}"
    _log.warning("session %r: %s", session_id, found)
    return Receipt(name="state", ok=not unknown, detail=found)


async def _turns(threads: ThreadStore, thread_id: str, at: int, stop: int) -> tuple[list[int], int]:
    """Where the turns between two places begin, and how many model calls they have."""
    starts, steps, position, last = [at] if at < stop else [], 0, at, Kind.USER
    for _ in range(_MAX_PAGES):
        page = await threads.read(
            ReadPage(
                thread_id,
                position,
                stop,
                limit=_PAGE,
                max_bytes=_PAGE_BYTES,
                committed_only=False,
                whole=False,
            )
        )
        for record in page.records:
            if record.kind == Kind.USER != last:
                starts.append(position)
            steps += record.kind in _STEPS
            last, position = record.kind, position + 1
        if position >= stop or not page.records:
            break
    return starts, steps
