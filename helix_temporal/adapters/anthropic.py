"""Anthropic's Messages API: `AnthropicModel`, and our messages in its form."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal
from urllib.parse import quote

import anthropic
from anthropic.resources import AsyncMessages

from helix_temporal.adapters._answers import (
    attach_provider_raw,
    finish_of,
    from_json,
    sent_arguments,
    sent_name,
    tool_call,
)
from helix_temporal.adapters._http import (
    cut_off,
    error_for_connection_failure,
    error_for_status,
    refuse_own_options,
    server_events,
)
from helix_temporal.adapters._messages import Outgoing, decode_base64_text, prepare_outgoing
from helix_temporal.errors import HelixError, InvalidConfigError
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

NAME: Final = "anthropic"

MAX_MARKS: Final = 4
"""Places up to which one request may ask for the prompt to be cached."""

Block = dict[str, Any]

_BEGAN: Final = "(The beginning of this conversation is not shown.)"
_IMAGES: Final = {"image/jpeg", "image/png", "image/gif", "image/webp"}
_FAILED: Final = "The tool failed."
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml")


def request_fields(request: ModelRequest, cache: dict[str, Any] | None) -> dict[str, Any]:
    """``system``, ``messages`` and ``tools`` of a request.

    Args:
        request: What is asked.
        cache: How marks that the adapter sets by itself look; None sets none.
    """
    messages = messages_of(request.messages)
    system = [_text_block(text) for text in _system_texts(request) if text.strip()]
    tools = [_tool_definition(spec) for spec in request.tools]
    if cache is not None:
        _mark_usual(system, tools, messages, cache)
    _keep_newest_marks([*tools, *system], messages)
    fields: dict[str, Any] = {"messages": messages}
    if system:
        fields["system"] = system
    if tools:
        fields["tools"] = tools
    return fields


def messages_of(messages: Sequence[Message]) -> list[Block]:
    """The messages in turns of user and assistant; Anthropic's own answers exactly as they came."""
    given: list[Block] = []
    for each in prepare_outgoing(messages, NAME, call_ids):
        if each.message.role == "assistant":
            blocks = answer_blocks(each.message) if each.raw is None else each.raw
            role = "assistant"
        else:
            blocks = list(_user_blocks(each.message)) if each.raw is None else _own_user_blocks(each)
            role = "user"
        if not blocks:
            continue
        if given and given[-1]["role"] == role:
            given[-1]["content"] += blocks
        else:
            given.append({"role": role, "content": blocks})
    if given and given[0]["role"] == "assistant":
        given.insert(0, {"role": "user", "content": [_text_block(_BEGAN)]})
    return given


def call_ids(raw: Any) -> list[str]:
    """The ids of the calls in an answer's blocks."""
    return [block["id"] for block in raw if block.get("type") == "tool_use"]


def answer_blocks(message: Message) -> list[Block]:
    """An answer from its canonical form: text, then calls; reasoning is not shown to another model."""
    # Without marks of the cache: those are counted in turns of the user alone.
    blocks = [_text_block(block["text"]) for block in _content_blocks(message) if block["type"] == "text"]
    return blocks + [
        {"type": "tool_use", "id": call.id, "name": sent_name(call.name), "input": sent_arguments(call)}
        for call in message.tool_calls
    ]


def _own_user_blocks(each: Outgoing) -> list[Block]:
    """Blocks of an archive of Anthropic's own, as they came; but empty text is refused."""
    blocks = [block for block in each.raw if block.get("type") != "text" or block["text"].strip()]
    if each.message.role == "tool":
        blocks = [block | {"tool_use_id": each.message.tool_call_id} for block in blocks]
    return blocks


def _user_blocks(message: Message) -> Iterator[Block]:
    if message.role == "user":
        yield from _content_blocks(message)
    elif message.role == "tool":
        result: Block = {"type": "tool_result", "tool_use_id": message.tool_call_id}
        content = list(_content_blocks(message))
        marks = [block.pop("cache_control") for block in content if "cache_control" in block]
        if message.is_error:
            # A failure that says nothing is refused.
            content = content or [_text_block(_FAILED)]
            result["is_error"] = True
        if content:
            result["content"] = content
        if marks:
            # Not within the result, where it does not count.
            result["cache_control"] = marks[-1]
        yield result


def _content_blocks(message: Message) -> Iterator[Block]:
    parts = message.content
    if isinstance(parts, str):
        parts = [{"type": "text", "text": parts}]
    for part in parts:
        block = _block_of_part(part)
        # Empty text is refused.
        if block is None or (block["type"] == "text" and not block["text"].strip()):
            continue
        if part.get("cache") is True:
            block["cache_control"] = {"type": "ephemeral"}
        yield block


def _block_of_part(part: Block) -> Block | None:
    kind = part.get("type")
    if kind == "text":
        return _text_block(str(part.get("text", "")))
    if kind not in {"image", "file"}:
        return None
    source = _source_of_part(part)
    if source is None:
        return None
    media_type = str(part.get("media_type", ""))
    if kind == "image" or media_type.startswith("image/"):
        readable = source["type"] != "base64" or media_type in _IMAGES
        return {"type": "image", "source": source} if readable else _placeholder_block(part)
    return _document_block(part, source, media_type)


def _document_block(part: Block, source: Block, media_type: str) -> Block:
    if source["type"] == "base64" and media_type.startswith(_TEXTS):
        text = decode_base64_text(source["data"])
        if text is None or not text.strip():
            return _placeholder_block(part)
        source = {"type": "text", "media_type": "text/plain", "data": text}
    elif source["type"] != "file" and media_type not in {"application/pdf", ""}:
        return _placeholder_block(part)
    block: Block = {"type": "document", "source": source}
    return block | {"title": part["name"]} if part.get("name") else block


def _placeholder_block(part: Block) -> Block:
    said = [str(part[name]) for name in ("name", "media_type", "url") if part.get(name)]
    return _text_block(f"({', '.join(said) or 'a file'}: can't be shown to this model.)")


def _source_of_part(part: Block) -> Block | None:
    if part.get("file_id"):
        return {"type": "file", "file_id": part["file_id"]}
    if part.get("url"):
        return {"type": "url", "url": part["url"]}
    if part.get("data"):
        return {"type": "base64", "media_type": part.get("media_type", ""), "data": part["data"]}
    return None


def _text_block(text: str) -> Block:
    return {"type": "text", "text": text}


def _system_texts(request: ModelRequest) -> Iterator[str]:
    yield request.instructions
    for message in request.messages:
        if message.role == "system":
            yield message.text


def _tool_definition(spec: ToolSpec) -> Block:
    tool: Block = {"name": spec.name}
    if spec.description:
        tool["description"] = spec.description
    return tool | {"input_schema": {"type": "object"} | spec.parameters}


# -- caching


def _mark_usual(
    system: Sequence[Block], tools: Sequence[Block], messages: Sequence[Block], cache: Block
) -> None:
    """Mark what comes before the conversation, its newest end, and the end that the last call had."""
    before = system or tools
    users = [each["content"][-1] for each in messages if each["role"] == "user"]
    for block in [*before[-1:], *users[-2:]]:
        block.setdefault("cache_control", dict(cache))


def _keep_newest_marks(before: Iterable[Block], messages: Iterable[Block]) -> None:
    """Take away the oldest marks of the conversation where there are too many; those before it stay."""
    first = sum("cache_control" in block for block in before)
    marked = [
        block
        for each in messages
        if each["role"] == "user"
        for block in each["content"]
        if "cache_control" in block
    ]
    spare = max(0, MAX_MARKS - first)
    for block in marked[: max(0, len(marked) - spare)]:
        del block["cache_control"]


PAUSED: Final = "pause_turn"
"""The provider's own tools have run long: the same request is to be sent again, with the answer so far."""

_FINISH: Final = {
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    # An answer that was continued as often as it may be, and is not whole.
    PAUSED: Finish.LENGTH,
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


class AnthropicAnswer:
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

    def begin_stream(self) -> None:
        """A stream begins; its blocks follow those that are there."""
        self._before = len(self.blocks)
        self._counts = {}
        self._ended, self.stop_reason = False, None

    def add_event(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """Take in one event; what it adds that somebody may want to see.

        Raises:
            HelixError: It says that the call has failed.
        """
        kind = event.get("type")
        if kind == "content_block_start":
            yield from self._start_block(event["content_block"])
        elif kind == "content_block_delta":
            yield from self._add_delta(self._before + event["index"], event["delta"])
        elif kind == "message_start":
            self._update_token_counts(event["message"].get("usage"))
        elif kind == "message_delta":
            self.stop_reason = event["delta"].get("stop_reason")
            self._update_token_counts(event.get("usage"))
        elif kind == "message_stop":
            self._ended = True
        elif kind == "error":
            word = (event.get("error") or {}).get("type")
            raise error_for_status("Anthropic", _STATUS.get(str(word), 500), word)

    def end_stream(self) -> None:
        """The stream has ended.

        Raises:
            ModelStreamEndedError: Its answer has not.
        """
        if not self._ended:
            raise cut_off("Anthropic", "no message_stop")
        self._usage = self._usage + _usage_of_counts(self._counts)
        for at in range(self._before, len(self.blocks)):
            if at in self._arguments:
                self.blocks[at]["input"] = _parse_tool_input(
                    "".join(self._arguments[at]), self.blocks[at].get("input")
                )

    def build_response(self) -> ModelResponse:
        """The answer in our form."""
        calls = tuple(self._tool_calls())
        finish = _FINISH.get(self.stop_reason or "", Finish.STOP)
        response = ModelResponse(
            content=_answer_content(self.blocks),
            tool_calls=calls,
            usage=self._usage,
            stop_reason=self.stop_reason,
            finish=finish_of(finish, calls),
        )
        return attach_provider_raw(NAME, response, list(self.blocks), answer_blocks)

    def _start_block(self, block: dict[str, Any]) -> Iterator[ModelEvent]:
        at = len(self.blocks)
        self.blocks.append(block)
        if "input" in block:
            self._arguments[at] = []
        if block.get("type") == "tool_use":
            yield ToolCallStarted(block["id"], block["name"])

    def _add_delta(self, at: int, delta: dict[str, Any]) -> Iterator[ModelEvent]:
        block, kind = self.blocks[at], delta.get("type", "")
        if kind in _GROWS:
            name = _GROWS[kind]
            block[name] = (block.get(name) or "") + delta[name]
            if kind == "text_delta":
                yield TextDelta(storable_text(delta[name]))
            elif kind == "thinking_delta":
                yield ReasoningDelta(storable_text(delta[name]))
        elif kind == "input_json_delta":
            self._arguments.setdefault(at, []).append(delta["partial_json"])
            if block.get("type") == "tool_use" and delta["partial_json"]:
                yield ToolArgumentsDelta(block["id"], storable_text(delta["partial_json"]))
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]

    def _tool_calls(self) -> Iterator[ToolCall]:
        last = len(self.blocks) - 1
        for at, block in enumerate(self.blocks):
            if block.get("type") == "tool_use":
                given = "".join(self._arguments.get(at, [])) or block["input"]
                cut = at == last and self.stop_reason in {"max_tokens", "model_context_window_exceeded"}
                yield tool_call(block["id"], block["name"], given, cut=cut)

    def _update_token_counts(self, usage: dict[str, Any] | None) -> None:
        self._counts |= {name: value for name, value in (usage or {}).items() if value is not None}


def _parse_tool_input(text: str, at_start: Any) -> Any:
    """What the pieces say; what is no JSON object goes back in one, as the provider asks for it."""
    if not text:
        return at_start
    try:
        value = from_json(text)
    except (ValueError, RecursionError):
        return {"INVALID_JSON": storable_text(text)}
    return value if isinstance(value, dict) else {"INVALID_JSON": storable_text(text)}


def _answer_content(blocks: Sequence[dict[str, Any]]) -> str | list[JsonObject]:
    """Text alone is text; reasoning stands before it as a part of its own."""
    found: list[JsonObject] = []
    for block in blocks:
        if block.get("type") == "text" and block["text"]:
            found.append(messages.text_part(storable_text(block["text"])))
        elif block.get("type") == "thinking" and block["thinking"]:
            found.append(messages.thinking_part(storable_text(block["thinking"])))
    if not found:
        return ""
    if len(found) == 1 and found[0]["type"] == "text":
        return str(found[0]["text"])
    return found


def _usage_of_counts(counts: dict[str, Any]) -> Usage:
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


_CONNECT_SECONDS: Final = 15.0
_MOST_PAUSES: Final = 16
_OURS: Final = frozenset({"messages", "system", "stream", "max_retries", "timeout"})


class AnthropicModel:
    """A Claude model that streams.

    Repeating is left to Temporal: the client's own retries are off.  Keys are read by the client, in the
    worker, and are in no request of ours.

    Args:
        model: Its name, such as ``claude-sonnet-4-5``.
        client: Your own, with key and address; otherwise one is made at the first call, from
            ``ANTHROPIC_API_KEY`` and the other variables that the library reads.  Bedrock's client streams
            in a format of its own: use `LangChainModel` there.
        max_tokens: Most tokens of one answer, reasoning included.
        cache: ``auto`` asks for the prompt to be cached up to the instructions and up to the newest
            messages; ``None`` only up to parts with ``"cache": true``.
        cache_ttl: How long what ``auto`` marks is kept.
        options: Further fields of a request, such as ``thinking``, ``temperature``, ``tool_choice``,
            ``extra_headers``; ``tools`` come after the agent's.

    Raises:
        InvalidConfigError: ``options`` has a field that the adapter itself fills in.
    """

    adapter: Final = NAME

    def __init__(
        self,
        model: str,
        client: anthropic.AsyncAnthropic | None = None,
        *,
        max_tokens: int = 8192,
        cache: Literal["auto"] | None = "auto",
        cache_ttl: Literal["5m", "1h"] = "5m",
        **options: Any,
    ) -> None:
        refuse_own_options("AnthropicModel", _OURS, options)
        self._fields = {"model": model, "max_tokens": max_tokens, **options}
        self._given, self._client = client, None if client is None else _without_retries(client)
        self._cache: dict[str, Any] | None = None
        if cache == "auto":
            self._cache = {"type": "ephemeral"} | ({"ttl": cache_ttl} if cache_ttl != "5m" else {})

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Text, reasoning and calls as they come, and the whole answer last.

        Raises:
            ModelRateLimitedError: Asked to slow down.
            ModelUnavailableError: No answer, or a failure of the provider's.
            ModelStreamEndedError: The stream broke off.
            ModelRequestError: Refused: key, model or input must be mended.
            InvalidConfigError: There is no key, or an option that the library can't send.
        """
        fields = self._build_request(request)
        answer = AnthropicAnswer()
        for hop in range(_MOST_PAUSES):
            answer.begin_stream()
            async with aclosing(
                self._stream_events(_with_idempotency_key(request.step_key, hop, fields))
            ) as events:
                async for event in events:
                    for each in answer.add_event(event):
                        yield each
            answer.end_stream()
            if answer.stop_reason != PAUSED:
                break
            fields = _with_partial_answer(fields, answer)
        yield answer.build_response()

    async def aclose(self) -> None:
        """Close the connections of the client that the adapter made; one that was given stays open."""
        if self._given is None and self._client is not None:
            await self._client.close()
            self._client = None

    def _build_request(self, request: ModelRequest) -> dict[str, Any]:
        fields = self._fields | request_fields(request, self._cache)
        more = self._fields.get("tools")
        if more:
            fields["tools"] = [*(fields["tools"] if request.tools else []), *more]
        if not _may_think(fields):
            del fields["thinking"]
        return fields

    async def _stream_events(self, fields: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        response = await self._send_request(fields)
        try:
            async with aclosing(server_events("Anthropic", response.aiter_bytes())) as events:
                async for event in events:
                    yield event.parse_json("Anthropic")
        finally:
            await response.aclose()

    async def _send_request(self, fields: Mapping[str, Any]) -> Any:
        """The response, its body still to come: what the library makes of that is not exactly what came."""
        try:
            if self._client is None:
                self._client = _without_retries(
                    anthropic.AsyncAnthropic(timeout=anthropic.Timeout(None, connect=_CONNECT_SECONDS))
                )
            stream = await self._client.messages.create(stream=True, **_as_known(fields))
        except (anthropic.AnthropicError, TypeError, ValueError) as error:
            # Without a key the library raises TypeError; with one that is no ASCII, ValueError.
            raise _convert_error(error) from None
        return stream.response


def _without_retries(client: anthropic.AsyncAnthropic) -> anthropic.AsyncAnthropic:
    return client.with_options(max_retries=0)


def _as_known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The library's arguments; fields of the API that this version of it does not name go as they are."""
    parameters = inspect.signature(AsyncMessages.create).parameters
    more = {name: value for name, value in fields.items() if name not in parameters}
    given = {name: value for name, value in fields.items() if name in parameters}
    return given | ({"extra_body": {**more, **given.get("extra_body", {})}} if more else {})


def _may_think(fields: Mapping[str, Any]) -> bool:
    """Within a turn that another model began, reasoning can't be asked for: it must come first there."""
    thinking = fields.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return True
    for message in reversed(fields["messages"]):
        kinds = {block["type"] for block in message["content"]}
        if message["role"] == "user" and "tool_result" not in kinds:
            break
        if message["role"] == "assistant" and not kinds & {"thinking", "redacted_thinking"}:
            return False
    return True


def _with_idempotency_key(step_key: str, hop: int, fields: dict[str, Any]) -> dict[str, Any]:
    """The request with its key, unless the options give one; going on with an answer is another request."""
    if not step_key:
        return fields
    # Ids may hold what no header can.
    key = quote(step_key, safe="/") + (f"/{hop}" if hop else "")
    return {**fields, "extra_headers": {"Idempotency-Key": key} | fields.get("extra_headers", {})}


def _with_partial_answer(fields: dict[str, Any], answer: AnthropicAnswer) -> dict[str, Any]:
    """The same request, with the answer so far."""
    sent = fields["messages"]
    if sent[-1]["role"] == "assistant":
        sent = sent[:-1]
    return {**fields, "messages": [*sent, {"role": "assistant", "content": list(answer.blocks)}]}


def _convert_error(error: Exception) -> HelixError:
    if isinstance(error, anthropic.APIStatusError):
        body = error.body if isinstance(error.body, dict) else {}
        inner = body.get("error")
        word = inner.get("type") if isinstance(inner, dict) else None
        return error_for_status("Anthropic", error.status_code, word, error.response.headers)
    if isinstance(error, anthropic.APIConnectionError):
        return error_for_connection_failure("Anthropic", error.__cause__ or error)
    return InvalidConfigError(
        f"the library of Anthropic does not send the request: {type(error).__name__}; give a client with a "
        "key or set ANTHROPIC_API_KEY in the worker, and check the options"
    )
