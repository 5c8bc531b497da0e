"""Payloads in the blob store, beside the thread they wait for."""

from helix_temporal.blobs import ConditionFailedError
from helix_temporal.coldtier._archive import Archive, Stored, Traffic
from helix_temporal.coldtier._manifest import Manifest


class BlobPayloads:
    """A `PayloadStore` over a blob store; garbage collection removes what was left behind."""

    def __init__(self, archive: Archive) -> None:
        self._archive, self._blobs, self._layout = archive, archive.blobs, archive.layout

    async def put_payload(self, thread_id: str, key: str, data: bytes, ttl: float) -> None:  # noqa: ARG002 (nothing expires here)
        """As `PayloadStore.put_payload`; nothing expires here."""
        await self._name(thread_id)
        await self._blobs.put(self._layout.payloads(thread_id) + key, data)

    async def get_payload(self, thread_id: str, key: str) -> bytes | None:
        """As `PayloadStore.get_payload`."""
        blob = await self._blobs.get(self._layout.payloads(thread_id) + key)
        return blob.data if blob else None

    async def delete_payload(self, thread_id: str, key: str) -> None:
        """As `PayloadStore.delete_payload`."""
        await self._blobs.delete(self._layout.payloads(thread_id) + key)

    async def delete_payloads(self, thread_id: str) -> None:
        """As `PayloadStore.delete_payloads`."""
        for key in [info.key async for info in self._blobs.list(self._layout.payloads(thread_id))]:
            await self._blobs.delete(key)

    async def _name(self, thread_id: str) -> None:
        """The thread of a text may never come to be: the janitor must find it all the same."""
        stored = self._archive.remembered(thread_id) or Stored(None, Manifest(thread_id))
        try:
            await self._archive.named(stored, Traffic())
        except ConditionFailedError:
            return  # a manifest is there already
