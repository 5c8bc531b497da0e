"""Payloads on their way, kept in this process."""

import time
from collections.abc import Callable

from helix_temporal.models.states import is_past


class MemoryPayloads:
    """`PayloadStore` in a dict; what has expired goes when it is next asked for.

    Args:
        clock: Seconds since 1970.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._payloads: dict[tuple[str, str], tuple[float, bytes]] = {}

    async def put_payload(self, thread_id: str, key: str, data: bytes, ttl: float) -> None:
        """See `PayloadStore.put_payload`."""
        self._payloads[thread_id, key] = (self._clock() + ttl, bytes(data))

    async def get_payload(self, thread_id: str, key: str) -> bytes | None:
        """See `PayloadStore.get_payload`."""
        expires_at, data = self._payloads.get((thread_id, key), (0.0, b""))
        if not is_past(expires_at, self._clock()):
            return data
        self._payloads.pop((thread_id, key), None)
        return None

    async def delete_payload(self, thread_id: str, key: str) -> None:
        """See `PayloadStore.delete_payload`."""
        self._payloads.pop((thread_id, key), None)

    async def delete_payloads(self, thread_id: str) -> None:
        """See `PayloadStore.delete_payloads`."""
        for each in [each for each in self._payloads if each[0] == thread_id]:
            del self._payloads[each]
