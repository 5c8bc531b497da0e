"""Which of two counts: a hot thread beside its manifest.  Pure.

Either may be older than the other: a hot store may be wiped or rolled back, and a copy may come late.

* `is_alive`: the hot thread is the thread at all.  No open has taken the manifest since, nobody deleted it.
* `is_newest`: it is alive and not behind the manifest.  A reader may take it for the whole thread.
* `continues_archive`: it is alive and has the manifest's last message.  A writer may go on from it.
* `is_old_copy`: it has the manifest's epoch and does not go on from it, or has less beside its messages.  It
  is replaced; a hot thread of another epoch is left to whoever opens.
* `is_hot_thread_to_come`: there is none, or one of an older epoch, and whoever has the manifest's epoch may
  still install one.

`check_regressed` finds the opposite: the manifest is older than what the hot thread has seen of it.
"""

from helix_temporal.coldtier.format import Manifest
from helix_temporal.errors import ColdRegressedError
from helix_temporal.stores.protocols.hot import NEVER_ARCHIVED, HotHeader, HotSnapshot


def is_alive(hot: HotHeader | None, archive: Manifest) -> bool:
    """Whether a hot thread is the thread, rather than a leftover of a deleted or older one."""
    return hot is not None and not hot.deleted and not archive.deleted and hot.epoch >= archive.epoch


def is_newest(hot: HotHeader, archive: Manifest) -> bool:
    """Whether a hot thread is the thread, and not an older copy: the archive never goes back."""
    is_beyond = hot.epoch != archive.epoch or hot.head.position > archive.head.position
    return is_alive(hot, archive) and (is_beyond or hot.head == archive.head)


def continues_archive(hot: HotSnapshot | None, archive: Manifest) -> bool:
    """Whether hot may go on from the archive: same message at its last position, epoch not lower."""
    # Over a tombstone nothing goes on: a hot copy is what a late hydrate left there.
    if hot is None or hot.header.deleted or archive.deleted or hot.header.epoch < archive.epoch:
        return False
    if archive.is_absent:
        return hot.header.base.position == 0
    if archive.closed and hot.header.epoch == archive.epoch and hot.header.head != archive.head:
        return False  # what a late attempt added to a copy that did not know of the closing
    return hot.holds(archive.head)


def is_old_copy(hot: HotSnapshot, archive: Manifest) -> bool:
    """Whether a hot thread of the archive's epoch does not go on from it, or has less beside its messages."""
    header = hot.header
    if header.epoch != archive.epoch:
        return False
    if not continues_archive(hot, archive):
        return True
    mine = (header.committed, header.slice_version)
    theirs = (archive.committed, archive.slice_version)
    is_behind = mine != theirs and all(one <= other for one, other in zip(mine, theirs, strict=True))
    return header.head == archive.head and is_behind


def is_hot_thread_to_come(hot: HotHeader | None, archive: Manifest) -> bool:
    """Whether the epoch in the manifest may still write, but has no hot thread now.

    Its open has got no further, or its hot thread was lost: the next of its writes installs it.
    """
    may_write = not (archive.is_absent or archive.closed)
    return may_write and (hot is None or hot.epoch < archive.epoch)


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
