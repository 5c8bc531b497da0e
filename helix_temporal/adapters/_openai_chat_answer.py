"""An answer in OpenAI's chat format, put together from its pieces.  Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from helix_temporal.adapters._common import clean, finish_of, remembering, tool_call
from helix_temporal.adapters._openai import PROVIDER, count, told_error
from helix_temporal.adapters._openai_chat_request import NAME, wire_answer
from helix_temporal.adapters._wire import cut_off
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

_FINISH: Final = {
    "stop": Finish.STOP,
    "length": Finish.LENGTH,
    "tool_calls": Finish.TOOL_CALLS,
    "function_call": Finish.TOOL_CALLS,
    "content_filter": Finish.CONTENT_FILTER,
}
_REASONING: Final = ("reasoning_content", "reasoning")
"""Where servers that speak OpenAI's format put the model's reasoning."""


@dataclass(slots=True)
class _Call:
    """A tool call as far as it has come; ``given``: its id is the provider's."""

    index: int
    id: str
    given: bool
    name: str = ""
    arguments: str = ""
    extra: JsonObject = field(default_factory=dict)


class Answer:
    """An answer that comes in pieces: each tells what is new, and at the end there is all of it."""

    def __init__(self, new_id: Callable[[int], str]) -> None:
        self._new_id = new_id
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._extra: JsonObject = {}
        self._calls: list[_Call] = []
        self._usage: object = None
        self._finish_reason: str | None = None

    def add(self, chunk: JsonObject) -> list[ModelEvent]:
        """Take a piece; what is new in it.

        Raises:
            HelixError: It says that the call has failed.
        """
        if chunk.get("error"):
            raise told_error(chunk["error"])
        self._usage = chunk.get("usage") or self._usage
        choices = chunk.get("choices")
        choice: Any = choices[0] if isinstance(choices, list) and choices else {}
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        delta = choice.get("delta") or {}
        new: list[ModelEvent] = []
        for name, value in delta.items():
            if name == "tool_calls":
                new += [event for piece in value or () for event in self._add_call(piece)]
            elif name not in {"role", *_REASONING} and value is not None:
                new += self._add_field(name, value)
        return self._add_reasoning(delta) + new

    def _add_field(self, name: str, value: Any) -> list[ModelEvent]:
        if name in {"content", "refusal"} and isinstance(value, str):
            (self._text if name == "content" else self._refusal).append(value)
            return [TextDelta(clean(value))] if value else []
        _merge(self._extra, name, value)
        return []

    def _add_reasoning(self, delta: JsonObject) -> list[ModelEvent]:
        # Some servers tell the same reasoning under both names, while clients move from one to the other.
        told = [value for name in _REASONING if isinstance(value := delta.get(name), str) and value]
        for name in _REASONING:
            if delta.get(name):
                _merge(self._extra, name, delta[name])
        if not told:
            return []
        self._reasoning.append(told[0])
        return [ReasoningDelta(clean(told[0]))]

    def _add_call(self, piece: dict[str, Any]) -> list[ModelEvent]:
        call = self._slot(piece)
        function = piece.get("function") or {}
        new: list[ModelEvent] = []
        for name, value in piece.items():
            if name not in {"index", "id", "type", "function"}:
                _merge(call.extra, name, value)
        if function.get("name") and not call.name:
            call.name = function["name"]
            new.append(ToolCallStarted(clean(call.id)[:256], clean(call.name)[:128]))
        if function.get("arguments"):
            call.arguments += function["arguments"]
            new.append(ToolArgumentsDelta(clean(call.id)[:256], clean(function["arguments"])))
        return new

    def _slot(self, piece: dict[str, Any]) -> _Call:
        index, given = piece.get("index"), piece.get("id")
        for call in reversed(self._calls):
            # Some servers number all calls 0, and tell them apart by their ids alone.
            same = not given or not call.given or given == call.id
            if same and (index is None or call.index == index):
                return call
        place = len(self._calls)
        new = _Call(place if index is None else index, given or self._new_id(place), bool(given))
        self._calls.append(new)
        return new

    def response(self) -> ModelResponse:
        """All of it.

        Raises:
            ModelStreamEndedError: Its end has not come.
        """
        if self._finish_reason is None:
            raise cut_off(PROVIDER, "no finish_reason")
        calls = tuple(self._tool_calls())
        refusal, text = "".join(self._refusal), "".join(self._text)
        finish = _FINISH.get(self._finish_reason, Finish.STOP)
        response = ModelResponse(
            content=_content(clean(text or refusal), clean("".join(self._reasoning))),
            tool_calls=calls,
            usage=usage_of(self._usage),
            stop_reason=self._finish_reason,
            finish=Finish.REFUSAL if refusal else finish_of(finish, calls),
        )
        return remembering(NAME, response, self._raw(), wire_answer)

    def _tool_calls(self) -> Iterator[ToolCall]:
        for call in self._calls:
            cut = self._finish_reason == "length" and call is self._calls[-1]
            yield tool_call(call.id, call.name, call.arguments, cut=cut)

    def _raw(self) -> JsonObject:
        """The answer as the provider would have given it in one piece."""
        text = "".join(self._text)
        message: JsonObject = {"role": "assistant", "content": text}
        if not text and (self._calls or self._refusal):
            message["content"] = None
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._calls:
            message["tool_calls"] = [_raw_call(call) for call in self._calls]
        return message | self._extra


def _raw_call(call: _Call) -> JsonObject:
    function: JsonObject = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function, **call.extra}


def _merge(into: JsonObject, name: str, value: Any) -> None:
    """Fields that come in pieces: texts and lists grow, all else is replaced."""
    old = into.get(name)
    if isinstance(old, str) and isinstance(value, str) and name in _REASONING:
        into[name] = old + value
    elif isinstance(old, list) and isinstance(value, list):
        into[name] = [*old, *value]
    elif isinstance(old, dict) and isinstance(value, dict):
        into[name] = old | value
    elif value is not None:
        into[name] = value


def _content(text: str, reasoning: str) -> str | list[JsonObject]:
    if not reasoning:
        return text
    shown = [parts.thinking(reasoning)]
    return [*shown, parts.text(text)] if text else shown


def usage_of(usage: object) -> Usage | None:
    """What the call used; None if the provider does not say."""
    if not isinstance(usage, dict):
        return None
    return Usage(
        input_tokens=count(usage, "prompt_tokens"),
        output_tokens=count(usage, "completion_tokens"),
        cached_read_tokens=count(usage, "prompt_tokens_details", "cached_tokens"),
        cached_write_tokens=count(usage, "prompt_tokens_details", "cache_write_tokens"),
        reasoning_tokens=count(usage, "completion_tokens_details", "reasoning_tokens"),
    )
