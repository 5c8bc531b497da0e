"""Inputs of a step as messages, and their content that lies beside the thread until its turn is over."""

from collections.abc import Sequence
from typing import Any

from helix_temporal.activities.payloads import References
from helix_temporal.errors import (
    PayloadNotFoundError,
    TooLargeError,
)
from helix_temporal.models.base import JsonObject
from helix_temporal.models.limits import largest_result
from helix_temporal.models.messages import (
    Message,
    check_size,
    encode_message,
)
from helix_temporal.models.steps import EndTurnInput, RunStepInput, StepInput
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushStatus


class StepMessages:
    """Builds messages, and drops the payloads that a thread has taken.

    Args:
        references: To content that lies beside threads.
        largest: Bytes that a message may have.
    """

    def __init__(self, references: References, largest: int) -> None:
        self._references, self._largest = references, largest

    async def build_messages(
        self, request: RunStepInput | EndTurnInput, inputs: Sequence[StepInput]
    ) -> list[Message]:
        """The inputs as messages of the thread, with all their content.

        Raises:
            PayloadNotFoundError: What an input refers to is gone for good.
            TooLargeError: An input is larger than messages may be; ``facts`` has its ``message_id``.
        """
        return [await self._build_message(request, each) for each in inputs]

    async def _build_message(self, request: RunStepInput | EndTurnInput, each: StepInput) -> Message:
        content: Any = each.text if each.parts is None else each.parts
        if each.ref is not None:
            content = await self._load_content(request, each.id, each.ref)
        message = Message(
            id=each.id,
            role="user" if each.call is None else "tool",
            content=content,
            tool_call_id=each.call,
            name=each.name,
            is_error=each.is_error,
            usage=each.usage,
            metadata=dict(each.metadata),
        )
        limit = self._largest if each.ref is None else largest_result(self._largest)
        try:
            check_size(len(encode_message(message).body), limit, f"message {each.id!r}")
        except TooLargeError as refused:
            # `client._messages.ask_message` knows its own message's refusal by this text.
            raise TooLargeError(str(refused), message_id=each.id) from refused
        return message

    async def _load_content(
        self, request: RunStepInput | EndTurnInput, message_id: str, ref: str
    ) -> str | list[JsonObject]:
        try:
            return await self._references.get(*_payload_location(request, ref))
        except PayloadNotFoundError as gone:
            raise PayloadNotFoundError(
                f"{gone}: the content of message {message_id!r} is gone, and the message is not in the "
                "thread; send it again",
                message_id=message_id,
            ) from gone

    async def drop_payloads(
        self, request: RunStepInput | EndTurnInput, inputs: Sequence[StepInput], receipt: FlushReceipt
    ) -> None:
        """What a turn that is over took is in the thread: once archived, it is not needed twice.

        What stays is garbage collected.
        """
        if receipt.status is FlushStatus.ARCHIVED:
            for ref in (*request.earlier_refs, *(each.ref for each in inputs)):
                if ref is not None:
                    await self._references.drop(*_payload_location(request, ref))


def _payload_location(request: RunStepInput | EndTurnInput, ref: str) -> tuple[str, str, str]:
    """Where content is kept: with the thread, or with the session by whoever does not know its thread."""
    return request.thread_id or request.session_id, ref, request.session_id
