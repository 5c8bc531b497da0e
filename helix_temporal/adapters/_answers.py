"""What a model says as we keep it, whatever it says: text, calls, ends, and the provider's own form."""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic import JsonValue

from helix_temporal.errors import InvalidMessageError
from helix_temporal.models.agents import ModelRequest, ModelResponse
from helix_temporal.models.base import JsonObject, check_json, storable_text
from helix_temporal.models.messages import (
    Finish,
    Message,
    ToolCall,
    decode_message,
    encode_message,
    invalid_arguments,
    not_arguments,
)

_WORTH: Final = 32
"""Characters from which on a text is worth not to be stored twice."""
_RAW: Final = "raw"
_OF: Final = "of"


def attach_provider_raw(
    adapter: str, response: ModelResponse, raw: JsonValue, encode: Callable[[Message], Any]
) -> ModelResponse:
    """The response with ``provider`` that says which adapter made it, and what it needs back.

    ``raw``, the answer in the provider's own form, is kept only if ``encode`` does not make exactly the
    same JSON, order of keys included, of the message as it comes back from a store.
    """
    stored = _as_stored(response)
    same = as_json(raw) == as_json(encode(stored))
    response.provider[adapter] = {} if same else kept_with(stored, raw)
    return response


def kept_with(message: Message, raw: Any) -> JsonObject:
    """What keeps ``raw``, the message in a provider's own form, until the message is changed."""
    # As text: stores sort the keys of objects.
    return {_RAW: _replace_stored_texts(as_json(raw), _message_texts(message)), _OF: _message_digest(message)}


def raw_of(message: Message, adapter: str) -> Any:
    """The message in the provider's own form, if this adapter made it and kept that; else None.

    A message that was changed since, by an edit or by a fork's transform, has none: its old words must
    not come back.
    """
    kept = message.provider.get(adapter)
    if not isinstance(kept, dict) or kept.get(_OF) != _message_digest(message):
        return None
    pieces, texts = kept.get(_RAW), _message_texts(message)
    if not isinstance(pieces, list):
        return None
    # Whatever is no piece of text is the number of one.
    return json.loads(
        "".join(each if isinstance(each, str) else _escape_for_json(texts[int(str(each))]) for each in pieces)
    )


def _replace_stored_texts(text: str, texts: Sequence[str]) -> list[JsonValue]:
    """The text in pieces, with the number of one of ``texts`` where that stands in it.

    What a message says is not stored twice.
    """
    pieces: list[JsonValue] = [text]
    for number, each in enumerate(texts):
        said = _escape_for_json(each)
        for at, piece in enumerate(pieces):
            if len(said) >= _WORTH and isinstance(piece, str) and said in piece:
                before, _, after = piece.partition(said)
                pieces[at : at + 1] = [before, number, after]
                break
    return pieces


def _message_texts(message: Message) -> list[str]:
    if isinstance(message.content, str):
        return [message.content]
    return [text for part in message.content if isinstance(text := part.get("text"), str)]


def _escape_for_json(text: str) -> str:
    return as_json(text)[1:-1]


def as_json(value: Any) -> str:
    """The value as JSON text: no spaces, keys in the order they have."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def _as_stored(response: ModelResponse) -> Message:
    message = Message(
        id="answer",
        role="assistant",
        content=response.content,
        tool_calls=tuple(response.tool_calls),
        finish=response.finish,
    )
    return decode_message(encode_message(message))


def _message_digest(message: Message) -> str:
    """Of what the message says; ids of calls are no part of it, as they may be made unique."""
    said = [
        message.content,
        [[call.name, call.arguments] for call in message.tool_calls],
    ]
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


MAX_INVALID: Final = 256
"""Characters that are kept of arguments that could not be read: few enough for a workflow to carry them."""


def tool_call(
    call_id: str | None, name: str | None, arguments: str | object, *, cut: bool = False
) -> ToolCall:
    """What a model asks for, however it says it: a call that can be stored, and answered.

    ``arguments`` is JSON text, or what it was read to.  Without an id the call gets one.  What is no
    JSON object, or cannot be kept, becomes arguments that the tool is not run with: the model is told
    (see `not_arguments`).  ``cut``: the answer ended at its limit of tokens, maybe before the arguments.
    """
    read = _parse_arguments(arguments)
    if cut and not read:
        read = not_arguments("", "the answer was cut at its limit of tokens")
    return ToolCall(
        id=storable_text(call_id or "")[:256] or f"call_{secrets.token_hex(12)}",
        name=storable_text(name or "")[:128] or "unnamed",
        arguments=read,
    )


def _parse_arguments(given: str | object) -> JsonObject:
    text = given if isinstance(given, str) else as_json(given)
    try:
        value = from_json(text) if isinstance(given, str) and text else given
        if value in ("", None):
            return {}
        if not isinstance(value, dict):
            raise InvalidMessageError(f"a JSON object expected, got {type(value).__name__}")
        check_json(value, "arguments")
    except (ValueError, RecursionError, InvalidMessageError) as error:
        return not_arguments(storable_text(text[:MAX_INVALID]), storable_text(str(error))[:100])
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


def finish_of(finish: Finish, calls: Sequence[ToolCall]) -> Finish:
    """``stop`` with calls is ``tool_calls``: some providers do not tell them apart."""
    return Finish.TOOL_CALLS if finish is Finish.STOP and calls else finish


_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME: Final = 64


def made_id(request: ModelRequest, place: int) -> str:
    """An id for the call at this place of the answer; the same for each attempt of the step.

    It is no other call's in the thread: a late answer to a call must not be taken for another's.
    """
    digest = hashlib.sha256(f"{request.thread_id}\0{request.step_key}\0{place}".encode()).hexdigest()
    return f"call_{digest[:24]}"


def sent_name(name: str) -> str:
    """The name of a tool that a model, maybe another provider's, has made up, as every provider takes it."""
    return _NOT_IN_NAMES.sub("_", name)[:_MAX_NAME] or "unnamed"
