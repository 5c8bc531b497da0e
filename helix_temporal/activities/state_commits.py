"""Commits the state of a turn that is in the thread, with turns before it that the state lacks."""

import logging
import time
from dataclasses import dataclass, replace
from typing import Final

from helix_temporal.activities.staging import promote_what_fits
from helix_temporal.activities.state_changes import TRIES
from helix_temporal.errors import (
    InvalidRequestError,
    PatchConflictError,
    StateBehindThreadError,
    StoreUnavailableError,
    TooLargeError,
)
from helix_temporal.models.checkpoints import RunChange, StepCommit
from helix_temporal.models.foreign_rows import is_foreign
from helix_temporal.models.sessions import Receipt
from helix_temporal.models.stored_messages import Kind, StoredMessage
from helix_temporal.models.turns import starts_in
from helix_temporal.session.projection import MissingTurns, TurnToCommit, count_unknown_turns
from helix_temporal.session.record import SessionRecord, list_missing_changes
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore
from helix_temporal.telemetry import metrics

_PAGE: Final = 500
_PAGE_BYTES: Final = 4 * 1024 * 1024
_MAX_PAGES: Final = 40
"""Turns beyond so many pages of messages are brought forward, but not counted."""

_log: Final = logging.getLogger(__name__)


async def catch_up_state(
    store: SessionStore, threads: ThreadStore, turn: TurnToCommit, stop: int, at: int
) -> tuple[TurnToCommit, tuple[Receipt, ...]]:
    """The newest turn, which ends at ``stop``, with what those before it changed since ``at``.

    Returns:
        The turn to commit, and what is to be said of it; nothing where only the newest
        turn was missing, and the slice has all of its changes.
    """
    record = turn.record
    starts, steps = await _scan_turns(threads, turn, at, stop)
    if record.changes is None and len(starts) <= 1:
        return turn, ()
    unknown = count_unknown_turns(record, starts) + await _lost_staging(store, turn)
    behind = MissingTurns(at, list_missing_changes(record, at, stop), steps)
    is_news = len(starts) > 1 or unknown
    notes = (_report_catch_up(turn.session_id, at, len(starts), unknown),) if is_news else ()
    return replace(turn, behind=behind), notes


def lost_staging_note(record: SessionRecord, session_id: str) -> tuple[Receipt, ...]:
    """What a state lacks that is made again from its thread's slice: what tools of the newest turn staged."""
    if record.changes is None or not record.changes.staged:
        return ()
    found = (
        f"{StateBehindThreadError.__name__}: the state was gone, and was made again from its thread; what "
        "tools changed in it in the newest turn is not, or not all, known"
    )
    _log.warning("session %r: %s", session_id, found)
    return (Receipt(name="state", ok=False, detail=found),)


async def _lost_staging(store: SessionStore, turn: TurnToCommit) -> bool:
    """Whether tools of the newest turn changed the state, and its store has lost that."""
    changes = turn.record.changes
    if changes is None or not changes.staged or turn.run_id is None:
        return False
    rows = await store.list_staged(turn.session_id, turn.run_id)
    return not {*changes.staged} <= {row.change.result for row in rows}


def _report_lost_staging(turn: TurnToCommit, promoted: int) -> tuple[Receipt, ...]:
    """What is said of a turn whose tools have changed more of the state than came into it."""
    wanted = len({*(turn.results or ())})
    if promoted >= wanted:
        return ()
    found = (
        f"{StateBehindThreadError.__name__}: of {wanted} tools that changed the state in the turn, the "
        f"changes of {promoted} are in it; its store has lost those of the others, or they did not fit"
    )
    _log.warning("session %r: %s", turn.session_id, found)
    return (Receipt(name="state", ok=False, detail=found),)


def _report_catch_up(session_id: str, at: int, turns: int, unknown: int) -> Receipt:
    found = f"the state stood at {at}, {turns} turns before its thread, and was brought forward"
    if unknown:
        missing = f"; what {unknown} of them changed in it is not, or not all, known"
        found = f"{StateBehindThreadError.__name__}: {found}{missing}"
    _log.warning("session %r: %s", session_id, found)
    return Receipt(name="state", ok=not unknown, detail=found)


async def _scan_turns(threads: ThreadStore, turn: TurnToCommit, at: int, stop: int) -> tuple[list[int], int]:
    """Where the turns between two places begin, and how many model calls they have."""
    starts, steps, position, last = [at] if at < stop else [], 0, at, tuple[StoredMessage, ...]()
    for _ in range(_MAX_PAGES):
        page = await threads.read(
            ReadPage(
                turn.thread_id,
                position,
                stop,
                limit=_PAGE,
                max_bytes=_PAGE_BYTES,
                committed_only=False,
                whole=False,
                epoch=turn.epoch,
            )
        )
        window = (*last, *page.messages)
        starts += [position - len(last) + place for place in starts_in(window, from_begin=position == 0)]
        steps += sum(message.kind in Kind.ANSWERS and not is_foreign(message) for message in page.messages)
        last, position = window[-1:], position + len(page.messages)
        if position >= stop or not page.messages:
            break
    return starts, steps


_NONE: Final[tuple[Receipt, ...]] = ()


@dataclass(frozen=True, slots=True)
class CommittedState:
    """A turn's state is committed.

    Attributes:
        promoted: Staged changes that went into it.
        notes: What had to be put right, for the session's receipts.
    """

    promoted: int
    appended: Appended | None = None
    notes: tuple[Receipt, ...] = ()


class TurnCommits:
    """Commits turns; see `SessionSync`."""

    def __init__(
        self,
        store: SessionStore,
        threads: ThreadStore,
        together: SessionStore | None,
        backend: str = metrics.OTHER,
    ) -> None:
        self._store, self._threads, self._together = store, threads, together
        self._backend = backend

    async def commit_turn(self, turn: TurnToCommit, append: StepAppend | None = None) -> CommittedState:
        """Commit a turn that is in the thread, with those before it that the state lacks.

        Args:
            turn: The turn.
            append: Its last step, to be appended in the same unit; None if it is in the thread.

        Raises:
            StateBehindThreadError, PatchConflictError, TooLargeError: It can't be committed as it is, and its
                step is to be part of the commit.
            IdempotencyConflictError: It was committed before.
            SessionNotFoundError: The store has lost the state.
        """
        wanted, notes, has_run, promotes = turn, _NONE, True, True
        for _ in range(TRIES):
            run = wanted.run if has_run else None
            try:
                promoted, appended = await self._save_and_promote(wanted, run, append, promote=promotes)
            except StateBehindThreadError as behind:
                if append is not None or turn.head is None:
                    raise
                position = int(behind.facts["position"] or 0)
                wanted, notes = await catch_up_state(
                    self._store, self._threads, turn, turn.head.position, position
                )
            except (PatchConflictError, TooLargeError):
                if append is not None or not promotes:
                    raise
                promotes = False  # the turn is in the thread and counts, whatever its tools left
            except InvalidRequestError as error:
                if "run_id" not in error.facts or not has_run:
                    raise
                has_run = False  # it ended before its turn was found, or its store has lost it
            else:
                if not promotes:
                    promoted = await promote_what_fits(self._store, wanted)
                return CommittedState(promoted, appended, notes or _report_lost_staging(turn, promoted))
        raise StoreUnavailableError(f"session {turn.session_id!r}: its state was moved back again and again")

    async def _save_and_promote(
        self, turn: TurnToCommit, run: RunChange | None, append: StepAppend | None, *, promote: bool
    ) -> tuple[int, Appended | None]:
        store = self._store if append is None or self._together is None else self._together
        began = time.monotonic()
        result, appended = await store.save_state_and_promote_staging(
            turn.session_id,
            turn.change,
            StepCommit(
                step_id=turn.step_id,
                run_id=turn.run_id,
                step_count=turn.record.steps,
                promote=promote,
                results=turn.results,
            ),
            append=append,
            run=run,
            epoch=turn.epoch,
        )
        metrics.COMMIT_DURATION.record_since(began, backend=self._backend)
        return result.promoted, appended
