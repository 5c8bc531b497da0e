"""Pure: Anthropic's stream of events, put together to an answer."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from helix_temporal.adapters._anthropic_request import NAME, answer_blocks
from helix_temporal.adapters._common import clean, finish_of, from_json, remembering, tool_call
from helix_temporal.adapters._wire import cut_off, failed
from helix_temporal.models import parts
from helix_temporal.models._json import JsonObject
from helix_temporal.models.agents import (
    ModelEvent,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
)
from helix_temporal.models.messages import Finish, ToolCall, Usage

PAUSED: Final = "pause_turn"
"""The provider's own tools have run long: the same request is to be sent again, with the answer so far."""

_FINISH: Final = {
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "refusal": Finish.REFUSAL,
    "tool_use": Finish.TOOL_CALLS,
}
_STATUS: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""Errors that come within a stream have no status of HTTP."""

_GROWS: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""Deltas that add to the field of the same name in the block, from the field in the delta."""


class Answer:
    """One answer as it comes, in one stream or several that follow each other.

    Attributes:
        blocks: What has come, in Anthropic's form.
        stop_reason: Why it stopped; None while it has not.
    """

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self.stop_reason: str | None = None
        self._arguments: dict[int, list[str]] = {}
        self._before = 0
        self._usage = Usage()
        self._counts: dict[str, Any] = {}
        self._ended = True

    def begin(self) -> None:
        """A stream begins; its blocks follow those that are there."""
        self._before = len(self.blocks)
        self._counts = {}
        self._ended, self.stop_reason = False, None

    def take(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """Take in one event; what it adds that somebody may want to see.

        Raises:
            HelixError: It says that the call has failed.
        """
        kind = event.get("type")
        if kind == "content_block_start":
            yield from self._start(event["content_block"])
        elif kind == "content_block_delta":
            yield from self._delta(self._before + event["index"], event["delta"])
        elif kind == "message_start":
            self._count(event["message"].get("usage"))
        elif kind == "message_delta":
            self.stop_reason = event["delta"].get("stop_reason")
            self._count(event.get("usage"))
        elif kind == "message_stop":
            self._ended = True
        elif kind == "error":
            word = (event.get("error") or {}).get("type")
            raise failed("Anthropic", _STATUS.get(str(word), 500), word)

    def end(self) -> None:
        """The stream has ended.

        Raises:
            ModelStreamEndedError: Its answer has not.
        """
        if not self._ended:
            raise cut_off("Anthropic", "no message_stop")
        self._usage = self._usage + _usage(self._counts)
        for at in range(self._before, len(self.blocks)):
            if at in self._arguments:
                self.blocks[at]["input"] = _input("".join(self._arguments[at]), self.blocks[at].get("input"))

    def response(self) -> ModelResponse:
        """The answer in our form."""
        calls = tuple(self._calls())
        finish = _FINISH.get(self.stop_reason or "", Finish.STOP)
        response = ModelResponse(
            content=_content(self.blocks),
            tool_calls=calls,
            usage=self._usage,
            stop_reason=self.stop_reason,
            finish=finish_of(finish, calls),
        )
        return remembering(NAME, response, list(self.blocks), answer_blocks)

    def _start(self, block: dict[str, Any]) -> Iterator[ModelEvent]:
        at = len(self.blocks)
        self.blocks.append(block)
        if "input" in block:
            self._arguments[at] = []
        if block.get("type") == "tool_use":
            yield ToolCallStarted(block["id"], block["name"])

    def _delta(self, at: int, delta: dict[str, Any]) -> Iterator[ModelEvent]:
        block, kind = self.blocks[at], delta.get("type", "")
        if kind in _GROWS:
            name = _GROWS[kind]
            block[name] = (block.get(name) or "") + delta[name]
            if kind == "text_delta":
                yield TextDelta(clean(delta[name]))
            elif kind == "thinking_delta":
                yield ReasoningDelta(clean(delta[name]))
        elif kind == "input_json_delta":
            self._arguments.setdefault(at, []).append(delta["partial_json"])
            if block.get("type") == "tool_use" and delta["partial_json"]:
                yield ToolArgumentsDelta(block["id"], clean(delta["partial_json"]))
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]

    def _calls(self) -> Iterator[ToolCall]:
        last = len(self.blocks) - 1
        for at, block in enumerate(self.blocks):
            if block.get("type") == "tool_use":
                given = "".join(self._arguments.get(at, [])) or block["input"]
                cut = at == last and self.stop_reason in {"max_tokens", "model_context_window_exceeded"}
                yield tool_call(block["id"], block["name"], given, cut=cut)

    def _count(self, usage: dict[str, Any] | None) -> None:
        self._counts |= {name: value for name, value in (usage or {}).items() if value is not None}


def _input(text: str, at_start: Any) -> Any:
    """What the pieces say; what is no JSON object goes back in one, as the provider asks for it."""
    if not text:
        return at_start
    try:
        value = from_json(text)
    except (ValueError, RecursionError):
        return {"INVALID_JSON": clean(text)}
    return value if isinstance(value, dict) else {"INVALID_JSON": clean(text)}


def _content(blocks: Sequence[dict[str, Any]]) -> str | list[JsonObject]:
    """Text alone is text; reasoning stands before it as a part of its own."""
    found: list[JsonObject] = []
    for block in blocks:
        if block.get("type") == "text" and block["text"]:
            found.append(parts.text(clean(block["text"])))
        elif block.get("type") == "thinking" and block["thinking"]:
            found.append(parts.thinking(clean(block["thinking"])))
    if not found:
        return ""
    if len(found) == 1 and found[0]["type"] == "text":
        return str(found[0]["text"])
    return found


def _usage(counts: dict[str, Any]) -> Usage:
    """Anthropic counts what was cached apart."""
    read = counts.get("cache_read_input_tokens", 0)
    written = counts.get("cache_creation_input_tokens", 0)
    details = counts.get("output_tokens_details") or {}
    return Usage(
        input_tokens=counts.get("input_tokens", 0) + read + written,
        output_tokens=counts.get("output_tokens", 0),
        cached_read_tokens=read,
        cached_write_tokens=written,
        reasoning_tokens=details.get("reasoning_tokens") or details.get("thinking_tokens") or 0,
    )
