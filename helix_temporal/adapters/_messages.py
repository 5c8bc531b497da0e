"""What all adapters share: a conversation on its way to a provider, and what they need on its way back."""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from helix_temporal.adapters._answers import (
    raw_of,
)
from helix_temporal.adapters.zeitlich import convert_zeitlich_rows
from helix_temporal.models.messages import Message

ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Ids of calls that Anthropic takes; the others take them as well."""

RawIds = Callable[[Any], Iterable[str]]
"""The ids of the tool calls in a provider's own form of an answer, in order."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message on its way to a provider.

    Attributes:
        message: With ids of calls that the provider takes.
        raw: The provider's own form of it, to be sent as it is; None if ``message`` says it all, or
            another provider made it.
    """

    message: Message
    raw: Any = None


def decode_base64_text(data: object) -> str | None:
    """The text that base64 holds; None if it holds something else."""
    try:
        return base64.b64decode(str(data), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def prepare_outgoing(
    messages: Sequence[Message], adapter: str, raw_ids: RawIds, pattern: re.Pattern[str] = ID
) -> list[Outgoing]:
    """The messages as they go to a provider: its own answers as they came, all ids such as it takes.

    Ids that do not match ``pattern``, or that another call of the request has, are replaced by others,
    in calls and results alike and the same way each time.  Each call must be followed by its result
    before the next answer with calls.  Rows of another system become messages first.
    """
    messages = convert_zeitlich_rows(messages, adapter)
    raws = [raw_of(each, adapter) for each in messages]
    owned = [_own_ids(each, raw, adapter, raw_ids, pattern) for each, raw in zip(messages, raws, strict=True)]
    taken = {each for ids in owned if ids is not None for each in ids}
    given: list[Outgoing] = []
    open_calls: list[tuple[str, str]] = []
    for message, raw, own in zip(messages, raws, owned, strict=True):
        sent = message
        if message.role == "assistant" and message.tool_calls:
            ids = _ids_for(message, taken, pattern) if own is None else own
            open_calls = [(call.id, new) for call, new in zip(message.tool_calls, ids, strict=True)]
            sent = _with_calls(message, ids)
        elif message.role == "tool":
            sent = _replace_call_id(message, open_calls)
        given.append(Outgoing(sent, raw))
    return given


def _own_ids(
    message: Message, raw: Any, adapter: str, raw_ids: RawIds, pattern: re.Pattern[str]
) -> list[str] | None:
    """The ids of an answer that this provider gave itself, even where it gave one twice."""
    if raw is not None:
        ids = list(raw_ids(raw))
        return ids if len(ids) == len(message.tool_calls) else None
    ids = [call.id for call in message.tool_calls]
    return ids if adapter in message.provider and all(map(pattern.fullmatch, ids)) else None


def _ids_for(message: Message, taken: set[str], pattern: re.Pattern[str]) -> list[str]:
    """An id that is free for each call: its own, if the provider takes it."""
    ids: list[str] = []
    for place, call in enumerate(message.tool_calls):
        new = call.id
        if new in taken or not pattern.fullmatch(new):
            digest = hashlib.sha256(f"{message.id}\0{place}".encode()).hexdigest()
            new = f"call_{digest[:24]}"
        taken.add(new)
        ids.append(new)
    return ids


def _with_calls(message: Message, ids: Sequence[str]) -> Message:
    if [call.id for call in message.tool_calls] == list(ids):
        return message
    calls = tuple(
        call.model_copy(update={"id": new}) for call, new in zip(message.tool_calls, ids, strict=True)
    )
    return message.model_copy(update={"tool_calls": calls})


def _replace_call_id(message: Message, open_calls: list[tuple[str, str]]) -> Message:
    """The result with the id that its call was given; of calls with one id, the first that is open."""
    at = next((at for at, (old, _) in enumerate(open_calls) if old == message.tool_call_id), None)
    if at is None:
        return message
    _, new = open_calls.pop(at)
    return message if new == message.tool_call_id else message.model_copy(update={"tool_call_id": new})
