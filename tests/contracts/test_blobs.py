"""The blob stores keep the contract, S3 on a real server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal.blobs import Blob, BlobInfo, BlobStore
from helix_temporal.blobs.directory import DirectoryBlobs
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.blobs.s3 import S3Blobs
from helix_temporal.devstack import S3Endpoint
from helix_temporal.testing.contracts.blobs import BlobStoreContract


class TestMemoryBlobs(BlobStoreContract):
    """In this process."""

    @pytest.fixture
    async def store(self) -> BlobStore:
        """A new one."""
        return MemoryBlobs()


class TestDirectoryBlobs(BlobStoreContract):
    """On the disk."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> BlobStore:
        """In an empty directory."""
        return DirectoryBlobs(tmp_path)


class ScopedBlobs:
    """One folder of a store as a store: each test has its own in the one bucket."""

    def __init__(self, inner: BlobStore, scope: str) -> None:
        self._inner, self._scope = inner, f"{scope}/"

    async def get(self, key: str) -> Blob | None:
        """Within the folder."""
        return await self._inner.get(self._scope + key)

    async def put(self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None) -> str:
        """Within the folder."""
        return await self._inner.put(self._scope + key, data, create=create, if_match=if_match)

    async def copy(self, source: str, target: str) -> None:
        """Within the folder."""
        await self._inner.copy(self._scope + source, self._scope + target)

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """Within the folder."""
        async for info in self._inner.list(self._scope + prefix):
            yield info._replace(key=info.key.removeprefix(self._scope))

    async def delete(self, key: str) -> None:
        """Within the folder."""
        await self._inner.delete(self._scope + key)

    async def probe(self, prefix: str) -> None:
        """Within the folder."""
        await self._inner.probe(self._scope + prefix)

    async def close(self) -> None:
        """Within the folder."""
        await self._inner.close()


class TestS3Blobs(BlobStoreContract):
    """On a real server."""

    @pytest.fixture
    async def store(self, s3: S3Endpoint, s3_prefix: str) -> AsyncIterator[BlobStore]:
        """A folder of the bucket."""
        inner = S3Blobs(
            s3.bucket,
            endpoint=s3.endpoint,
            region=s3.region,
            access_key=s3.access_key,
            secret_key=s3.secret_key,
            # Contended conditional writes of SeaweedFS wait on a lock that polls once a second.
            read_timeout=30,
            # Short pages: a listing of the contract goes over several.
            list_page_size=7,
        )
        yield ScopedBlobs(inner, s3_prefix)
        await inner.close()
