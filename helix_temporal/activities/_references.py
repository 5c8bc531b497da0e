"""What stands for content: payloads that were put aside, and messages that are in threads already."""

from helix_temporal.activities._payloads import Payloads
from helix_temporal.errors import ThreadNotFoundError
from helix_temporal.models._json import JsonObject
from helix_temporal.models.children import MessageRef, is_message_ref, message_ref, payload_ref, task_of
from helix_temporal.models.messages import Message, from_record
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore

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
        if not is_message_ref(ref):
            return await self._payloads.get(thread_id, ref, also)
        if (aside := payload_ref(ref)) is not None:
            return await self._payloads.get(aside.thread_id, aside.name)
        wanted = message_ref(ref)
        found = None if wanted is None else await self._message(wanted)
        if wanted is not None and wanted.call is not None:
            return _task(wanted, found)
        return GONE if found is None else found.text

    async def drop(self, thread_id: str, ref: str, also: str | None = None) -> None:
        """Forget a payload that is in the thread now; messages stay where they are."""
        if (aside := payload_ref(ref)) is not None:
            await self._payloads.drop(aside.thread_id, aside.name)
        elif not is_message_ref(ref):
            await self._payloads.drop(thread_id, ref, also)

    async def _message(self, wanted: MessageRef) -> Message | None:
        at = wanted.position
        page = await self._threads.read(
            ReadPage(wanted.thread_id, at, at + 1, limit=1, committed_only=False, whole=False)
        )
        found = page.records[0] if page.records else None
        return from_record(found) if found is not None and found.id == wanted.id else None


def _task(wanted: MessageRef, found: Message | None) -> str:
    calls = () if found is None else found.tool_calls
    if wanted.call is None or wanted.call >= len(calls):
        raise ThreadNotFoundError(
            f"thread {wanted.thread_id!r}: the answer that asks for the sub-agent is gone"
        )
    arguments = calls[wanted.call].arguments
    # What does not have the argument that is wanted is shown whole: the sub-agent may say what is amiss.
    return task_of(arguments, wanted.argument) or task_of(arguments, None) or ""
