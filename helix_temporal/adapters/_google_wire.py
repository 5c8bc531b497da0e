"""Contents of Google's Gen AI API: messages as it takes them.  Pure."""

import base64
import binascii
import mimetypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.genai import types
from pydantic import ValidationError

from helix_temporal.adapters._calls import sent_name
from helix_temporal.adapters._common import Outgoing, as_json, outgoing, sent_arguments
from helix_temporal.adapters._google_schema import gemini_schema
from helix_temporal.models._json import JsonObject
from helix_temporal.models.agents import ModelRequest, ToolSpec
from helix_temporal.models.messages import Message

NAME: Final = "google"

_BEGAN: Final = "(The beginning of this conversation is not shown.)"
_FILES: Final = "https://generativelanguage.googleapis.com/v1beta/"
_SIGNATURE: Final = base64.urlsafe_b64encode(b"skip_thought_signature_validator").decode()
"""Stands for the signature of a call that another provider's model made: Gemini refuses calls without."""


def wire_contents(messages: Sequence[Message]) -> list[types.Content]:
    """The messages in turns of user and model; Gemini's own answers as they came."""
    turns: list[tuple[str, list[JsonObject]]] = []
    results = _Results()
    for each in outgoing(messages, NAME, _raw_ids):
        if each.message.role != "tool":
            _add(turns, "user", results.take_attached())
        _add(turns, *_wire_message(each, results))
    _add(turns, "user", results.take_attached())
    if turns and turns[0][0] == "model":
        turns.insert(0, ("user", [{"text": _BEGAN}]))
    return [_content(role, parts) for role, parts in turns]


def _add(turns: list[tuple[str, list[JsonObject]]], role: str, parts: Iterable[JsonObject]) -> None:
    new = list(parts)
    if new and turns and turns[-1][0] == role:
        turns[-1][1].extend(new)
    elif new:
        turns.append((role, new))


def _content(role: str, parts: Sequence[JsonObject]) -> types.Content:
    # As JSON text: only so does the library read bytes as base64.
    return types.Content.model_validate_json(as_json({"role": role, "parts": list(parts)}))


def wire_parts(content: types.Content) -> list[JsonObject]:
    """The parts of a content as JSON, with the names they have on the wire."""
    dumped: Any = content.model_dump(mode="json", by_alias=True, exclude_none=True)
    parts: list[JsonObject] = dumped.get("parts", [])
    return parts


def wire_system(request: ModelRequest) -> str | None:
    """The instructions, with what else the thread says as the system."""
    texts = [request.instructions, *(each.text for each in request.messages if each.role == "system")]
    return "\n\n".join(text for text in texts if text.strip()) or None


def wire_tools(tools: Sequence[ToolSpec]) -> types.Tool:
    """The tools as the provider takes them."""
    return types.Tool(
        function_declarations=[
            types.FunctionDeclaration(
                name=wire_name(tool.name),
                description=tool.description,
                parameters_json_schema=gemini_schema(tool.parameters),
            )
            for tool in tools
        ]
    )


def _raw_ids(raw: Any) -> Iterable[str]:
    # Ids that Gemini left out are not its own; such answers are matched by order.
    calls = [part["functionCall"] for part in raw if "functionCall" in part]
    return (str(call["id"]) for call in calls if call.get("id"))


def _wire_message(each: Outgoing, results: "_Results") -> tuple[str, list[JsonObject]]:
    message = each.message
    match message.role:
        case "assistant":
            parts = _usable(each.raw)
            parts = wire_answer(message) if parts is None else parts
            results.expect(message, parts)
            return "model", parts
        case "user":
            parts = _usable(each.raw)
            return "user", _wire_content(message) if parts is None else parts
        case "tool":
            return "user", results.answer(message, _usable(each.raw))
        case _:
            return "user", []


def _usable(raw: Any) -> list[JsonObject] | None:
    """Gemini's own parts, if the library reads them: an older archive may hold what it does not know."""
    if raw is None:
        return None
    # Empty text is refused.
    parts = [part for part in raw if part != {"text": ""}]
    try:
        _content("model", parts)
    except ValidationError:
        return None
    return parts


def wire_answer(message: Message) -> list[JsonObject]:
    """An answer's parts: text and images, then calls; reasoning is not shown to another model."""
    parts = _wire_content(message)
    for place, call in enumerate(message.tool_calls):
        part: JsonObject = {"functionCall": {"args": sent_arguments(call), "name": wire_name(call.name)}}
        parts.append(part if place else {**part, "thoughtSignature": _SIGNATURE})
    return wire_parts(_content("model", parts)) if parts else []


def wire_name(name: str) -> str:
    """The name of a tool as Gemini takes it: it begins with a letter or an underscore."""
    fit = sent_name(name)
    return fit if fit[0].isalpha() or fit[0] == "_" else f"_{fit}"[:64]


@dataclass(slots=True)
class _Call:
    ours: str
    theirs: str | None
    name: str


class _Results:
    """Results find their calls by order, as Gemini need not give calls an id."""

    def __init__(self) -> None:
        self._open: list[_Call] = []
        self._attached: list[JsonObject] = []

    def expect(self, message: Message, parts: Sequence[JsonObject]) -> None:
        """An answer with these parts goes out; the results of its calls come next."""
        sent: list[Any] = [part["functionCall"] for part in parts if "functionCall" in part]
        self._open = [
            _Call(call.id, each.get("id"), each.get("name") or wire_name(call.name))
            for call, each in zip(message.tool_calls, sent, strict=False)
        ]

    def answer(self, message: Message, raw: list[JsonObject] | None) -> list[JsonObject]:
        """The result as a part; what is no text in it is attached after all results."""
        at = next((at for at, call in enumerate(self._open) if call.ours == message.tool_call_id), None)
        call = self._open.pop(at) if at is not None else _Call("", None, wire_name(message.name or "unnamed"))
        if raw is not None:
            return raw
        files = [part for part in _wire_content(message) if "text" not in part]
        if files:
            self._attached += [{"text": f"From the result of {call.name}:"}, *files]
        response: JsonObject = {"error" if message.is_error else "output": message.text}
        part: JsonObject = {"name": call.name, "response": response}
        return [{"functionResponse": part if call.theirs is None else {"id": call.theirs, **part}}]

    def take_attached(self) -> list[JsonObject]:
        """What is attached and was not taken yet."""
        taken, self._attached = self._attached, []
        return taken


def _wire_content(message: Message) -> list[JsonObject]:
    if isinstance(message.content, str):
        # Parts without text are refused.
        return [{"text": message.content}] if message.content else []
    return [wired for part in message.content if (wired := _wire_part(part)) is not None]


def _wire_part(part: JsonObject) -> JsonObject | None:
    kind = part.get("type")
    if kind == "text":
        return {"text": str(part["text"])} if part.get("text") else None
    if kind not in {"image", "file"}:
        return None
    media_type = str(part.get("media_type") or "")
    if part.get("data"):
        return _inline(str(part["data"]), media_type or ("image/png" if kind == "image" else ""), part)
    place = _place(part)
    if place is None:
        return {"text": f"({part.get('name') or 'a file'} can't be shown to this model.)"}
    media_type = media_type or mimetypes.guess_type(place.partition("?")[0])[0] or ""
    file: JsonObject = {"fileUri": place}
    return {"fileData": file | {"mimeType": media_type} if media_type else file}


def _inline(data: str, media_type: str, part: JsonObject) -> JsonObject:
    try:
        # The library's own base64 is the one for URLs.
        same = base64.urlsafe_b64encode(base64.b64decode(data.translate(_URL_SIGNS), validate=True))
    except (binascii.Error, ValueError):
        return {"text": f"({part.get('name') or 'a file'} is damaged and can't be shown.)"}
    return {"inlineData": {"data": same.decode(), "mimeType": media_type or "application/octet-stream"}}


_URL_SIGNS: Final = str.maketrans("-_", "+/")


def _place(part: JsonObject) -> str | None:
    """Where the file is; None for one that another provider keeps."""
    if part.get("url"):
        return str(part["url"])
    file_id = str(part.get("file_id") or "")
    if file_id.startswith("files/"):
        return _FILES + file_id
    return file_id if "://" in file_id else None
