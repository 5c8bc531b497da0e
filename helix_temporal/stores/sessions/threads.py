"""A session's thread beside its state: where it stands, what is in it, and what it must be told."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from helix_temporal.errors import (
    FencedError,
    HeadMovedError,
    InvalidRequestError,
    NotArchivedError,
    StaleStateError,
    StoreUnavailableError,
    ThreadBehindStateError,
    ThreadExistsError,
    ThreadNotFoundError,
)
from helix_temporal.models.ids import Id
from helix_temporal.models.limits import DEDUP_WINDOW
from helix_temporal.models.newest import Newest
from helix_temporal.models.states import Millis, SessionState, StoredModel
from helix_temporal.models.stored_messages import EMPTY, Epoch, Head, StoredMessage, head_after
from helix_temporal.models.turns import check_split
from helix_temporal.stores.paging import MAX_PAGE_BYTES
from helix_temporal.stores.protocols.hot import Appended, HotHeader, StepAppend
from helix_temporal.stores.protocols.session_rows import (
    RowKey,
    RowKind,
    SessionCommit,
    SessionRow,
    SessionRows,
    WantedRows,
)
from helix_temporal.stores.protocols.threads import (
    Create,
    FlushStatus,
    FlushThread,
    ForkThread,
    OpenThread,
    ReadPage,
    ThreadFacts,
    ThreadStore,
)
from helix_temporal.stores.sessions.decisions import SeenSession, decode_model, encode_model
from helix_temporal.stores.sessions.outlines import encode_outline, may_carry_outline, owner_of

KEY: Final = RowKey(RowKind.THREAD, "order")
KEYS: Final = (KEY,)


class HasHead(Protocol):
    """Where a thread stands."""

    @property
    def epoch(self) -> int:
        """Who has it."""
        ...

    @property
    def head(self) -> Head:
        """Its end."""
        ...

    @property
    def committed(self) -> int:
        """Messages of finished turns."""
        ...


class ThreadOrder(StoredModel):
    """What the thread must be told.

    Attributes:
        epoch: Under which it is opened for that.
        head: Where it ends afterwards.
        source: The thread that it is a fork of; None for a cut.
        expected: Where a cut must find the end; else it is not made, and the operation that asked for it is
            forgotten.
        operation: That operation.
    """

    epoch: Epoch
    head: Head = EMPTY
    source: Id | None = None
    expected: Head | None = None
    operation: str = ""


def pending_order(seen: SeenSession) -> ThreadOrder | None:
    """The order that is not carried out yet, if there is one."""
    row = seen.view.find_row(*KEY)
    return None if row is None else decode_model(ThreadOrder, row.body, "order for the thread")


def row_of(order: ThreadOrder) -> SessionRow:
    """The order as it is stored with the state."""
    return SessionRow(KEY.kind, KEY.key, encode_model(order, "order for the thread"))


def next_epoch(now: Millis, thread_epoch: int = 0) -> int:
    """An epoch that is higher than the thread's, and the store's time in microseconds if that is higher.

    It is even.  Odd ones are those of `next_epoch_to_join`: the two may be chosen at once for one thread, and
    an open under an epoch that the thread has already is taken for a repeat of the first.
    """
    lowest = max(now * 1000, thread_epoch + 1)
    return lowest + lowest % 2


def next_epoch_to_join(now: Millis, thread_epoch: int = 0) -> int:
    """As `next_epoch`, for an open that changes nothing else: odd."""
    return next_epoch(now, thread_epoch) + 1


def order_to_cut(thread: HasHead, head: Head, now: int) -> ThreadOrder | None:
    """The order that cuts a thread; None where it ends there already."""
    if thread.head == head and thread.committed == head.position:
        return None
    return ThreadOrder(epoch=next_epoch(now, thread.epoch), head=head)


def order_to_take_back(thread: HasHead, to: Head, now: int, operation: str) -> ThreadOrder:
    """The order that cuts a thread which ends where it was seen to."""
    return ThreadOrder(
        epoch=next_epoch(now, thread.epoch), head=to, expected=thread.head, operation=operation
    )


_PAGE: Final = 1_000
_TRIES: Final = 60
ARCHIVE_SECONDS = 10.0
"""So long an append waits for an archive that is required."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a thread stands."""

    epoch: int
    head: Head
    committed: int
    owner: str
    closed: bool
    slice: bytes = b""
    slice_version: int = 0

    def visible_end(self, session_id: str) -> int:
        """Up to where messages are shown: a tail that is not committed may still be cut by its workflow."""
        return self.head.position if self.owner == owner_of(session_id) else self.committed


@dataclass(frozen=True, slots=True)
class RecentMessages:
    """Where a thread stood after an append of this process, and the ids of its newest messages."""

    epoch: int
    head: Head
    newest: tuple[str, ...]

    def lacks(self, messages: Sequence[StoredMessage]) -> bool:
        """Whether none of these is among the newest ones."""
        return {message.id for message in messages}.isdisjoint(self.newest)

    def with_appended(self, new: Sequence[StoredMessage]) -> "RecentMessages":
        """The same once these are appended."""
        newest = (*self.newest, *(message.id for message in new))
        return RecentMessages(self.epoch, head_after(self.head, new), newest[-max(DEDUP_WINDOW, len(new)) :])


class RecentThreads:
    """What this process knows of threads that it appended to; a thread may have moved since.

    An append at a head that is known so is as good as one after a look: it happens there or not at all.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._recent = Newest[str, RecentMessages](limit)

    def keep_thread(self, session_id: str, recent: RecentMessages) -> None:
        """Remember it, and forget what was not used for longest."""
        self._recent[session_id] = recent

    def pop_thread(self, session_id: str) -> RecentMessages | None:
        """What is known, once."""
        return self._recent.pop(session_id, None)


class Threads:
    """Threads of sessions, where the session store has any.

    Args:
        store: None: messages are kept elsewhere, and this store is not asked for them.
        together: Hot threads lie with the sessions.
    """

    def __init__(self, store: ThreadStore | None, rows: SessionRows, *, together: bool) -> None:
        self._store, self._rows, self.together = store, rows, together
        self.recent = RecentThreads()

    @property
    def here(self) -> bool:
        """Whether there are threads."""
        return self._store is not None

    @property
    def store(self) -> ThreadStore:
        """The thread store.

        Raises:
            InvalidRequestError: This session store was made without one.
        """
        if self._store is None:
            raise InvalidRequestError("this session store was made without a thread store: no messages here")
        return self._store

    @property
    def in_one_unit(self) -> bool:
        """Whether a step and a state are committed in one unit.

        Not where there is an archive: a step counts once it is known that the archive holds no more than the
        hot thread that took it.
        """
        return self.together and not (self.here and self.store.archives)

    async def append(self, step: StepAppend) -> Appended:
        """Append a step to a thread of its own store; acknowledged only if it goes on from the archive.

        Raises:
            FencedError, HeadMovedError: As `ThreadStore.append` and `ThreadStore.confirm_step`.
        """
        appended = None
        try:
            appended = await self.store.append(step)
            await self.store.confirm_step(step, appended)
        except (FencedError, HeadMovedError) as error:
            found = error.facts.get("found_position")
            others_were_faster = isinstance(found, int) and found >= step.head.position
            if appended is not None or not others_were_faster:
                await self._drop_old_copy(step.thread_id, step.epoch)
            raise
        return appended

    async def confirm_standing(self, session_id: str, epoch: Epoch, head: Head) -> None:
        """Make sure that messages up to a head, which were found in a thread, go on from its archive.

        An append that was not told whether it does may have left its messages in an old copy.

        Raises:
            FencedError, HeadMovedError: As `ThreadStore.confirm_standing`.
        """
        if self.in_one_unit:
            return
        try:
            await self.store.confirm_standing(session_id, epoch, head)
        except (FencedError, HeadMovedError):
            await self._drop_old_copy(session_id, epoch)
            raise

    async def archive(self, session_id: str, head: Head) -> None:
        """Archive a thread up to a head, which an append has left.

        Raises:
            NotArchivedError: The archive did not take it, or the thread has lost it; append again.
        """
        try:
            async with asyncio.timeout(ARCHIVE_SECONDS):
                if await self._try_archive(session_id, head):
                    return
        except (StoreUnavailableError, TimeoutError) as error:
            raise _not_archived_error(session_id, head) from error
        raise _not_archived_error(session_id, head)

    async def _try_archive(self, session_id: str, head: Head) -> bool:
        for _ in range(_TRIES):
            try:
                epoch = (await self.store.read_facts(session_id)).epoch
                receipt = await self.store.flush(FlushThread(session_id, epoch, mine=head, commits=True))
            except FencedError:
                continue  # somebody opened it meanwhile, and archived it so
            except ThreadNotFoundError:
                return True  # it was deleted meanwhile
            except HeadMovedError:
                return False  # the hot store was wiped, or somebody took the messages back
            return receipt.status is FlushStatus.ARCHIVED
        return False

    async def _drop_old_copy(self, session_id: str, epoch: int) -> None:
        """A hot thread that came back late goes: whoever looks next takes the thread from its archive."""
        if self.store.archives:
            await self.store.evict(session_id, epoch)

    async def find_standing(self, seen: SeenSession) -> Standing | None:
        """Where the thread of a session stands; None if there is none (any more)."""
        header = seen.view.thread
        if header is not None and not header.deleted:
            return _standing_of(header)
        if header is not None:
            return None
        try:
            return _standing_of(await self.store.read_facts(seen.session_id))
        except ThreadNotFoundError:
            return None

    async def read(
        self, session_id: str, start: int, stop: int, *, epoch: int | None = None
    ) -> list[StoredMessage]:
        """The messages of a range, as far as they are there; of the thread of this epoch, if one is named."""
        messages: list[StoredMessage] = []
        while start < stop:
            wanted = ReadPage(
                session_id,
                start,
                stop,
                limit=min(_PAGE, stop - start),
                max_bytes=MAX_PAGE_BYTES,
                committed_only=False,
                whole=False,
                epoch=epoch,
            )
            try:
                page = await self.store.read(wanted)
            except ThreadNotFoundError:
                break
            messages += page.messages
            start += len(page.messages)
            if page.after is None:
                break
        return messages

    async def check_head(self, session_id: str, standing: Standing | None, head: Head) -> None:
        """Refuse a head that the thread does not hold among its finished turns.

        Raises:
            ThreadBehindStateError: It ends before, or has another message there.
        """
        if head == EMPTY:
            return
        found = "no messages" if standing is None else f"{standing.committed} committed messages"
        if standing is not None and head.position <= standing.committed:
            if await self._holds(session_id, head):
                return
            found = "another message there"
        raise ThreadBehindStateError(
            f"session {session_id!r}: position {head.position} of its thread is named, which has {found}",
            session_id=session_id,
            position=head.position,
        )

    async def find_head(self, session_id: str, position: int, end: int) -> Head:
        """The head at a position where a turn may end.

        Raises:
            InvalidRequestError: It lies beyond the end, or between a tool call and its result.
            HeadMovedError: The thread was cut while it was read.
        """
        if not 0 <= position <= end:
            raise InvalidRequestError(
                f"session {session_id!r}: there are {end} messages, and {position} were to be kept"
            )
        around = await self.read(session_id, max(position - 1, 0), min(position + 1, end))
        if position and not around:
            raise HeadMovedError(f"session {session_id!r}: its thread was cut meanwhile; look again")
        before = around[0] if position else None
        after = around[1 if position else 0 :]
        if after:
            # At its end nothing is cut off: a thread may stop after a call, as version 1 left some.
            check_split(f"session {session_id!r}", position, before and before.kind, after[0].kind)
        return Head(position=position, last_id=before.id if before else "")

    async def join_thread(self, seen: SeenSession) -> Standing:
        """Where the thread stands, under the epoch that has it; opened for the session if nobody has it.

        Raises:
            FencedError: Somebody opened it meanwhile; look again.
        """
        there = await self.find_standing(seen)
        if there is not None and not there.closed:
            if seen.view.thread is None and self.in_one_unit:
                await self.store.hydrate(seen.session_id, there.epoch)
            return there
        epoch = there.epoch if there else seen.view.thread.epoch if seen.view.thread else 0
        outline = b""
        if self.carries_outlines and seen.state is not None:
            outline = encode_outline(seen.state, seen.view.max_epoch)
        opened = await self.store.open(
            OpenThread(
                seen.session_id,
                next_epoch_to_join(seen.now, epoch),
                owner_of(seen.session_id),
                Create.AUTO,
                slice=outline,
            )
        )
        return _standing_of(opened.header)

    # -- outlines

    @property
    def carries_outlines(self) -> bool:
        """Whether threads outlive the rows of their sessions, and say what these were."""
        return self._store is not None and self._store.archives

    def add_outline(self, step: StepAppend, at: Standing, state: SessionState, max_epoch: int) -> StepAppend:
        """The step, with the outline of the state that it leads to, where the thread carries one."""
        if not self.carries_outlines or not may_carry_outline(step.thread_id, at.owner, at.slice):
            return step
        return replace(step, slice=encode_outline(state, max_epoch), slice_version=at.slice_version)

    async def save_outline(self, session_id: str) -> None:
        """Let the thread's slice say what the session is by now, after a change without a step.

        What cannot be saved now is saved with the next change; the row has it.
        """
        if not self.carries_outlines:
            return
        for _ in range(_TRIES):
            try:
                # The thread first: a slice that was saved since is one of a later state.
                at = await self.store.read_facts(session_id)
                view = await self._rows.view(session_id)
                if view.state is None or not may_carry_outline(session_id, at.owner, at.slice):
                    return
                state = decode_model(SessionState, view.state, f"session {session_id!r}: state")
                outline = encode_outline(state, view.max_epoch)
                if outline != at.slice:
                    await self.store.save_slice(session_id, at.epoch, outline, at.slice_version)
            except StaleStateError:
                continue
            except (ThreadNotFoundError, FencedError, HeadMovedError):
                pass  # there is no thread yet, or a workflow has opened it
            return

    async def is_buried(self, session_id: str) -> bool:
        """Whether the archive remembers that the session's thread was deleted."""
        if not self.carries_outlines:
            return False
        try:
            await self.store.read_facts(session_id)
        except ThreadNotFoundError as error:
            return error.facts.get("deleted") is True
        return False

    async def list_newest_ids(self, session_id: str, at: Standing, count: int) -> list[str]:
        """The ids of the newest messages, oldest first."""
        if at.head == EMPTY:
            return []
        try:
            view = await self.store.step_view(
                session_id, at.epoch, at.head, after=0, limit=1, max_bytes=1, ids=count
            )
        except (FencedError, HeadMovedError):
            await self._drop_old_copy(session_id, at.epoch)
            raise
        return [*view.earlier_ids, *(message.id for message in view.before)]

    # -- orders

    async def carry_out_pending(self, session_id: str) -> None:
        """Carry out what a session's thread must still be told."""
        view = await self._rows.view(session_id, WantedRows(keys=KEYS))
        order = pending_order(SeenSession(session_id, view, None))
        if order is not None:
            await self.carry_out(session_id, order)

    async def carry_out_seen(self, seen: SeenSession) -> bool:
        """Whether an order had to be carried out, so that what was seen is no more."""
        order = pending_order(seen)
        if order is None:
            return False
        await self.carry_out(seen.session_id, order)
        return True

    async def carry_out(self, session_id: str, order: ThreadOrder) -> None:
        """Carry out an order and take it away; with its operation where the thread ends elsewhere by now.

        Raises:
            ThreadBehindStateError: The thread has lost what the order refers to.
        """
        try:
            if order.source is None:
                await self._cut_thread(session_id, order)
            else:
                await self._fork_thread(session_id, order, order.source)
        except (HeadMovedError, InvalidRequestError, ThreadNotFoundError) as error:
            await self._remove_order(session_id, order, refused=True)
            if order.expected is not None:
                return
            raise ThreadBehindStateError(
                f"session {session_id!r}: the thread no longer holds position {order.head.position}",
                session_id=session_id,
                position=order.head.position,
            ) from error
        await self._remove_order(session_id, order)

    async def _cut_thread(self, session_id: str, order: ThreadOrder) -> None:
        owner, expected = owner_of(session_id), order.expected
        request = OpenThread(
            session_id, order.epoch, owner, Create.NEVER, rewind_to=order.head, expected_head=expected
        )
        try:
            await self.store.open(request)
        except FencedError:
            # Somebody has opened the thread since, at the head that the state named, and goes on from it.
            if expected is not None and await self._holds(session_id, expected):
                raise HeadMovedError(
                    f"session {session_id!r}: its thread was opened before the cut"
                ) from None

    async def _holds(self, session_id: str, head: Head) -> bool:
        last = await self.read(session_id, head.position - 1, head.position)
        return bool(last) and last[0].id == head.last_id

    async def _fork_thread(self, session_id: str, order: ThreadOrder, source: str) -> None:
        request = ForkThread(
            source,
            session_id,
            order.epoch,
            owner_of(session_id),
            at=order.head.position,
            slice=await self._outline_of_fork(session_id, source),
        )
        try:
            await self.store.fork(request)
        except (FencedError, ThreadExistsError):
            # The fork was made before and has been opened since; or the id was deleted, which is an error.
            await self.store.read_facts(session_id)

    async def _outline_of_fork(self, session_id: str, source: str) -> bytes | None:
        """The new session's outline in place of its source's; None where that carries none."""
        if not self.carries_outlines:
            return None
        facts = await self.store.read_facts(source)
        view = await self._rows.view(session_id)
        if view.state is None or not may_carry_outline(source, facts.owner, facts.slice):
            return None
        state = decode_model(SessionState, view.state, f"session {session_id!r}: state")
        return encode_outline(state, view.max_epoch)

    async def _remove_order(self, session_id: str, order: ThreadOrder, *, refused: bool = False) -> None:
        forgotten = (RowKey(RowKind.OPERATION, order.operation),) if refused and order.operation else ()
        for _ in range(_TRIES):
            view = await self._rows.view(session_id, WantedRows(keys=KEYS))
            if pending_order(SeenSession(session_id, view, None)) != order:
                return
            removes = (*KEYS, *forgotten)
            gone = SessionCommit(session_id, view.revision, view.max_epoch, removes=removes, birth=view.birth)
            if await self._rows.commit(gone) is not None:
                return
        raise StoreUnavailableError(
            f"session {session_id!r}: overtaken {_TRIES} times", session_id=session_id
        )

    # -- deletion

    async def delete(self, session_id: str, epoch: int) -> None:
        """Remove a session's thread, unless somebody has opened it after ``epoch``."""
        try:
            await self.store.delete(session_id, epoch)
        except (ThreadNotFoundError, FencedError):
            # It is gone, or it is the thread of a session that began since.
            return

    async def delete_left(self, seen: SeenSession) -> None:
        """Remove the thread that a deletion left behind when it died half way.

        Only one that the session store itself had: a workflow opens its thread before it makes a state.
        """
        if self._store is None:
            return
        left = await self.find_standing(seen)
        if left is not None and left.owner == owner_of(seen.session_id):
            await self.delete(seen.session_id, left.epoch)


def _standing_of(found: HotHeader | ThreadFacts) -> Standing:
    return Standing(
        found.epoch,
        found.head,
        found.committed,
        found.owner,
        found.closed,
        found.slice,
        found.slice_version,
    )


def _not_archived_error(session_id: str, head: Head) -> NotArchivedError:
    return NotArchivedError(
        f"session {session_id!r}: its messages up to {head.position} are not archived; append them again",
        session_id=session_id,
        position=head.position,
    )
