"""Blobs in this process's memory: for tests and for trying things out."""

import threading
import time
from collections.abc import AsyncIterator, Callable

from helix_temporal.blobs.probe import prove_conditional_writes
from helix_temporal.blobs.protocol import (
    Blob,
    BlobInfo,
    ConditionFailedError,
    check_conditions,
    check_key,
    check_prefix,
    etag_of,
)


class MemoryBlobs:
    """A blob store that lives as long as the object; safe between event loops and threads.

    Args:
        clock: Seconds since 1970.

    Raises (every method):
        InvalidRequestError: The key could not be kept apart from others by every store.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._blobs: dict[str, Blob] = {}
        self._modified: dict[str, float] = {}
        self._lock = threading.Lock()

    async def get(self, key: str) -> Blob | None:
        """The object, or None if it is not there."""
        check_key(key)
        return self._blobs.get(key)

    async def put(self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None) -> str:
        """Write the object and return its etag.

        Raises:
            ConditionFailedError: The condition did not hold; nothing changed.
        """
        check_key(key)
        check_conditions(create, if_match)
        blob = Blob(bytes(data), etag_of(data))
        with self._lock:
            found = self._blobs.get(key)
            if create and found is not None:
                raise ConditionFailedError(f"{key!r} is there already")
            if if_match is not None and (found is None or found.etag != if_match):
                raise ConditionFailedError(f"{key!r} is not at etag {if_match}")
            self._blobs[key], self._modified[key] = blob, self._clock()
        return blob.etag

    async def copy(self, source: str, target: str) -> None:
        """Copy, overwriting the target.

        Raises:
            ConditionFailedError: The source is not there.
        """
        check_key(source)
        check_key(target)
        with self._lock:
            if source not in self._blobs:
                raise ConditionFailedError(f"{source!r} is not there to be copied")
            self._blobs[target], self._modified[target] = self._blobs[source], self._clock()

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """What is there when the iteration starts and begins with ``prefix``."""
        check_prefix(prefix)
        with self._lock:
            found = [
                BlobInfo(key, len(blob.data), blob.etag, self._modified.get(key))
                for key, blob in self._blobs.items()
                if key.startswith(prefix)
            ]
        for info in found:
            yield info

    async def delete(self, key: str) -> None:
        """Remove the object if it is there."""
        check_key(key)
        with self._lock:
            self._blobs.pop(key, None)
            self._modified.pop(key, None)

    async def probe(self, prefix: str) -> None:
        """Prove that conditions hold, as every store does at start-up."""
        await prove_conditional_writes(self, prefix)

    async def close(self) -> None:
        """Nothing to give back; the objects stay."""
