"""Version 1 snapshots (zeitlich's): where they lie, import and export, one thread at a time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from helix_temporal.blobs import BlobStore, ConditionFailedError
from helix_temporal.coldtier import zeitlich_format
from helix_temporal.coldtier.archive import Archive, Traffic, retry_on_change
from helix_temporal.coldtier.flush import Flushing
from helix_temporal.coldtier.format import Legacy, Manifest
from helix_temporal.coldtier.plan import Log, plan_commit
from helix_temporal.errors import (
    InvalidConfigError,
    InvalidRequestError,
    LegacyWriterActiveError,
    ThreadExistsError,
    ThreadNotFoundError,
    TooLargeError,
)
from helix_temporal.models.stored_messages import EMPTY, StoredMessage, head_after, size_of
from helix_temporal.stores.paging import Bounds, finish_page, trim_page
from helix_temporal.stores.protocols.hot import NEVER_ARCHIVED, HotTier, PageRange
from helix_temporal.stores.protocols.threads import ReadPage, ThreadFacts, ThreadPage
from helix_temporal.stores.threads.opening import thread_not_found_error

MAX_V1_BYTES: Final = 256 * 1024 * 1024
"""What a snapshot may expand to, unless told otherwise."""
_OFFLOAD_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class LegacySnapshot:
    """A version 1 thread, ready to become the beginning of an archive."""

    messages: tuple[StoredMessage, ...]
    slice: bytes
    adapter: str
    origin: Legacy


class LegacySource(Protocol):
    """Where version 1 snapshots are looked for when a thread has no manifest."""

    async def load_snapshot(self, thread_id: str, adapter: str = "") -> LegacySnapshot | None:
        """The snapshot of this thread, None if there is none.

        ``adapter`` names the format of its rows, which version 1 does not store.

        Raises:
            ArchiveCorruptError: It is damaged; nothing of it was used.
            UnsupportedFormatError: It is of another version.
            TooLargeError: It expands past the limit.
            InvalidRequestError: Its rows are of another adapter than the one named.
        """

    def list_threads(self) -> AsyncIterator[str]:
        """The ids of all threads that have a snapshot, each once."""
        ...

    async def check_unchanged(self, origin: Legacy) -> None:
        """Make sure that nobody writes version 1 any more.

        Raises:
            LegacyWriterActiveError: The snapshot changed since it was taken over.
        """

    async def save_snapshot(
        self,
        thread_id: str,
        messages: Sequence[StoredMessage],
        state: bytes,
        *,
        instructions: str | None,
        adapter: str,
        over: Legacy | None,
    ) -> Legacy:
        """Write a snapshot where nothing is, or over the one that was taken over.

        Messages of ours are written in the envelope of ``adapter``.  A snapshot that says the same
        already stays as it is.

        Raises:
            LegacyWriterActiveError: Something else is there.
        """
        ...


class V1Snapshots:
    """Version 1 snapshots in a blob store, under zeitlich's own keys.

    A key is ``{prefix}/{thread_key}/{thread id}.json.gz``, or ``.json``; the id stands in it as it is.

    Args:
        gzip: Whether snapshots are written compressed.  Read are both, this one first.
        adapter: Names the format of rows, unless the session does; found by their shape if neither does.
        max_bytes: What a snapshot may expand to.
    """

    def __init__(
        self,
        blobs: BlobStore,
        *,
        prefix: str = "threads",
        thread_key: str = "messages",
        gzip: bool = True,
        adapter: str = "",
        max_bytes: int = MAX_V1_BYTES,
    ) -> None:
        self._blobs, self._prefix, self._thread_key = blobs, prefix, thread_key
        self._gzip, self._adapter, self._max_bytes = gzip, adapter, max_bytes

    def make_key(self, thread_id: str, *, gzip: bool) -> str | None:
        """The object of a thread; None for an id that shares the key of another."""
        if thread_id.strip("/") != thread_id:
            return None
        name = f"{thread_id}.json.gz" if gzip else f"{thread_id}.json"
        return "/".join(part for part in (self._prefix.strip("/"), self._thread_key.strip("/"), name) if part)

    async def list_threads(self) -> AsyncIterator[str]:
        """As `LegacySource.list_threads`."""
        base = "".join(f"{part}/" for part in (self._prefix.strip("/"), self._thread_key.strip("/")) if part)
        seen: set[str] = set()
        async for info in self._blobs.list(base):
            name = info.key.removeprefix(base)
            thread_id = name.removesuffix(".gz").removesuffix(".json")
            if name in {f"{thread_id}.json", f"{thread_id}.json.gz"} and thread_id not in seen:
                seen.add(thread_id)
                yield thread_id

    async def load_snapshot(self, thread_id: str, adapter: str = "") -> LegacySnapshot | None:
        """As `LegacySource.load_snapshot`."""
        for gzip in (self._gzip, not self._gzip):
            key = self.make_key(thread_id, gzip=gzip)
            if key is None:
                return None
            try:
                blob = await self._blobs.get(key)
            except InvalidRequestError:
                # The raw id makes no key that every store keeps apart: nothing can be there.
                return None
            if blob is not None:
                content = await self._decode_content(
                    blob.data, gzip, self._adapter or adapter, f"snapshot {key!r}"
                )
                return LegacySnapshot(
                    content.messages, content.slice, content.adapter, Legacy(key, blob.etag)
                )
        return None

    async def _decode_content(
        self, data: bytes, gzip: bool, adapter: str, what: str
    ) -> zeitlich_format.V1Content:
        def decode_content() -> zeitlich_format.V1Content:
            raw = zeitlich_format.inflate_gzip(data, self._max_bytes, what) if gzip else data
            if len(raw) > self._max_bytes:
                raise TooLargeError(f"{what}: {len(raw)} > {self._max_bytes} bytes")
            return zeitlich_format.decode_snapshot(raw, adapter, what)

        return decode_content() if len(data) <= _OFFLOAD_BYTES else await asyncio.to_thread(decode_content)

    async def check_unchanged(self, origin: Legacy) -> None:
        """As `LegacySource.check_unchanged`: one listing, whatever the snapshot's size."""
        async for info in self._blobs.list(origin.key):
            if info.key == origin.key and info.etag != origin.etag:
                raise LegacyWriterActiveError(
                    f"snapshot {origin.key!r} changed after it was taken over: stop what writes version 1, "
                    "then decide which of the two goes on; nothing was merged"
                )

    async def save_snapshot(
        self,
        thread_id: str,
        messages: Sequence[StoredMessage],
        state: bytes,
        *,
        instructions: str | None,
        adapter: str,
        over: Legacy | None,
    ) -> Legacy:
        """As `LegacySource.save_snapshot`."""
        key = over.key if over else self.make_key(thread_id, gzip=self._gzip)
        if key is None:
            raise InvalidRequestError(f"thread {thread_id!r}: version 1 has no key of its own for this id")
        found = await self._blobs.get(key) if over else None

        def encode_content() -> bytes | None:
            old = (
                None
                if found is None
                else zeitlich_format.parse_written_snapshot(
                    self._decompress_if_zipped(found.data, key), f"snapshot {key!r}"
                )
            )
            made = zeitlich_format.encode_snapshot(
                messages, state, instructions, adapter=self._adapter or adapter, old=old
            )
            return zeitlich_format.deflate_gzip(made) if made is not None and key.endswith(".gz") else made

        data = await asyncio.to_thread(encode_content)
        if data is None and found is not None:
            return Legacy(key, found.etag)
        # Whoever removed the snapshot finished moving over; it may be written anew.
        return await self._put_snapshot(key, data or b"", over.etag if over and found is not None else None)

    def _decompress_if_zipped(self, data: bytes, key: str) -> bytes:
        zipped = key.endswith(".gz")
        return zeitlich_format.inflate_gzip(data, self._max_bytes, f"snapshot {key!r}") if zipped else data

    async def _put_snapshot(self, key: str, data: bytes, etag: str | None) -> Legacy:
        try:
            written = await self._blobs.put(key, data, create=etag is None, if_match=etag)
        except ConditionFailedError as error:
            found = await self._blobs.get(key)
            if found is not None and found.data == data:
                return Legacy(key, found.etag)
            raise _not_the_one(key) from error
        return Legacy(key, written)


def _not_the_one(key: str) -> LegacyWriterActiveError:
    return LegacyWriterActiveError(
        f"snapshot {key!r} is not the one that was taken over; nothing was written"
    )


class ZeitlichMigration:
    """The version 1 part of the tiered thread store."""

    def __init__(
        self, hot: HotTier, archive: Archive, flushing: Flushing, legacy: LegacySource | None
    ) -> None:
        self._hot, self._archive, self._flushing, self._legacy = hot, archive, flushing, legacy

    async def import_v1(self, thread_id: str, adapter: str = "") -> Manifest:
        """Make a version 1 snapshot the archive of this thread, which nobody has open yet.

        Repeated, it finds what it did.

        Raises:
            ThreadNotFoundError: There is no snapshot.
            ThreadExistsError: The thread has an archive that did not come from it.
            LegacyWriterActiveError: The snapshot changed since it was taken over.
        """
        legacy = self._require_source()

        async def try_import() -> Manifest | None:
            stored = await self._archive.read_manifest(thread_id)
            if stored.manifest.legacy is not None and not stored.manifest.deleted:
                await legacy.check_unchanged(stored.manifest.legacy)
                return stored.manifest
            if stored.manifest.version > 0 or await self._hot.read_header(thread_id) is not None:
                raise ThreadExistsError(f"thread {thread_id!r} exists, or was deleted; nothing was imported")
            old = await legacy.load_snapshot(thread_id, adapter)
            if old is None:
                raise ThreadNotFoundError(f"thread {thread_id!r} has no version 1 snapshot")
            traffic = Traffic()
            data, name = await self._archive.store_slice(thread_id, stored.manifest.gen, old.slice, traffic)
            plan = plan_commit(
                stored.manifest, Log(None, (), ()), old.messages,
                nonce=self._archive.make_nonce(), key=self._archive.key, committed=len(old.messages),
                slice=data, slice_object=name, slice_version=1 if old.slice else 0,
                adapter=old.adapter, legacy=old.origin,
            )  # fmt: skip
            return plan.manifest if await self._archive.try_commit(plan, stored, traffic) else None

        return await retry_on_change(thread_id, try_import, failed="not imported")

    def list_threads(self) -> AsyncIterator[str]:
        """The ids of all threads that have a version 1 snapshot."""
        return self._require_source().list_threads()

    async def import_if_needed(self, thread_id: str) -> None:
        """Import a thread that nobody has opened here and that has a version 1 snapshot."""
        if await self._load_unimported_snapshot(thread_id) is not None:
            await self.import_v1(thread_id)

    async def _load_unimported_snapshot(self, thread_id: str) -> LegacySnapshot | None:
        """The snapshot of a thread that neither tier knows of."""
        if self._legacy is None or (await self._archive.read_manifest(thread_id)).manifest.version > 0:
            return None
        if await self._hot.read_header(thread_id) is not None:
            return None
        return await self._legacy.load_snapshot(thread_id)

    async def read_facts(self, thread_id: str) -> ThreadFacts | None:
        """As `ThreadStore.read_facts`, of a snapshot that was not taken over yet; None if there is none."""
        old = await self._load_unimported_snapshot(thread_id)
        if old is None:
            return None
        head = head_after(EMPTY, old.messages)
        return ThreadFacts(
            thread_id, head, head.position, 0, "", False, False, NEVER_ARCHIVED, old.slice,
            1 if old.slice else 0, old.adapter, size_of(old.messages),
        )  # fmt: skip

    async def read_page(self, request: ReadPage) -> ThreadPage | None:
        """As `ThreadStore.read`, of a snapshot that was not taken over yet; None if there is none."""
        old = await self._load_unimported_snapshot(request.thread_id)
        if old is None:
            return None
        head = head_after(EMPTY, old.messages)
        bounds = Bounds.of(request, head.position, head.position)

        async def fetch_run(
            start: int, stop: int, limit: int, max_bytes: int, backward: bool
        ) -> tuple[int, tuple[StoredMessage, ...]]:
            return trim_page(
                start, old.messages[start:stop], PageRange(start, stop, limit, max_bytes, backward)
            )

        return await finish_page(request, bounds, fetch_run, head, head.position)

    async def export_v1(self, thread_id: str, instructions: str | None = None, adapter: str = "") -> Legacy:
        """Write all of a thread's finished turns as a version 1 snapshot; returns its key and etag.

        Messages that came from version 1 are written as they were, others in the envelope of ``adapter``;
        unless it is named, of the thread's, or of its newest row from there.

        Raises:
            ThreadNotFoundError: There is no such thread.
            LegacyWriterActiveError: Another snapshot is there than the one that was taken over.
        """
        legacy = self._require_source()
        await self._flushing.archive_hot_thread(thread_id)

        async def read_everything(archive: Manifest) -> tuple[Manifest, list[StoredMessage], bytes]:
            messages = await self._archive.read_messages(archive, 0, archive.committed)
            return archive, messages, await self._archive.read_slice(archive)

        manifest, messages, state = await self._archive.with_manifest(thread_id, read_everything)
        if manifest.is_absent:
            raise thread_not_found_error(thread_id)
        written = await legacy.save_snapshot(
            thread_id, messages, state,
            instructions=instructions, adapter=adapter or manifest.adapter, over=manifest.legacy,
        )  # fmt: skip
        await self._record_export(thread_id, written)
        return written

    async def _record_export(self, thread_id: str, written: Legacy) -> None:
        """Else our own writing would be taken for somebody else's."""

        async def record() -> bool | None:
            stored = await self._archive.read_manifest(thread_id)
            if stored.manifest.legacy == written or stored.manifest.is_absent:
                return True
            changed = stored.manifest.make_next(self._archive.make_nonce(), legacy=written)
            return await self._archive.try_commit(self._archive.plan_manifest_only(changed), stored) or None

        await retry_on_change(thread_id, record, failed="not exported")

    def _require_source(self) -> LegacySource:
        if self._legacy is None:
            raise InvalidConfigError(
                "no place for version 1 snapshots is configured: set HELIX_READ_V1, or give `legacy`"
            )
        return self._legacy
