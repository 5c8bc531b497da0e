"""Payloads in the blob store, beside the thread they wait for."""

from helix_temporal.blobs import BlobStore
from helix_temporal.coldtier._layout import Layout


class BlobPayloads:
    """A `PayloadStore` over a blob store; garbage collection removes what was left behind."""

    def __init__(self, blobs: BlobStore, layout: Layout) -> None:
        self._blobs, self._layout = blobs, layout

    async def put_payload(self, thread_id: str, key: str, data: bytes, ttl: float) -> None:  # noqa: ARG002 (nothing expires here)
        """As `PayloadStore.put_payload`; nothing expires here."""
        await self._blobs.put(self._layout.payloads(thread_id) + key, data)

    async def get_payload(self, thread_id: str, key: str) -> bytes | None:
        """As `PayloadStore.get_payload`."""
        blob = await self._blobs.get(self._layout.payloads(thread_id) + key)
        return blob.data if blob else None

    async def delete_payload(self, thread_id: str, key: str) -> None:
        """As `PayloadStore.delete_payload`."""
        await self._blobs.delete(self._layout.payloads(thread_id) + key)
