"""Gemini's wire format, for a stand-in: answers as events, and a client for it."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from google.genai import Client, types

from tests.adapters._standin import Asked, Reply, StandIn, events

KEY = "AIza-secret"


@asynccontextmanager
async def client_of(standin: StandIn) -> AsyncIterator[Client]:
    """The vendor's client, its retries on as it ships, talking to the stand-in."""
    options = types.HttpOptions(
        base_url=standin.url, retry_options=types.HttpRetryOptions(initial_delay=0.01)
    )
    client = Client(api_key=KEY, http_options=options)
    try:
        yield client
    finally:
        await client.aio.aclose()
        client.close()


def signature(data: bytes) -> str:
    """Bytes as the provider sends them."""
    return base64.urlsafe_b64encode(data).decode()


def contents_of(asked: Asked) -> list[Any]:
    """The contents of a request; of some fields the library sends other names than it gets."""
    read = [types.Content.model_validate_json(json.dumps(each)) for each in asked.body["contents"]]
    return [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in read]


def piece(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One event of an answer."""
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate | fields], "modelVersion": "gemini-3", "responseId": "r1"}


def call(name: str, args: dict[str, Any], call_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """A part that asks for a tool."""
    given = {"id": call_id} if call_id else {}
    return {"functionCall": {**given, "args": args, "name": name}, **fields}


def gemini(*pieces: dict[str, Any], cut: bool = False) -> Reply:
    """An answer."""
    return events(*pieces, cut=cut)


def gemini_text(text: str) -> Reply:
    """An answer of text alone."""
    return gemini(piece({"text": text}, finish="STOP"))
