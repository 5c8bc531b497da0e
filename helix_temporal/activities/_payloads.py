"""Large texts and tool results: kept aside under a name, so that workflows carry the name alone."""

import hashlib
from typing import Final

import orjson

from helix_temporal.activities._context import attempt
from helix_temporal.errors import PayloadNotFoundError, StoreUnavailableError
from helix_temporal.models._json import JsonObject, dumps
from helix_temporal.models.ids import encode_id
from helix_temporal.stores.protocols.hot import PayloadStore

TTL_SECONDS: Final = 7 * 24 * 3600.0
"""How long a store that expires payloads keeps them: longer than any step may be retried."""


LOOKS: Final = 3
"""Attempts of an activity that do not find a payload before it is taken to be gone."""

FAR: Final = 10**19
"""A position past any thread: for payloads that are named before their step is known."""


def payload_key(position: int, key: str, data: bytes) -> str:
    """The name of a payload that waits for the step at ``position``.

    Other bytes have another name: what an attempt wrote that was given up, and that lands late, is
    not taken for the result that counted.
    """
    return f"{position:020}/{encode_id(f'{hashlib.sha256(data).hexdigest()[:16]}/{key}')}"


class Payloads:
    """Puts content aside and brings it back."""

    def __init__(self, store: PayloadStore) -> None:
        self._store = store

    async def put(self, thread_id: str, position: int, key: str, content: str | list[JsonObject]) -> str:
        """Keep content; returns the reference to bring it back with."""
        data = dumps(content)
        name = payload_key(position, key, data)
        await self._store.put_payload(thread_id, name, data, TTL_SECONDS)
        return name

    async def get(self, thread_id: str, ref: str, also: str | None = None) -> str | list[JsonObject]:
        """The content; ``also`` is another id than the thread's under which it may be kept.

        Raises:
            StoreUnavailableError: It is not there (any more); another attempt looks again.
            PayloadNotFoundError: Nor did the attempts before find it: its step stands already, or it is
                gone for good.
        """
        for owner in _ids(thread_id, also):
            data = await self._store.get_payload(owner, ref)
            if data is not None:
                content: str | list[JsonObject] = orjson.loads(data)
                return content
        missing = f"thread {thread_id!r}: payload {ref!r} is not there"
        raise StoreUnavailableError(missing) if attempt() < LOOKS else PayloadNotFoundError(missing)

    async def drop(self, thread_id: str, ref: str, also: str | None = None) -> None:
        """Forget content that is in the thread now."""
        for owner in _ids(thread_id, also):
            await self._store.delete_payload(owner, ref)

    async def drop_all(self, thread_id: str) -> None:
        """Forget all that was put aside for a thread."""
        await self._store.delete_payloads(thread_id)


def _ids(thread_id: str, also: str | None) -> tuple[str, ...]:
    return (thread_id,) if also is None or also == thread_id else (thread_id, also)
