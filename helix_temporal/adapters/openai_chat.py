"""OpenAI's chat format: its model, and messages as it takes them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import openai

from helix_temporal.adapters._answers import (
    attach_provider_raw,
    finish_of,
    made_id,
    sent_arguments_text,
    sent_name,
    tool_call,
)
from helix_temporal.adapters._http import cut_off
from helix_temporal.adapters._messages import Outgoing, prepare_outgoing
from helix_temporal.adapters._openai import (
    PROVIDER,
    CacheBy,
    OpenAIModel,
    breakpoint_of,
    data_url,
    file_id,
    is_image,
    not_shown,
    schema_of,
    token_count,
    told_error,
)
from helix_temporal.models import messages
from helix_temporal.models.agents import (
    ModelEvent,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolSpec,
)
from helix_temporal.models.base import JsonObject, storable_text
from helix_temporal.models.messages import Finish, Message, ToolCall, Usage

NAME: Final = "openai_chat"

_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def wire_messages(request: ModelRequest, *, breakpoints: bool = False) -> list[JsonObject]:
    """The instructions and the messages as the provider takes them."""
    sent: list[JsonObject] = []
    if request.instructions:
        sent.append({"role": "system", "content": request.instructions})
    attached: list[JsonObject] = []
    for each in prepare_outgoing(request.messages, NAME, _raw_ids):
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
class _ChatCall:
    """A tool call as far as it has come; ``given``: its id is the provider's."""

    index: int
    id: str
    given: bool
    name: str = ""
    arguments: str = ""
    extra: JsonObject = field(default_factory=dict)


class ChatAnswer:
    """An answer that comes in pieces: each tells what is new, and at the end there is all of it."""

    def __init__(self, new_id: Callable[[int], str]) -> None:
        self._new_id = new_id
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._extra: JsonObject = {}
        self._calls: list[_ChatCall] = []
        self._usage: object = None
        self._finish_reason: str | None = None

    def add_event(self, chunk: JsonObject) -> list[ModelEvent]:
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
            return [TextDelta(storable_text(value))] if value else []
        _merge_field(self._extra, name, value)
        return []

    def _add_reasoning(self, delta: JsonObject) -> list[ModelEvent]:
        # Some servers tell the same reasoning under both names, while clients move from one to the other.
        told = [value for name in _REASONING if isinstance(value := delta.get(name), str) and value]
        for name in _REASONING:
            if delta.get(name):
                _merge_field(self._extra, name, delta[name])
        if not told:
            return []
        self._reasoning.append(told[0])
        return [ReasoningDelta(storable_text(told[0]))]

    def _add_call(self, piece: dict[str, Any]) -> list[ModelEvent]:
        call = self._find_or_add_call(piece)
        function = piece.get("function") or {}
        new: list[ModelEvent] = []
        for name, value in piece.items():
            if name not in {"index", "id", "type", "function"}:
                _merge_field(call.extra, name, value)
        if function.get("name") and not call.name:
            call.name = function["name"]
            new.append(ToolCallStarted(storable_text(call.id)[:256], storable_text(call.name)[:128]))
        if function.get("arguments"):
            call.arguments += function["arguments"]
            new.append(ToolArgumentsDelta(storable_text(call.id)[:256], storable_text(function["arguments"])))
        return new

    def _find_or_add_call(self, piece: dict[str, Any]) -> _ChatCall:
        index, given = piece.get("index"), piece.get("id")
        for call in reversed(self._calls):
            # Some servers number all calls 0, and tell them apart by their ids alone.
            same = not given or not call.given or given == call.id
            if same and (index is None or call.index == index):
                return call
        place = len(self._calls)
        new = _ChatCall(place if index is None else index, given or self._new_id(place), bool(given))
        self._calls.append(new)
        return new

    def build_response(self) -> ModelResponse:
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
            content=_answer_content(storable_text(text or refusal), storable_text("".join(self._reasoning))),
            tool_calls=calls,
            usage=usage_of(self._usage),
            stop_reason=self._finish_reason,
            finish=Finish.REFUSAL if refusal else finish_of(finish, calls),
        )
        return attach_provider_raw(NAME, response, self._provider_raw(), wire_answer)

    def _tool_calls(self) -> Iterator[ToolCall]:
        for call in self._calls:
            cut = self._finish_reason == "length" and call is self._calls[-1]
            yield tool_call(call.id, call.name, call.arguments, cut=cut)

    def _provider_raw(self) -> JsonObject:
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


def _raw_call(call: _ChatCall) -> JsonObject:
    function: JsonObject = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function, **call.extra}


def _merge_field(into: JsonObject, name: str, value: Any) -> None:
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


def _answer_content(text: str, reasoning: str) -> str | list[JsonObject]:
    if not reasoning:
        return text
    shown = [messages.thinking_part(reasoning)]
    return [*shown, messages.text_part(text)] if text else shown


def usage_of(usage: object) -> Usage | None:
    """What the call used; None if the provider does not say."""
    if not isinstance(usage, dict):
        return None
    return Usage(
        input_tokens=token_count(usage, "prompt_tokens"),
        output_tokens=token_count(usage, "completion_tokens"),
        cached_read_tokens=token_count(usage, "prompt_tokens_details", "cached_tokens"),
        cached_write_tokens=token_count(usage, "prompt_tokens_details", "cache_write_tokens"),
        reasoning_tokens=token_count(usage, "completion_tokens_details", "reasoning_tokens"),
    )


_OURS: Final = frozenset({"messages", "stream", "n", "max_retries"})


class OpenAIChatModel(OpenAIModel):
    """A model that streams, by the Chat Completions API.

    Repeating is left to Temporal: the client's own retries are off.  Keys are read by the client, in the
    worker, and are in no request of ours.

    Args:
        model: Its name, such as ``gpt-5``.
        client: Your own, with key and address, ``openai.AsyncAzureOpenAI`` among them; otherwise one is
            made at the first call, from ``OPENAI_API_KEY`` and the other variables that the library reads.
        cache_by: Whose requests share a ``prompt_cache_key``; ``None`` for servers that refuse the field.
        cache_breakpoints: Parts with ``"cache": true`` end a cached beginning; only for models that take
            explicit breakpoints.
        options: Further fields of a request, such as ``temperature``, ``reasoning_effort``,
            ``max_completion_tokens``, ``extra_body``; ``tools`` come after the agent's.

    Raises:
        InvalidConfigError: ``options`` has a field that the adapter itself fills in.
    """

    adapter = NAME

    def __init__(
        self,
        model: str,
        client: openai.AsyncOpenAI | None = None,
        *,
        cache_by: CacheBy | None = "session",
        cache_breakpoints: bool = False,
        **options: Any,
    ) -> None:
        fields = {"model": model, "stream_options": {"include_usage": True}, **options}
        super().__init__(client, options, _OURS, fields, cache_by)
        self._breakpoints = cache_breakpoints

    def _streaming_method(
        self, client: openai.AsyncOpenAI
    ) -> Callable[..., AbstractAsyncContextManager[Any]]:
        return client.chat.completions.with_streaming_response.create

    def _create_answer(self, request: ModelRequest) -> ChatAnswer:
        return ChatAnswer(lambda place: made_id(request, place))

    def _message_fields(self, request: ModelRequest) -> dict[str, Any]:
        return {"messages": wire_messages(request, breakpoints=self._breakpoints)}

    def _tool_definitions(self, request: ModelRequest) -> list[JsonObject]:
        return wire_tools(request.tools)
