"""Answers in their provider's own form, kept with the message as far as ours does not say the same."""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic import JsonValue

from helix_temporal.models._json import JsonObject
from helix_temporal.models.agents import ModelResponse
from helix_temporal.models.messages import Message, from_record, to_record

_WORTH: Final = 32
"""Characters from which on a text is worth not to be stored twice."""
_RAW: Final = "raw"
_OF: Final = "of"


def remembering(
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
    return {_RAW: _without(as_json(raw), _texts(message)), _OF: _digest(message)}


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
    return from_record(to_record(message))


def _digest(message: Message) -> str:
    """Of what the message says; ids of calls are no part of it, as they may be made unique."""
    said = [
        message.content,
        [[call.name, call.arguments] for call in message.tool_calls],
    ]
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
