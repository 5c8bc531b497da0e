"""Version 1 snapshots (zeitlich's): where they lie, and what the cold tier needs of them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from helix_temporal.blobs import BlobStore, ConditionFailedError
from helix_temporal.coldtier import _v1
from helix_temporal.coldtier._manifest import Legacy
from helix_temporal.errors import InvalidRequestError, LegacyWriterActiveError, TooLargeError
from helix_temporal.models.records import Record

MAX_V1_BYTES: Final = 256 * 1024 * 1024
"""What a snapshot may expand to, unless told otherwise."""
_OFFLOAD_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class LegacySnapshot:
    """A version 1 thread, ready to become the beginning of an archive."""

    records: tuple[Record, ...]
    slice: bytes
    adapter: str
    origin: Legacy


class LegacySource(Protocol):
    """Where version 1 snapshots are looked for when a thread has no manifest."""

    async def load(self, thread_id: str, adapter: str = "") -> LegacySnapshot | None:
        """The snapshot of this thread, None if there is none.

        ``adapter`` names the format of its rows, which version 1 does not store.

        Raises:
            ArchiveCorruptError: It is damaged; nothing of it was used.
            UnsupportedFormatError: It is of another version.
            TooLargeError: It expands past the limit.
            InvalidRequestError: Its rows are of another adapter than the one named.
        """

    def threads(self) -> AsyncIterator[str]:
        """The ids of all threads that have a snapshot, each once."""
        ...

    async def check_unchanged(self, origin: Legacy) -> None:
        """Make sure that nobody writes version 1 any more.

        Raises:
            LegacyWriterActiveError: The snapshot changed since it was taken over.
        """

    async def save(
        self,
        thread_id: str,
        records: Sequence[Record],
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

    def key(self, thread_id: str, *, gzip: bool) -> str | None:
        """The object of a thread; None for an id that shares the key of another."""
        if thread_id.strip("/") != thread_id:
            return None
        name = f"{thread_id}.json.gz" if gzip else f"{thread_id}.json"
        return "/".join(part for part in (self._prefix.strip("/"), self._thread_key.strip("/"), name) if part)

    async def threads(self) -> AsyncIterator[str]:
        """As `LegacySource.threads`."""
        base = "".join(f"{part}/" for part in (self._prefix.strip("/"), self._thread_key.strip("/")) if part)
        seen: set[str] = set()
        async for info in self._blobs.list(base):
            name = info.key.removeprefix(base)
            thread_id = name.removesuffix(".gz").removesuffix(".json")
            if name in {f"{thread_id}.json", f"{thread_id}.json.gz"} and thread_id not in seen:
                seen.add(thread_id)
                yield thread_id

    async def load(self, thread_id: str, adapter: str = "") -> LegacySnapshot | None:
        """As `LegacySource.load`."""
        for gzip in (self._gzip, not self._gzip):
            key = self.key(thread_id, gzip=gzip)
            if key is None:
                return None
            try:
                blob = await self._blobs.get(key)
            except InvalidRequestError:
                # The raw id makes no key that every store keeps apart: nothing can be there.
                return None
            if blob is not None:
                content = await self._decode(blob.data, gzip, self._adapter or adapter, f"snapshot {key!r}")
                return LegacySnapshot(content.records, content.slice, content.adapter, Legacy(key, blob.etag))
        return None

    async def _decode(self, data: bytes, gzip: bool, adapter: str, what: str) -> _v1.V1Content:
        def decode() -> _v1.V1Content:
            raw = _v1.inflate_gzip(data, self._max_bytes, what) if gzip else data
            if len(raw) > self._max_bytes:
                raise TooLargeError(f"{what}: {len(raw)} > {self._max_bytes} bytes")
            return _v1.decode(raw, adapter, what)

        return decode() if len(data) <= _OFFLOAD_BYTES else await asyncio.to_thread(decode)

    async def check_unchanged(self, origin: Legacy) -> None:
        """As `LegacySource.check_unchanged`: one listing, whatever the snapshot's size."""
        async for info in self._blobs.list(origin.key):
            if info.key == origin.key and info.etag != origin.etag:
                raise LegacyWriterActiveError(
                    f"snapshot {origin.key!r} changed after it was taken over: stop what writes version 1, "
                    "then decide which of the two goes on; nothing was merged"
                )

    async def save(
        self,
        thread_id: str,
        records: Sequence[Record],
        state: bytes,
        *,
        instructions: str | None,
        adapter: str,
        over: Legacy | None,
    ) -> Legacy:
        """As `LegacySource.save`."""
        key = over.key if over else self.key(thread_id, gzip=self._gzip)
        if key is None:
            raise InvalidRequestError(f"thread {thread_id!r}: version 1 has no key of its own for this id")
        found = await self._blobs.get(key) if over else None

        def encode() -> bytes | None:
            old = None if found is None else _v1.written(self._raw(found.data, key), f"snapshot {key!r}")
            made = _v1.encode(records, state, instructions, adapter=self._adapter or adapter, old=old)
            return _v1.deflate_gzip(made) if made is not None and key.endswith(".gz") else made

        data = await asyncio.to_thread(encode)
        if data is None and found is not None:
            return Legacy(key, found.etag)
        # Whoever removed the snapshot finished moving over; it may be written anew.
        return await self._put(key, data or b"", over.etag if over and found is not None else None)

    def _raw(self, data: bytes, key: str) -> bytes:
        zipped = key.endswith(".gz")
        return _v1.inflate_gzip(data, self._max_bytes, f"snapshot {key!r}") if zipped else data

    async def _put(self, key: str, data: bytes, etag: str | None) -> Legacy:
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
