"""An answer of Gemini that comes in pieces, put together.  Pure."""

import base64
from collections.abc import Iterator
from typing import Any, Final

from google.genai import types

from helix_temporal.adapters._calls import made_id
from helix_temporal.adapters._common import as_json, clean, finish_of, remembering, tool_call
from helix_temporal.adapters._google_wire import NAME, wire_answer, wire_name, wire_parts
from helix_temporal.errors import ModelUnavailableError
from helix_temporal.models import parts
from helix_temporal.models._json import JsonObject
from helix_temporal.models.agents import (
    ModelEvent,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
)
from helix_temporal.models.messages import Finish, ToolCall, Usage

CONTINUES: Final = "CONTINUATION"
"""The answer is longer than one request may give: it goes on in another one."""

_MALFORMED: Final = "MALFORMED_FUNCTION_CALL"
_WITHHELD: Final = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "MODEL_ARMOR",
    }
)
_FAILED: Final = frozenset({"OTHER", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"})


class Answer:
    """One answer as it comes, in one stream or several that follow each other.

    Attributes:
        finish_reason: Why it stopped, in Gemini's words; None while it has not.
        continuation: What the next request needs to go on.
    """

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._names = {wire_name(tool.name): tool.name for tool in request.tools}
        self._parts: list[JsonObject] = []
        self._before = Usage()
        self._usage: Usage | None = None
        self._message: str | None = None
        self.finish_reason: str | None = None
        self.continuation: bytes | None = None

    def begin(self) -> None:
        """A stream begins; what it gives follows what is there."""
        self._before = self._before + (self._usage or Usage())
        self.finish_reason = self.continuation = self._usage = None

    def add(self, chunk: types.GenerateContentResponse) -> Iterator[ModelEvent]:
        """Take a piece; what is new in it."""
        self._usage = _usage(chunk.usage_metadata) or self._usage
        blocked = chunk.prompt_feedback.block_reason if chunk.prompt_feedback is not None else None
        if blocked is not None:
            self.finish_reason = "PROHIBITED_CONTENT"
        if not chunk.candidates:
            return
        candidate = chunk.candidates[0]
        if candidate.content is not None:
            for part in wire_parts(candidate.content):
                yield from self._take(part)
        if candidate.finish_reason is not None:
            self.finish_reason = str(candidate.finish_reason.value)
            self._message = candidate.finish_message
        # Libraries before 3 don't know it.
        self.continuation = getattr(candidate, "continuation_token", None) or self.continuation

    def _take(self, part: dict[str, Any]) -> Iterator[ModelEvent]:
        call, text = part.get("functionCall"), part.get("text")
        if call is not None:
            call_id = clean(call.get("id") or made_id(self._request, self._count()))[:256]
            yield ToolCallStarted(call_id, clean(self._name(call))[:128] or "unnamed")
            yield ToolArgumentsDelta(call_id, clean(as_json(call.get("args") or {})))
        elif text:
            yield ReasoningDelta(clean(text)) if part.get("thought") else TextDelta(clean(text))
        if _continues(self._parts, part):
            self._parts[-1]["text"] = str(self._parts[-1]["text"]) + str(text)
        elif part not in ({"text": ""}, {}, {"text": "", "thought": True}):
            self._parts.append(part)

    def _name(self, call: dict[str, Any]) -> str:
        told = str(call.get("name") or "")
        return self._names.get(told, told)

    def _count(self) -> int:
        return sum("functionCall" in part for part in self._parts)

    def response(self) -> ModelResponse:
        """All of it.

        Raises:
            ModelUnavailableError: The model failed to say anything; another attempt may do better.
        """
        reason = self.finish_reason or ""
        if reason == _MALFORMED:
            self._parts.append(self._malformed())
        elif reason in _FAILED and not self._parts:
            raise ModelUnavailableError(f"Gemini gave no answer: {reason}; it is asked again", provider=NAME)
        calls = tuple(self._calls())
        usage = None if self._usage is None else self._before + self._usage
        response = ModelResponse(
            content=_content(self._parts),
            tool_calls=calls,
            usage=usage,
            stop_reason=reason,
            finish=finish_of(_finish(reason), calls),
        )
        return remembering(NAME, response, [*self._parts], wire_answer)

    def _malformed(self) -> JsonObject:
        """A call that Gemini could not read itself, as one whose arguments could not be read."""
        said = clean(self._message or "malformed function call")
        names = [tool.name for tool in self._request.tools]
        # Only Vertex AI tells what was called.
        name = (
            names[0] if len(names) == 1 else max((n for n in names if n in said), key=len, default="unnamed")
        )
        return {"functionCall": {"args": {_UNREAD: said}, "name": name}}

    def _calls(self) -> Iterator[ToolCall]:
        made = 0
        for part in self._parts:
            call: Any = part.get("functionCall")
            if call is not None:
                args = call.get("args") or {}
                unread = args.get(_UNREAD) if self.finish_reason == _MALFORMED else None
                call_id = call.get("id") or made_id(self._request, made)
                yield tool_call(call_id, self._name(call), args if unread is None else unread)
                made += 1


_UNREAD: Final = "INVALID_JSON"


def _continues(before: list[JsonObject], part: JsonObject) -> bool:
    """Whether it is more of the same text.  What is signed must stay apart from what is not."""
    texts = [{"text", "thought"} >= each.keys() and "text" in each for each in (*before[-1:], part)]
    return len(texts) == 2 and all(texts) and before[-1].get("thought") == part.get("thought")


def _finish(reason: str) -> Finish:
    if reason in _WITHHELD:
        return Finish.CONTENT_FILTER
    return Finish.LENGTH if reason in {"MAX_TOKENS", CONTINUES} else Finish.STOP


def _content(said: list[JsonObject]) -> str | list[JsonObject]:
    """Text alone is text; reasoning and images are parts of their own."""
    found: list[JsonObject] = []
    for part in said:
        text, blob = part.get("text"), part.get("inlineData")
        if text:
            new = (parts.thinking if part.get("thought") else parts.text)(clean(str(text)))
            if found and found[-1]["type"] == new["type"]:
                new["text"] = str(found.pop()["text"]) + str(new["text"])
            found.append(new)
        elif isinstance(blob, dict) and blob.get("data"):
            data = base64.b64encode(base64.urlsafe_b64decode(str(blob["data"]))).decode()
            kind = parts.image if str(blob.get("mimeType", "")).startswith("image/") else parts.file
            found.append(kind(media_type=str(blob.get("mimeType", "")), data=data))
    if not found:
        return ""
    if len(found) == 1 and found[0]["type"] == "text":
        return str(found[0]["text"])
    return found


def _usage(told: types.GenerateContentResponseUsageMetadata | None) -> Usage | None:
    """Gemini counts reasoning apart from the answer, and what was cached with the rest."""
    if told is None:
        return None
    thought = told.thoughts_token_count or 0
    return Usage(
        input_tokens=(told.prompt_token_count or 0) + (told.tool_use_prompt_token_count or 0),
        output_tokens=(told.candidates_token_count or 0) + thought,
        cached_read_tokens=told.cached_content_token_count or 0,
        reasoning_tokens=thought,
    )
