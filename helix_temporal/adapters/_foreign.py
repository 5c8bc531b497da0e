"""Pure: rows of zeitlich's archives as messages of ours."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from helix_temporal.adapters._kept import as_json, kept_with
from helix_temporal.adapters._said import clean, tool_call
from helix_temporal.agents import repair
from helix_temporal.errors import HelixError
from helix_temporal.models import parts
from helix_temporal.models._json import JsonObject
from helix_temporal.models.messages import Message

_FORMAT: Final = "zeitlich-v1/"


def converted(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages, with rows of zeitlich's as messages of ours, each call followed by its result.

    Anthropic's answers keep its own form, with the signatures.  The row of the system's prompt, for which
    agents have instructions, and rows that nobody can read, are left out.
    """
    if not any(each.role == "foreign" for each in messages):
        return messages
    reader = _Reader()
    return repair([one for each in messages for one in reader.read(each)])[0]


class _Reader:
    """Reads rows in order: results of Gemini's name their call at most by its name."""

    def __init__(self) -> None:
        self._open: list[tuple[str, str]] = []

    def read(self, message: Message) -> Iterable[Message]:
        """The messages that a row makes; any other message as it is."""
        if message.role != "foreign":
            return [message]
        read = _ROWS.get((message.format or "").removeprefix(_FORMAT))
        try:
            row = json.loads(message.text)
            return list(read(self, message.id, row)) if read is not None else []
        except (ValueError, KeyError, TypeError, AttributeError, HelixError):
            return []

    # -- Anthropic

    def anthropic(self, row_id: str, row: Mapping[str, Any]) -> Iterator[Message]:
        """``{"id","message":{"role","content"}}``; rows of our own export have the same envelope."""
        message = row["message"]
        if row.get("isSystem") or message["role"] == "system":
            return
        blocks = message["content"]
        if message["role"] == "tool" or "tool_calls" in message:
            yield Message.model_validate({"id": row_id, **message})
        elif message["role"] == "assistant":
            blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
            calls = [tool_call(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"]
            said = _content([_anthropic_part(block) for block in blocks])
            answer = Message(id=row_id, role="assistant", content=said, tool_calls=tuple(calls))
            yield answer.model_copy(update={"provider": {"anthropic": kept_with(answer, blocks)}})
        else:
            yield from self._anthropic_user(row_id, blocks)

    def _anthropic_user(self, row_id: str, blocks: Any) -> Iterator[Message]:
        if isinstance(blocks, str):
            yield Message(id=row_id, role="user", content=clean(blocks))
            return
        results = [block for block in blocks if block["type"] == "tool_result"]
        for at, block in enumerate(results):
            content = block.get("content", "")
            if isinstance(content, list):
                content = _content([_anthropic_part(each) for each in content])
            fields = {"tool_call_id": block["tool_use_id"], "is_error": bool(block.get("is_error"))}
            yield Message(id=_place(row_id, at), role="tool", content=content, **fields)
        said = [part for each in blocks if (part := _anthropic_part(each)) is not None]
        if said:
            yield Message(id=_place(row_id, len(results)), role="user", content=_content(said))

    # -- Google

    def google(self, row_id: str, row: Mapping[str, Any]) -> Iterator[Message]:
        """``{"id","content":{"role","parts"}}``."""
        content = row["content"]
        given = content["parts"]
        if content["role"] == "model":
            asked = [part["functionCall"] for part in given if "functionCall" in part]
            calls = tuple(
                tool_call(each.get("id") or _place(row_id, at + 1), each["name"], each.get("args") or {})
                for at, each in enumerate(asked)
            )
            self._open = [(call.name, call.id) for call in calls]
            said = _content([_google_part(part) for part in given])
            yield Message(id=row_id, role="assistant", content=said, tool_calls=calls)
        elif content["role"] == "user":
            results = [part["functionResponse"] for part in given if "functionResponse" in part]
            for at, part in enumerate(results):
                told = _google_result(part.get("response"))
                yield Message(
                    id=_place(row_id, at), role="tool", tool_call_id=self._called(part), content=told
                )
            said = _content([_google_part(part) for part in given])
            if said:
                yield Message(id=_place(row_id, len(results)), role="user", content=said)

    def _called(self, part: Mapping[str, Any]) -> str:
        name = str(part.get("name"))
        known = part.get("id")
        found = next((each for each in self._open if each[0] == name and known in {None, each[1]}), None)
        if found is None:
            return str(known or name)
        self._open.remove(found)
        return found[1]

    # -- LangChain

    def langchain(self, row_id: str, row: Mapping[str, Any]) -> Iterator[Message]:
        """``{"type":"human","data":{…}}``."""
        data = row["data"]
        content = data.get("content") or ""
        if isinstance(content, list):
            content = _content([_langchain_part(each) for each in content])
        if row["type"] == "human":
            yield Message(id=row_id, role="user", content=content)
        elif row["type"] == "ai":
            calls = tuple(
                tool_call(each.get("id"), each.get("name"), each.get("args") or {})
                for each in data.get("tool_calls") or ()
            )
            yield Message(id=row_id, role="assistant", content=content, tool_calls=calls)
        elif row["type"] == "tool":
            error = data.get("status") == "error"
            call_id = str(data["tool_call_id"])
            yield Message(id=row_id, role="tool", content=content, tool_call_id=call_id, is_error=error)


_ROWS: Final[dict[str, Callable[[_Reader, str, Mapping[str, Any]], Iterator[Message]]]] = {
    "anthropic": _Reader.anthropic,
    "googleGenAI": _Reader.google,
    "langChain": _Reader.langchain,
}


def _place(row_id: str, at: int) -> str:
    return row_id if at == 0 else f"{row_id[:200]}.{at}"


def _content(found: Iterable[JsonObject | None]) -> str | list[JsonObject]:
    said = [part for part in found if part is not None]
    if len(said) == 1 and said[0]["type"] == "text":
        return str(said[0]["text"])
    return said or ""


def _anthropic_part(block: Mapping[str, Any]) -> JsonObject | None:
    kind = block["type"]
    if kind == "text":
        return parts.text(clean(block["text"]), cache="cache_control" in block)
    if kind == "thinking":
        return parts.thinking(clean(block["thinking"]))
    if kind not in {"image", "document"}:
        return None
    source = block["source"]
    make = parts.image if kind == "image" else parts.file
    return make(media_type=source.get("media_type", ""), data=source.get("data"), url=source.get("url"))


def _google_part(part: Mapping[str, Any]) -> JsonObject | None:
    if isinstance(part.get("text"), str):
        text = clean(part["text"])
        return parts.thinking(text) if part.get("thought") else parts.text(text)
    given = part.get("inlineData") or part.get("fileData")
    if given is None:
        return None
    media_type = given.get("mimeType", "")
    make = parts.image if media_type.startswith("image/") else parts.file
    return make(media_type=media_type, data=given.get("data"), url=given.get("fileUri"))


def _google_result(response: Any) -> str:
    if isinstance(response, dict) and response.keys() == {"result"} and isinstance(response["result"], str):
        return clean(response["result"])
    return clean(as_json(response))


def _langchain_part(block: Any) -> JsonObject | None:
    if isinstance(block, str):
        return parts.text(clean(block))
    if block["type"] == "text":
        return parts.text(clean(block["text"]))
    if block["type"] == "image_url":
        address = block["image_url"]
        address = address["url"] if isinstance(address, dict) else address
        head, _, data = address.partition(";base64,")
        if data:
            return parts.image(media_type=head.removeprefix("data:"), data=data)
        return parts.image(url=address)
    if block["type"] in {"image", "file"}:
        make = parts.image if block["type"] == "image" else parts.file
        media_type = block.get("mime_type") or block.get("media_type") or ""
        data = block.get("base64") or block.get("data")
        return make(media_type=media_type, data=data, url=block.get("url"))
    return None
