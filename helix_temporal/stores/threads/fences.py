"""The fence: what makes two writers of one thread impossible.

An *epoch* is the number that one open takes, and that each write of its execution names.  A *fence* is what a
place keeps of epochs: the highest one that it has seen, whose it is, and whether it is closed; the session
store keeps the number alone, as ``max_epoch``.  A *fencing token* is the number of a lease (`LockManager`):
programs without a session workflow name it as their epoch.

A thread stands in up to two places, the hot thread and the archive's manifest, and each of them has a
`Fence`.  An open takes both places with a higher epoch.  The atomic change that writes compares the writer's
epoch with the fence first: a writer that was replaced is refused, however late its request arrives.

`Fence.find_refusal` is the rule.  Where the atomic change is not Python the rule runs once more, below a
comment ``rule: stores.threads.fences.Fence.find_refusal``; the errors are always worded here.
``tests/simulation/_ablations.py`` removes each rule in simulated sessions, and
``tests/contracts/test_fence_can_fail.py`` removes each one, with its copies, on each backend: simulation and
contracts then fail.
"""

from dataclasses import dataclass
from typing import Protocol

from helix_temporal.errors import FencedError, HeadMovedError
from helix_temporal.stores.protocols.threads import OpenThread


class HasFence(Protocol):
    """A hot thread's header, or the archive's manifest."""

    @property
    def thread_id(self) -> str:
        """Whose it is."""
        ...

    @property
    def epoch(self) -> int:
        """Of the open that has the thread here."""
        ...

    @property
    def owner(self) -> str:
        """The execution that opened it."""
        ...

    @property
    def closed(self) -> bool:
        """Whether that epoch takes no more writes."""
        ...

    @property
    def deleted(self) -> bool:
        """Whether this is what a deletion left, to remember the epoch."""
        ...


@dataclass(frozen=True, slots=True)
class Fence:
    """The epoch that has a thread in one place, its owner, and whether it takes writes."""

    thread_id: str
    epoch: int
    owner: str = ""
    closed: bool = False
    deleted: bool = False

    @staticmethod
    def of(place: HasFence) -> "Fence":
        """The fence of a hot thread or of a manifest."""
        return Fence(place.thread_id, place.epoch, place.owner, place.closed, place.deleted)

    # copies: redis, postgres
    def find_refusal(self, epoch: int, *, closing: bool = False) -> FencedError | HeadMovedError | None:
        """Why a writer with this epoch may not write here; None for the one that has the thread.

        Args:
            epoch: The epoch that the writer's open has taken.
            closing: The write closes the writer's own epoch: it is allowed on one that is closed already, or
                deleted, where nothing is left to close.

        Returns:
            `FencedError`, to stop: a newer epoch has the thread, or this one is closed, or deleted.
            `HeadMovedError`, to open again: the place is older than the writer's open.
        """
        if self.epoch > epoch:
            return replaced_error(f"thread {self.thread_id!r}", self.epoch, epoch)
        if self.epoch < epoch:
            return self._older_error(epoch)
        if closing or not (self.closed or self.deleted):
            return None
        return self._ended_error(epoch)

    def admits(self, epoch: int) -> bool:
        """Whether a writer with this epoch may write here."""
        return self.find_refusal(epoch) is None

    def check_writer(self, epoch: int, *, closing: bool = False) -> None:
        """Raise what `find_refusal` finds."""
        refusal = self.find_refusal(epoch, closing=closing)
        if refusal is not None:
            raise refusal

    # copies: redis
    def check_not_replaced(self, epoch: int) -> None:
        """Refuse a writer that was replaced, and no other: a copy, drop or deletion may come after the end.

        Raises:
            FencedError: A newer epoch has the thread.
        """
        if self.epoch > epoch:
            raise replaced_error(f"thread {self.thread_id!r}", self.epoch, epoch)

    def is_repeated_open(self, request: OpenThread) -> bool:
        """Whether this very open has taken the place before; False where it may take it now.

        Raises:
            FencedError: A higher epoch came before, or an equal one of another owner, or it is deleted.
        """
        if self.epoch < request.epoch:
            return False
        if self.epoch > request.epoch or self.owner != request.owner or self.deleted:
            raise replaced_error(f"thread {request.thread_id!r}", self.epoch, request.epoch, "comes too late")
        return True

    def check_same_owner(self, request: OpenThread) -> None:
        """A re-open may cut only what its own execution chain wrote.

        Raises:
            FencedError: Another execution took over.
        """
        if request.reopen is not None and self.owner != request.owner:
            raise FencedError(
                f"thread {request.thread_id!r}: another execution took it over; this one must end",
                owner=self.owner,
            )

    def _older_error(self, epoch: int) -> HeadMovedError:
        return HeadMovedError(
            f"thread {self.thread_id!r} has epoch {self.epoch}, opened with {epoch}: it is older than the "
            "open; open again",
            thread_id=self.thread_id,
            epoch=epoch,
            current=self.epoch,
        )

    def _ended_error(self, epoch: int) -> FencedError:
        why = "it was deleted" if self.deleted else "the epoch is closed"
        return FencedError(
            f"thread {self.thread_id!r} refuses epoch {epoch}: {why}; stop writing",
            thread_id=self.thread_id,
            epoch=epoch,
            current=self.epoch,
        )


def replaced_error(what: str, current: int, epoch: int, then: str = "is out", **facts: str) -> FencedError:
    """The error for a caller whose place a newer one has taken.

    Args:
        what: What it wanted to write, as the error names it: ``thread 'x'`` or ``session 'x'``.
        current: The epoch that has it.
        epoch: The caller's.
        then: What becomes of the caller's epoch.
        facts: What else the error knows.
    """
    return FencedError(
        f"{what}: epoch {current} has it, {epoch} {then}", **facts, epoch=epoch, current=current
    )
