"""Commits of turns to the session store, whatever tools left and whatever the store has lost."""

from dataclasses import dataclass
from typing import Final

from helix_temporal.activities._state_behind import brought
from helix_temporal.activities._state_staging import promote_what_fits
from helix_temporal.activities._state_turns import Turn
from helix_temporal.errors import (
    InvalidRequestError,
    PatchConflictError,
    StateBehindThreadError,
    StoreUnavailableError,
    TooLargeError,
)
from helix_temporal.models.checkpoints import StepCommit
from helix_temporal.models.runs import RunChange
from helix_temporal.models.sessions import Receipt
from helix_temporal.stores.protocols.hot import Appended
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ThreadStore

_TRIES: Final = 5
_NONE: Final[tuple[Receipt, ...]] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """A turn's state is committed.

    Attributes:
        promoted: Staged changes that went into it.
        notes: What had to be put right, for the session's receipts.
    """

    promoted: int
    appended: Appended | None = None
    notes: tuple[Receipt, ...] = ()


class TurnCommits:
    """Commits turns; see `StateKeeper`."""

    def __init__(self, store: SessionStore, threads: ThreadStore, together: SessionStore | None) -> None:
        self._store, self._threads, self._together = store, threads, together

    async def commit(self, turn: Turn) -> Committed:
        """Commit a turn that is in the thread, with those before it that the state lacks.

        Raises:
            StateBehindThreadError, PatchConflictError, TooLargeError: It can't be committed as it is, and its
                step is to be part of the commit.
            IdempotencyConflictError: It was committed before.
            SessionNotFoundError: The store has lost the state.
        """
        wanted, notes = turn, _NONE
        for _ in range(_TRIES):
            try:
                promoted, appended = await self._commit(wanted)
            except StateBehindThreadError as behind:
                if turn.append is not None or turn.head is None:
                    raise
                held = int(behind.facts["held"] or 0)
                wanted, notes = await self.bring(turn, turn.head.position, held)
            else:
                return Committed(promoted, appended, notes)
        raise StoreUnavailableError(f"session {turn.session_id!r}: its state was moved back again and again")

    async def bring(self, turn: Turn, stop: int, at: int) -> tuple[Turn, tuple[Receipt, ...]]:
        """See `brought`."""
        return await brought(self._store, self._threads, turn, stop, at)

    async def _commit(self, turn: Turn) -> tuple[int, Appended | None]:
        try:
            return await self._commit_counting(turn)
        except (PatchConflictError, TooLargeError):
            if turn.append is not None:
                raise
        # The turn is in the thread and counts, whatever its tools left.
        await self._commit_counting(turn, promote=False)
        return await promote_what_fits(self._store, turn), None

    async def _commit_counting(self, turn: Turn, *, promote: bool = True) -> tuple[int, Appended | None]:
        try:
            return await self._commit_with(turn, turn.run, promote=promote)
        except InvalidRequestError as error:
            if "run_id" not in error.facts:
                raise
            # The run ended before its turn was found, or its store has lost it: the turn counts all the same.
            return await self._commit_with(turn, None, promote=promote)

    async def _commit_with(
        self, turn: Turn, run: RunChange | None, *, promote: bool
    ) -> tuple[int, Appended | None]:
        store = self._store if turn.append is None or self._together is None else self._together
        result, appended = await store.save_state_and_promote_staging(
            turn.session_id,
            turn.change,
            StepCommit(
                step_id=turn.step_id,
                run_id=turn.run_id,
                step_count=turn.kept.steps,
                promote=promote,
                results=turn.results,
            ),
            append=turn.append,
            run=run,
            epoch=turn.epoch,
        )
        return result.promoted, appended
