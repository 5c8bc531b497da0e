"""LangChain's chat models: `LangChainModel`, our messages as LangChain's, and its answers as ours."""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_chunk_to_message,
)
from langchain_core.messages import ToolCall as TheirCall

from helix_temporal.adapters._answers import (
    as_json,
    attach_provider_raw,
    finish_of,
    sent_arguments,
    sent_name,
    tool_call,
)
from helix_temporal.adapters._http import cut_off, error_for_connection_failure, error_for_status
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

_ENDS: Final = {
    Finish.LENGTH: {
        "length",
        "max_tokens",
        "max_output_tokens",
        "model_length",
        "model_context_window_exceeded",
    },
    Finish.CONTENT_FILTER: {
        "content_filter",
        "content_filtered",
        "guardrail_intervened",
        "safety",
        "recitation",
        "blocklist",
        "prohibited_content",
        "spii",
    },
    Finish.REFUSAL: {"refusal"},
}
_NAMES: Final = ("stop_reason", "finish_reason", "done_reason", "stopReason", "status")
"""Where the packages for LangChain say why a model stopped."""
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml")


# -- to LangChain


def messages_of(request: ModelRequest, adapter: str, *, marks: bool) -> list[BaseMessage]:
    """The request's messages; this model's own answers exactly as they came.

    ``marks``: the provider takes marks of the cache at parts.
    """
    notes = [each.text for each in request.messages if each.role == "system"]
    system = "\n\n".join(text for text in (request.instructions, *notes) if text.strip())
    first: list[BaseMessage] = [SystemMessage(system)] if system else []
    each = prepare_outgoing(request.messages, adapter, call_ids)
    return first + [found for one in each if (found := _convert_message(one, marks)) is not None]


def call_ids(raw: Any) -> list[str]:
    """The ids of the calls in an answer that was kept."""
    return [call["id"] for call in raw.get("tool_calls", ())]


def _convert_message(sent: Outgoing, marks: bool) -> BaseMessage | None:
    message = sent.message
    if message.role == "assistant":
        return AIMessage(**sent.raw) if sent.raw is not None else _convert_answer(message)
    if message.role == "user":
        return HumanMessage(**(sent.raw or {"content": _convert_content(message, marks)}))
    if message.role == "tool":
        return ToolMessage(
            **(sent.raw or {"content": _convert_content(message, marks)}),
            tool_call_id=message.tool_call_id or "",
            name=message.name,
            status="error" if message.is_error else "success",
        )
    return None


def _convert_answer(message: Message) -> AIMessage:
    return AIMessage(
        message.text, tool_calls=[_their_call(call, sent_name(call.name)) for call in message.tool_calls]
    )


def _their_call(call: ToolCall, name: str | None = None) -> TheirCall:
    return TheirCall(name=name or call.name, args=sent_arguments(call), id=call.id, type="tool_call")


def _convert_content(message: Message, marks: bool) -> Any:
    if isinstance(message.content, str):
        return message.content
    blocks: list[JsonObject] = []
    for part in message.content:
        block = _block_of_part(part)
        if block is not None:
            if marks and part.get("cache") is True:
                block["cache_control"] = {"type": "ephemeral"}
            blocks.append(block)
    return blocks


def _block_of_part(part: Mapping[str, Any]) -> JsonObject | None:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": part.get("text", "")}
    if kind not in {"image", "file"}:
        return None
    media_type = str(part.get("media_type", ""))
    block: JsonObject = {"type": "image" if media_type.startswith("image/") else kind}
    if part.get("file_id"):
        return block | {"file_id": part["file_id"]}
    if part.get("url"):
        return block | {"url": part["url"]}
    text = decode_base64_text(part.get("data")) if media_type.startswith(_TEXTS) else None
    name = str(part.get("name") or "file")
    if text is not None:
        # Few providers take texts as files.
        return {"type": "text", "text": f"{name}:\n{text}"}
    if not part.get("data"):
        return None
    block |= {"base64": part["data"], "mime_type": media_type}
    return block if block["type"] == "image" else block | {"filename": name}


# -- from LangChain


def stop_reason_of(message: AIMessage) -> str | None:
    """Why the model stopped, in its provider's words; None if it has not said."""
    said = message.response_metadata
    details = said.get("incomplete_details")
    if isinstance(details, dict) and details.get("reason"):
        return str(details["reason"])
    return next((str(said[name]) for name in _NAMES if said.get(name)), None)


def finish_of_message(message: AIMessage) -> Finish:
    """The same in our words."""
    if message.additional_kwargs.get("refusal"):
        return Finish.REFUSAL
    word = (stop_reason_of(message) or "").lower()
    return next((finish for finish, words in _ENDS.items() if word in words), Finish.STOP)


def response_of(message: AIMessage, calls: Sequence[ToolCall], adapter: str) -> ModelResponse:
    """The answer in our form; ``calls`` are its calls as they are to be stored."""
    response = ModelResponse(
        content=_content_of_answer(message),
        tool_calls=tuple(calls),
        usage=_usage_of_message(message),
        stop_reason=stop_reason_of(message),
        finish=finish_of(finish_of_message(message), calls),
    )
    return attach_provider_raw(adapter, response, _provider_raw(message, calls), lambda _: None)


def _provider_raw(message: AIMessage, calls: Sequence[ToolCall]) -> Any:
    """All of the message that another request may need; what could not be read goes back as an object."""
    raw = message.model_dump(mode="json", exclude_defaults=True, exclude={"usage_metadata", "type"})
    raw.pop("invalid_tool_calls", None)
    if message.invalid_tool_calls:
        raw.get("additional_kwargs", {}).pop("tool_calls", None)
    if calls:
        raw["tool_calls"] = [dict(_their_call(call)) for call in calls]
    # As JSON once, so that nothing is found out only when a store reads it.
    as_json(raw)
    return raw


def _content_of_answer(message: AIMessage) -> str | list[JsonObject]:
    found = list(_standard_parts(message))
    if all(part["type"] == "text" for part in found):
        return "".join(str(part["text"]) for part in found) or _refusal_text(message)
    return found


def _refusal_text(message: AIMessage) -> str:
    return storable_text(str(message.additional_kwargs.get("refusal") or ""))


def _standard_parts(message: AIMessage) -> Iterator[JsonObject]:
    for block in message.content_blocks:
        if block["type"] == "text" and block.get("text"):
            yield messages.text_part(storable_text(block["text"]))
        elif block["type"] == "reasoning" and (thought := block.get("reasoning")):
            yield messages.thinking_part(storable_text(thought))
        elif block["type"] == "image":
            yield messages.image_part(
                media_type=block.get("mime_type") or "", data=block.get("base64"), url=block.get("url")
            )


def _usage_of_message(message: AIMessage) -> Usage | None:
    used: Mapping[str, Any] | None = message.usage_metadata
    if used is None:
        return None
    into: dict[str, Any] = dict(used.get("input_token_details") or {})
    written = sum(
        int(count) for name, count in into.items() if name.startswith(("cache_creation", "ephemeral_"))
    )
    return Usage(
        input_tokens=used.get("input_tokens", 0),
        output_tokens=used.get("output_tokens", 0),
        cached_read_tokens=into.get("cache_read") or 0,
        cached_write_tokens=written,
        reasoning_tokens=(used.get("output_token_details") or {}).get("reasoning") or 0,
    )


_log = logging.getLogger(__name__)

_LIBRARIES: Final = {"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "requests", "urllib3", "anyio"}
"""What they raise means that the provider could not be reached, or went away."""


class LangChainModel:
    """A chat model of LangChain that streams, if it can.

    Repeating is left to Temporal: retries of the provider's library are off, where the model has the
    usual setting ``max_retries``.  Answers come back to the model as the messages that it gave, with all
    additional fields and metadata; another class of model gets them in our form.

    Args:
        chat_model: Such as ``ChatAnthropic`` or ``ChatOpenAI``; it is copied, and keeps its keys.  Where
            a model counts tokens of streams only when asked (``stream_usage``), ask it to.
        options: Given with each call, such as ``tool_choice`` or ``stop``.

    Raises:
        InvalidConfigError: ``chat_model`` is no chat model; of one with bound options or retries, give
            the model and the options.
    """

    def __init__(self, chat_model: BaseChatModel, **options: Any) -> None:
        if not isinstance(chat_model, BaseChatModel):
            raise InvalidConfigError(
                f"LangChainModel: a BaseChatModel expected, got {type(chat_model).__name__}; "
                "give the model itself, and options as options"
            )
        self._model, self._options = _without_retries(chat_model), options
        self._kind = str(getattr(chat_model, "_llm_type", type(chat_model).__name__))
        self.adapter = f"langchain/{self._kind}"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Text, reasoning and calls as they come, and the whole answer last.

        Raises:
            ModelRateLimitedError: Asked to slow down.
            ModelUnavailableError: No answer, or a failure that nobody knows; the worker's log has it.
            ModelStreamEndedError: The stream broke off.
            ModelRequestError: Refused: key, model or input must be mended.
        """
        calls = _StreamedCalls()
        pieces: list[Any] = []
        try:
            async with aclosing(self._stream_chunks(request)) as chunks:
                async for chunk in chunks:
                    pieces.append(chunk)
                    for event in _events_of_chunk(chunk, calls):
                        yield event
        except Exception as error:  # noqa: BLE001 (each provider has its own)
            raise self._convert_error(error, begun=bool(pieces)) from None
        if not pieces:
            raise cut_off(self._kind, "nothing came")
        # All at once: adding one by one copies the answer as often as it has pieces.
        whole: AIMessage = pieces[0] + pieces[1:] if len(pieces) > 1 else pieces[0]
        message = message_chunk_to_message(whole)
        assert isinstance(message, AIMessage)
        self._check_whole(message)
        cut = finish_of_message(message) is Finish.LENGTH
        yield response_of(message, calls.build_calls(whole, cut=cut), self.adapter)

    def _stream_chunks(self, request: ModelRequest) -> Any:
        messages = messages_of(request, self.adapter, marks="anthropic" in self._kind)
        if not request.tools:
            return self._model.astream(messages, **self._options)
        bound: Any = self._model.bind_tools(
            [_tool_definition(spec) for spec in request.tools], **self._options
        )
        return bound.astream(messages)

    def _check_whole(self, message: AIMessage) -> None:
        """A provider that says who it is says why it stopped, too, unless it was cut off.

        Raises:
            ModelStreamEndedError: It has not.
        """
        told = getattr(self._model, "stream_usage", None) is not False
        if told and message.response_metadata.get("model_provider") and stop_reason_of(message) is None:
            raise cut_off(self._kind, "no reason why it stopped")

    def _convert_error(self, error: Exception, *, begun: bool) -> HelixError:
        if isinstance(error, HelixError):
            return error
        status, headers = _status_and_headers(error)
        if status is not None:
            return error_for_status(self._kind, status, _error_kind(error), headers)
        names = {each.__name__ for each in type(error).__mro__}
        library = type(error).__module__.split(".")[0]
        if begun:
            _log.warning("the stream from %s broke off", self._kind, exc_info=error)
            return cut_off(self._kind, type(error).__name__)
        is_provider_error = library in _LIBRARIES or names & {"APIConnectionError", "OSError", "TimeoutError"}
        if not is_provider_error:
            # Its text may quote what was said, and histories are read by others than this log.
            _log.warning("%s failed", self._kind, exc_info=error)
        return error_for_connection_failure(self._kind, error)


class _StreamedCalls:
    """Calls as they come in pieces; one without an id gets one at once."""

    def __init__(self) -> None:
        self._ids: dict[object, str] = {}

    def add_piece(self, piece: Any) -> Iterator[ModelEvent]:
        place, name = piece.get("index"), piece.get("name")
        if place not in self._ids or (place is None and name):
            self._ids[place] = tool_call(piece.get("id"), name, {}).id
            yield ToolCallStarted(self._ids[place], storable_text(name or ""))
        if piece.get("args"):
            yield ToolArgumentsDelta(self._ids[place], storable_text(piece["args"]))

    def build_calls(self, whole: AIMessage, *, cut: bool) -> list[ToolCall]:
        """All calls of the answer, in order, those among them that LangChain could not read."""
        if isinstance(whole, AIMessageChunk):
            pieces: list[Any] = list(whole.tool_call_chunks)
        else:
            pieces = [*whole.tool_calls, *whole.invalid_tool_calls]
        last = len(pieces) - 1
        return [
            tool_call(
                each.get("id") or self._ids.get(each.get("index")),
                each.get("name"),
                each.get("args") or "",
                cut=cut and at == last,
            )
            for at, each in enumerate(pieces)
        ]


def _events_of_chunk(chunk: AIMessage, calls: _StreamedCalls) -> Iterator[ModelEvent]:
    if isinstance(chunk.content, str):
        if chunk.content:
            yield TextDelta(storable_text(chunk.content))
    else:
        for block in chunk.content_blocks:
            if block["type"] == "text" and block.get("text"):
                yield TextDelta(storable_text(block["text"]))
            elif block["type"] == "reasoning" and (thought := block.get("reasoning")):
                yield ReasoningDelta(storable_text(thought))
    if isinstance(chunk, AIMessageChunk):
        for piece in chunk.tool_call_chunks:
            yield from calls.add_piece(piece)


def _tool_definition(spec: ToolSpec) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}} | spec.parameters
    function = {"name": spec.name, "description": spec.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _without_retries(chat_model: BaseChatModel) -> BaseChatModel:
    """A copy that asks once; clients that were made already are made again, or copied so, too."""
    if "max_retries" not in type(chat_model).model_fields:
        return chat_model
    copy = chat_model.model_copy(update={"max_retries": 0})
    for name in ("_client", "_async_client", "_client_params"):
        vars(copy).pop(name, None)
    client: Any = getattr(copy, "root_async_client", None)
    if hasattr(client, "with_options"):
        once = client.with_options(max_retries=0)
        copy = copy.model_copy(update={"root_async_client": once, "async_client": once.chat.completions})
    return copy


def _status_and_headers(error: Exception) -> tuple[int | None, Any]:
    """The HTTP status that a library's error has, and the response's headers."""
    response = getattr(error, "response", None)
    for holder, name in ((error, "status_code"), (response, "status_code"), (error, "code")):
        status = getattr(holder, name, None)
        if isinstance(status, int) and 400 <= status < 600:
            return status, getattr(response, "headers", None)
    return None, None


def _error_kind(error: Exception) -> str:
    """The provider's own word for it, or the class of the library's error."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    word = (inner.get("code") or inner.get("type")) if isinstance(inner, dict) else None
    return str(word or type(error).__name__)
