"""OpenAI's chat format: messages as it takes them.  Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from helix_temporal.adapters._calls import sent_name
from helix_temporal.adapters._common import Outgoing, outgoing, sent_arguments_text
from helix_temporal.adapters._openai import breakpoint_of, data_url, file_id, is_image, not_shown, schema_of
from helix_temporal.models._json import JsonObject
from helix_temporal.models.agents import ModelRequest, ToolSpec
from helix_temporal.models.messages import Message

NAME: Final = "openai_chat"

_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def wire_messages(request: ModelRequest, *, breakpoints: bool = False) -> list[JsonObject]:
    """The instructions and the messages as the provider takes them."""
    sent: list[JsonObject] = []
    if request.instructions:
        sent.append({"role": "system", "content": request.instructions})
    attached: list[JsonObject] = []
    for each in outgoing(request.messages, NAME, _raw_ids):
        if each.message.role != "tool" and attached:
            sent.append({"role": "user", "content": [*attached]})
            attached = []
        sent += _wire_message(each, attached, breakpoints)
    if attached:
        sent.append({"role": "user", "content": [*attached]})
    return sent


def _raw_ids(raw: Any) -> Iterable[str]:
    return (str(call.get("id", "")) for call in raw.get("tool_calls", ()))


def _wire_message(each: Outgoing, attached: list[JsonObject], breakpoints: bool) -> list[JsonObject]:
    message = each.message
    match message.role:
        case "assistant":
            return [each.raw if each.raw is not None else wire_answer(message)]
        case "user":
            return [{"role": "user", "content": _wire_content(message, breakpoints)}]
        case "system":
            return [{"role": "system", "content": message.text}]
        case "tool":
            return [_wire_result(message, attached)]
        case _:
            return []


def wire_answer(message: Message) -> JsonObject:
    """An answer in the provider's form, of its text and its calls."""
    calls: list[Any] = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": sent_name(call.name), "arguments": sent_arguments_text(call)},
        }
        for call in message.tool_calls
    ]
    if calls:
        return {"role": "assistant", "content": message.text or None, "tool_calls": calls}
    return {"role": "assistant", "content": message.text}


def _wire_result(message: Message, attached: list[JsonObject]) -> JsonObject:
    """A tool's result, which can only be text here; all else follows in a user's message."""
    text = message.text
    files = [] if isinstance(message.content, str) else _wire_parts(message.content, breakpoints=False)
    files = [each for each in files if each["type"] != "text"]
    if files:
        attached += [{"type": "text", "text": f"From the result of {message.tool_call_id}:"}, *files]
        text = text or "The result follows in the next message of the user."
    return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": text}


def _wire_content(message: Message, breakpoints: bool) -> str | list[Any]:
    if isinstance(message.content, str):
        return message.content
    return _wire_parts(message.content, breakpoints) or ""


def _wire_parts(parts: Sequence[JsonObject], breakpoints: bool) -> list[JsonObject]:
    wired = ((part, _wire_part(part)) for part in parts)
    return [new | breakpoint_of(part, breakpoints) for part, new in wired if new is not None]


def _wire_part(part: JsonObject) -> JsonObject | None:
    if part.get("type") == "text":
        return {"type": "text", "text": str(part.get("text", ""))}
    if is_image(part):
        return {"type": "image_url", "image_url": {"url": data_url(part, "image/png") or part.get("url")}}
    if part.get("type") == "file" and (file := _wire_file(part)) is not None:
        return file
    said = not_shown(part)
    return None if said is None else {"type": "text", "text": said}


def _wire_file(part: JsonObject) -> JsonObject | None:
    audio = _AUDIO.get(str(part.get("media_type")))
    if audio and part.get("data"):
        return {"type": "input_audio", "input_audio": {"data": part["data"], "format": audio}}
    if part.get("data"):
        file: JsonObject = {
            "filename": part.get("name") or "file",
            "file_data": data_url(part, "application/octet-stream"),
        }
        return {"type": "file", "file": file}
    if file_id(part):
        return {"type": "file", "file": {"file_id": file_id(part)}}
    if part.get("url"):
        # This interface fetches no files: the model at least learns where one is.
        return {"type": "text", "text": f"[file {part.get('name') or ''} at {part['url']}]"}
    return None


def wire_tools(tools: Sequence[ToolSpec]) -> list[JsonObject]:
    """The tools as the provider takes them."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": schema_of(tool)},
        }
        for tool in tools
    ]
