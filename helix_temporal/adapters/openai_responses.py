"""The items of OpenAI's Responses API: its model, messages as it takes them, and what its answer says."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import openai

from helix_temporal.adapters._answers import (
    attach_provider_raw,
    finish_of,
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
from helix_temporal.models.messages import Finish, Message, ToolCall, Usage, text_part, thinking_part

NAME: Final = "openai_responses"

_INCOMPLETE: Final = {
    "max_output_tokens": Finish.LENGTH,
    "max_messages": Finish.LENGTH,
    "content_filter": Finish.CONTENT_FILTER,
}


# -- what is sent


def wire_input(request: ModelRequest, *, breakpoints: bool = False) -> list[JsonObject]:
    """The messages as items of the provider's."""
    items: list[JsonObject] = []
    for each in prepare_outgoing(request.messages, NAME, _raw_ids):
        items += _wire_message(each, breakpoints)
    return items


def _raw_ids(raw: Any) -> Iterable[str]:
    return (item["call_id"] for item in raw if item.get("type") == "function_call")


def _wire_message(each: Outgoing, breakpoints: bool) -> list[JsonObject]:
    message = each.message
    match message.role:
        case "assistant":
            return wire_answer(message) if each.raw is None else _sendable_items(each.raw)
        case "user":
            return [{"role": "user", "content": _wire_content(message, breakpoints)}]
        case "system":
            return [{"role": "developer", "content": message.text}]
        case "tool":
            return [
                {
                    "type": "function_call_output",
                    "call_id": message.tool_call_id or "",
                    "output": _wire_content(message, breakpoints),
                }
            ]
        case _:
            return []


def _sendable_items(items: Sequence[JsonObject]) -> list[JsonObject]:
    """The provider's items without reasoning that it would refuse.

    Nothing is stored there, so that it knows reasoning only by its encrypted content; and reasoning that
    nothing follows in its answer, because that was cut, is refused, too.
    """
    last = max((at for at, item in enumerate(items) if item.get("type") != "reasoning"), default=-1)
    return [
        item
        for at, item in enumerate(items)
        if item.get("type") != "reasoning" or (at < last and item.get("encrypted_content"))
    ]


def wire_answer(message: Message) -> list[JsonObject]:
    """An answer as items, of its text and its calls."""
    items: list[JsonObject] = []
    if message.text or not message.tool_calls:
        items.append({"role": "assistant", "content": message.text})
    return items + [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": sent_name(call.name),
            "arguments": sent_arguments_text(call),
        }
        for call in message.tool_calls
    ]


def _wire_content(message: Message, breakpoints: bool) -> str | list[Any]:
    if isinstance(message.content, str):
        return message.content
    wired = ((part, _wire_part(part)) for part in message.content)
    return [new | breakpoint_of(part, breakpoints) for part, new in wired if new is not None] or ""


def _wire_part(part: JsonObject) -> JsonObject | None:
    if part.get("type") == "text":
        return {"type": "input_text", "text": str(part.get("text", ""))}
    if is_image(part):
        url = data_url(part, "image/png") or part.get("url")
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if part.get("type") == "file" and (file := _wire_file(part)) is not None:
        return file
    said = not_shown(part)
    return None if said is None else {"type": "input_text", "text": said}


def _wire_file(part: JsonObject) -> JsonObject | None:
    if part.get("data"):
        return {
            "type": "input_file",
            "filename": part.get("name") or "file",
            "file_data": data_url(part, "application/octet-stream"),
        }
    if file_id(part):
        image = str(part.get("media_type", "")).startswith("image/")
        kind: JsonObject = {"type": "input_image", "detail": "auto"} if image else {"type": "input_file"}
        return kind | {"file_id": file_id(part)}
    if part.get("url"):
        return {"type": "input_file", "file_url": part["url"]}
    return None


def wire_tools(tools: Sequence[ToolSpec]) -> list[JsonObject]:
    """The tools as the provider takes them."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": schema_of(tool),
            # Otherwise it refuses schemas with optional fields.
            "strict": False,
        }
        for tool in tools
    ]


# -- what comes back


def read_response(response: JsonObject, items: Sequence[JsonObject]) -> ModelResponse:
    """The answer in our form; ``items`` are those of it that came one by one."""
    output = response.get("output")
    raw: Any = output if isinstance(output, list) and output else list(items)
    status, reason = _status_and_reason(response)
    calls = tuple(_tool_calls_of(raw, cut=reason == "max_output_tokens"))
    refused = any(part.get("type") == "refusal" for part in _message_parts(raw))
    finish = _INCOMPLETE.get(reason, Finish.STOP)
    return attach_provider_raw(
        NAME,
        ModelResponse(
            content=_content_of_items(raw),
            tool_calls=calls,
            usage=usage_of(response.get("usage")),
            stop_reason=reason or status or None,
            finish=Finish.REFUSAL if refused else finish_of(finish, calls),
        ),
        raw,
        wire_answer,
    )


def _status_and_reason(response: JsonObject) -> tuple[str, str]:
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return str(response.get("status") or ""), str(reason or "")


def _tool_calls_of(items: Sequence[JsonObject], *, cut: bool) -> Iterator[ToolCall]:
    for at, item in enumerate(items):
        if item.get("type") == "function_call":
            last = cut and at == len(items) - 1
            yield tool_call(str(item["call_id"]), str(item["name"]), item.get("arguments", ""), cut=last)


def _message_parts(items: Sequence[JsonObject]) -> Iterator[dict[str, Any]]:
    for item in items:
        content = item.get("content")
        if item.get("type") == "message" and isinstance(content, list):
            yield from (part for part in content if isinstance(part, dict))


def _content_of_items(items: Sequence[JsonObject]) -> str | list[JsonObject]:
    text = "".join(str(part.get("text") or part.get("refusal") or "") for part in _message_parts(items))
    reasoning = "\n\n".join(each for item in items for each in _reasoning_texts(item))
    if not reasoning:
        return storable_text(text)
    shown = [thinking_part(storable_text(reasoning))]
    return [*shown, text_part(storable_text(text))] if text else shown


def _reasoning_texts(item: JsonObject) -> Iterator[str]:
    if item.get("type") != "reasoning":
        return
    for name in ("summary", "content"):
        parts = item.get(name)
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and part.get("text"):
                yield str(part["text"])


def usage_of(usage: object) -> Usage | None:
    """What the call used; None if the provider does not say."""
    if not isinstance(usage, dict):
        return None
    return Usage(
        input_tokens=token_count(usage, "input_tokens"),
        output_tokens=token_count(usage, "output_tokens"),
        cached_read_tokens=token_count(usage, "input_tokens_details", "cached_tokens"),
        cached_write_tokens=token_count(usage, "input_tokens_details", "cache_write_tokens"),
        reasoning_tokens=token_count(usage, "output_tokens_details", "reasoning_tokens"),
    )


_OURS: Final = frozenset(
    {"input", "instructions", "stream", "store", "previous_response_id", "conversation", "background"}
)
_ENCRYPTED: Final = "reasoning.encrypted_content"
_TEXT: Final = {"response.output_text.delta", "response.refusal.delta"}
_REASONING: Final = {"response.reasoning_summary_text.delta", "response.reasoning_text.delta"}
_LAST: Final = {"response.completed", "response.incomplete"}


class OpenAIResponsesModel(OpenAIModel):
    """A model that streams, by the Responses API.

    The provider stores nothing: each request has the whole context, with the model's reasoning encrypted
    as it came.  Repeating is left to Temporal: the client's own retries are off.  Keys are read by the
    client, in the worker, and are in no request of ours.

    Args:
        model: Its name, such as ``gpt-5``.
        client: Your own, with key and address, ``openai.AsyncAzureOpenAI`` among them; otherwise one is
            made at the first call, from ``OPENAI_API_KEY`` and the other variables that the library reads.
        cache_by: Whose requests share a ``prompt_cache_key``; ``None`` to leave it out.
        cache_breakpoints: Parts with ``"cache": true`` end a cached beginning; only for models that take
            explicit breakpoints.
        options: Further fields of a request, such as ``reasoning``, ``text``, ``max_output_tokens``,
            ``extra_body``; ``tools`` and ``include`` come after ours.

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
        include = dict.fromkeys([_ENCRYPTED, *options.get("include", ())])
        fields = {"model": model, **options, "include": [*include], "store": False}
        super().__init__(client, options, _OURS, fields, cache_by)
        self._breakpoints = cache_breakpoints

    def _streaming_method(
        self, client: openai.AsyncOpenAI
    ) -> Callable[..., AbstractAsyncContextManager[Any]]:
        return client.responses.with_streaming_response.create

    def _create_answer(self, request: ModelRequest) -> "_Answer":  # noqa: ARG002 (all answers are read alike)
        return _Answer()

    def _message_fields(self, request: ModelRequest) -> dict[str, Any]:
        said: dict[str, Any] = {"input": wire_input(request, breakpoints=self._breakpoints)}
        return said | ({"instructions": request.instructions} if request.instructions else {})

    def _tool_definitions(self, request: ModelRequest) -> list[JsonObject]:
        return wire_tools(request.tools)


class _Answer:
    """An answer that comes as events."""

    def __init__(self) -> None:
        self._last: JsonObject | None = None
        self._items: dict[int, JsonObject] = {}
        self._calls: dict[object, str] = {}

    def build_response(self) -> ModelResponse:
        """The whole answer.

        Raises:
            ModelStreamEndedError: The provider's last word has not come.
        """
        if self._last is None:
            raise cut_off(PROVIDER, "no response.completed")
        return read_response(self._last, [self._items[at] for at in sorted(self._items)])

    def add_event(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """Take an event; what is new in it.

        Raises:
            HelixError: It says that the call has failed.
        """
        kind = event.get("type")
        if kind in _LAST:
            self._last = event["response"]
        elif kind == "response.failed":
            raise told_error(event["response"].get("error"))
        elif kind == "error" or event.get("error"):
            raise told_error(event.get("error") or event)
        elif kind == "response.output_item.done":
            self._items[event.get("output_index", len(self._items))] = event["item"]
        elif kind == "response.output_item.added":
            yield from self._start_call(event)
        else:
            yield from self._read_delta(event)

    def _read_delta(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        kind = event.get("type")
        if kind in _TEXT:
            yield TextDelta(storable_text(event["delta"]))
        elif kind in _REASONING:
            yield ReasoningDelta(storable_text(event["delta"]))
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            yield ReasoningDelta("\n\n")
        elif kind == "response.function_call_arguments.delta":
            call = self._calls.get(event.get("output_index"))
            if call is not None:
                yield ToolArgumentsDelta(call, storable_text(event["delta"]))

    def _start_call(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        item = event["item"]
        if item.get("type") == "function_call":
            call = storable_text(str(item["call_id"]))[:256]
            self._calls[event.get("output_index")] = call
            yield ToolCallStarted(call, storable_text(str(item["name"]))[:128])
