"""OpenAI's models by the Chat Completions API, and others that speak it.  Needs extra ``openai``."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import openai

from helix_temporal.adapters._calls import made_id
from helix_temporal.adapters._openai import CacheBy
from helix_temporal.adapters._openai_chat_answer import Answer
from helix_temporal.adapters._openai_chat_request import NAME, wire_messages, wire_tools
from helix_temporal.adapters._openai_model import OpenAIModel
from helix_temporal.models._json import JsonObject
from helix_temporal.models.agents import ModelRequest

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

    def _create(self, client: openai.AsyncOpenAI) -> Callable[..., AbstractAsyncContextManager[Any]]:
        return client.chat.completions.with_streaming_response.create

    def _reading(self, request: ModelRequest) -> Answer:
        return Answer(lambda place: made_id(request, place))

    def _said(self, request: ModelRequest) -> dict[str, Any]:
        return {"messages": wire_messages(request, breakpoints=self._breakpoints)}

    def _tools(self, request: ModelRequest) -> list[JsonObject]:
        return wire_tools(request.tools)
