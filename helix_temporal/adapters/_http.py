"""Answers of HTTP: what a failure is in our errors, and the events of a stream."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    ModelRateLimitedError,
    ModelRequestError,
    ModelStreamEndedError,
    ModelUnavailableError,
)

MAX_RETRY_AFTER_MS: Final = 5 * 60 * 1000
"""A provider that asks for more is asked again after so much."""

_PASSING: Final = {408, 409, 425}
"""Refusals that the same request need not meet again; so are all from 500 on."""
_TYPE_CHARS: Final = 60
_UNSENDABLE: Final = {
    "LocalProtocolError",
    "UnsupportedProtocol",
    "InvalidURL",
    "InvalidUrlClientError",
    "NonHttpUrlClientError",
    "UnicodeEncodeError",
}
"""What libraries raise for an address that is none, or a key with a line break at its end."""


def refuse_own_options(model: str, own: AbstractSet[str], options: Mapping[str, Any]) -> None:
    """Refuse options that an adapter sets itself.

    Raises:
        InvalidConfigError: There are such.
    """
    if taken := sorted(own & options.keys()):
        raise InvalidConfigError(
            f"{model}: the adapter sets {', '.join(taken)} itself; leave it out of the options"
        )


def error_for_status(
    provider: str,
    status: int,
    kind: object = None,
    headers: Mapping[str, str] | None = None,
) -> HelixError:
    """The error for an answer with this HTTP status; ``kind`` is the provider's own word for it.

    Neither carries what the provider wrote beyond that: it may quote the request.
    """
    word = f" ({str(kind)[:_TYPE_CHARS]})" if kind else ""
    facts: dict[str, Any] = {"provider": provider, "status": status}
    after = retry_after_ms(headers or {})
    if after is not None:
        facts["retry_after_ms"] = after
    if status == 429:
        return ModelRateLimitedError(f"{provider} asks to slow down: HTTP {status}{word}", **facts)
    if status >= 500 or status in _PASSING:
        return ModelUnavailableError(f"{provider} failed: HTTP {status}{word}; it is called again", **facts)
    return ModelRequestError(
        f"{provider} refuses the request: HTTP {status}{word}; correct key, model or input", **facts
    )


def error_for_connection_failure(provider: str, error: BaseException) -> HelixError:
    """The error for a provider that gave no answer at all, or that can't be asked at all."""
    if {type(error).__name__, type(error.__cause__).__name__} & _UNSENDABLE:
        return InvalidConfigError(
            f"the request to {provider} can't be sent: {type(error).__name__}; "
            "correct key or address in the worker"
        )
    return ModelUnavailableError(
        f"{provider} did not answer: {type(error).__name__}; it is called again", provider=provider
    )


def cut_off(provider: str, why: str) -> ModelStreamEndedError:
    """The error for a stream that ended before its answer did."""
    return ModelStreamEndedError(
        f"the stream from {provider} ended before its answer: {why}; it is called again", provider=provider
    )


def retry_after_ms(headers: Mapping[str, str]) -> int | None:
    """When to come again, by the provider's own word; None if it does not say, or says nonsense."""
    exact = _parse_number(headers.get("retry-after-ms"))
    if exact is not None:
        return _clamp_retry_after(exact)
    text = headers.get("retry-after")
    seconds = _parse_number(text)
    if seconds is not None:
        return _clamp_retry_after(seconds * 1000)
    if not text:
        return None
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return _clamp_retry_after((when - datetime.now(UTC)).total_seconds() * 1000)


def _parse_number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _clamp_retry_after(milliseconds: float) -> int:
    return max(1, min(MAX_RETRY_AFTER_MS, round(milliseconds)))


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream of server-sent events; ``event`` is empty where it has no name."""

    event: str
    data: str

    def parse_json(self, provider: str) -> Any:
        """What the data says.

        Raises:
            ModelStreamEndedError: It is no JSON: the stream is damaged.
        """
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError):
            raise cut_off(provider, "an event is no JSON") from None


async def server_events(provider: str, chunks: AsyncIterator[bytes]) -> AsyncGenerator[ServerEvent]:
    """The events in a response's body; a last one that was not finished is left out.

    Raises:
        ModelStreamEndedError: Reading failed: the connection broke, or was silent for too long.
    """
    event, data = "", list[str]()
    async for line in _split_lines(_read_chunks(provider, chunks)):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield ServerEvent(event, "\n".join(data))
            event, data = "", []
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)


async def _read_chunks(provider: str, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    try:
        async for chunk in chunks:
            yield chunk
    except Exception as error:  # noqa: BLE001 (each library has its own)
        raise cut_off(provider, type(error).__name__) from None


async def _split_lines(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[str]:
    # Not by str.splitlines, which breaks lines at U+2028 and others that JSON may hold.
    rest = b""
    async with aclosing(chunks) as source:
        async for chunk in source:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.removesuffix(b"\r").decode("utf-8", "replace")
