"""I/O of the cold tier: manifests and segments of one bucket, verified on the way in."""

import asyncio
import hashlib
import logging
import secrets
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

from helix_temporal._retries import retry_pause
from helix_temporal.blobs import BlobStore, ConditionFailedError
from helix_temporal.coldtier.format import (
    MAX_SEGMENT_RAW,
    Layout,
    Manifest,
    SegmentRef,
    compress_frame,
    decode_index,
    decode_manifest,
    decode_segment,
    decompress_frame,
    encode_manifest,
    split_segment,
)
from helix_temporal.coldtier.plan import (
    SLICE_INLINE_MAX,
    CommitPlan,
    Log,
    cut_log,
    find_straddled_segment,
    whole_log,
)
from helix_temporal.errors import ArchiveCorruptError, StoreUnavailableError
from helix_temporal.models.messages import check_size
from helix_temporal.models.stored_messages import Head, Packed, StoredMessage, pack_each, unpack_messages
from helix_temporal.stores.protocols.threads import Progress, no_progress

T = TypeVar("T")

logger = logging.getLogger(__name__)

PARALLEL: Final = 8
"""Objects moved at once for one thread."""
OFFLOAD_BYTES: Final = 256 * 1024
"""Objects larger than this are hashed and inflated in a thread, so that heartbeats go on."""
TRIES: Final = 60
"""So often an attempt at a manifest is made before another one is left to the activity's next attempt."""
UNANSWERED_WRITES: Final = 15
"""After so many unanswered writes in a row no further attempt is made: the store answers reads alone.
With the pauses between them that is about ten seconds, as long as an append waits that must be archived."""
UNBOUNDED: Final = 2**63
"""A bound that nothing reaches."""
REMEMBERED_BYTES: Final = 64 * 1024 * 1024
"""Memory for the manifests that a worker remembers: thousands of short threads, a hundred of the largest."""


class Stored(NamedTuple):
    """A manifest and the etag that the next commit names; ``etag`` is None where none exists."""

    etag: str | None
    manifest: Manifest


@dataclass(slots=True)
class Traffic:
    """What one operation moved; ``refused`` counts swaps of the manifest that were answered with 412."""

    puts: int = 0
    gets: int = 0
    uploaded: int = 0
    refused: int = 0


class SegmentGoneError(Exception):
    """An object that a manifest names is not there: the manifest is outdated, or it is damage."""


class UnansweredWriteError(Exception):
    """The store did not answer a write: whether it was made is seen by what is read next.

    Attributes:
        error: What the store said.
    """

    def __init__(self, error: StoreUnavailableError) -> None:
        super().__init__(str(error))
        self.error = error


class Archive:
    """Manifests, segments and large slices of all threads below one prefix."""

    def __init__(self, blobs: BlobStore, layout: Layout, key: bytes | None = None) -> None:
        self.blobs, self.layout, self.key = blobs, layout, key
        self._remembered: OrderedDict[str, Stored] = OrderedDict()
        self._remembered_bytes = 0

    async def tell_time(self) -> float | None:
        """What time it is by the store's clock, by which its objects are dated; None if it dates none."""
        key = f"{self.layout.probe_prefix()}clock/{uuid.uuid4().hex}"
        await self.blobs.put(key, b"")
        try:
            return max([info.modified or 0.0 async for info in self.blobs.list(key)], default=0.0) or None
        finally:
            await self.blobs.delete(key)

    # -- manifests

    async def read_manifest(self, thread_id: str, traffic: Traffic | None = None) -> Stored:
        """Read a manifest; of a thread that has none, an empty one.

        Raises:
            ArchiveCorruptError, UnsupportedFormatError: It is not one this version can trust.
        """
        blob = await self.blobs.get(self.layout.manifest_key(thread_id))
        if traffic:
            traffic.gets += 1
        if blob is None:
            self.forget_manifest(thread_id)
            return Stored(None, Manifest(thread_id))
        return self._remember_manifest(Stored(blob.etag, decode_manifest(thread_id, blob.data, self.key)))

    async def with_manifest(self, thread_id: str, use: Callable[[Manifest], Awaitable[T]]) -> T:
        """What ``use`` makes of the manifest; of a newer one if its objects were collected meanwhile.

        Args:
            thread_id: Whose manifest it is.
            use: Gives anything but None.

        Raises:
            ArchiveCorruptError: An object is missing, and the manifest still names it.
        """

        async def read_and_use() -> T:
            return await use((await self.read_manifest(thread_id)).manifest)

        return await retry_on_change(thread_id, read_and_use, failed="not read")

    def find_remembered(self, thread_id: str) -> Stored | None:
        """The manifest as this worker last saw or wrote it; may be outdated."""
        return self._remembered.get(thread_id)

    def forget_manifest(self, thread_id: str) -> None:
        """The remembered manifest turned out to be outdated."""
        stored = self._remembered.pop(thread_id, None)
        if stored is not None:
            self._remembered_bytes -= _size_in_memory(stored.manifest)

    def _remember_manifest(self, stored: Stored) -> Stored:
        thread_id = stored.manifest.thread_id
        self.forget_manifest(thread_id)
        self._remembered[thread_id] = stored
        self._remembered_bytes += _size_in_memory(stored.manifest)
        while self._remembered_bytes > REMEMBERED_BYTES and len(self._remembered) > 1:
            self.forget_manifest(next(iter(self._remembered)))
        return stored

    @staticmethod
    def make_nonce() -> str:
        """Makes each manifest's bytes, and so its etag, unique."""
        return secrets.token_hex(8)

    async def commit_plan(
        self, plan: CommitPlan, over: Stored, traffic: Traffic, progress: Progress = no_progress
    ) -> None:
        """Write a plan's objects, then swap the manifest in.

        Where there is none yet, one that only names the thread may precede the objects: `ensure_named`.

        Raises:
            ConditionFailedError: The manifest was not ``over`` any more, as far as the answer tells:
                it may be our own success.  Read back.
            StoreUnavailableError: Unclear outcome.  Read back.
        """
        thread_id = plan.manifest.thread_id
        if plan.objects:
            over = await self.ensure_named(over, traffic)
        for number, draft in enumerate(plan.objects):
            key = (self.layout.index_key if draft.area == "idx" else self.layout.segment_key)(
                thread_id, draft.ref
            )
            # Named by content and generation: what an earlier attempt wrote is what we would write.
            if key not in progress.finished:
                await self._create_object(key, draft.data)
                traffic.puts, traffic.uploaded = traffic.puts + 1, traffic.uploaded + len(draft.data)
            progress("put", number, len(draft.data), key)
        self.forget_manifest(thread_id)
        key = self.layout.manifest_key(thread_id)
        traffic.puts, traffic.uploaded = traffic.puts + 1, traffic.uploaded + len(plan.body)
        try:
            etag = await self.blobs.put(key, plan.body, create=over.etag is None, if_match=over.etag)
        except ConditionFailedError:
            traffic.refused += 1
            raise
        self._remember_manifest(Stored(etag, plan.manifest))

    async def ensure_named(self, stored: Stored, traffic: Traffic) -> Stored:
        """``stored``, or the manifest that this writes to say whose the objects are that follow it.

        Keys of a long id hold a hash: what a writer left that died before its own manifest could not be
        told from anything else, and would never be collected.  The one written here says that no thread
        is there, like the one that garbage collection leaves.

        Raises:
            ConditionFailedError, StoreUnavailableError: As `commit_plan`.
        """
        thread_id = stored.manifest.thread_id
        if stored.etag is not None or self.layout.keys_name_thread(thread_id):
            return stored
        nobody = replace(stored.manifest, nonce=self.make_nonce())
        await self.commit_plan(self.plan_manifest_only(nobody), stored, traffic)
        return self._remembered[thread_id]

    async def try_commit(
        self, plan: CommitPlan, over: Stored, traffic: Traffic | None = None, progress: Progress = no_progress
    ) -> bool:
        """As `commit_plan`; false where the manifest was not ``over`` any more, as far as the answer tells.

        Raises:
            UnansweredWriteError: Unclear outcome.  Read back, as where it is false.
        """
        try:
            await self.commit_plan(plan, over, traffic or Traffic(), progress)
        except ConditionFailedError:
            return False
        except StoreUnavailableError as error:
            # Whoever tries again may do so for a minute: nothing else would tell why.
            logger.warning("thread %r: not known whether it was archived: %s", plan.manifest.thread_id, error)
            raise UnansweredWriteError(error) from error
        return True

    async def renew_manifest(self, stored: Stored) -> Stored | None:
        """Put the same manifest there with another etag, so that writes which are under way are refused.

        None where another one may be there now: read it again.

        Raises:
            UnansweredWriteError: As `try_commit`.
        """
        renewed = stored.manifest.make_next(self.make_nonce())
        if not await self.try_commit(self.plan_manifest_only(renewed), stored):
            return None
        return self._remembered[renewed.thread_id]

    def plan_manifest_only(self, manifest: Manifest) -> CommitPlan:
        """A plan that writes no other object."""
        return CommitPlan((), manifest, encode_manifest(manifest, self.key))

    async def _create_object(self, key: str, data: bytes) -> None:
        try:
            await self.blobs.put(key, data, create=True)
        except ConditionFailedError:
            # Named by its content: what is there is what we would write.
            return

    # -- segments

    async def read_segments(
        self, thread_id: str, refs: Sequence[SegmentRef], progress: Progress = no_progress
    ) -> list[StoredMessage]:
        """The messages of adjacent segments, read in parallel.

        Raises:
            SegmentGoneError: One is not there.
            ArchiveCorruptError: One is damaged.
        """
        parts = await self._fetch_segments(thread_id, refs, decode_segment, progress)
        return [message for part in parts for message in part]

    async def read_packed(self, manifest: Manifest, start: int, progress: Progress = no_progress) -> Packed:
        """All messages from a position on, as bytes to be copied.

        Raises:
            SegmentGoneError, ArchiveCorruptError: As `read_segments`.
        """
        refs = await self.list_segments(manifest, start)
        parts = await self._fetch_segments(manifest.thread_id, refs, split_segment, progress)
        first = refs[0].first if refs else manifest.inline_first
        pieces = [piece for part in parts for piece in part]
        return Packed([*pieces, *pack_each(manifest.inline, manifest.inline_first)][start - first :])

    async def _fetch_segments(
        self,
        thread_id: str,
        refs: Sequence[SegmentRef],
        decode: Callable[[SegmentRef, bytes], Sequence[T]],
        progress: Progress,
    ) -> list[Sequence[T]]:
        limit = asyncio.Semaphore(PARALLEL)

        async def read_one(number: int, ref: SegmentRef) -> Sequence[T]:
            async with limit:
                data = await self._read_object(self.layout.segment_key(thread_id, ref))
                offload = ref.raw_size > OFFLOAD_BYTES
                part = await asyncio.to_thread(decode, ref, data) if offload else decode(ref, data)
            progress("get", number, ref.size)
            return part

        return await asyncio.gather(*(read_one(number, ref) for number, ref in enumerate(refs)))

    async def _read_object(self, key: str) -> bytes:
        blob = await self.blobs.get(key)
        if blob is None:
            raise SegmentGoneError(key)
        return blob.data

    async def read_index(self, manifest: Manifest) -> tuple[SegmentRef, ...]:
        """The segments that the index lists."""
        if manifest.index is None:
            return ()
        data = await self._read_object(self.layout.index_key(manifest.thread_id, manifest.index))
        return decode_index(manifest.index, data)

    async def list_segments(self, manifest: Manifest, from_position: int = 0) -> tuple[SegmentRef, ...]:
        """All segments that hold messages from a position on; reads the index only if it must."""
        refs = manifest.segments
        if manifest.index is not None and from_position < manifest.index.stop:
            refs = (*await self.read_index(manifest), *refs)
        return tuple(ref for ref in refs if ref.stop > from_position)

    async def read_messages(
        self, manifest: Manifest, start: int, stop: int, progress: Progress = no_progress
    ) -> list[StoredMessage]:
        """Messages ``start <= position < stop`` of the archive."""
        refs = [ref for ref in await self.list_segments(manifest, start) if ref.first < stop]
        parts = await self._fetch_segments(manifest.thread_id, refs, split_segment, progress)
        pieces = [piece for part in parts for piece in part]
        first = refs[0].first if refs else manifest.inline_first
        # Of a segment with thousands of messages a page may want a few: only those are decoded.
        found = unpack_messages(b"".join(pieces[start - first : stop - first]))
        inline = manifest.inline[max(start - manifest.inline_first, 0) :]
        return [*found, *inline][: stop - start]

    async def id_before(self, manifest: Manifest, position: int) -> str | None:
        """Id of the message before ``position``; None beyond the archive's head."""
        if position == manifest.head.position:
            return manifest.head.last_id
        if position == 0:
            return ""
        if position > manifest.head.position:
            return None
        inline = manifest.message_at(position - 1)
        return inline.id if inline else (await self.read_messages(manifest, position - 1, position))[0].id

    async def holds(self, manifest: Manifest, head: Head) -> bool:
        """Whether the message that ``head`` names stands just before it, in the archive."""
        return await self.id_before(manifest, head.position) == head.last_id

    async def read_log_below(self, manifest: Manifest, position: int) -> Log:
        """The archive's parts below a position; reads what the cut splits."""
        log = whole_log(manifest)
        if manifest.index is not None and position < manifest.index.stop:
            log = Log(None, (*await self.read_index(manifest), *manifest.segments), manifest.inline)
        ref = find_straddled_segment(log.segments, position)
        split = await self.read_segments(manifest.thread_id, [ref]) if ref else ()
        return cut_log(log, position, split)

    # -- slices

    async def store_slice(self, thread_id: str, gen: int, data: bytes, traffic: Traffic) -> tuple[bytes, str]:
        """What a manifest says of a slice: its bytes, or the name of the object that holds them."""
        if len(data) <= SLICE_INLINE_MAX:
            return data, ""
        name = f"g{gen}.{hashlib.sha256(data).hexdigest()}.{len(data)}"
        packed = compress_frame(data)
        await self._create_object(self.layout.slice_key(thread_id, name), packed)
        traffic.puts, traffic.uploaded = traffic.puts + 1, traffic.uploaded + len(packed)
        return b"", name

    async def read_slice(self, manifest: Manifest) -> bytes:
        """The slice's bytes.

        Raises:
            ArchiveCorruptError: Its object is damaged.
        """
        if not manifest.slice_object:
            return manifest.slice
        _, digest, size = manifest.slice_object.split(".")
        packed = await self._read_object(self.layout.slice_key(manifest.thread_id, manifest.slice_object))
        data = decompress_frame(packed, int(size), "state slice")
        if hashlib.sha256(data).hexdigest() != digest:
            raise ArchiveCorruptError(
                f"thread {manifest.thread_id!r}: the state slice's checksum does not match"
            )
        return data


def _size_in_memory(manifest: Manifest) -> int:
    """About how many bytes a manifest takes: its messages and slice, and Python's objects around them."""
    messages = sum(200 + len(message.id) + len(message.body) for message in manifest.inline)
    return 1500 + 300 * len(manifest.segments) + messages + len(manifest.slice)


def check_slice(data: bytes) -> None:
    """Refuse a state that could be written but not be read again.

    Raises:
        TooLargeError: It is larger than a segment.
    """
    check_size(len(data), MAX_SEGMENT_RAW, "state slice")


async def retry_on_change(thread_id: str, attempt: Callable[[], Awaitable[T | None]], *, failed: str) -> T:
    """Make an attempt at a manifest until it answers: it reads, decides, and swaps the next one in.

    It is made again where another writer was faster, where the swap's outcome is unclear (what is read
    then decides), and where an object was collected that the manifest named when it was read.

    Args:
        thread_id: Whose manifest it is.
        attempt: Reads anew all that it decides on; None: it is to be made again.
        failed: What was not done, for the error.

    Raises:
        ArchiveCorruptError: An object was missing twice: a manifest that was read afterwards names it.
        StoreUnavailableError: No attempt of `TRIES` answered, or the store did not answer
            `UNANSWERED_WRITES` in a row.
    """
    missing: set[str] = set()
    unanswered = 0
    for number in range(TRIES):
        try:
            answer = await attempt()
        except ConditionFailedError:
            answer, unanswered = None, 0
        except UnansweredWriteError as write:
            answer, unanswered = None, unanswered + 1
            if unanswered >= UNANSWERED_WRITES:
                message = f"thread {thread_id!r}: {failed}: {unanswered} writes had no success: {write}"
                raise StoreUnavailableError(message, **write.error.facts) from write.error
        except SegmentGoneError as gone:
            if str(gone) in missing:
                raise ArchiveCorruptError(
                    f"thread {thread_id!r}: object {gone} is named by the manifest and missing"
                ) from gone
            missing.add(str(gone))
            continue
        else:
            unanswered = 0
        if answer is not None:
            return answer
        await asyncio.sleep(retry_pause(number, first=0.02, longest=2.0))
    raise StoreUnavailableError(f"thread {thread_id!r}: {failed} in {TRIES} tries")
