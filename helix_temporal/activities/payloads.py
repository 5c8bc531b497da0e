"""Large content by reference: texts and tool results kept aside, messages by their place, packed pages."""

import base64
import hashlib
from typing import Final

import orjson

from helix_temporal.activities._runtime import current_attempt
from helix_temporal.errors import PayloadNotFoundError, StoreUnavailableError, ThreadNotFoundError
from helix_temporal.models.base import JsonObject, dump_json
from helix_temporal.models.ids import encode_id
from helix_temporal.models.messages import Message, decode_message
from helix_temporal.models.stored_messages import pack_messages, unpack_messages
from helix_temporal.models.threads import ReadMessagesResult
from helix_temporal.models.waiting import MessageRef, is_foreign_ref, message_ref, payload_ref, task_of
from helix_temporal.stores.protocols.hot import PayloadStore
from helix_temporal.stores.protocols.threads import ReadPage, ThreadPage, ThreadStore

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
        data = dump_json(content)
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
        for owner in _list_owner_ids(thread_id, also):
            data = await self._store.get_payload(owner, ref)
            if data is not None:
                content: str | list[JsonObject] = orjson.loads(data)
                return content
        missing = f"thread {thread_id!r}: payload {ref!r} is not there"
        raise StoreUnavailableError(missing) if current_attempt() < LOOKS else PayloadNotFoundError(missing)

    async def drop(self, thread_id: str, ref: str, also: str | None = None) -> None:
        """Forget content that is in the thread now."""
        for owner in _list_owner_ids(thread_id, also):
            await self._store.delete_payload(owner, ref)

    async def drop_all(self, thread_id: str) -> None:
        """Forget all that was put aside for a thread."""
        await self._store.delete_payloads(thread_id)


def _list_owner_ids(thread_id: str, also: str | None) -> tuple[str, ...]:
    return (thread_id,) if also is None or also == thread_id else (thread_id, also)


GONE = "(The sub-agent's answer is not there any more.)"
"""For a model, in the place of an answer whose thread was deleted meanwhile."""


class References:
    """Brings back what a reference stands for."""

    def __init__(self, payloads: Payloads, threads: ThreadStore) -> None:
        self._payloads, self._threads = payloads, threads

    async def get(self, thread_id: str, ref: str, also: str | None = None) -> str | list[JsonObject]:
        """The content; ``also`` is as for `Payloads.get`.

        Raises:
            StoreUnavailableError, PayloadNotFoundError: A payload is not there; see `Payloads.get`.
            ThreadNotFoundError: The call whose arguments are meant is not there.
        """
        if not is_foreign_ref(ref):
            return await self._payloads.get(thread_id, ref, also)
        if (aside := payload_ref(ref)) is not None:
            return await self._payloads.get(aside.thread_id, aside.name)
        wanted = message_ref(ref)
        found = None if wanted is None else await self._read_message(wanted)
        if wanted is not None and wanted.call is not None:
            return _extract_task(wanted, found)
        return GONE if found is None else found.text

    async def drop(self, thread_id: str, ref: str, also: str | None = None) -> None:
        """Forget a payload that is in the thread now; messages stay where they are."""
        if (aside := payload_ref(ref)) is not None:
            await self._payloads.drop(aside.thread_id, aside.name)
        elif not is_foreign_ref(ref):
            await self._payloads.drop(thread_id, ref, also)

    async def _read_message(self, wanted: MessageRef) -> Message | None:
        page = await self._threads.read(ReadPage.of_message(wanted.thread_id, wanted.position))
        found = page.messages[0] if page.messages else None
        return decode_message(found) if found is not None and found.id == wanted.id else None


def _extract_task(wanted: MessageRef, found: Message | None) -> str:
    calls = () if found is None else found.tool_calls
    if wanted.call is None or wanted.call >= len(calls):
        raise ThreadNotFoundError(
            f"thread {wanted.thread_id!r}: the answer that asks for the sub-agent is gone"
        )
    arguments = calls[wanted.call].arguments
    # What does not have the argument that is wanted is shown whole: the sub-agent may say what is amiss.
    return task_of(arguments, wanted.argument) or task_of(arguments, None) or ""


_PART, _WHOLE = 9, 10


def pack_page(page: ThreadPage, limit: int) -> ReadMessagesResult | None:
    """As much of a page as fits into one result; None if not even its first message does."""
    count = len(page.messages)
    while count:
        text = base64.b64encode(_compress_page(pack_messages(page.messages[:count]))).decode()
        if len(text) <= limit:
            after = page.after if count == len(page.messages) else page.first + count
            return ReadMessagesResult(
                first=page.first,
                messages=(),
                before=page.before,
                after=after,
                head=page.head,
                committed=page.committed,
                packed=text,
            )
        count = min(count - 1, count * limit * _PART // (len(text) * _WHOLE))
    return None


def unpack_page(page: ReadMessagesResult) -> list[Message]:
    """The messages of a page, packed or not.

    Raises:
        ArchiveCorruptError: A body is not a message of ours.
    """
    if not page.packed:
        return list(page.messages)
    return [decode_message(each) for each in unpack_messages(_decompress_page(base64.b64decode(page.packed)))]


def _compress_page(data: bytes) -> bytes:
    import zstandard  # noqa: PLC0415 (workflows import activities, and never come here)

    return zstandard.ZstdCompressor(level=3).compress(data)


def _decompress_page(data: bytes) -> bytes:
    import zstandard  # noqa: PLC0415 (as above)

    return zstandard.ZstdDecompressor().decompress(data)
