"""What both of OpenAI's adapters are: a client, fields of a request, and an answer read from events."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, ClassVar, Protocol

import openai

from helix_temporal.adapters._openai import CacheBy, Connection, WithheldError, cache_key, events, withheld
from helix_temporal.models._json import JsonObject
from helix_temporal.models.agents import ModelEvent, ModelRequest, ModelResponse


class Reading(Protocol):
    """An answer that comes as events."""

    def add(self, event: JsonObject, /) -> Iterable[ModelEvent]:
        """Take an event; what is new in it.

        Raises:
            HelixError: It says that the call has failed.
        """
        ...

    def response(self) -> ModelResponse:
        """The whole answer.

        Raises:
            ModelStreamEndedError: Its end has not come.
        """
        ...


class OpenAIModel(ABC):
    """A model that streams; what an interface says otherwise is in its own class."""

    adapter: ClassVar[str]

    def __init__(
        self,
        client: openai.AsyncOpenAI | None,
        options: Mapping[str, Any],
        ours: frozenset[str],
        fields: dict[str, Any],
        cache_by: CacheBy | None,
    ) -> None:
        self._connection = Connection(type(self).__name__, client, options, ours)
        self._fields = fields
        self._cache_by: CacheBy | None = cache_by

    @abstractmethod
    def _create(self, client: openai.AsyncOpenAI) -> Callable[..., AbstractAsyncContextManager[Any]]:
        """The call that streams."""

    @abstractmethod
    def _reading(self, request: ModelRequest) -> Reading:
        """For the answer to this request."""

    @abstractmethod
    def _said(self, request: ModelRequest) -> dict[str, Any]:
        """The fields that hold what was said."""

    @abstractmethod
    def _tools(self, request: ModelRequest) -> list[JsonObject]:
        """The agent's tools."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Text, reasoning and calls as they come, and the whole answer last.

        Raises:
            ModelRateLimitedError: Asked to slow down.
            ModelUnavailableError: No answer, or a failure of the provider's.
            ModelStreamEndedError: The stream broke off.
            ModelRequestError: Refused: key, model or input must be mended.
            InvalidConfigError: There is no key, or an option that the library can't send.
        """
        answer, create = self._reading(request), self._create(self._connection.client)
        try:
            async with aclosing(events(create, self._request(request))) as said:
                async for event in said:
                    for new in answer.add(event):
                        yield new
        except WithheldError:
            yield withheld(self.adapter)
            return
        yield answer.response()

    async def aclose(self) -> None:
        """Close the connections of the client that the adapter made; one that was given stays open."""
        await self._connection.close()

    def _request(self, request: ModelRequest) -> dict[str, Any]:
        fields = self._fields | self._said(request)
        tools = [*self._tools(request), *self._fields.get("tools", ())]
        if tools:
            fields["tools"] = tools
        return cache_key(request, self._cache_by) | fields
