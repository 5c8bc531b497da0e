"""What becomes of a turn under which its thread was opened again.  Pure."""

from dataclasses import dataclass
from enum import StrEnum

from helix_temporal.models.stored_messages import Head


class After(StrEnum):
    """How the turn goes on."""

    SAME_STEP = "same step"
    """The thread is where the turn took it to be, or has this very step: the next try finds it standing."""
    FIND_STEPS = "find steps"
    """The turn's steps stand, and more may: they are found one by one, and none is run again."""
    FROM_START = "from its start"
    """The turn's steps are gone: it is run again from where the thread is, or where the turn began."""
    BEHIND = "behind"
    """The workflow was reset, and the thread has gone on: the turn goes on behind what is finished there."""
    NOWHERE = "nowhere"
    """The thread is at a place that this turn does not come to."""


@dataclass(frozen=True, slots=True)
class Reopened:
    """All that decides how a turn goes on.

    Attributes:
        start: Where the turn begins.
        known: Where the turn took the thread to be.
        found: Where the thread is.
        reset: The workflow was reset: what the thread has of it stays.
        goes_on: The thread has gone on from the step that waited.
        of_others: What stands unfinished there is a turn of other messages.
    """

    start: Head
    known: Head
    found: Head
    reset: bool = False
    goes_on: bool = False
    of_others: bool = False

    @property
    def is_lost(self) -> bool:
        """The thread lacks also what was finished before the turn."""
        return self.found.position < self.start.position

    @property
    def is_behind(self) -> bool:
        """The thread has gone on without this turn."""
        return self.reset and (self.of_others or self.found != self.known)


def after_step(now: Reopened, inputs: int) -> After:
    """After a step met a thread that had moved; the step adds its ``inputs`` and perhaps an answer."""
    if now.is_behind:
        return After.BEHIND
    if now.is_lost:
        return After.FROM_START
    added = now.found.position - now.known.position
    if now.found == now.known or 0 < added <= inputs + 1:
        return After.SAME_STEP
    return After.FROM_START if now.found == now.start else After.NOWHERE


def after_wait(now: Reopened) -> After:
    """Before a turn that waited goes on, in a run that did not open the thread."""
    if now.found == now.known and not (now.goes_on or now.reset):
        return After.SAME_STEP
    if now.is_behind:
        return After.BEHIND
    return After.FIND_STEPS if now.goes_on else After.FROM_START


def after_cut(now: Reopened) -> After:
    """After a tool's rewind has cut the thread back to where the step began."""
    if now.is_behind:
        return After.BEHIND
    return After.SAME_STEP if now.found == now.known else After.FROM_START
