"""Pure: rows of zeitlich's archives as messages of ours."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from helix_temporal.adapters._kept import as_json, kept_with
from helix_temporal.adapters._said import tool_call
from helix_temporal.agents import repair
from helix_temporal.errors import HelixError
from helix_temporal.models._json import clean
from helix_temporal.models._row_parts import anthropic_said, google_said, langchain_said
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
            said = anthropic_said(blocks) or ""
            answer = Message(id=row_id, role="assistant", content=said, tool_calls=tuple(calls))
            yield answer.model_copy(update={"provider": {"anthropic": kept_with(answer, blocks)}})
        else:
            yield from self._anthropic_user(row_id, blocks)

    def _anthropic_user(self, row_id: str, blocks: Any) -> Iterator[Message]:
        results = (
            [] if isinstance(blocks, str) else [each for each in blocks if each["type"] == "tool_result"]
        )
        for at, block in enumerate(results):
            content = anthropic_said(block.get("content", "")) or ""
            fields = {"tool_call_id": block["tool_use_id"], "is_error": bool(block.get("is_error"))}
            yield Message(id=_place(row_id, at), role="tool", content=content, **fields)
        said = anthropic_said(blocks)
        if said is not None:
            yield Message(id=_place(row_id, len(results)), role="user", content=said)

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
            yield Message(id=row_id, role="assistant", content=google_said(given) or "", tool_calls=calls)
        elif content["role"] == "user":
            results = [part["functionResponse"] for part in given if "functionResponse" in part]
            for at, part in enumerate(results):
                told = _google_result(part.get("response"))
                yield Message(
                    id=_place(row_id, at), role="tool", tool_call_id=self._called(part), content=told
                )
            said = google_said(given)
            if said is not None:
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
        content = langchain_said(data.get("content")) or ""
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


def _google_result(response: Any) -> str:
    if isinstance(response, dict) and response.keys() == {"result"} and isinstance(response["result"], str):
        return clean(response["result"])
    return clean(as_json(response))
