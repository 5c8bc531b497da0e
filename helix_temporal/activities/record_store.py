"""The record in the slice of a session's thread: read, changed and saved, and again if somebody was faster.

A request to take turns back is remembered in the very swap that cuts the thread, so that one whose open
fails is not carried out again.  The session store follows in a second step; until it has, the request
names the checkpoint that is yet to be restored, and whatever open comes next restores it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from helix_temporal.errors import HelixError, StaleStateError, StoreUnavailableError
from helix_temporal.models.sessions import OpenHandle, ReopenHeads, SessionOptions
from helix_temporal.models.steps import OpenSessionInput
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.waiting import Suspension
from helix_temporal.session.record import (
    SessionRecord,
    add_waiting_children,
    apply_open,
    encode_record,
    is_unknown_request,
    mark_synced,
    parse_record,
)
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.threads import ThreadFacts, ThreadStore

T = TypeVar("T")

_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as it is stored.

    Attributes:
        head: Where the thread stood when it was read.
        saved: It was changed, and saved so, since it was read.
    """

    record: SessionRecord
    version: int
    head: Head
    saved: bool = False

    @classmethod
    def of(cls, found: HotHeader | ThreadFacts) -> "StoredRecord":
        """What was read of a thread."""
        return cls(parse_record(found.slice), found.slice_version, found.head)


async def swap_record(
    threads: ThreadStore,
    thread_id: str,
    write: Callable[[StoredRecord], Awaitable[T]],
    during: str,
    *,
    read_before: StoredRecord | None = None,
    otherwise: type[HelixError] = StoreUnavailableError,
) -> T:
    """Write against the version that is stored, and against the newer one if it was saved meanwhile.

    Args:
        threads: Where the thread is.
        thread_id: Whose record it is.
        write: Writes what it makes of the stored record against its version.
        during: What is done meanwhile, for the error.
        read_before: The record as the caller has read it; None to read it first.
        otherwise: What is raised if somebody was faster each time.
    """
    for _ in range(_TRIES):
        stored = read_before or StoredRecord.of(await threads.read_facts(thread_id))
        try:
            return await write(stored)
        except StaleStateError:
            read_before = None
    raise otherwise(f"thread {thread_id!r}: its state changed {_TRIES} times while {during}")


async def update_record(
    threads: ThreadStore,
    thread_id: str,
    epoch: int,
    change: Callable[[StoredRecord], SessionRecord],
    during: str,
    *,
    read_before: StoredRecord | None = None,
) -> StoredRecord:
    """Save what ``change`` makes of the record, as `swap_record`; nothing where that is the same.

    Returns:
        The record as it is stored then.

    Raises:
        FencedError: A newer open has the thread.
        StoreUnavailableError: Somebody was faster each time.
    """

    async def write(stored: StoredRecord) -> StoredRecord:
        wanted = change(stored)
        if wanted == stored.record:
            return stored
        version = await threads.save_slice(thread_id, epoch, encode_record(wanted), stored.version)
        return StoredRecord(wanted, version, stored.head, saved=True)

    return await swap_record(threads, thread_id, write, during, read_before=read_before)


@dataclass(frozen=True, slots=True)
class OpenedRecord:
    """The record of a thread that was opened, as it is stored now.

    Attributes:
        found_record: As the open found it.
        saved: It was, or may have been, by this open: nothing has archived it yet.
    """

    record: SessionRecord
    version: int
    header: HotHeader
    found_record: SessionRecord
    saved: bool

    def build_handle(self, at: Head | None = None) -> OpenHandle:
        """What the workflow carries of the open thread; it goes on ``at`` this head."""
        return OpenHandle(
            epoch=self.header.epoch,
            head=at or self.header.head,
            slice_version=self.version,
            **({"archived": False} if self.saved else {}),
        )

    def option_fields(self, request: OpenSessionInput) -> dict[str, SessionOptions]:
        """Tells the workflow how the session behaves, where that is not what it asked for."""
        found = self.record.options
        if found is None or found == request.options or request.parent is not None:
            return {}
        return {"options": found}

    def reset_fields(self, request: OpenSessionInput, at: Head) -> dict[str, bool]:
        """Tells the workflow of finished turns, and of turns taken back, that it does not know of."""
        heads = request.reopen
        if heads is None:
            return {}
        ahead = at != heads.head and at.position > heads.turn_start.position
        back = any(is_unknown_request(each, request.known_epoch) for each in self.found_record.taken_back)
        return {"reset": True} if ahead or back else {}


async def reopen_if_carried_out(
    threads: ThreadStore, request: OpenSessionInput, epoch: int
) -> OpenSessionInput:
    """The request to open; as a re-open where the turns that it takes back were taken back before.

    The workflow was reset to between its plan and the open that followed, or that open failed and took effect
    all the same: what was finished since stays.
    """
    taken = request.take_back
    if taken is None or request.rewind_to is None:
        return request
    taken_back = parse_record((await threads.read_facts(request.thread_id)).slice).taken_back
    if all(each.id != taken.id or each.epoch >= epoch for each in taken_back):
        return request
    asked = tuple(each.id for each in taken.messages)
    heads = ReopenHeads(head=request.rewind_to, turn_start=request.rewind_to, inputs=asked)
    return request.model_copy(
        update={"reopen": heads, "rewind_to": None, "take_back": None, "checkpoint": None}
    )


def rewrite_record(request: OpenSessionInput, epoch: int) -> Callable[[bytes, Head, int], bytes] | None:
    """What `OpenThread.rewrites` does to the record; None where the open takes nothing back."""
    if request.take_back is None:
        return None

    def rewrite(data: bytes, head: Head, born: int) -> bytes:
        record = parse_record(data)
        wanted = apply_open(
            record, HotHeader(request.thread_id, epoch, request.owner, head, born=born), request
        )
        return data if wanted == record else encode_record(wanted)

    return rewrite


async def save_opened_record(
    threads: ThreadStore,
    request: OpenSessionInput,
    header: HotHeader,
    record: SessionRecord,
    waiting: Suspension | None = None,
) -> OpenedRecord:
    """Bring the record up to date after an open, before anything may follow it; a repeat finds it so.

    ``waiting`` is what the turn waits for that the thread ends with, should it have been kept.

    Raises:
        FencedError: A newer open has the thread.
    """
    opened = OpenedRecord(record, header.slice_version, header, record, saved=request.take_back is not None)
    return await _save_change(
        threads,
        opened,
        lambda before: apply_open(add_waiting_children(before, header.head, waiting), header, request),
    )


async def save_synced_record(threads: ThreadStore, opened: OpenedRecord) -> OpenedRecord:
    """The session store has followed the thread: no later open needs to see to that.

    Raises:
        FencedError: A newer open has the thread.
    """
    return await _save_change(threads, opened, mark_synced)


async def _save_change(
    threads: ThreadStore, opened: OpenedRecord, change: Callable[[SessionRecord], SessionRecord]
) -> OpenedRecord:
    header = opened.header
    before = StoredRecord(opened.record, opened.version, header.head)
    after = await update_record(
        threads,
        header.thread_id,
        header.epoch,
        lambda stored: change(stored.record),
        "it was opened",
        read_before=before,
    )
    saved = opened.saved or after.saved
    return replace(opened, record=after.record, version=after.version, saved=saved)
