"""Pure: rows of zeitlich's archives as messages of ours."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from helix_temporal.adapters._answers import kept_with, tool_call
from helix_temporal.agents import repair_tool_results
from helix_temporal.errors import HelixError
from helix_temporal.models.base import JsonObject
from helix_temporal.models.foreign_rows.content import (
    Said,
    anthropic_said,
    google_said,
    json_text,
    langchain_given,
    langchain_said,
)
from helix_temporal.models.foreign_rows.zeitlich import V1_FORMAT, extras_of, shape_of
from helix_temporal.models.messages import Message

_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError, HelixError)


def convert_zeitlich_rows(messages: Sequence[Message], adapter: str = "") -> Sequence[Message]:
    """The messages, with rows of zeitlich's as messages of ours, each call followed by its result.

    Each row is read as what it looks like.  What ``adapter``, to whose provider the messages go, wrote
    itself keeps its own form.  The row of the system's prompt, for which agents have instructions, and
    rows that nobody can read, are left out.
    """
    if not any(each.role == "foreign" for each in messages):
        return messages
    reader = _RowReader(adapter)
    return repair_tool_results([one for each in messages for one in reader.read_message(each)])[0]


class _RowReader:
    """Reads rows in order: results of Gemini's name their call at most by its name."""

    def __init__(self, adapter: str) -> None:
        self._adapter = adapter
        self._open: list[tuple[str, str]] = []

    def read_message(self, message: Message) -> Iterable[Message]:
        """The messages that a row makes; any other message as it is."""
        if message.role != "foreign":
            return [message]
        form = message.format or ""
        if not form.startswith(V1_FORMAT):
            return []
        try:
            row = json.loads(message.text)
            read = _ROWS.get(shape_of(row) or form.removeprefix(f"{V1_FORMAT}/"))
            found = [] if read is None else list(read(self, message.id, row))
            extras = extras_of(row)
            return [found[0].model_copy(update=extras)] if extras and found else found
        except _UNREADABLE:
            return []

    def _with_provider_raw(self, family: str, message: Message, raw: Any) -> Message:
        """The message with the form that its own provider is sent again."""
        if self._adapter.partition("/")[0] != family:
            return message
        return message.model_copy(update={"provider": {self._adapter: kept_with(message, raw)}})

    # -- Anthropic

    def read_anthropic(self, row_id: str, row: Mapping[str, Any]) -> Iterator[Message]:
        """``{"id","message":{"role","content"}}``; our generic envelope has more fields."""
        message = row["message"]
        if row.get("isSystem") or message["role"] == "system":
            return
        blocks = message["content"]
        if message["role"] == "tool" or message.keys() - {"role", "content"}:
            yield Message.model_validate({"id": row_id, **message})
            return
        blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
        if message["role"] == "assistant":
            calls = [tool_call(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"]
            said = anthropic_said(blocks) or ""
            answer = Message(id=row_id, role="assistant", content=said, tool_calls=tuple(calls))
            yield self._with_provider_raw("anthropic", answer, blocks)
        else:
            yield from self._anthropic_user(row_id, blocks)

    def _anthropic_user(self, row_id: str, blocks: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
        results = [each for each in blocks if each["type"] == "tool_result"]
        for at, block in enumerate(results):
            content = anthropic_said(block.get("content", "")) or ""
            fields = {"tool_call_id": block["tool_use_id"], "is_error": bool(block.get("is_error"))}
            result = Message(id=_message_id_at(row_id, at), role="tool", content=content, **fields)
            yield self._with_provider_raw("anthropic", result, [block])
        others = [each for each in blocks if each["type"] != "tool_result"]
        yield from self._read_user_message(
            "anthropic", _message_id_at(row_id, len(results)), anthropic_said(others), others
        )

    def _read_user_message(
        self, family: str, row_id: str, said: Said, raw: Sequence[Any]
    ) -> Iterator[Message]:
        if said is not None:
            yield self._with_provider_raw(family, Message(id=row_id, role="user", content=said), list(raw))

    # -- Google

    def read_google(self, row_id: str, row: Mapping[str, Any]) -> Iterator[Message]:
        """``{"id","content":{"role","parts"}}``."""
        content = row["content"]
        given = content.get("parts") or []
        if content["role"] == "model":
            asked = [part["functionCall"] for part in given if "functionCall" in part]
            calls = tuple(
                tool_call(
                    each.get("id") or _message_id_at(row_id, at + 1), each["name"], each.get("args") or {}
                )
                for at, each in enumerate(asked)
            )
            self._open = [(call.name, call.id) for call in calls]
            said = google_said(given) or ""
            answer = Message(id=row_id, role="assistant", content=said, tool_calls=calls)
            yield self._with_provider_raw("google", answer, given)
        elif content["role"] == "user":
            results = [part for part in given if "functionResponse" in part]
            for at, part in enumerate(results):
                yield self._google_result(_message_id_at(row_id, at), part)
            others = [part for part in given if "functionResponse" not in part]
            yield from self._read_user_message(
                "google", _message_id_at(row_id, len(results)), google_said(others), others
            )

    def _google_result(self, row_id: str, part: Mapping[str, Any]) -> Message:
        result = part["functionResponse"]
        told, is_error = _google_told(result.get("response"))
        files = google_said(result.get("parts"))
        content: Said = told if files is None else [{"type": "text", "text": told}, *_content_as_parts(files)]
        fields = {"tool_call_id": self._take_call_id(result), "is_error": is_error}
        return self._with_provider_raw(
            "google", Message(id=row_id, role="tool", content=content, **fields), [part]
        )

    def _take_call_id(self, part: Mapping[str, Any]) -> str:
        name = str(part.get("name"))
        call_id = part.get("id")
        found = next((each for each in self._open if each[0] == name and call_id in {None, each[1]}), None)
        if found is None:
            return str(call_id or name)
        self._open.remove(found)
        return found[1]

    # -- LangChain

    def read_langchain(self, row_id: str, row: Mapping[str, Any]) -> Iterator[Message]:
        """``{"type":"human","data":{…}}``."""
        data = row["data"]
        given = langchain_given(data)
        content = langchain_said(given) or ""
        kind = {"user": "human", "assistant": "ai"}.get(str(data.get("role")), row["type"])
        if kind == "human":
            message = Message(id=row_id, role="user", content=content)
        elif kind == "ai":
            calls = tuple(
                tool_call(each.get("id"), each.get("name"), each.get("args") or {})
                for each in data.get("tool_calls") or ()
            )
            message = Message(id=row_id, role="assistant", content=content, tool_calls=calls)
        elif kind == "tool":
            error, call_id = data.get("status") == "error", str(data["tool_call_id"])
            message = Message(id=row_id, role="tool", content=content, tool_call_id=call_id, is_error=error)
        else:
            return
        raw = _langchain_raw(data, given, kind)
        yield message if raw is None else self._with_provider_raw("langchain", message, raw)


_ROWS: Final[dict[str, Callable[[_RowReader, str, Mapping[str, Any]], Iterator[Message]]]] = {
    "anthropic": _RowReader.read_anthropic,
    "googleGenAI": _RowReader.read_google,
    "langChain": _RowReader.read_langchain,
}


def _message_id_at(row_id: str, at: int) -> str:
    return row_id if at == 0 else f"{row_id[:200]}.{at}"


def _content_as_parts(said: str | list[JsonObject]) -> list[JsonObject]:
    return [{"type": "text", "text": said}] if isinstance(said, str) else said


def _google_told(response: Any) -> tuple[str, bool]:
    """What a response says: zeitlich has texts under ``result``, and our export failures under ``error``."""
    if isinstance(response, dict) and len(response) == 1:
        ((name, value),) = response.items()
        if name in {"result", "error"} and isinstance(value, str):
            return google_said([{"text": value}]) or "", name == "error"  # type: ignore[return-value]
    return json_text(response), False


def _langchain_raw(data: Mapping[str, Any], given: Any, kind: str) -> JsonObject | None:
    """The message's own fields; None where Python's LangChain has other names for them."""
    if (data.get("response_metadata") or {}).get("output_version") == "v1":
        return None
    if isinstance(given, list):
        given = [each if isinstance(each, str | dict) else json_text(each) for each in given]
    raw: JsonObject = {"content": given if isinstance(given, str | list) else json_text(given)}
    if data.get("additional_kwargs"):
        raw["additional_kwargs"] = data["additional_kwargs"]
    if kind == "ai":
        raw |= {name: data[name] for name in ("tool_calls", "response_metadata") if data.get(name)}
    return raw
