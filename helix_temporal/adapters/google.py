"""Gemini, by Google's Gen AI library: the Gemini API and Vertex AI.  Needs ``helix-temporal[google]``."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from google.genai import Client, errors, types
from pydantic import ValidationError

from helix_temporal.adapters._google_answer import CONTINUES, Answer
from helix_temporal.adapters._google_wire import NAME, wire_contents, wire_system, wire_tools
from helix_temporal.adapters._wire import cut_off, failed, unreachable
from helix_temporal.errors import HelixError, InvalidConfigError, ModelRequestError
from helix_temporal.models.agents import ModelEvent, ModelRequest

PROVIDER: Final = "Google"

_MOST_HOPS: Final = 16
_OURS: Final = frozenset(
    {
        "system_instruction",
        "candidate_count",
        "automatic_function_calling",
        "automatic_continuation",
        "continuation_token",
        "cached_content",
    }
)


class GoogleModel:
    """A Gemini model that streams.

    Repeating is left to Temporal: the client's own retries are off, and so is its calling of functions.
    Keys are read by the client, in the worker, and are in no request of ours.

    Gemini caches the beginning of prompts by itself.  Caches that are made and named explicitly are not
    used: a name says nothing of what is in it, so that after an edit or a fork it would bring back what was
    taken away.

    Args:
        model: Its name, such as ``gemini-3-pro``.
        client: Your own, with key or project; otherwise one is made at the first call, from
            ``GEMINI_API_KEY`` and the other variables that the library reads.
        options: Further fields of ``GenerateContentConfig``, such as ``temperature``, ``thinking_config``,
            ``tool_config``, ``safety_settings``; ``tools`` come after the agent's.

    Raises:
        InvalidConfigError: ``options`` has a field that the adapter itself fills in, or one that the
            library does not know.
    """

    adapter: Final = NAME

    def __init__(self, model: str, client: Client | None = None, **options: Any) -> None:
        taken = sorted(_OURS & options.keys())
        if taken:
            raise InvalidConfigError(
                f"GoogleModel: the adapter sets {', '.join(taken)} itself; take it away from the options"
            )
        try:
            self._config = types.GenerateContentConfig(**options)
        except ValidationError as error:
            wrong = ", ".join(sorted({str(each["loc"][0]) for each in error.errors() if each["loc"]}))
            raise InvalidConfigError(f"GoogleModel: the library does not take the options {wrong}") from None
        self._config.automatic_function_calling = types.AutomaticFunctionCallingConfig(disable=True)
        self._config.http_options = _without_retries(self._config.http_options)
        if "automatic_continuation" in types.GenerateContentConfig.model_fields:
            self._config.automatic_continuation = False
        self._model = model
        self._given, self._client = client, client

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Text, reasoning and calls as they come, and the whole answer last.

        Raises:
            ModelRateLimitedError: Asked to slow down.
            ModelUnavailableError: No answer, or a failure of the provider's.
            ModelStreamEndedError: The stream broke off.
            ModelRequestError: Refused: key, model or input must be mended.
            InvalidConfigError: There is no key.
        """
        config = self._request(request)
        contents = wire_contents(request.messages)
        answer = Answer(request)
        for _ in range(_MOST_HOPS):
            answer.begin()
            async with aclosing(self._chunks(contents, config)) as chunks:
                async for chunk in chunks:
                    for event in answer.add(chunk):
                        yield event
            if answer.finish_reason is None:
                raise cut_off(PROVIDER, "no finish reason")
            if answer.finish_reason != CONTINUES or answer.continuation is None:
                break
            config = config.model_copy(update={"continuation_token": answer.continuation})
        yield answer.response()

    async def aclose(self) -> None:
        """Close the connections of the client that the adapter made; one that was given stays open."""
        if self._given is None and self._client is not None:
            client, self._client = self._client, None
            await client.aio.aclose()
            client.close()

    def _request(self, request: ModelRequest) -> types.GenerateContentConfig:
        tools = [*([wire_tools(request.tools)] if request.tools else []), *(self._config.tools or ())]
        return self._config.model_copy(
            update={"system_instruction": wire_system(request), "tools": tools or None}
        )

    async def _chunks(
        self, contents: list[types.Content], config: types.GenerateContentConfig
    ) -> AsyncGenerator[types.GenerateContentResponse, None]:
        began = False
        try:
            models = self._usable().aio.models
            given: Any = contents
            answer: Any = await models.generate_content_stream(
                model=self._model, contents=given, config=config
            )
            async with aclosing(answer):
                async for chunk in answer:
                    began = True
                    yield chunk
        except HelixError:
            raise
        except Exception as error:  # noqa: BLE001 (which errors of connections come, depends on what is installed)
            raise _ours(error, began) from None

    def _usable(self) -> Client:
        if self._client is None:
            try:
                self._client = Client()
            except ValueError:
                raise InvalidConfigError("no key for Google: give a client, or set GEMINI_API_KEY") from None
        return self._client


def _without_retries(given: types.HttpOptions | None) -> types.HttpOptions:
    options = types.HttpOptions() if given is None else given.model_copy()
    options.retry_options = types.HttpRetryOptions(attempts=1)
    return options


def _ours(error: Exception, began: bool) -> HelixError:
    """The error as ours, without what it carries: the library puts answers into its messages."""
    if isinstance(error, errors.APIError):
        return _refusal(error)
    if began:
        return cut_off(PROVIDER, type(error).__name__)
    passing = isinstance(error, json.JSONDecodeError | errors.UnknownApiResponseError)
    if isinstance(error, ValueError | TypeError) and not passing:
        return ModelRequestError(
            f"the library of Google refuses to send the request: {type(error).__name__}; "
            "check the options in the worker",
            provider=PROVIDER,
        )
    return unreachable(PROVIDER, error)


def _refusal(error: errors.APIError) -> HelixError:
    headers = {str(name).lower(): str(value) for name, value in _headers(error).items()}
    delay = _retry_delay(error.details)
    if delay is not None:
        headers["retry-after-ms"] = delay
    # An error within a stream need not say its code.
    code: Any = error.code
    return failed(PROVIDER, code if isinstance(code, int) else 500, error.status, headers)


def _headers(error: errors.APIError) -> dict[str, Any]:
    return dict(getattr(error.response, "headers", None) or {})


def _retry_delay(details: Any) -> str | None:
    """Milliseconds of the ``RetryInfo`` in an error; None if it has none."""
    inner = details.get("error", details) if isinstance(details, dict) else {}
    told = inner.get("details") if isinstance(inner, dict) else None
    for each in told if isinstance(told, list) else ():
        if isinstance(each, dict) and str(each.get("@type", "")).endswith("google.rpc.RetryInfo"):
            seconds = str(each.get("retryDelay", "")).removesuffix("s")
            return str(float(seconds) * 1000) if seconds.replace(".", "", 1).isdecimal() else None
    return None
