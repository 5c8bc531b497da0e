"""What an open or a fork may do to a thread that is there, and where it cuts: one rule for all stores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from helix_temporal.errors import HeadMovedError, InvalidRequestError, ThreadExistsError, ThreadNotFoundError
from helix_temporal.models.stored_messages import Head, StoredMessage, head_after
from helix_temporal.stores.protocols.threads import Create, ForkThread, OpenThread, Reopen
from helix_temporal.stores.threads.standing_step import find_step


def check_existence(request: OpenThread, *, exists: bool) -> None:
    """Refuse to create over a thread, or to continue none.

    Raises:
        ThreadExistsError, ThreadNotFoundError.
    """
    if exists and request.create is Create.NEW:
        raise ThreadExistsError(f"thread {request.thread_id!r} exists; continue it or choose another id")
    known = None if request.reopen is None else request.reopen.known_head
    if not exists and known is not None:
        raise ThreadNotFoundError(
            f"thread {request.thread_id!r} was deleted, or its stores lost it: they do not have it, and its "
            f"session knows it up to position {known.position}; do the settings name the stores of before?"
        )
    if not exists and (request.create is Create.NEVER or request.reopen is not None):
        raise thread_not_found_error(request.thread_id)


def thread_not_found_error(thread_id: str, *, deleted: bool = False) -> ThreadNotFoundError:
    """The error for a thread that no store has; ``deleted``: the archive remembers that it was deleted."""
    return ThreadNotFoundError(f"thread {thread_id!r} was never created, or was deleted", deleted=deleted)


def check_adapter(request: OpenThread, adapter: str) -> None:
    """Refuse a thread whose bodies are in another format than the caller's.

    Raises:
        InvalidRequestError: Both are stated and differ.
    """
    if request.adapter and adapter and request.adapter != adapter:
        raise InvalidRequestError(
            f"thread {request.thread_id!r} was written with adapter {adapter!r}, not {request.adapter!r}"
        )


def check_expected_head(request: OpenThread, head: Head) -> None:
    """Refuse an open of a thread that ends elsewhere than its caller has read.

    Raises:
        HeadMovedError: It does.
    """
    expected = request.expected_head
    if expected is not None and expected != head:
        raise HeadMovedError(
            f"thread {request.thread_id!r} ends at {head.position} (message {head.last_id!r}), not at "
            f"{expected.position} ({expected.last_id!r}); read it again",
            thread_id=request.thread_id,
        )


def fork_position(request: ForkThread, committed: int) -> int:
    """Where a fork cuts its source, by default behind the last finished turn.

    Raises:
        InvalidRequestError: Fewer messages are committed.
    """
    position = committed if request.at is None else request.at
    if not 0 <= position <= committed:
        raise InvalidRequestError(
            f"thread {request.source_id!r}: fork at {position}, but {committed} are committed"
        )
    return position


@dataclass(frozen=True, slots=True)
class OpenPlace:
    """Where an open cuts, and where its caller goes on.

    They differ in two cases: the caller does not know of a step of its own that stands already; and after a
    reset, when only the next step can tell whether the unfinished turn is its own.
    """

    cut: Head
    at: Head


def count_kept_messages(reopen: Reopen, after: Sequence[StoredMessage], committed: int) -> int | None:
    """How many messages behind ``known_head`` a re-open keeps: the step under way, if it stands there whole.

    None: all of them.  They belong to a turn of other messages, which the workflow was reset to before.  Its
    tools may have run already, so they must not run again under other keys.
    """
    count = len(reopen.inputs)
    if not count:
        return 0
    step = find_step(after, reopen.inputs) or find_step(after, reopen.inputs, answers="")
    if step is not None and (len(step) > count) == reopen.answered:
        return len(step)
    begins = reopen.known_head == reopen.turn_start and committed == reopen.turn_start.position
    return None if after and begins else 0


class StandingThread(Protocol):
    """A thread as an open finds it, wherever its messages are."""

    @property
    def head(self) -> Head:
        """Where it stands."""
        ...

    @property
    def committed(self) -> int:
        """Where its finished turns end."""
        ...

    @property
    def is_ended(self) -> bool:
        """Its execution was cancelled, or failed: nobody was told that a turn waits."""
        ...

    async def id_before(self, position: int) -> str | None:
        """Id of the message just before a position; None where there is none."""
        ...

    async def read_slice(self) -> bytes:
        """The session's record."""
        ...

    async def read_messages(self, start: int, stop: int) -> Sequence[StoredMessage]:
        """Messages ``start <= position < stop``, as far as there are any."""
        ...


class OpenPlaces:
    """Where an open cuts the thread that it finds, and where its caller goes on."""

    def __init__(self, request: OpenThread, thread: StandingThread) -> None:
        self.request, self.thread = request, thread

    async def find_place(self) -> OpenPlace:
        """Where an open that is to be made cuts, and where its caller goes on.

        Raises:
            InvalidRequestError: It rewinds to where fewer messages are committed.
            HeadMovedError: It rewinds to a message that does not stand there, or the thread does not end
                where it must.
        """
        check_expected_head(self.request, self.thread.head)
        if self.request.rewind_to is not None:
            await self._check_rewind(self.request.rewind_to)
            return OpenPlace(self.request.rewind_to, self.request.rewind_to)
        if self.request.reopen is not None:
            return await self.find_reopen_place(self.request.reopen)
        cut = await self.find_resume_head()
        return OpenPlace(cut, cut)

    async def find_head_again(self) -> Head:
        """Where the caller goes on of an open that was made before."""
        if self.request.reopen is not None and self.request.rewind_to is None:
            return (await self.find_reopen_place(self.request.reopen)).at
        # Its workflow was reset: a turn begun since may stand unfinished.
        return await self.find_resume_head()

    async def find_reopen_place(self, reopen: Reopen) -> OpenPlace:
        """What is committed stays: only a rewind cuts it."""
        thread = self.thread
        if reopen.known_head is None:
            return OpenPlace(thread.head, await self._find_committed_head())
        if await self.holds(reopen.known_head):
            end = await self.find_end_of_step(reopen, reopen.known_head)
            if thread.committed <= end.position:
                return OpenPlace(thread.head if reopen.reset else end, reopen.known_head)
        elif thread.committed <= reopen.turn_start.position and await self.holds(reopen.turn_start):
            return OpenPlace(thread.head if reopen.reset else reopen.turn_start, reopen.turn_start)
        return OpenPlace(thread.head, await self._find_committed_head())

    async def find_resume_head(self) -> Head:
        """The end of a turn that waits for somebody; else of the finished turns."""
        return await self.find_kept_head() or await self._find_committed_head()

    async def find_kept_head(self) -> Head | None:
        """The end of a turn that waits for somebody; None where none does."""
        keeps, thread = self.request.keeps, self.thread
        if keeps is None or thread.is_ended or thread.head.position <= thread.committed:
            return None
        kept = keeps(await thread.read_slice())
        if kept is None or kept.position <= thread.committed or not await self.holds(kept):
            return None
        return kept

    async def find_end_of_step(self, reopen: Reopen, known_head: Head) -> Head:
        """The end of what a re-open keeps behind the head that its caller knows."""
        start = known_head.position
        after = (
            await self.thread.read_messages(start, start + len(reopen.inputs) + 1) if reopen.inputs else ()
        )
        kept = count_kept_messages(reopen, after, self.thread.committed)
        return self.thread.head if kept is None else head_after(known_head, after[:kept])

    async def holds(self, head: Head) -> bool:
        """Whether the message that ``head`` names stands just before it."""
        return await self.thread.id_before(head.position) == head.last_id

    async def _find_committed_head(self) -> Head:
        committed = self.thread.committed
        return Head(position=committed, last_id=await self.thread.id_before(committed) or "")

    async def _check_rewind(self, to: Head) -> None:
        thread_id, committed = self.request.thread_id, self.thread.committed
        # Who names the end that he has read cuts what he knows, finished or not.
        if to.position > committed and self.request.expected_head is None:
            raise InvalidRequestError(
                f"thread {thread_id!r}: rewind to {to.position}, but only {committed} are committed"
            )
        if not await self.holds(to):
            raise HeadMovedError(f"thread {thread_id!r}: position {to.position} has another message")
