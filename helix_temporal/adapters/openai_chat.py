"""OpenAI's models by the Chat Completions API, and others that speak it.  Needs extra ``openai``."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import openai

from helix_temporal.adapters._calls import made_id
from helix_temporal.adapters._openai import (
    PROVIDER,
    CacheBy,
    Connection,
    WithheldError,
    cache_key,
    events,
    told_error,
    withheld,
)
from helix_temporal.adapters._openai_chat_answer import Answer
from helix_temporal.adapters._openai_chat_request import NAME, wire_messages, wire_tools
from helix_temporal.adapters._wire import cut_off
from helix_temporal.models.agents import ModelEvent, ModelRequest

_OURS: Final = frozenset({"messages", "stream", "n", "max_retries"})


class OpenAIChatModel:
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

    adapter: Final = NAME

    def __init__(
        self,
        model: str,
        client: openai.AsyncOpenAI | None = None,
        *,
        cache_by: CacheBy | None = "session",
        cache_breakpoints: bool = False,
        **options: Any,
    ) -> None:
        self._connection = Connection("OpenAIChatModel", client, options, _OURS)
        self._fields = {"model": model, "stream_options": {"include_usage": True}, **options}
        self._cache_by: CacheBy | None = cache_by
        self._breakpoints = cache_breakpoints

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Text, reasoning and calls as they come, and the whole answer last.

        Raises:
            ModelRateLimitedError: Asked to slow down.
            ModelUnavailableError: No answer, or a failure of the provider's.
            ModelStreamEndedError: The stream broke off.
            ModelRequestError: Refused: key, model or input must be mended.
            InvalidConfigError: There is no key, or an option that the library can't send.
        """
        answer = Answer(lambda place: made_id(request, place))
        create = self._connection.client.chat.completions.with_streaming_response.create
        try:
            async with aclosing(events(create, self._request(request))) as chunks:
                async for chunk in chunks:
                    if chunk.get("error"):
                        raise told_error(chunk["error"])
                    for event in answer.add(chunk):
                        yield event
        except WithheldError:
            yield withheld(NAME)
            return
        if answer.finish_reason is None:
            raise cut_off(PROVIDER, "no finish_reason")
        yield answer.response()

    async def aclose(self) -> None:
        """Close the connections of the client that the adapter made; one that was given stays open."""
        await self._connection.close()

    def _request(self, request: ModelRequest) -> dict[str, Any]:
        fields = self._fields | {"messages": wire_messages(request, breakpoints=self._breakpoints)}
        tools = [*wire_tools(request.tools), *self._fields.get("tools", ())]
        if tools:
            fields["tools"] = tools
        return cache_key(request, self._cache_by) | fields
