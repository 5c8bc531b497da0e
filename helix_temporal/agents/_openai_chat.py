"""Rows of OpenAI's chat format: from bytes to rows, and what a row's fields say."""

from typing import Final, NoReturn

import orjson

from helix_temporal.agents.checks import NAME
from helix_temporal.errors import HelixError, InvalidMessageError
from helix_temporal.models.base import JsonObject, check_json
from helix_temporal.models.messages import ToolCall

Content = str | list[JsonObject]

SYSTEM_ROLES: Final = ("system", "developer")


def refuse(where: str, reason: str) -> NoReturn:
    """Raise `InvalidMessageError` that names the row."""
    raise InvalidMessageError(f"conversation, {where}: {reason}")


def rows_of(data: bytes | str) -> list[tuple[str, JsonObject]]:
    """All rows, each with its place for error messages.

    Raises:
        InvalidMessageError: It is neither JSON nor JSON lines, or holds something else than messages.
    """
    text = _decoded(data)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        lines = [(at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) < 2:
            refuse(f"line {error.lineno}", f"not JSON: {error.msg}")
        return [(f"line {at}", _line(at, line, error)) for at, line in lines]
    if isinstance(value, dict) and "messages" in value:
        value = value["messages"]
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not value:
        refuse("row 1", "a JSON array of messages, an object with messages, or JSON lines expected")
    return [(f"row {at}", _object(f"row {at}", row)) for at, row in enumerate(value, 1)]


def _decoded(data: bytes | str) -> str:
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refuse(f"byte {error.start}", "not UTF-8")


def _line(at: int, line: str, whole: orjson.JSONDecodeError) -> JsonObject:
    try:
        row = _object(f"line {at}", orjson.loads(line))
    except orjson.JSONDecodeError as error:
        # A broken JSON document is no JSON lines from its first line on: tell where the document broke.
        place = (whole.lineno, whole.msg) if at == 1 else (at, error.msg)
        refuse(f"line {place[0]}", f"not JSON: {place[1]}")
    if "messages" in row:
        refuse(f"line {at}", "one of several conversations; give a file with a single one")
    return row


def _object(where: str, row: object) -> JsonObject:
    if not isinstance(row, dict):
        refuse(where, f"a message object expected, got {type(row).__name__}")
    try:
        check_json(row)
    except HelixError as error:
        refuse(where, str(error))
    return row


def text_of(content: Content) -> str:
    """The text of a content: itself, or its text parts joined."""
    if isinstance(content, str):
        return content
    return "".join(str(part["text"]) for part in content if part.get("type") == "text")


def content_of(where: str, row: JsonObject) -> Content:
    """What the row says: text or parts, a refusal's text, or nothing."""
    content = row.get("content")
    if content is None:
        refusal = row.get("refusal")
        return refusal if isinstance(refusal, str) else ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        texts = all(isinstance(part.get("text"), str) for part in parts if part.get("type") == "text")
        if len(parts) == len(content) and texts:
            return parts
    refuse(where, "content: text, a list of parts, or null expected")


def plain_text(where: str, row: JsonObject) -> str:
    """What the row says, where only text can be played."""
    content = content_of(where, row)
    if isinstance(content, list):
        other = next((part.get("type") for part in content if part.get("type") != "text"), None)
        if other is not None:
            refuse(where, f"content part of type {str(other)[:40]!r}: only text can be played in this role")
    return text_of(content)


def calls_of(where: str, row: JsonObject) -> list[ToolCall]:
    """The tools that an assistant's row asks for, their arguments parsed."""
    calls = row.get("tool_calls")
    if calls is None:
        return []
    if not isinstance(calls, list):
        refuse(where, "tool_calls: a list expected")
    return [_call(where, f"tool_calls[{at}]", call) for at, call in enumerate(calls)]


def _call(where: str, place: str, call: object) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        refuse(where, f"{place}: an object with id and function expected")
    name = function.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        refuse(where, f"{place}.function.name {str(name)[:80]!r}: 1-64 of A-Z a-z 0-9 _ - expected")
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError as error:
            refuse(where, f"{place}.function.arguments: not JSON: {error.msg}")
    if not isinstance(arguments, dict):
        refuse(where, f"{place}.function.arguments: a JSON object expected")
    try:
        return ToolCall.model_validate({"id": call.get("id"), "name": name, "arguments": arguments})
    except InvalidMessageError as error:
        refuse(where, f"{place}.function.arguments: {error}")
