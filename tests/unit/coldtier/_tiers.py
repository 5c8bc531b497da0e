"""Two tiers in memory whose hot half can be wiped or rolled back and whose cold half fails when told to."""

from dataclasses import dataclass, field, replace

from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.coldtier.format import Manifest, decode_manifest, encode_manifest
from helix_temporal.coldtier.zeitlich import LegacySource
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.testing.contracts._threads_base import Author
from helix_temporal.testing.faults import FaultyBlobs


@dataclass
class Tiers:
    """One Redis, one bucket, and as many workers as are asked for."""

    hot: MemoryThreads = field(default_factory=MemoryThreads)
    bucket: MemoryBlobs = field(default_factory=MemoryBlobs)
    legacy: LegacySource | None = None
    key: bytes | None = None

    def __post_init__(self) -> None:
        self.blobs = FaultyBlobs(self.bucket)
        self.threads = self.worker()

    def worker(self, **settings: object) -> TieredThreads:
        """Another process on the same stores, which remembers nothing."""
        return TieredThreads(self.hot, self.blobs, legacy=self.legacy, key=self.key, **settings)  # type: ignore[arg-type]

    async def author(self, thread_id: str = "t") -> Author:
        """The author of a thread that was just made."""
        author = Author(self.threads, thread_id)
        await author.open()
        return author

    def elsewhere(self, author: Author) -> Author:
        """The same execution, whose next activity runs on a worker that remembers nothing."""
        return replace(author, threads=self.worker())

    async def manifest(self, thread_id: str = "t") -> Manifest:
        """What the archive says."""
        blob = await self.bucket.get(self.threads.layout.manifest_key(thread_id))
        assert blob is not None
        return decode_manifest(thread_id, blob.data, self.key)

    async def forge(self, manifest: Manifest) -> None:
        """Put a manifest there by force, as an operator's restore does."""
        data = encode_manifest(manifest, self.key)
        await self.bucket.put(self.threads.layout.manifest_key(manifest.thread_id), data)

    async def keys(self, thread_id: str = "t") -> list[str]:
        """All objects of a thread, without their common part."""
        prefix = self.threads.layout.thread_prefix(thread_id)
        return sorted([info.key.removeprefix(prefix) async for info in self.bucket.list(prefix)])

    def wipe(self) -> None:
        """The hot tier restarts without a disk."""
        self.hot.wipe()
