"""Anthropic's models, by its Messages API.  Needs ``helix-temporal[anthropic]``."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final, Literal
from urllib.parse import quote

import anthropic
from anthropic.resources import AsyncMessages

from helix_temporal.adapters._anthropic_answer import PAUSED, Answer
from helix_temporal.adapters._anthropic_request import NAME, request_fields
from helix_temporal.adapters._wire import failed, server_events, unreachable
from helix_temporal.errors import HelixError, InvalidConfigError
from helix_temporal.models.agents import ModelEvent, ModelRequest

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
        taken = sorted(_OURS & options.keys())
        if taken:
            raise InvalidConfigError(
                f"AnthropicModel: the adapter sets {', '.join(taken)} itself; take it away from the options"
            )
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
        fields = self._request(request)
        answer = Answer()
        for hop in range(_MOST_PAUSES):
            answer.begin()
            async with aclosing(self._events(_under(request.step_key, hop, fields))) as events:
                async for event in events:
                    for each in answer.take(event):
                        yield each
            answer.end()
            if answer.stop_reason != PAUSED:
                break
            fields = _continued(fields, answer)
        yield answer.response()

    async def aclose(self) -> None:
        """Close the connections of the client that the adapter made; one that was given stays open."""
        if self._given is None and self._client is not None:
            await self._client.close()
            self._client = None

    def _request(self, request: ModelRequest) -> dict[str, Any]:
        fields = self._fields | request_fields(request, self._cache)
        more = self._fields.get("tools")
        if more:
            fields["tools"] = [*(fields["tools"] if request.tools else []), *more]
        if not _may_think(fields):
            del fields["thinking"]
        return fields

    async def _events(self, fields: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        response = await self._send(fields)
        try:
            async with aclosing(server_events("Anthropic", response.aiter_bytes())) as events:
                async for event in events:
                    yield event.json("Anthropic")
        finally:
            await response.aclose()

    async def _send(self, fields: Mapping[str, Any]) -> Any:
        """The response, its body still to come: what the library makes of that is not exactly what came."""
        try:
            if self._client is None:
                self._client = _without_retries(
                    anthropic.AsyncAnthropic(timeout=anthropic.Timeout(None, connect=_CONNECT_SECONDS))
                )
            stream = await self._client.messages.create(stream=True, **_as_known(fields))
        except (anthropic.AnthropicError, TypeError, ValueError) as error:
            # Without a key the library raises TypeError; with one that is no ASCII, ValueError.
            raise _ours(error) from None
        return stream.response


def _without_retries(client: anthropic.AsyncAnthropic) -> anthropic.AsyncAnthropic:
    return client.with_options(max_retries=0)


def _as_known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The library's arguments; fields of the API that this version of it does not name go as they are."""
    known = inspect.signature(AsyncMessages.create).parameters
    more = {name: value for name, value in fields.items() if name not in known}
    given = {name: value for name, value in fields.items() if name in known}
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


def _under(step_key: str, hop: int, fields: dict[str, Any]) -> dict[str, Any]:
    """The request with its key, unless the options give one; going on with an answer is another request."""
    if not step_key:
        return fields
    # Ids may hold what no header can.
    key = quote(step_key, safe="/") + (f"/{hop}" if hop else "")
    return {**fields, "extra_headers": {"Idempotency-Key": key} | fields.get("extra_headers", {})}


def _continued(fields: dict[str, Any], answer: Answer) -> dict[str, Any]:
    """The same request, with the answer so far."""
    sent = fields["messages"]
    if sent[-1]["role"] == "assistant":
        sent = sent[:-1]
    return {**fields, "messages": [*sent, {"role": "assistant", "content": list(answer.blocks)}]}


def _ours(error: Exception) -> HelixError:
    if isinstance(error, anthropic.APIStatusError):
        body = error.body if isinstance(error.body, dict) else {}
        inner = body.get("error")
        word = inner.get("type") if isinstance(inner, dict) else None
        return failed("Anthropic", error.status_code, word, error.response.headers)
    if isinstance(error, anthropic.APIConnectionError):
        return unreachable("Anthropic", error.__cause__ or error)
    return InvalidConfigError(
        f"the library of Anthropic does not send the request: {type(error).__name__}; give a client with a "
        "key or set ANTHROPIC_API_KEY in the worker, and check the options"
    )
