"""Pure: what a flush or an open does, given what is hot and what is archived."""

from dataclasses import dataclass

from helix_temporal.coldtier._manifest import Manifest
from helix_temporal.errors import (
    ColdRegressedError,
    FencedError,
    HeadMovedError,
    ThreadNotFoundError,
)
from helix_temporal.models.records import Head, Record
from helix_temporal.stores._opens import (
    check_adapter,
    check_existence,
    check_hot_epoch,
    check_same_owner,
    taken,
)
from helix_temporal.stores.protocols.hot import NEVER_ARCHIVED, HotHeader, HotSnapshot
from helix_temporal.stores.protocols.threads import FlushThread, OpenThread


def check_regressed(hot: HotSnapshot | None, archive: Manifest) -> None:
    """Refuse an archive that holds less than the hot tier has seen in it.

    Raises:
        ColdRegressedError: It was deleted, or an older copy was restored.
    """
    if hot is None or hot.header.archived == NEVER_ARCHIVED or hot.header.epoch < archive.epoch:
        return
    if hot.header.epoch > archive.epoch or hot.header.archived > archive.head.position:
        raise ColdRegressedError(
            f"thread {archive.thread_id!r}: the archive stands at {archive.head.position} (epoch "
            f"{archive.epoch}), but {hot.header.archived} messages (epoch {hot.header.epoch}) were seen in "
            "it; restore its objects, nothing was written"
        )


def hot_id_before(hot: HotSnapshot, position: int) -> str | None:
    """Id of the message before ``position`` as the hot record knows it, None if it does not."""
    if position == hot.header.head.position:
        return hot.header.head.last_id
    if position == hot.header.base.position:
        return hot.header.base.last_id
    at = position - 1 - hot.first
    return hot.records[at].id if 0 <= at < len(hot.records) else None


def continues(hot: HotSnapshot | None, archive: Manifest) -> bool:
    """Whether hot may go on from the archive: same message at its last position, epoch not lower."""
    if hot is None or hot.header.deleted or hot.header.epoch < archive.epoch:
        return False
    end = archive.head.position
    if archive.is_absent:
        return hot.header.base.position == 0
    return hot.header.head.position >= end and hot_id_before(hot, end) == archive.head.last_id


def beyond(hot: HotSnapshot, position: int) -> tuple[Record, ...]:
    """The hot records from ``position`` on."""
    return hot.records[max(0, position - hot.first) :]


@dataclass(frozen=True, slots=True)
class FlushDecision:
    """Write ``records`` after the archive's head with the fields of ``header``; or nothing is left to do."""

    done: bool
    records: tuple[Record, ...] = ()
    header: HotHeader | None = None


def decide_flush(
    request: FlushThread, hot: HotSnapshot | None, archive: Manifest, *, archive_holds_mine: bool
) -> FlushDecision:
    """What a flush must write.

    Raises:
        FencedError: A newer epoch has the thread, or this one is closed.
        HeadMovedError: The record is not what the caller knows.
        ColdRegressedError: The archive went back.
        ThreadNotFoundError: There is neither a record nor an archive.
    """
    _check_archive_epoch(request, hot, archive)
    closed = archive.closed or not request.closes
    if (
        archive_holds_mine
        and closed
        and (not request.commits or archive.committed >= _position(request.mine))
    ):
        return FlushDecision(done=True)
    if hot is None:
        return _without_hot(request, archive, archive_holds_mine)
    check_hot_epoch(hot.header, request.epoch, closing=request.closes)
    if not continues(hot, archive):
        raise HeadMovedError(
            f"thread {request.thread_id!r}: the hot record at {hot.header.head.position} does not continue "
            f"the archive at {archive.head.position}; open it again"
        )
    _check_mine(request, hot)
    header = hot.header
    same = (header.head, header.committed, header.slice_version) == (
        archive.head,
        archive.committed,
        archive.slice_version,
    )
    return FlushDecision(same and closed, beyond(hot, archive.head.position), header)


def _position(head: Head | None) -> int:
    return head.position if head else 0


def _check_archive_epoch(request: FlushThread, hot: HotSnapshot | None, archive: Manifest) -> None:
    if archive.epoch > request.epoch:
        raise FencedError(
            f"thread {request.thread_id!r}: epoch {archive.epoch} has it, {request.epoch} is out",
            held=request.epoch,
            current=archive.epoch,
        )
    if archive.epoch == request.epoch and archive.closed and not request.closes:
        raise FencedError(f"thread {request.thread_id!r}: epoch {request.epoch} is closed")
    check_regressed(hot, archive)
    if archive.epoch < request.epoch and hot is None and archive.is_absent:
        raise ThreadNotFoundError(f"thread {request.thread_id!r}: neither hot nor archived")


def _without_hot(request: FlushThread, archive: Manifest, archive_holds_mine: bool) -> FlushDecision:
    if request.mine is not None and not archive_holds_mine:
        raise HeadMovedError(
            f"thread {request.thread_id!r}: not hot, and the archive at {archive.head.position} does not "
            f"hold message {request.mine.position}; open it again"
        )
    return FlushDecision(done=archive.closed or not request.closes)


def _check_mine(request: FlushThread, hot: HotSnapshot) -> None:
    mine, header = request.mine, hot.header
    if mine is None:
        return
    known = hot_id_before(hot, mine.position)
    behind = header.head.position < mine.position or (request.commits and header.committed < mine.position)
    if behind or (known is not None and known != mine.last_id):
        raise HeadMovedError(
            f"thread {request.thread_id!r}: the record at {header.head.position} (committed "
            f"{header.committed}) does not hold the step that ends at {mine.position}; open it again"
        )


def check_open(request: OpenThread, hot: HotHeader | None, archive: Manifest) -> bool:
    """Whether the archive already shows this open's success; False if it is still to be committed.

    Raises:
        FencedError, ThreadExistsError, ThreadNotFoundError, InvalidRequestError: As `ThreadStore.open`.
    """
    highest = max(archive.epoch, hot.epoch if hot else 0)
    if highest > request.epoch:
        raise taken(request, highest)
    if hot is not None and hot.epoch == request.epoch and hot.owner != request.owner:
        raise taken(request, hot.epoch)
    if archive.epoch == request.epoch:
        if archive.owner != request.owner:
            raise taken(request, archive.epoch)
        return not archive.deleted
    check_existence(request, exists=not archive.is_absent or (hot is not None and not hot.deleted))
    if not archive.is_absent:
        check_same_owner(request, archive.owner)
        check_adapter(request, archive.adapter)
    elif hot is not None and not hot.deleted:
        check_same_owner(request, hot.owner)
    return False
