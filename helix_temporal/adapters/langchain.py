"""Any chat model of LangChain.  Needs ``helix-temporal[langchain]`` and the provider's own package."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, message_chunk_to_message

from helix_temporal.adapters._common import clean, tool_call
from helix_temporal.adapters._langchain_messages import finish_by, messages_of, response_of, why_stopped
from helix_temporal.adapters._wire import cut_off, failed, unreachable
from helix_temporal.errors import HelixError, InvalidConfigError
from helix_temporal.models.agents import (
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolSpec,
)
from helix_temporal.models.messages import Finish, ToolCall

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
        calls = _Calls()
        pieces: list[Any] = []
        try:
            async with aclosing(self._chunks(request)) as chunks:
                async for chunk in chunks:
                    pieces.append(chunk)
                    for event in _events(chunk, calls):
                        yield event
        except Exception as error:  # noqa: BLE001 (each provider has its own)
            raise self._ours(error, begun=bool(pieces)) from None
        if not pieces:
            raise cut_off(self._kind, "nothing came")
        # All at once: adding one by one copies the answer as often as it has pieces.
        whole: AIMessage = pieces[0] + pieces[1:] if len(pieces) > 1 else pieces[0]
        message = message_chunk_to_message(whole)
        assert isinstance(message, AIMessage)
        self._check_whole(message)
        cut = finish_by(message) is Finish.LENGTH
        yield response_of(message, calls.all(whole, cut=cut), self.adapter)

    def _chunks(self, request: ModelRequest) -> Any:
        messages = messages_of(request, self.adapter, marks="anthropic" in self._kind)
        if not request.tools:
            return self._model.astream(messages, **self._options)
        bound: Any = self._model.bind_tools([_tool(spec) for spec in request.tools], **self._options)
        return bound.astream(messages)

    def _check_whole(self, message: AIMessage) -> None:
        """A provider that says who it is says why it stopped, too, unless it was cut off.

        Raises:
            ModelStreamEndedError: It has not.
        """
        told = getattr(self._model, "stream_usage", None) is not False
        if told and message.response_metadata.get("model_provider") and why_stopped(message) is None:
            raise cut_off(self._kind, "no reason why it stopped")

    def _ours(self, error: Exception, *, begun: bool) -> HelixError:
        if isinstance(error, HelixError):
            return error
        status, headers = _status(error)
        if status is not None:
            return failed(self._kind, status, _word(error), headers)
        names = {each.__name__ for each in type(error).__mro__}
        library = type(error).__module__.split(".")[0]
        if begun:
            _log.warning("the stream from %s broke off", self._kind, exc_info=error)
            return cut_off(self._kind, type(error).__name__)
        known = library in _LIBRARIES or names & {"APIConnectionError", "OSError", "TimeoutError"}
        if not known:
            # Its text may quote what was said, and histories are read by others than this log.
            _log.warning("%s failed", self._kind, exc_info=error)
        return unreachable(self._kind, error)


class _Calls:
    """Calls as they come in pieces; one without an id gets one at once."""

    def __init__(self) -> None:
        self._ids: dict[object, str] = {}

    def take(self, piece: Any) -> Iterator[ModelEvent]:
        place, name = piece.get("index"), piece.get("name")
        if place not in self._ids or (place is None and name):
            self._ids[place] = tool_call(piece.get("id"), name, {}).id
            yield ToolCallStarted(self._ids[place], clean(name or ""))
        if piece.get("args"):
            yield ToolArgumentsDelta(self._ids[place], clean(piece["args"]))

    def all(self, whole: AIMessage, *, cut: bool) -> list[ToolCall]:
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


def _events(chunk: AIMessage, calls: _Calls) -> Iterator[ModelEvent]:
    if isinstance(chunk.content, str):
        if chunk.content:
            yield TextDelta(clean(chunk.content))
    else:
        for block in chunk.content_blocks:
            if block["type"] == "text" and block.get("text"):
                yield TextDelta(clean(block["text"]))
            elif block["type"] == "reasoning" and (thought := block.get("reasoning")):
                yield ReasoningDelta(clean(thought))
    if isinstance(chunk, AIMessageChunk):
        for piece in chunk.tool_call_chunks:
            yield from calls.take(piece)


def _tool(spec: ToolSpec) -> dict[str, Any]:
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


def _status(error: Exception) -> tuple[int | None, Any]:
    """The HTTP status that a library's error has, and the response's headers."""
    response = getattr(error, "response", None)
    for holder, name in ((error, "status_code"), (response, "status_code"), (error, "code")):
        status = getattr(holder, name, None)
        if isinstance(status, int) and 400 <= status < 600:
            return status, getattr(response, "headers", None)
    return None, None


def _word(error: Exception) -> str:
    """The provider's own word for it, or the class of the library's error."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    word = (inner.get("code") or inner.get("type")) if isinstance(inner, dict) else None
    return str(word or type(error).__name__)
