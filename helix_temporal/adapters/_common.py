"""What all adapters share: lossless answers, ids that a provider takes, arguments, ends of streams."""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import JsonValue

from helix_temporal.errors import InvalidMessageError
from helix_temporal.models._json import JsonObject, check_json, check_text
from helix_temporal.models.agents import ModelResponse
from helix_temporal.models.messages import (
    Finish,
    Message,
    ToolCall,
    from_record,
    invalid_arguments,
    not_arguments,
    to_record,
)

MAX_INVALID: Final = 256
"""Characters that are kept of arguments that could not be read: few enough for a workflow to carry them."""

ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Ids of calls that Anthropic takes; the others take them as well."""

_WORTH: Final = 32
"""Characters from which on a text is worth not to be stored twice."""
_RAW: Final = "raw"
_OF: Final = "of"

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


def remembering(
    adapter: str, response: ModelResponse, raw: JsonValue, encode: Callable[[Message], Any]
) -> ModelResponse:
    """The response with ``provider`` that says which adapter made it, and what it needs back.

    ``raw``, the answer in the provider's own form, is kept only if ``encode`` does not make exactly the
    same JSON, order of keys included, of the message as it comes back from a store.
    """
    stored = _as_stored(response)
    kept: JsonObject = {}
    # As text: stores sort the keys of objects.
    text = as_json(raw)
    if text != as_json(encode(stored)):
        kept = {_RAW: _without(text, _texts(stored)), _OF: _digest(stored)}
    response.provider[adapter] = kept
    return response


def raw_of(message: Message, adapter: str) -> Any:
    """The message in the provider's own form, if this adapter made it and kept that; else None.

    A message that was changed since, by an edit or by a fork's transform, has none: its old words must
    not come back.
    """
    kept = message.provider.get(adapter)
    if not isinstance(kept, dict) or kept.get(_OF) != _digest(message):
        return None
    pieces, texts = kept.get(_RAW), _texts(message)
    if not isinstance(pieces, list):
        return None
    # Whatever is no piece of text is the number of one.
    return json.loads(
        "".join(each if isinstance(each, str) else _inner(texts[int(str(each))]) for each in pieces)
    )


def _without(text: str, texts: Sequence[str]) -> list[JsonValue]:
    """The text in pieces, with the number of one of ``texts`` where that stands in it.

    What a message says is not stored twice.
    """
    pieces: list[JsonValue] = [text]
    for number, each in enumerate(texts):
        said = _inner(each)
        for at, piece in enumerate(pieces):
            if len(said) >= _WORTH and isinstance(piece, str) and said in piece:
                before, _, after = piece.partition(said)
                pieces[at : at + 1] = [before, number, after]
                break
    return pieces


def _texts(message: Message) -> list[str]:
    if isinstance(message.content, str):
        return [message.content]
    return [text for part in message.content if isinstance(text := part.get("text"), str)]


def _inner(text: str) -> str:
    return as_json(text)[1:-1]


def outgoing(
    messages: Sequence[Message], adapter: str, raw_ids: RawIds, pattern: re.Pattern[str] = ID
) -> list[Outgoing]:
    """The messages as they go to a provider: its own answers as they came, all ids such as it takes.

    Ids that do not match ``pattern``, or that another call of the request has, are replaced by others,
    in calls and results alike and the same way each time.  Each call must be followed by its result
    before the next answer with calls.
    """
    raws = [raw_of(each, adapter) if each.role == "assistant" else None for each in messages]
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
            sent = _answering(message, open_calls)
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


def _answering(message: Message, open_calls: list[tuple[str, str]]) -> Message:
    """The result with the id that its call was given; of calls with one id, the first that is open."""
    at = next((at for at, (old, _) in enumerate(open_calls) if old == message.tool_call_id), None)
    if at is None:
        return message
    _, new = open_calls.pop(at)
    return message if new == message.tool_call_id else message.model_copy(update={"tool_call_id": new})


# -- what a provider says, as we keep it


def clean(text: str) -> str:
    """The text as every store can hold it: U+0000 and lone surrogates become U+FFFD."""
    try:
        check_text(text, "text")
    except InvalidMessageError:
        return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def tool_call(
    call_id: str | None, name: str | None, arguments: str | object, *, cut: bool = False
) -> ToolCall:
    """What a model asks for, however it says it: a call that can be stored, and answered.

    ``arguments`` is JSON text, or what it was read to.  Without an id the call gets one.  What is no
    JSON object, or cannot be kept, becomes arguments that the tool is not run with: the model is told
    (see `not_arguments`).  ``cut``: the answer ended at its limit of tokens, maybe before the arguments.
    """
    read = _arguments(arguments)
    if cut and not read:
        read = not_arguments("", "the answer was cut at its limit of tokens")
    return ToolCall(
        id=clean(call_id or "")[:256] or f"call_{secrets.token_hex(12)}",
        name=clean(name or "")[:128] or "unnamed",
        arguments=read,
    )


def _arguments(given: str | object) -> JsonObject:
    text = given if isinstance(given, str) else as_json(given)
    try:
        value = from_json(text) if isinstance(given, str) and text else given
        if value in ("", None):
            return {}
        if not isinstance(value, dict):
            raise InvalidMessageError(f"a JSON object expected, got {type(value).__name__}")
        check_json(value, "arguments")
    except (ValueError, RecursionError, InvalidMessageError) as error:
        return not_arguments(clean(text[:MAX_INVALID]), clean(str(error))[:100])
    return value


def from_json(text: str) -> Any:
    """What JSON text says; unlike the library's own reading, not a number is no number.

    Raises:
        ValueError: It is no JSON.
    """
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def sent_arguments(call: ToolCall) -> JsonObject:
    """The arguments for a provider that takes an object."""
    text = invalid_arguments(call.arguments)
    return call.arguments if text is None else {"INVALID_JSON": text}


def sent_arguments_text(call: ToolCall) -> str:
    """The arguments for a provider that takes JSON text; what could not be read goes as it came."""
    text = invalid_arguments(call.arguments)
    return as_json(call.arguments) if text is None else text


def as_json(value: Any) -> str:
    """The value as JSON text: no spaces, keys in the order they have."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def finish_of(finish: Finish, calls: Sequence[ToolCall]) -> Finish:
    """``stop`` with calls is ``tool_calls``: some providers do not tell them apart."""
    return Finish.TOOL_CALLS if finish is Finish.STOP and calls else finish


def _as_stored(response: ModelResponse) -> Message:
    message = Message(
        id="answer",
        role="assistant",
        content=response.content,
        tool_calls=tuple(response.tool_calls),
        finish=response.finish,
    )
    return from_record(to_record(message))


def _digest(message: Message) -> str:
    """Of what the message says; ids of calls are no part of it, as they may be made unique."""
    said = [
        message.content,
        [[call.name, call.arguments] for call in message.tool_calls],
    ]
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
