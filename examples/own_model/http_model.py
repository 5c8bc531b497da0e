"""A model of one's own: any object with ``stream`` (or ``generate``) is one.

This one speaks to a server of its own making over HTTP.  The server's answer is lines of JSON: pieces of
text, then how many words that were.
"""

from collections.abc import AsyncIterator

import aiohttp
import orjson

from helix_temporal import ModelRequest, ModelResponse, Usage
from helix_temporal.agents import ModelEvent, TextDelta
from helix_temporal.errors import (
    ModelRateLimitedError,
    ModelRequestError,
    ModelStreamEndedError,
    ModelUnavailableError,
)


class HttpModel:
    """Sends the conversation, and gives the answer on as it comes.

    Args:
        url: Where the server is.
        key: Sent as a bearer token; it stays in the worker.
    """

    adapter = "own-http"

    def __init__(self, url: str, key: str | None = None) -> None:
        self._url = url
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Pieces of text, and the whole response last.

        No retries here: Temporal repeats a failed attempt, later if the server says how much later.
        """
        body = {
            "system": request.instructions,
            "messages": [{"role": each.role, "text": each.text} for each in request.messages],
        }
        # The same for each attempt of this step: a server that pays attention charges once.
        headers = {**self._headers, "idempotency-key": request.step_key}
        try:
            async with (
                aiohttp.ClientSession() as http,
                http.post(self._url, json=body, headers=headers) as reply,
            ):
                _refuse(reply)
                async for event in _events(reply):
                    yield event
        except aiohttp.ClientError as error:
            raise ModelUnavailableError(f"{type(error).__name__} while the model answered") from error


def _refuse(reply: aiohttp.ClientResponse) -> None:
    if reply.status == 429:
        after = int(reply.headers.get("retry-after", "1")) * 1000
        raise ModelRateLimitedError("the model asks to slow down", retry_after_ms=after)
    if reply.status >= 500:
        raise ModelUnavailableError(f"the model's server answered {reply.status}")
    if reply.status >= 400:
        raise ModelRequestError(f"the model's server refuses the request with {reply.status}")


async def _events(reply: aiohttp.ClientResponse) -> AsyncIterator[ModelEvent]:
    text = ""
    async for line in reply.content:
        piece = orjson.loads(line)
        if "text" in piece:
            text += piece["text"]
            yield TextDelta(piece["text"])
        else:
            yield ModelResponse(content=text, usage=Usage(output_tokens=piece["words"]))
            return
    raise ModelStreamEndedError("the model's server ended in mid-answer")
