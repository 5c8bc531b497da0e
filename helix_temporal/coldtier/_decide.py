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
    # Over a tombstone nothing goes on: a hot copy is what a late hydrate left there.
    if hot is None or hot.header.deleted or archive.deleted or hot.header.epoch < archive.epoch:
        return False
    end = archive.head.position
    if archive.is_absent:
        return hot.header.base.position == 0
    if archive.closed and hot.header.epoch == archive.epoch and hot.header.head != archive.head:
        return False  # what a late attempt added to a copy that did not know of the closing
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
    if archive.closed and archive.epoch == request.epoch:
        # Closing archived all there was; but it may not have been the end that it is now.
        return FlushDecision(done=archive.ended or not (request.closes and request.ends))
    closed = archive.closed or not request.closes
    if (
        archive_holds_mine
        and request.mine is not None
        and closed
        and (not request.commits or archive.committed >= _position(request.mine))
    ):
        return FlushDecision(done=True)
    if hot is None or (archive.deleted and archive.epoch == request.epoch):
        return _without_hot(request, archive, archive_holds_mine)
    header = hot.header
    check_hot_epoch(header, request.epoch, closing=request.closes)
    _check_state(request, max(header.slice_version, archive.slice_version))
    if not continues(hot, archive) or header.slice_version < archive.slice_version:
        raise HeadMovedError(
            f"thread {request.thread_id!r}: the hot record at {header.head.position} (state "
            f"{header.slice_version}) does not continue the archive at {archive.head.position} (state "
            f"{archive.slice_version}); open it again"
        )
    _check_mine(request, hot, archive_holds_mine=archive_holds_mine)
    same = (header.head, header.slice_version) == (archive.head, archive.slice_version)
    nothing_new = same and header.committed <= archive.committed
    return FlushDecision(nothing_new and closed, beyond(hot, archive.head.position), header)


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
    if archive.epoch < request.epoch and hot is None:
        if archive.is_absent:
            raise ThreadNotFoundError(f"thread {request.thread_id!r}: neither hot nor archived")
        raise ColdRegressedError(
            f"thread {request.thread_id!r}: the archive has epoch {archive.epoch}, but {request.epoch} was "
            "opened in it; restore its objects, nothing was written"
        )


def _check_state(request: FlushThread, version: int) -> None:
    """Refuse to call a state archived that was lost before it was."""
    if version < request.slice_version:
        raise HeadMovedError(
            f"thread {request.thread_id!r}: state {request.slice_version} was saved, and the newest that is "
            f"there is {version}; save it again"
        )


def _without_hot(request: FlushThread, archive: Manifest, archive_holds_mine: bool) -> FlushDecision:
    _check_state(request, archive.slice_version)
    wanted = request.mine or request.known
    if wanted is not None and not archive_holds_mine:
        raise HeadMovedError(
            f"thread {request.thread_id!r}: not hot, and the archive at {archive.head.position} does not "
            f"hold the message before {wanted.position}; open it again"
        )
    return FlushDecision(done=archive.closed or not request.closes)


def _check_mine(request: FlushThread, hot: HotSnapshot, *, archive_holds_mine: bool) -> None:
    mine, header = request.mine or request.known, hot.header
    if mine is None:
        return
    known = hot_id_before(hot, mine.position)
    behind = header.head.position < mine.position or (request.commits and header.committed < mine.position)
    # What is too old to be in the snapshot is archived, if it is there at all.
    if behind or (known != mine.last_id if known is not None else not archive_holds_mine):
        raise HeadMovedError(
            f"thread {request.thread_id!r}: the record at {header.head.position} (committed "
            f"{header.committed}) does not hold the step that ends at {mine.position}; open it again"
        )


def is_alive(hot: HotHeader | None, archive: Manifest) -> bool:
    """Whether a hot record is the thread, rather than a leftover of a deleted or older one."""
    return hot is not None and not hot.deleted and not archive.deleted and hot.epoch >= archive.epoch


def check_open(
    request: OpenThread, hot: HotHeader | None, archive: Manifest, *, legacy: bool = False
) -> bool:
    """Whether the archive already shows this open's success; False if it is still to be committed.

    ``legacy``: there is a version 1 snapshot to go on from.

    Raises:
        FencedError, ThreadExistsError, ThreadNotFoundError, InvalidRequestError: As `ThreadStore.open`.
    """
    highest = max(archive.epoch, hot.epoch if hot else 0)
    if highest > request.epoch:
        raise taken(request, highest)
    if hot is not None and hot.epoch == request.epoch and hot.owner != request.owner:
        raise taken(request, hot.epoch)
    if archive.epoch == request.epoch:
        if archive.owner != request.owner or archive.deleted:
            raise taken(request, archive.epoch)
        return True
    alive = hot if is_alive(hot, archive) else None
    # Who opens again had it open in this format: an old snapshot can't be what it knew.
    legacy = legacy and request.reopen is None
    check_existence(request, exists=not archive.is_absent or alive is not None or legacy)
    if not archive.is_absent:
        check_same_owner(request, archive.owner)
        check_adapter(request, archive.adapter)
    elif alive is not None:
        check_same_owner(request, alive.owner)
        check_adapter(request, alive.adapter)
    return False
