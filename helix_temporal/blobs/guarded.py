"""`GuardedBlobs`: an archive that nobody uses before it is known to be safe."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from helix_temporal.blobs.protocol import Blob, BlobInfo, BlobStore

if TYPE_CHECKING:
    from helix_temporal.errors import HelixError


class GuardedBlobs:
    """`BlobStore` around another one; while there is a refusal, every call raises it.

    A worker that starts while the archive is away cannot prove that it honours write conditions.  Where it
    does not, two writers overwrite each other: so nothing is written, or read for a write, before the proof.

    Attributes:
        refusal: Why the archive is not used now; None where it is.
    """

    def __init__(self, inner: BlobStore) -> None:
        self._inner = inner
        self.refusal: HelixError | None = None

    def _check(self) -> BlobStore:
        if self.refusal is None:
            return self._inner
        # Another object each time: one that is raised again and again keeps all its tracebacks.
        raise type(self.refusal)(str(self.refusal), **self.refusal.facts)

    async def get(self, key: str) -> Blob | None:
        """As `BlobStore.get`."""
        return await self._check().get(key)

    async def put(self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None) -> str:
        """As `BlobStore.put`."""
        return await self._check().put(key, data, create=create, if_match=if_match)

    async def copy(self, source: str, target: str) -> None:
        """As `BlobStore.copy`."""
        await self._check().copy(source, target)

    def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """As `BlobStore.list`."""
        return self._check().list(prefix)

    async def delete(self, key: str) -> None:
        """As `BlobStore.delete`."""
        await self._check().delete(key)

    async def probe(self, prefix: str) -> None:
        """As `BlobStore.probe`; never refused."""
        await self._inner.probe(prefix)

    async def close(self) -> None:
        """As `BlobStore.close`."""
        await self._inner.close()
