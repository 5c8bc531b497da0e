"""What a thread store does (`ThreadStore`), its requests and results; how long work tells its progress."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from helix_temporal.blobs import BlobInfo
from helix_temporal.errors import ThreadNotFoundError
from helix_temporal.models.maintenance import ABANDONED_AFTER
from helix_temporal.models.stored_messages import Head, StoredMessage
from helix_temporal.stores.protocols.hot import Appended, HotHeader, StepAppend, StepView


class Progress(Protocol):
    """Told of each object moved, so that long work can beat, and be resumed by its next attempt.

    Attributes:
        finished: Names of objects that an earlier attempt has written.
    """

    finished: frozenset[str]

    def __call__(self, what: str, number: int, size: int, name: str = "") -> None:
        """Object ``number`` of ``size`` bytes was moved; ``name`` is given if it need not be moved again."""
        ...


class NoProgress:
    """For callers that report to nobody."""

    finished: frozenset[str] = frozenset()

    def __call__(self, what: str, number: int, size: int, name: str = "") -> None:
        """Nobody listens."""


no_progress: Final = NoProgress()


Transform = Callable[[Sequence[StoredMessage]], Awaitable[Sequence[StoredMessage]]]
"""Changes the messages of a fork before they become the new thread."""


class Create(StrEnum):
    """Whether an open may, must or must not make the thread."""

    AUTO = "auto"
    NEW = "new"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Reopen:
    """An open by a workflow that already had the thread open.

    What is committed stays, also where the workflow knows nothing of it, since it was reset.

    Attributes:
        known_head: The head that the workflow knows: what lies beyond it and is not committed is cut.
            None: it knows nothing of what it did, and nothing is cut.
        turn_start: Where to cut if ``known_head`` is no longer there, and nothing beyond is committed.
        inputs: Ids of the inputs of the step under way: if the thread goes on from ``known_head`` with just
            these, that step is kept, and its answer need not be paid for again.  At the beginning of a turn,
            other messages' unfinished turn is kept, too: the workflow was reset to before it.
        answered: That step ends in an answer; otherwise it is its inputs alone, and is not the one that
            goes on with an answer.
        reset: The workflow was reset, and has not come to the end of what it did: nothing is cut.  What
            stands behind ``known_head`` may be its own steps, whose tools have run.
    """

    known_head: Head | None
    turn_start: Head
    inputs: tuple[str, ...] = ()
    answered: bool = True
    reset: bool = False


@dataclass(frozen=True, slots=True)
class OpenThread:
    """Take the epoch of a thread.

    Attributes:
        epoch: Microseconds; the same for all attempts of one open, higher for each later one.
        owner: Who opens: the workflow's first execution run id.
        reopen: Given when this execution had it open before; otherwise the cut is at ``committed``.
        rewind_to: Cut at this earlier committed head instead.
        messages: Messages that follow the cut at once, committed: with a rewind to the beginning this
            replaces the whole thread.
        slice: State to store with a thread that is created.
        adapter: Format of the bodies; must agree with what the thread remembers.
        begun_with: Adapter of the model that a session begins with: remembered by a thread that is
            created without ``adapter``, and never compared, as sessions may change their model.
        keeps: Asked, with the slice, up to where to keep a turn that has not ended: it waits for somebody.
            None, a head that the thread does not hold, and a thread that was closed cut at ``committed``.
        rewrites: What becomes of the slice of a thread that is there, in the one swap that cuts it: asked
            with the slice, the head of the cut, and the epoch that made the thread.
        expected_head: The thread must end here.  With ``rewind_to``: cut exactly what was read before,
            finished or not.
    """

    thread_id: str
    epoch: int
    owner: str
    create: Create = Create.AUTO
    reopen: Reopen | None = None
    rewind_to: Head | None = None
    messages: tuple[StoredMessage, ...] = ()
    slice: bytes = b""
    adapter: str = ""
    begun_with: str = ""
    keeps: Callable[[bytes], Head | None] | None = None
    rewrites: Callable[[bytes, Head, int], bytes] | None = None
    expected_head: Head | None = None


@dataclass(frozen=True, slots=True)
class OpenedThread:
    """An open thread: the header as it is now, and what the open did.

    Attributes:
        created: The thread did not exist before this open (of any of its attempts).
        cut: Messages that were cut because their turn had not ended.
        at: Where the caller goes on: the thread's head; or, of a re-open, the head that it knows, if no more
            is committed than the step that it has under way; or else the end of what is committed.
    """

    header: HotHeader
    created: bool
    cut: int
    at: Head


@dataclass(frozen=True, slots=True)
class ReadPage:
    """Which messages to read.

    Attributes:
        start: Lowest position wanted.
        stop: One past the highest wanted; None reads to the end.
        limit: At most so many messages (1–10,000).
        max_bytes: At most so many packed bytes, though at least one message.
        backward: The newest of the range, rather than the oldest.
        committed_only: Stop where finished turns stop, as readers outside the session do.
        whole: Never split a tool call from its results; a page may then exceed ``limit``.
        epoch: That of the thread whose messages are meant: a hot thread of another one, which may hold turns
            that were cut since, is no thread to read from before the archive was asked.
    """

    thread_id: str
    start: int = 0
    stop: int | None = None
    limit: int = 100
    max_bytes: int = 1024 * 1024
    backward: bool = False
    committed_only: bool = True
    whole: bool = True
    epoch: int | None = None

    @staticmethod
    def of_message(thread_id: str, position: int, *, epoch: int | None = None) -> "ReadPage":
        """The one message at a position, whether its turn has ended or not."""
        return ReadPage(
            thread_id, position, position + 1, limit=1, committed_only=False, whole=False, epoch=epoch
        )


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """Consecutive messages, oldest first, and where to go on.

    Attributes:
        first: Position of the first one.
        before: ``stop`` for the page before this one; None at the beginning of the thread.
        after: ``start`` for the page after this one; None at the end of what may be read.
    """

    first: int
    messages: tuple[StoredMessage, ...]
    before: int | None
    after: int | None
    head: Head
    committed: int


@dataclass(frozen=True, slots=True)
class ThreadFacts:
    """Where a thread stands, without its messages."""

    thread_id: str
    head: Head
    committed: int
    epoch: int
    owner: str
    closed: bool
    hot: bool
    archived: int
    slice: bytes
    slice_version: int
    adapter: str
    size: int

    @classmethod
    def of_hot(cls, header: HotHeader, archived: int) -> "ThreadFacts":
        """Those of a hot thread of which the archive has so many messages, or `NEVER_ARCHIVED`."""
        return cls(
            header.thread_id, header.head, header.committed, header.epoch, header.owner, header.closed,
            True, archived, header.slice, header.slice_version, header.adapter, header.size,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ForkThread:
    """Copy a thread's finished turns into a new one.

    Attributes:
        at: Copy up to this committed position; None takes all finished turns.
        epoch: The new thread's first epoch; a repeat with the same epoch and owner gets the first
            answer.
        slice: State of the new thread; None copies the source's.
    """

    source_id: str
    target_id: str
    epoch: int
    owner: str
    at: int | None = None
    slice: bytes | None = None


@dataclass(frozen=True, slots=True)
class ForkedThread:
    """The new thread as the fork made it, whatever has become of it since.

    All of it is finished turns: ``committed`` is the head's position.

    Attributes:
        archived: Position up to which it was archived; -1 where there is no archive.
    """

    source_id: str
    thread_id: str
    epoch: int
    owner: str
    head: Head
    archived: int
    slice_version: int
    adapter: str
    size: int

    @property
    def hot(self) -> bool:
        """Whether it was made in the hot tier."""
        return self.archived < 0


class FlushStatus(StrEnum):
    """How a flush ended."""

    ARCHIVED = "archived"
    NO_COLD_TIER = "no_cold_tier"
    UNAVAILABLE = "unavailable"
    """The archive did not take it; the hot tier keeps it, unexpiring."""


@dataclass(frozen=True, slots=True)
class FlushThread:
    """Archive a thread up to where it stands.

    Attributes:
        mine: The last step that must be in the archive for success; None: whatever is hot.
        commits: ``mine`` ends a turn, and the archive must say so.
        closes: Shut this epoch: late attempts of it find the thread closed.
        ends: With ``closes``: its execution ends so, rather than that a hot thread is archived as it is.
            A turn that waits for somebody is then cut by the next open.
        slice_version: The state that must be in the archive for success, or a later one.
        known_head: The head that the caller knows; the thread may have gone on from it.
    """

    thread_id: str
    epoch: int
    mine: Head | None = None
    commits: bool = False
    closes: bool = False
    ends: bool = True
    slice_version: int = 0
    known_head: Head | None = None


@dataclass(frozen=True, slots=True)
class FlushReceipt:
    """What a flush did.

    Attributes:
        head: Where the archive stands.
        puts: Objects written.
        uploaded: Bytes written.
        gets: Objects read.
        pending_bytes: Packed bytes that are hot and not archived.
        reason: Why not archived, without secrets.
        tried: The archive was asked; false while its breaker is open, or where it is not asked each step.
    """

    status: FlushStatus
    head: Head | None = None
    committed: int = 0
    version: int = 0
    segments: int = 0
    puts: int = 0
    gets: int = 0
    uploaded: int = 0
    pending_bytes: int = 0
    reason: str = ""
    tried: bool = True


class ThreadStore(Protocol):
    """Ordered messages of many threads; one writer each.

    Every method may be repeated with the same arguments: the second call changes nothing and gives
    the first answer.

    Raises (every method):
        StoreUnavailableError: A store did not answer; repeat the call.
        ThreadNotFoundError: There is no such thread, or it was deleted (except ``open``, ``delete``).
        ArchiveError: A permanent fault of the archive; nothing was written.
    """

    @property
    def archives(self) -> bool:
        """There is a cold tier, which may hold more than a hot thread that came back late."""
        ...

    async def open(self, request: OpenThread, progress: Progress = no_progress) -> OpenedThread:
        """Take the epoch, archive what was committed, cut the rest, and make the thread hot.

        Raises:
            FencedError: A higher epoch, or an equal one of another owner, has it; or, on a re-open,
                another owner took over.
            ThreadExistsError: `Create.NEW` and it is there, by another open than this one.
            HeadMovedError: ``rewind_to`` is no head of this thread, or it ends elsewhere than at
                ``expected_head``.
            InvalidRequestError: ``rewind_to`` lies beyond what is committed, without ``expected_head``; or
                another adapter.
        """
        ...

    async def append(self, step: StepAppend) -> Appended:
        """Add one step at its head; the first answer wins.  See `HotTier.append` for the errors."""
        ...

    async def step_view(
        self, thread_id: str, epoch: int, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView:
        """What a step must know before it calls the model; makes a cold thread hot.

        Raises:
            FencedError: A newer epoch has it, or this one is closed.
            HeadMovedError: The hot thread belongs to an older epoch.
        """
        ...

    async def read(self, request: ReadPage) -> ThreadPage:
        """One page of messages, from wherever they are; never makes a thread hot.

        Raises:
            InvalidRequestError: The range or a limit is out of bounds.
        """
        ...

    async def read_facts(self, thread_id: str) -> ThreadFacts:
        """Where the thread stands.

        Raises:
            ThreadNotFoundError: There is none; its fact ``deleted`` is true where an archive remembers a
                deletion.
        """
        ...

    async def read_hot_header(self, thread_id: str) -> HotHeader | None:
        """The header of the thread's hot part, also of an old copy; the archive is not asked.

        For who shows what there is while the archive is away.  None where the thread is not hot.
        """
        ...

    async def fork(
        self, request: ForkThread, transform: Transform | None = None, progress: Progress = no_progress
    ) -> ForkedThread:
        """Copy the finished turns of one thread into a new one.

        Raises:
            ThreadExistsError: The target is there, by another call than this one.
            FencedError: The target was deleted since this call was scheduled.
            InvalidRequestError: ``at`` lies beyond what is committed or inside a turn's tool calls.
        """
        ...

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int:
        """Replace the slice; returns its new version.

        Raises:
            StaleStateError: The version is another.
        """
        ...

    async def delete(self, thread_id: str, epoch: int) -> None:
        """Remove the thread; its id stays known as deleted, so that no late attempt revives it.

        Raises:
            FencedError: A higher epoch has it.
        """
        ...

    async def hydrate(self, thread_id: str, epoch: int, progress: Progress = no_progress) -> HotHeader | None:
        """Make the thread hot if it is cold; None where there is no cold tier to take it from."""
        ...

    async def flush(self, request: FlushThread, progress: Progress = no_progress) -> FlushReceipt:
        """Archive the thread up to where it stands.

        Raises:
            FencedError: A newer epoch has it.
            HeadMovedError: The hot thread does not continue the archive, or neither holds ``mine``, or
                ``known_head``: what was acknowledged is lost.
        """
        ...

    async def archive_step(self, step: StepAppend, appended: Appended) -> FlushReceipt:
        """Archive the step that was just appended; an archive that is down is a receipt, not an error.

        Raises:
            FencedError, HeadMovedError: As flush.
        """
        ...

    async def confirm_step(self, step: StepAppend, appended: Appended) -> None:
        """Make sure, without archiving it, that the step that was just appended goes on from the archive.

        For who archives at the end only, before a step is acknowledged: the hot thread may be an old copy
        that was made hot too late, when a newer one had been archived and dropped.

        Raises:
            FencedError, HeadMovedError: As flush; the step does not count.
        """
        ...

    async def confirm_standing(self, thread_id: str, epoch: int, head: Head) -> None:
        """As `confirm_step`, for messages up to a head that were found in the thread.

        Raises:
            FencedError, HeadMovedError: As flush; they do not count.
            StoreUnavailableError: The archive did not answer; it cannot be told.
        """
        ...

    async def confirm_head(self, thread_id: str, epoch: int, head: Head) -> None:
        """Make sure that the archive holds nothing of this epoch beyond the hot thread's head.

        For who tries a step again, before it costs anything: an earlier attempt's may have been archived,
        and the hot thread have gone back to an older copy since.

        Raises:
            FencedError: A newer epoch has the archive.
            HeadMovedError: It does; open the thread again.
            StoreUnavailableError: The archive did not answer; it cannot be told.
        """
        ...

    async def evict(self, thread_id: str, epoch: int) -> str:
        """Drop the hot thread, or keep it warm for a while, if all of it is archived.

        Returns what became of it: a value of `Eviction`, or ``no_cold_tier``.
        """
        ...


async def find_facts(threads: ThreadStore, thread_id: str) -> ThreadFacts | None:
    """As `ThreadStore.read_facts`; None where there is no such thread."""
    try:
        return await threads.read_facts(thread_id)
    except ThreadNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What compaction or garbage collection did to one thread."""

    thread_id: str
    objects_deleted: int = 0
    bytes_deleted: int = 0
    segments_before: int = 0
    segments_after: int = 0
    uploaded: int = 0


@dataclass(frozen=True, slots=True)
class Audit:
    """What is wrong with one thread; nothing if ``problems`` is empty.

    Attributes:
        unarchived: Messages that the hot tier alone has.
        messages: In the archive.
        bytes_read: Of objects with messages.
        is_archived: The archive has the thread; not where it was deleted, or was never archived.
    """

    thread_id: str
    problems: tuple[str, ...] = field(default=())
    unarchived: int = 0
    messages: int = 0
    bytes_read: int = 0
    is_archived: bool = True


@dataclass(frozen=True, slots=True)
class ArchivedThread:
    """A thread of the archive, and all its objects, as they were listed.

    Attributes:
        thread_id: What its key holds instead, with ``damage``.
        damage: Why nobody can tell whose the objects are, if that is so.
    """

    thread_id: str
    objects: tuple[BlobInfo, ...]
    damage: str = ""


class ArchiveUpkeep(Protocol):
    """Maintenance of one thread's archive; harmless beside a live session.

    Raises (every method):
        StoreUnavailableError: A store did not answer; repeat the call.
    """

    async def compact(self, thread_id: str, progress: Progress = no_progress) -> Maintenance:
        """Merge small segments, and list the oldest ones apart."""
        ...

    def list_archived(self, part: int, since: float | None = None) -> AsyncIterator[ArchivedThread]:
        """The archived threads in one of the 256 parts of the archive: one listing, however many they are.

        Deleted ones are among them, and those of which objects are there without a manifest: a fork that was
        given up.  One that comes meanwhile may be missed.  Of an id so long that its key holds a hash of it,
        the thread is left out where there is no manifest, and has its ``damage`` where that is not readable.

        Args:
            part: From 0 on.
            since: Only threads for which there may be something to do that was not there at this time, in
                seconds since 1970 by the archive's clock: what was written since, or is garbage by its age.
        """
        ...

    async def tell_time(self) -> float | None:
        """The time by the archive's clock, as ``since``; None if the archive does not date its objects."""
        ...

    async def keep(
        self,
        thread: ArchivedThread,
        progress: Progress = no_progress,
        *,
        abandoned_after: float = ABANDONED_AFTER,
    ) -> Maintenance:
        """Compact, and delete what no manifest names; one read where there is nothing to do.

        Raises:
            ArchiveCorruptError: Its manifest, or an object that this names, is damaged or missing.
        """
        ...

    async def collect_garbage(
        self, thread_id: str, progress: Progress = no_progress, *, abandoned_after: float = ABANDONED_AFTER
    ) -> Maintenance:
        """Delete objects that no manifest names and none can come to name.

        Where the thread has been at rest for ``abandoned_after`` seconds by the store's clock, also payloads
        as old as that which no step took, and all of a thread that has no manifest.
        """
        ...

    async def audit(
        self,
        thread_id: str,
        progress: Progress = no_progress,
        *,
        objects: Sequence[BlobInfo] | None = None,
        reads_data: bool = True,
    ) -> Audit:
        """Verify one thread, one of its objects after the other; changes nothing.

        Damage is a line in ``problems``, not an error, and no change that others make meanwhile is damage.

        Args:
            thread_id: Which one.
            progress: Told of each object that was read.
            objects: Those of the thread, as they were listed, where they are known.
            reads_data: Read all messages; otherwise each object is looked for, and its size is compared.
        """
        ...
