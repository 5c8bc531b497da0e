"""The blob stores keep the contract, S3 on a real server."""

from pathlib import Path

import pytest

from helix_temporal.blobs import BlobStore
from helix_temporal.blobs.directory import DirectoryBlobs
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.testing.contracts.blobs import BlobStoreContract


class TestMemoryBlobs(BlobStoreContract):
    @pytest.fixture
    async def store(self) -> BlobStore:
        return MemoryBlobs()


class TestDirectoryBlobs(BlobStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> BlobStore:
        return DirectoryBlobs(tmp_path)
