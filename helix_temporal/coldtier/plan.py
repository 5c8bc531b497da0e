"""Pure: what a flush has to write, what a commit writes, what a cut needs, what compaction merges.

No I/O, no clock, no chance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from helix_temporal.coldtier.format import (
    MAX_SEGMENT_RAW,
    Manifest,
    SegmentRef,
    compress_frame,
    encode_index,
    encode_manifest,
    encode_segment,
    segment_of,
    size_before,
)
from helix_temporal.coldtier.liveness import check_regressed, continues_archive
from helix_temporal.errors import ColdRegressedError, HeadMovedError, ThreadNotFoundError
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage, pack_messages, size_of
from helix_temporal.stores.protocols.hot import HotHeader, HotSnapshot
from helix_temporal.stores.protocols.threads import FlushThread
from helix_temporal.stores.threads.fences import Fence

INLINE_MAX: Final = 16 * 1024
"""Bytes of the inline frame; beyond it the inline messages become a segment."""
INLINE_RAW_MAX: Final = 256 * 1024
"""Packed bytes of the inline messages: each flush packs them anew, and a reader inflates them at once."""
SLICE_INLINE_MAX: Final = 256 * 1024
TAIL_MESSAGES: Final = 400
"""The newest messages stay in small segments, so that opening a long thread reads little."""
TAIL_SEGMENT_MESSAGES: Final = 128
BULK_SEGMENT_RAW: Final = 8 * 1024 * 1024
SMALL_RAW: Final = 16 * 1024
FAN_OUT: Final = 4
MAX_MERGED: Final = 8
MIN_GROWTH: Final = 3
"""A merge makes at least so many times the largest segment in it: that keeps its cost logarithmic."""
DIRECT_MAX: Final = 16
"""Segments that a manifest names itself; older ones are listed in the index object."""
DIRECT_KEPT: Final = 12
DIRECT_LIMIT: Final = 64
"""A first commit that would name more makes the index, rather than wait for compaction.

Where there is an index, compaction, which reads it, adds to it.
"""


@dataclass(frozen=True, slots=True)
class Log:
    """The parts of an archive that a commit goes on from."""

    index: SegmentRef | None
    segments: tuple[SegmentRef, ...]
    inline: tuple[StoredMessage, ...]

    @property
    def segments_end(self) -> int:
        """Position of the first inline message: where the segments, or those in the index, end."""
        if self.segments:
            return self.segments[-1].stop
        return self.index.stop if self.index else 0


@dataclass(frozen=True, slots=True)
class Draft:
    """An object to be created before the manifest names it."""

    area: str
    ref: SegmentRef
    data: bytes


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """Objects first, then the manifest, whose bytes are ``body``."""

    objects: tuple[Draft, ...]
    manifest: Manifest
    body: bytes


def whole_log(manifest: Manifest) -> Log:
    """All of the archive; empty where there is none."""
    if manifest.is_absent:
        return Log(None, (), ())
    return Log(manifest.index, manifest.segments, manifest.inline)


def find_straddled_segment(segments: Sequence[SegmentRef], cut: int) -> SegmentRef | None:
    """The segment that a cut splits: its messages below the cut must be read and written anew."""
    return next((ref for ref in segments if ref.first < cut < ref.stop), None)


def cut_log(log: Log, cut: int, split: Sequence[StoredMessage] = ()) -> Log:
    """The part of a log below ``cut``; ``split`` holds the messages of the straddled segment.

    The index must have been expanded into segments if the cut lies inside it.
    """
    ends = log.segments_end
    if cut >= ends:
        return replace(log, inline=log.inline[: cut - ends])
    kept = tuple(ref for ref in log.segments if ref.stop <= cut)
    ref = find_straddled_segment(log.segments, cut)
    return Log(log.index, kept, tuple(split[: cut - ref.first]) if ref else ())


def plan_commit(
    base: Manifest,
    log: Log,
    new: Sequence[StoredMessage],
    *,
    nonce: str,
    key: bytes | None = None,
    head_before: Head = EMPTY,
    **changes: Any,
) -> CommitPlan:
    """The next manifest: ``log``, then ``new``, with other fields changed as named.

    ``head_before`` is the head of ``log``; it is needed only when nothing follows.
    """
    inline = (*log.inline, *new)
    ends = log.segments_end
    last_id = inline[-1].id if inline else head_before.last_id
    head = Head(position=ends + len(inline), last_id=last_id)
    size = size_before(replace(base, index=log.index), log.segments, inline)
    manifest = base.make_next(
        nonce, index=log.index, segments=log.segments, inline=inline, head=head, size=size, **changes
    )
    raw = pack_messages(inline, ends)
    frame = compress_frame(raw) if len(raw) <= INLINE_RAW_MAX else None
    drafts: list[Draft] = []
    if frame is None or len(frame) > INLINE_MAX:
        drafts = list(_draft_segments(inline, ends, head.position, base.gen, raw, frame))
        frame = None
        refs = (*log.segments, *(draft.ref for draft in drafts))
        manifest = replace(manifest, segments=refs, inline=())
    manifest, listed = _index_oldest_segments(manifest)
    return CommitPlan((*drafts, *listed), manifest, encode_manifest(manifest, key, frame))


def _index_oldest_segments(manifest: Manifest) -> tuple[Manifest, tuple[Draft, ...]]:
    """With far too many direct segments and no index yet: one for the oldest, which needs no read."""
    if manifest.index is not None or len(manifest.segments) <= DIRECT_LIMIT:
        return manifest, ()
    draft = Draft("idx", *encode_index(manifest.segments[:-DIRECT_KEPT], manifest.gen))
    return replace(manifest, index=draft.ref, segments=manifest.segments[-DIRECT_KEPT:]), (draft,)


def _draft_segments(
    messages: Sequence[StoredMessage], first: int, head: int, gen: int, raw: bytes, frame: bytes | None
) -> Iterator[Draft]:
    """Segments of these messages: small ones for the newest, larger ones for a bulk of old ones."""
    if len(messages) <= TAIL_SEGMENT_MESSAGES and len(raw) <= BULK_SEGMENT_RAW:
        data = compress_frame(raw) if frame is None else frame
        yield Draft("seg", *segment_of(data, len(raw), first, first + len(messages) - 1, gen))
        return
    for run in _split_runs(messages, first, head - TAIL_MESSAGES):
        yield Draft("seg", *encode_segment(run, first, gen))
        first += len(run)


def _split_runs(
    messages: Sequence[StoredMessage], first: int, bulk_ends: int
) -> Iterator[Sequence[StoredMessage]]:
    start, size = 0, 0
    for at, message in enumerate(messages):
        in_tail = first + start >= bulk_ends
        full = at - start >= TAIL_SEGMENT_MESSAGES if in_tail else first + at == bulk_ends
        if at > start and (full or size + size_of([message]) > BULK_SEGMENT_RAW):
            yield messages[start:at]
            start, size = at, 0
        size += size_of([message])
    if start < len(messages):
        yield messages[start:]


def tail_start(manifest: Manifest, messages: int, max_bytes: int) -> int:
    """From which position on to read so that the newest ``messages`` are there, or ``max_bytes`` of them."""
    start, size = manifest.inline_first, size_of(manifest.inline)
    for ref in reversed(manifest.segments):
        if manifest.head.position - start >= messages or (size and size + ref.raw_size > max_bytes):
            break
        start, size = ref.first, size + ref.raw_size
    return start


def find_mergeable_run(
    segments: Sequence[SegmentRef], head: int, max_raw: int = MAX_SEGMENT_RAW
) -> tuple[int, int] | None:
    """The first run of adjacent segments worth merging, as a slice of ``segments``; None if there is none.

    ``max_raw`` bounds the packed bytes of the run.

    Merging goes by size classes, so each byte is rewritten a logarithmic number of times.  Segments
    among the newest messages are merged only into ones that stay small.
    """
    for limit in range(level_of_raw(MAX_SEGMENT_RAW) + 1):
        start = 0
        for at in range(len(segments) + 1):
            if at < len(segments) and level_of_raw(segments[at].raw_size) <= limit:
                continue
            found = _find_allowed_run(segments[start:at], head, min(max_raw, MAX_SEGMENT_RAW))
            if found:
                return start + found[0], start + found[1]
            start = at + 1
    return None


def level_of_raw(raw_size: int) -> int:
    """Size class of a segment with so many packed bytes: each is four times the one below."""
    return ((raw_size // SMALL_RAW).bit_length() + 1) // 2


def _find_allowed_run(segments: Sequence[SegmentRef], head: int, max_raw: int) -> tuple[int, int] | None:
    for first in range(len(segments) - FAN_OUT + 1):
        for last in range(min(len(segments), first + MAX_MERGED), first + FAN_OUT - 1, -1):
            if _is_merge_allowed(segments[first:last], head, max_raw):
                return first, last
    return None


def _is_merge_allowed(run: Sequence[SegmentRef], head: int, max_raw: int) -> bool:
    messages = run[-1].stop - run[0].first
    old = run[-1].stop <= head - TAIL_MESSAGES
    sizes = [ref.raw_size for ref in run]
    return MIN_GROWTH * max(sizes) <= sum(sizes) <= max_raw and (old or messages <= TAIL_SEGMENT_MESSAGES)


def plan_merge(
    manifest: Manifest,
    run: tuple[int, int],
    messages: Sequence[StoredMessage],
    *,
    nonce: str,
    key: bytes | None = None,
) -> CommitPlan:
    """One segment in place of a run of them; same messages, same range."""
    start, stop = run
    ref, data = encode_segment(messages, manifest.segments[start].first, manifest.gen)
    segments = (*manifest.segments[:start], ref, *manifest.segments[stop:])
    merged = manifest.make_next(nonce, segments=segments)
    return CommitPlan((Draft("seg", ref, data),), merged, encode_manifest(merged, key))


def split_direct_segments(manifest: Manifest) -> tuple[tuple[SegmentRef, ...], tuple[SegmentRef, ...]]:
    """The oldest direct segments, which belong into the index now, and the ones that stay."""
    if len(manifest.segments) <= DIRECT_MAX:
        return (), manifest.segments
    return manifest.segments[:-DIRECT_KEPT], manifest.segments[-DIRECT_KEPT:]


def plan_index(
    manifest: Manifest,
    listed: Sequence[SegmentRef],
    kept: tuple[SegmentRef, ...],
    *,
    run: tuple[int, int] | None = None,
    messages: Sequence[StoredMessage] = (),
    nonce: str,
    key: bytes | None = None,
) -> CommitPlan:
    """An index of ``listed``, a run of which may become one segment; ``kept`` follow it directly."""
    drafts: list[Draft] = []
    if run is not None:
        ref, data = encode_segment(messages, listed[run[0]].first, manifest.gen)
        drafts.append(Draft("seg", ref, data))
        listed = (*listed[: run[0]], ref, *listed[run[1] :])
    drafts.append(Draft("idx", *encode_index(listed, manifest.gen)))
    changed = manifest.make_next(nonce, index=drafts[-1].ref, segments=kept)
    return CommitPlan(tuple(drafts), changed, encode_manifest(changed, key))


# ---- what a flush has to write -----------------------------------------------------------------------


def hot_messages_from(hot: HotSnapshot, position: int) -> tuple[StoredMessage, ...]:
    """The hot messages from ``position`` on."""
    return hot.messages[max(0, position - hot.first) :]


@dataclass(frozen=True, slots=True)
class FlushDecision:
    """Write ``messages`` after the archive's head with the fields of ``header``; or nothing is left to do."""

    done: bool
    messages: tuple[StoredMessage, ...] = ()
    header: HotHeader | None = None


def decide_flush(
    request: FlushThread, hot: HotSnapshot | None, archive: Manifest, *, archive_holds_mine: bool
) -> FlushDecision:
    """What a flush must write.

    Raises:
        FencedError: A newer epoch has the thread, or this one is closed.
        HeadMovedError: The hot thread is not what the caller knows.
        ColdRegressedError: The archive went back.
        ThreadNotFoundError: There is neither a hot thread nor an archive.
    """
    _check_archive_epoch(request, hot, archive)
    if archive.closed and archive.epoch == request.epoch:
        # An earlier flush closed the archive, but need not have marked the session as ended.
        return FlushDecision(done=archive.ended or not (request.closes and request.ends))
    closed = archive.closed or not request.closes
    if (
        archive_holds_mine
        and request.mine is not None
        and closed
        and (not request.commits or archive.committed >= _position_of(request.mine))
    ):
        return FlushDecision(done=True)
    if hot is None or (archive.deleted and archive.epoch == request.epoch):
        return _without_hot(request, archive, archive_holds_mine)
    header = hot.header
    Fence.of(header).check_writer(request.epoch, closing=request.closes)
    _check_state(request, max(header.slice_version, archive.slice_version))
    if not continues_archive(hot, archive) or header.slice_version < archive.slice_version:
        raise HeadMovedError(
            f"thread {request.thread_id!r}: the hot thread at {header.head.position} (state "
            f"{header.slice_version}) does not continue the archive at {archive.head.position} (state "
            f"{archive.slice_version}); open it again"
        )
    _check_mine(request, hot, archive_holds_mine=archive_holds_mine)
    same = (header.head, header.slice_version) == (archive.head, archive.slice_version)
    nothing_new = same and header.committed <= archive.committed
    return FlushDecision(nothing_new and closed, hot_messages_from(hot, archive.head.position), header)


def _position_of(head: Head | None) -> int:
    return head.position if head else 0


def _check_archive_epoch(request: FlushThread, hot: HotSnapshot | None, archive: Manifest) -> None:
    if archive.epoch >= request.epoch:
        Fence.of(archive).check_writer(request.epoch, closing=request.closes)
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
    wanted = request.mine or request.known_head
    if wanted is not None and not archive_holds_mine:
        raise HeadMovedError(
            f"thread {request.thread_id!r}: not hot, and the archive at {archive.head.position} does not "
            f"hold the message before {wanted.position}; open it again"
        )
    return FlushDecision(done=archive.closed or not request.closes)


def _check_mine(request: FlushThread, hot: HotSnapshot, *, archive_holds_mine: bool) -> None:
    mine, header = request.mine or request.known_head, hot.header
    if mine is None:
        return
    last_id = hot.id_before(mine.position)
    behind = header.head.position < mine.position or (request.commits and header.committed < mine.position)
    # A step from before the snapshot can only be in the archive.
    if behind or (last_id != mine.last_id if last_id is not None else not archive_holds_mine):
        raise HeadMovedError(
            f"thread {request.thread_id!r}: the hot thread at {header.head.position} (committed "
            f"{header.committed}) does not hold the step that ends at {mine.position}; open it again"
        )
