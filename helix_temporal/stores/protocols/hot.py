"""What a hot tier must do: a dozen small atomic operations on one thread.

A backend is one class with these methods and one contract (`helix_temporal.testing.contracts`).  All
protocol decisions that need more than one of them live above, in pure code; what must be atomic lives
below, in one script or transaction a method.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage

SINCE_ARCHIVED = -1
"""For `HotTier.read_snapshot`: from one message before the position known to be archived."""

NEVER_ARCHIVED = -1
"""`HotHeader.archived` of a thread that no archive has seen."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What a manifest holds of a thread: the hot tier may drop exactly this and nothing more."""

    head: Head
    committed: int
    slice_version: int
    size: int


@dataclass(frozen=True, slots=True)
class HotHeader:
    """The header of a hot thread.

    Attributes:
        epoch: The highest epoch that opened the thread; writes with another are refused.
        owner: Who opened it: the session workflow's first execution run id.
        closed: Late attempts of this epoch are refused, too.
        head: Next position and id of the last message.
        committed: Up to here turns are finished.
        base: Lowest position held, and the id of the message before it.
        slice: The state stored with the thread, opaque bytes; ``slice_version`` counts its saves.
        adapter: Names the format of the bodies; empty when none was stated.
        size: Packed bytes of all messages from 0 to ``head``, held here or not.
        base_size: ``size`` at the base, so that ``size - base_size`` bytes are held here.
        archived: Position known to be archived, a hint that may lag; `NEVER_ARCHIVED` if none is.
        archived_size: ``size`` at that position.
        unarchived_since: Store clock in ms of the oldest append beyond ``archived``, 0 if none.
        deleted: A tombstone: the thread was deleted and only its epoch is remembered.
        born: The epoch that created the thread.
        cut: Messages that the last open cut because their turn had not ended.
        origin: For a fork: what it was made of, so that a repeat gets the first answer; opaque here.
    """

    thread_id: str
    epoch: int
    owner: str
    head: Head = EMPTY
    committed: int = 0
    base: Head = EMPTY
    closed: bool = False
    slice: bytes = b""
    slice_version: int = 0
    adapter: str = ""
    size: int = 0
    base_size: int = 0
    archived: int = NEVER_ARCHIVED
    archived_size: int = 0
    unarchived_since: int = 0
    deleted: bool = False
    born: int = 0
    cut: int = 0
    origin: str = ""

    @property
    def place(self) -> str:
        """Where the thread stands: two headers of a thread with equal places hold the same for an archive."""
        return place_of(
            self.epoch, self.head.position, self.head.last_id, self.committed, self.slice_version, self.closed
        )


def place_of(
    epoch: int, position: int, last_id: str, committed: int, slice_version: int, closed: bool, /
) -> str:
    """`HotHeader.place` of what a store knows without reading the whole header."""
    return f"{epoch} {position} {committed} {slice_version} {int(closed)} {last_id}"


@dataclass(frozen=True, slots=True)
class ScannedThread:
    """A hot thread as a scan sees it.

    Attributes:
        place: Where it stands, as `HotHeader.place`; empty if its header is damaged.
        archived_place: Where it stood when `HotTier.mark_archived` was called last; empty if it never was.
    """

    thread_id: str
    place: str
    archived_place: str

    @property
    def is_archived(self) -> bool:
        """Whether nothing has changed since all of it was archived."""
        return self.place != "" and self.place == self.archived_place


@dataclass(frozen=True, slots=True)
class ScannedPage:
    """Some hot threads, and where the next page begins; None after the last one."""

    threads: tuple[ScannedThread, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class HotSnapshot:
    """A header and consecutive messages of the same instant; ``first`` is the first one's position."""

    header: HotHeader
    first: int
    messages: tuple[StoredMessage, ...]

    # copies: redis, postgres
    def id_before(self, position: int) -> str | None:
        """Id of the message just before ``position``; None if that is not held, or not in here."""
        base, head = self.header.base, self.header.head
        if position in {base.position, head.position}:
            return base.last_id if position == base.position else head.last_id
        at = position - 1 - self.first
        return self.messages[at].id if 0 <= at < len(self.messages) else None

    def holds(self, head: Head) -> bool:
        """Whether the message that ``head`` names stands just before it."""
        return self.id_before(head.position) == head.last_id


@dataclass(frozen=True, slots=True)
class PageRange:
    """Which messages to read: ``start <= position < stop``, from the start or backwards from the stop.

    Reading ends after ``limit`` messages or when ``max_bytes`` would be passed, yet gives at least one
    message if the range holds any.
    """

    start: int
    stop: int
    limit: int
    max_bytes: int
    backward: bool = False


@dataclass(frozen=True, slots=True)
class StepView:
    """What a step needs to know before it calls the model, read in one instant.

    Attributes:
        header: The thread's header.
        after: Up to the asked number of messages from the step's head on: this very step if it stands.
        before: The newest messages before the step's head, oldest first, bounded as asked.
        earlier_ids: Ids of the messages before ``before``, oldest first, so that together with it the
            asked number of ids is there (fewer where the thread or its hot part begins).
        last_id_at_head: Id of the message just before the step's head, None if that is not held.
    """

    header: HotHeader
    after: tuple[StoredMessage, ...]
    before: tuple[StoredMessage, ...]
    earlier_ids: tuple[str, ...]
    last_id_at_head: str | None


@dataclass(frozen=True, slots=True)
class StepAppend:
    """One step: its inputs, then its answer, to stand exactly at ``head``.

    Attributes:
        answer: None for a plain append, whose identity is its inputs alone.
        commits: The step ends its turn: everything up to its end becomes committed; not if its first
            answer stands there and asks for tools.
        slice: Saved with the step if given; ``slice_version`` is the version it replaces.
        archived: What the caller knows of the archive; moves the hint.
    """

    thread_id: str
    epoch: int
    head: Head
    inputs: tuple[StoredMessage, ...]
    answer: StoredMessage | None = None
    commits: bool = False
    slice: bytes | None = None
    slice_version: int = 0
    archived: Archived | None = None

    @property
    def messages(self) -> tuple[StoredMessage, ...]:
        """Inputs and answer in order."""
        return self.inputs if self.answer is None else (*self.inputs, self.answer)


@dataclass(frozen=True, slots=True)
class Appended:
    """The step as it stands in the thread: ours, or the one that was first.

    Attributes:
        messages: The inputs and the stored answer.
        head: The head after this step (not of the thread, which may have grown since).
        repeated: The step stood already and nothing was added.
        header: The thread's header after the call.
        manifest: Etag of the manifest that the caller knew before the call, with an archive: what follows
            from both is no older than the archive.  Empty where it knew none.
    """

    messages: tuple[StoredMessage, ...]
    head: Head
    repeated: bool
    header: HotHeader
    manifest: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Rebase:
    """Replace the header by compare-and-swap; keep messages below ``keep``, then add ``messages``.

    Attributes:
        expected: Epoch and head that the hot thread must have now; None if it must be absent.
        header: The new header, ``head`` being where it stands after ``messages``.
    """

    expected: tuple[int, Head] | None
    header: HotHeader
    keep: int
    messages: tuple[StoredMessage, ...] = ()


class Eviction(StrEnum):
    """What became of a hot thread that was to be dropped."""

    DROPPED = "dropped"
    KEPT_WARM = "kept_warm"
    ABSENT = "absent"
    NEWER = "newer"
    """It holds something that the caller's archive does not, or belongs to another epoch: untouched."""


class HotTier(Protocol):
    """Threads in a fast store.  Every method is atomic and repeatable.

    Methods that write raise `FencedError` when the hot thread's epoch is higher than the caller's, or
    equal and closed, and change nothing then; `HeadMovedError` when it is lower (the hot thread was
    rolled back to before the caller's open).  A store that does not answer is
    `StoreUnavailableError`; the effect may then have happened or not, and the same call repeated
    tells.  ``None`` means: this thread is not in the hot tier.
    """

    async def read_header(self, thread_id: str) -> HotHeader | None:
        """The header alone."""
        ...

    async def read_snapshot(self, thread_id: str, since: int) -> HotSnapshot | None:
        """Header and all messages from ``max(since, base)`` on; see `SINCE_ARCHIVED`."""
        ...

    async def read_page(self, thread_id: str, wanted: PageRange) -> HotSnapshot | None:
        """Header and the messages of one range, as far as they are held here."""
        ...

    async def step_view(
        self, thread_id: str, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView | None:
        """Header, ``after`` messages from ``head`` on, and the newest window before it.

        The window holds at most ``limit`` messages and ``max_bytes`` packed bytes (at least one
        message if any is held); ``ids`` is the number of ids wanted in all.
        """
        ...

    async def append(self, step: StepAppend) -> Appended | None:
        """Add one step where the thread stands at its head; the first answer wins.

        If the thread already goes on from the head with these very inputs, the stored step is
        returned, and only ``commits`` and ``archived`` still take effect.

        Raises:
            FencedError: A newer epoch has opened the thread, or this one is closed.
            HeadMovedError: Something else follows the head, the thread ends before it, the message
                before it is another, or it is no longer held here.
            IdempotencyConflictError: The inputs' ids stand there with other bytes.
            StaleStateError: ``slice`` was given against another version; nothing was added.
        """
        ...

    async def rebase(self, change: Rebase) -> HotHeader | None:
        """Apply the change, or return None if the hot thread is not the expected one.

        Renders the hot thread unexpiring.  Used by open; checks nothing but ``expected``, and that the
        base of the new header is the hot thread's own where any of its messages are kept: it may have
        been evicted and have come back in part.

        Raises:
            InvalidRequestError: The header does not describe what the change leaves there.
        """
        ...

    async def install(
        self, header: HotHeader, messages: Sequence[StoredMessage], *, replace: bool
    ) -> HotHeader:
        """Make the thread hot in one step: nobody sees a part of it.

        With ``replace=False`` only where nothing is.  With ``replace=True`` also over a hot thread of a
        lower epoch, and over one of this epoch that has another message than
        ``header.head.last_id`` just before ``header.head.position``, or ends before it.  Returns the
        header that is there afterwards.  Large threads are sent in parts that expire by themselves if unused.

        Raises:
            FencedError: With ``replace=True``: the hot thread's epoch is higher than ``header.epoch``.
        """
        ...

    async def evict(
        self, thread_id: str, epoch: int, archived: Archived, *, warm_ttl: float | None = None
    ) -> Eviction:
        """Drop the hot thread, or let it expire after ``warm_ttl`` seconds, if all of it is archived.

        That is: same epoch, and head, committed and slice version are those of ``archived``.
        Anything else leaves it untouched and unexpiring.
        """
        ...

    async def trim(self, thread_id: str, epoch: int, archived: Head, keep_from: int) -> HotHeader | None:
        """Forget the messages below ``keep_from`` that an archive holds, which goes up to ``archived``.

        Nothing at all unless the hot thread has this very epoch, is not closed, and has the message
        ``archived.last_id`` just before ``archived.position``.  Nothing else of the header changes but
        ``base`` and ``base_size``, and the hot thread expires when it did before.  Returns the header that
        is there afterwards.
        """
        ...

    async def close_epoch(self, thread_id: str, epoch: int) -> None:
        """Refuse further writes of exactly this epoch; nothing if another one rules."""
        ...

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int | None:
        """Replace the slice and return its new version, one higher.

        The same bytes against the same expected version again return the first answer.

        Raises:
            StaleStateError: The version is another.
        """
        ...

    async def drop(self, thread_id: str, epoch: int) -> None:
        """Remove the hot thread for good, archived or not; only a deletion does this.

        Raises:
            FencedError: The hot thread's epoch is higher.
        """
        ...

    async def drop_damaged(self, thread_id: str, archived: Archived, slice_: bytes, /) -> bool:
        """Remove a hot thread whose header is damaged, if the archive holds its messages and its slice.

        A hot thread with a sound header is left alone: `evict` is for that.

        Args:
            thread_id: Which one.
            archived: What the archive holds.
            slice_: The slice that it holds, of ``archived.slice_version``.

        Returns:
            Whether it is gone; a store that cannot tell removes nothing.
        """
        ...

    async def scan_page(self, cursor: str | None = None, count: int = 500) -> ScannedPage:
        """About ``count`` of the threads that are hot, in no order; from the beginning without a cursor.

        Over all pages one that comes or goes meanwhile may be missed, and one may come twice.  A damaged
        thread is named as well.  May remove what has expired.
        """
        ...

    async def mark_archived(self, thread_id: str, place: str) -> None:
        """Remember that all of the thread was archived as it stood at ``place``.

        For scans alone: nothing else of the thread changes, nor when it expires; a thread that is not here
        stays away.
        """
        ...

    async def check(self) -> None:
        """Refuse a server that would lose data.

        Raises:
            UnsafeRedisPolicyError: It may evict keys without a time to live.
            UnsupportedServerError: It lacks something we need.
        """
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...


async def scan_threads(hot: HotTier, count: int = 500) -> AsyncIterator[ScannedThread]:
    """All pages of `HotTier.scan_page`."""
    cursor: str | None = None
    while True:
        page = await hot.scan_page(cursor, count)
        for each in page.threads:
            yield each
        cursor = page.cursor
        if cursor is None:
            return


class PayloadStore(Protocol):
    """Bytes on their way: large tool results and texts that must not pass through the workflow.

    Used where no blob store is configured.
    """

    async def put_payload(self, thread_id: str, key: str, data: bytes, ttl: float) -> None:
        """Keep ``data`` for at least ``ttl`` seconds; the same key again overwrites it."""
        ...

    async def get_payload(self, thread_id: str, key: str) -> bytes | None:
        """The bytes, or None once they are gone."""
        ...

    async def delete_payload(self, thread_id: str, key: str) -> None:
        """Forget the bytes; nothing if they are gone."""
        ...

    async def delete_payloads(self, thread_id: str) -> None:
        """Forget all bytes of a thread."""
        ...
