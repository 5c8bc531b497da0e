"""What a model says as we keep it, whatever it says: text, calls and their arguments, ends."""

import json
import secrets
from collections.abc import Sequence
from typing import Any, Final

from helix_temporal.adapters._kept import as_json
from helix_temporal.errors import InvalidMessageError
from helix_temporal.models._json import JsonObject, check_json, clean
from helix_temporal.models.messages import Finish, ToolCall, invalid_arguments, not_arguments

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


def finish_of(finish: Finish, calls: Sequence[ToolCall]) -> Finish:
    """``stop`` with calls is ``tool_calls``: some providers do not tell them apart."""
    return Finish.TOOL_CALLS if finish is Finish.STOP and calls else finish
