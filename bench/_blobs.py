"""A blob store that counts."""

from collections.abc import AsyncIterator
from typing import Final

from helix_temporal.blobs import Blob, BlobInfo, BlobStore

_PAGE: Final = 1000
"""Objects in one answer of S3."""


class CountingBlobs:
    """Passes everything on; counts what is written and read."""

    def __init__(self, inner: BlobStore) -> None:
        self._inner = inner
        self.puts = self.gets = self.uploaded = self.listings = self.others = 0

    @property
    def requests(self) -> int:
        """All of them; a listing is one for each thousand objects, as S3 pages them."""
        return self.puts + self.gets + self.listings + self.others

    def reset(self) -> None:
        """Count from zero."""
        self.puts = self.gets = self.uploaded = self.listings = self.others = 0

    async def get(self, key: str) -> Blob | None:
        """As `BlobStore.get`."""
        self.gets += 1
        return await self._inner.get(key)

    async def put(self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None) -> str:
        """As `BlobStore.put`."""
        self.puts += 1
        self.uploaded += len(data)
        return await self._inner.put(key, data, create=create, if_match=if_match)

    async def copy(self, source: str, target: str) -> None:
        """As `BlobStore.copy`."""
        self.others += 1
        await self._inner.copy(source, target)

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """As `BlobStore.list`."""
        self.listings += 1
        there = 0
        async for info in self._inner.list(prefix):
            there += 1
            self.listings += there % _PAGE == 1 and there > 1
            yield info

    async def delete(self, key: str) -> None:
        """As `BlobStore.delete`."""
        self.others += 1
        await self._inner.delete(key)

    async def probe(self, prefix: str) -> None:
        """As `BlobStore.probe`."""
        await self._inner.probe(prefix)

    async def close(self) -> None:
        """As `BlobStore.close`."""
        await self._inner.close()
