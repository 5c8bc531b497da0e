"""Payloads on their way, on the local disk."""

import time
from collections.abc import Callable
from typing import Final

import orjson

from helix_temporal.models.base import dumps
from helix_temporal.models.states import is_past
from helix_temporal.stores.file._documents import Change, Documents
from helix_temporal.stores.file._format import Facts, Part, Parts

_PAYLOAD: Final = "payload"
_SWEEP_EVERY: Final = 600.0


class FilePayloads:
    """`PayloadStore` with a document a payload; what has expired is removed every ten minutes.

    Args:
        documents: A directory of its own.
        clock: Seconds since 1970.
    """

    def __init__(self, documents: Documents, *, clock: Callable[[], float] = time.time) -> None:
        self._documents = documents
        self._clock = clock
        self._next_sweep = 0.0

    async def put_payload(self, thread_id: str, key: str, data: bytes, ttl: float) -> None:
        """See `PayloadStore.put_payload`."""
        payload = Part({"expires_at": self._clock() + ttl}, bytes(data))
        await self._documents.change(_id(thread_id, key), lambda _: Change(None, {_PAYLOAD: payload}))
        await self._sweep()

    async def get_payload(self, thread_id: str, key: str) -> bytes | None:
        """See `PayloadStore.get_payload`."""
        part = (await self._documents.read(_id(thread_id, key))).get(_PAYLOAD)
        return None if part is None or self._expired(part.header) else part.body

    async def delete_payload(self, thread_id: str, key: str) -> None:
        """See `PayloadStore.delete_payload`."""
        await self._documents.change(_id(thread_id, key), lambda parts: Change(None, {} if parts else None))

    async def delete_payloads(self, thread_id: str) -> None:
        """See `PayloadStore.delete_payloads`."""
        async for listed in self._documents.entries():
            if orjson.loads(listed.id)[0] == thread_id:
                await self._documents.change(listed.id, lambda parts: Change(None, {} if parts else None))

    async def _sweep(self) -> None:
        if (now := self._clock()) < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_EVERY
        async for listed in self._documents.entries():
            if _PAYLOAD in listed.headers and self._expired(listed.headers[_PAYLOAD]):
                await self._documents.change(listed.id, self._without_expired)

    def _without_expired(self, parts: Parts) -> Change[None]:
        gone = _PAYLOAD in parts and self._expired(parts[_PAYLOAD].header)
        return Change(None, {} if gone else None)

    def _expired(self, facts: Facts) -> bool:
        return is_past(facts["expires_at"], self._clock())


def _id(thread_id: str, key: str) -> str:
    # No two pairs have the same form, whatever characters they hold.
    return dumps([thread_id, key]).decode()
