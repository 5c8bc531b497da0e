"""What both of OpenAI's interfaces share: the client, events of a stream, errors, files, cache keys."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import Any, ClassVar, Final, Literal, Protocol

import openai

from helix_temporal.adapters._http import (
    cut_off,
    error_for_connection_failure,
    error_for_status,
    refuse_own_options,
    server_events,
)
from helix_temporal.errors import HelixError, InvalidConfigError, ModelRequestError
from helix_temporal.models.agents import ModelEvent, ModelRequest, ModelResponse, ToolSpec
from helix_temporal.models.base import JsonObject
from helix_temporal.models.messages import Finish

PROVIDER: Final = "OpenAI"

CacheBy = Literal["session", "agent"]
"""Whose requests share a ``prompt_cache_key``: those of one session, or all of one agent."""

_CONNECT_SECONDS: Final = 15.0
_BREAKPOINT: Final[JsonObject] = {"mode": "explicit"}
_WITHHELD: Final = "content_filter"
_REFUSED: Final = (
    "invalid",
    "unsupported",
    "context_length",
    "string_above",
    "image_",
    "empty_image",
    "failed_to_download",
    "data_residency",
    "bio_policy",
    "misalignment",
    "content_",
    "unknown_",
    "missing_",
)
"""How codes begin that the same request meets again."""


class WithheldError(Exception):
    """The provider's filter refuses the request: there is no answer, and repeating it gives none."""


class OpenAIConnection:
    """The vendor's client without retries of its own, made when it is first needed.

    Raises:
        InvalidConfigError: An option is one that the adapter sets itself.
    """

    def __init__(
        self, name: str, client: openai.AsyncOpenAI | None, options: Mapping[str, Any], ours: frozenset[str]
    ) -> None:
        refuse_own_options(name, ours, options)
        self._given = client is not None
        self._client = client.with_options(max_retries=0) if client is not None else None

    @property
    def client(self) -> openai.AsyncOpenAI:
        """The client; without one given it is made of the worker's environment.

        Raises:
            InvalidConfigError: The environment has no key.
        """
        if self._client is None:
            try:
                # How long an answer may take is Temporal's business.
                timeout = openai.Timeout(None, connect=_CONNECT_SECONDS)
                self._client = openai.AsyncOpenAI(max_retries=0, timeout=timeout)
            except openai.OpenAIError:
                raise InvalidConfigError("no key for OpenAI: give a client, or set OPENAI_API_KEY") from None
        return self._client

    async def close(self) -> None:
        """Close the connections of a client that was made here."""
        if not self._given and self._client is not None:
            await self._client.close()
            self._client = None


async def stream_events(
    create: Callable[..., AbstractAsyncContextManager[Any]], fields: Mapping[str, Any]
) -> AsyncGenerator[JsonObject, None]:
    """What the provider streams for a request with these fields, each event as it came.

    Raises:
        InvalidConfigError: An option or the key is such that the library can't send the request.
        WithheldError: Its filter refuses the request.
        ModelRateLimitedError: It asks to slow down.
        ModelUnavailableError: It fails, or does not answer.
        ModelRequestError: It refuses the request.
        ModelStreamEndedError: The connection broke.
    """
    try:
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(create(stream=True, **fields))
            except (TypeError, ValueError) as error:
                raise _unsent_request_error(error) from None
            async for event in server_events(PROVIDER, response.iter_bytes()):
                if event.data.startswith("[DONE]"):
                    return
                said = event.parse_json(PROVIDER)
                if not isinstance(said, dict):
                    raise cut_off(PROVIDER, "an event is no object")
                yield said
    except openai.APIStatusError as error:
        if error.code == _WITHHELD:
            raise WithheldError from None
        raise _convert_status_error(error) from None
    except openai.APIError as error:
        raise error_for_connection_failure(PROVIDER, error.__cause__ or error) from None
    except openai.OpenAIError as error:
        raise _unsent_request_error(error) from None


def _unsent_request_error(error: Exception) -> InvalidConfigError:
    return InvalidConfigError(
        f"the library of OpenAI does not send the request: {type(error).__name__}; check key and options in "
        "the worker"
    )


def withheld_response(adapter: str) -> ModelResponse:
    """The answer that stands for the one that the provider's filter keeps back."""
    return ModelResponse(finish=Finish.CONTENT_FILTER, stop_reason=_WITHHELD, provider={adapter: {}})


def _convert_status_error(error: openai.APIStatusError) -> HelixError:
    kind = error.code or error.type
    if kind == "insufficient_quota":
        # Told as 429, but waiting does not help.
        return ModelRequestError(
            "OpenAI refuses the request: the account's quota is used up; raise it, or use another key",
            provider=PROVIDER,
            status=error.status_code,
        )
    return error_for_status(PROVIDER, error.status_code, kind, error.response.headers)


def told_error(error: object) -> HelixError:
    """The error that a stream tells instead of an answer."""
    fields: Mapping[str, Any] = error if isinstance(error, dict) else {}
    kind = fields.get("code") or fields.get("type")
    word = str(kind or "")
    if word.isdecimal() and 400 <= int(word) < 600:
        return error_for_status(PROVIDER, int(word), fields.get("type"))
    if "rate_limit" in word:
        return error_for_status(PROVIDER, 429, kind)
    return error_for_status(PROVIDER, 400 if word.startswith(_REFUSED) else 500, kind)


def cache_key(request: ModelRequest, by: CacheBy | None) -> JsonObject:
    """The field that leads requests with the same beginning to the same cache.

    It is a digest: provider and logs learn no ids of ours.
    """
    if by is None:
        return {}
    whose = [request.agent] if by == "agent" else [request.agent, request.session_id]
    return {"prompt_cache_key": hashlib.sha256("\0".join(whose).encode()).hexdigest()[:32]}


def data_url(part: JsonObject, otherwise: str) -> str | None:
    """The part's data as a URL, with its media type or another; None if it has no data."""
    data = part.get("data")
    return f"data:{part.get('media_type') or otherwise};base64,{data}" if data else None


def is_image(part: JsonObject) -> bool:
    """Whether the part is an image with data or a URL, however it is called."""
    named = part.get("type") == "image" or str(part.get("media_type", "")).startswith("image/")
    return named and bool(part.get("data") or part.get("url"))


def file_id(part: JsonObject) -> str | None:
    """The id of a file that OpenAI keeps; None for one that, by its id, another provider does."""
    given = str(part.get("file_id") or "")
    return None if not given or given.startswith("file_") or "/" in given else given


def not_shown(part: JsonObject) -> str | None:
    """What the model is told of a file that it can't be shown; None where there is nothing to tell."""
    if part.get("type") not in {"file", "image"}:
        return None
    return f"({part.get('name') or 'a file'} can't be shown to this model.)"


def breakpoint_of(part: JsonObject, wanted: bool) -> JsonObject:
    """The mark that a cached beginning ends with this part, where it is wanted."""
    return {"prompt_cache_breakpoint": _BREAKPOINT} if wanted and part.get("cache") is True else {}


def schema_of(tool: ToolSpec) -> JsonObject:
    """The tool's parameters; OpenAI refuses an object's schema that does not say which properties."""
    return {"type": "object", "properties": {}, **tool.parameters}


def token_count(usage: object, *path: str) -> int:
    """A number of tokens at this place; 0 if the provider does not say."""
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


class AnswerReading(Protocol):
    """An answer that comes as events."""

    def add_event(self, event: JsonObject, /) -> Iterable[ModelEvent]:
        """Take an event; what is new in it.

        Raises:
            HelixError: It says that the call has failed.
        """
        ...

    def build_response(self) -> ModelResponse:
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
        self._connection = OpenAIConnection(type(self).__name__, client, options, ours)
        self._fields = fields
        self._cache_by: CacheBy | None = cache_by

    @abstractmethod
    def _streaming_method(
        self, client: openai.AsyncOpenAI
    ) -> Callable[..., AbstractAsyncContextManager[Any]]:
        """The call that streams."""

    @abstractmethod
    def _create_answer(self, request: ModelRequest) -> AnswerReading:
        """For the answer to this request."""

    @abstractmethod
    def _message_fields(self, request: ModelRequest) -> dict[str, Any]:
        """The fields that hold what was said."""

    @abstractmethod
    def _tool_definitions(self, request: ModelRequest) -> list[JsonObject]:
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
        answer, create = self._create_answer(request), self._streaming_method(self._connection.client)
        try:
            async with aclosing(stream_events(create, self._build_request(request))) as said:
                async for event in said:
                    for new in answer.add_event(event):
                        yield new
        except WithheldError:
            yield withheld_response(self.adapter)
            return
        yield answer.build_response()

    async def aclose(self) -> None:
        """Close the connections of the client that the adapter made; one that was given stays open."""
        await self._connection.close()

    def _build_request(self, request: ModelRequest) -> dict[str, Any]:
        fields = self._fields | self._message_fields(request)
        tools = [*self._tool_definitions(request), *self._fields.get("tools", ())]
        if tools:
            fields["tools"] = tools
        return cache_key(request, self._cache_by) | fields
