"""OpenAI's models by the Responses API, without state there.  Needs ``helix-temporal[openai]``."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import openai

from helix_temporal.adapters._common import clean
from helix_temporal.adapters._openai import PROVIDER, CacheBy, told_error
from helix_temporal.adapters._openai_model import OpenAIModel
from helix_temporal.adapters._openai_responses_wire import NAME, read_response, wire_input, wire_tools
from helix_temporal.adapters._wire import cut_off
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

    def _create(self, client: openai.AsyncOpenAI) -> Callable[..., AbstractAsyncContextManager[Any]]:
        return client.responses.with_streaming_response.create

    def _reading(self, request: ModelRequest) -> "_Answer":  # noqa: ARG002 (all answers are read alike)
        return _Answer()

    def _said(self, request: ModelRequest) -> dict[str, Any]:
        said: dict[str, Any] = {"input": wire_input(request, breakpoints=self._breakpoints)}
        return said | ({"instructions": request.instructions} if request.instructions else {})

    def _tools(self, request: ModelRequest) -> list[JsonObject]:
        return wire_tools(request.tools)


class _Answer:
    """An answer that comes as events."""

    def __init__(self) -> None:
        self._last: JsonObject | None = None
        self._items: dict[int, JsonObject] = {}
        self._calls: dict[object, str] = {}

    def response(self) -> ModelResponse:
        """The whole answer.

        Raises:
            ModelStreamEndedError: The provider's last word has not come.
        """
        if self._last is None:
            raise cut_off(PROVIDER, "no response.completed")
        return read_response(self._last, [self._items[at] for at in sorted(self._items)])

    def add(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
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
            yield from self._begun(event)
        else:
            yield from self._piece(event)

    def _piece(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        kind = event.get("type")
        if kind in _TEXT:
            yield TextDelta(clean(event["delta"]))
        elif kind in _REASONING:
            yield ReasoningDelta(clean(event["delta"]))
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            yield ReasoningDelta("\n\n")
        elif kind == "response.function_call_arguments.delta":
            call = self._calls.get(event.get("output_index"))
            if call is not None:
                yield ToolArgumentsDelta(call, clean(event["delta"]))

    def _begun(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        item = event["item"]
        if item.get("type") == "function_call":
            call = clean(str(item["call_id"]))[:256]
            self._calls[event.get("output_index")] = call
            yield ToolCallStarted(call, clean(str(item["name"]))[:128])
