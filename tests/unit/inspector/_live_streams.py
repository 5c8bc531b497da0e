"""Streams of followed pages: what a worker writes, and what a browser gets of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette
from starlette.requests import Request

from helix_temporal.backends import Backends
from helix_temporal.inspector import Viewer, create_inspector
from helix_temporal.models.streams import ChunkBase, RunStarted, StepStarted


def make_app(backends: Backends) -> Starlette:
    """For viewers who are named by a header."""
    return create_inspector(backends, authorise=lambda request: Viewer(name=name_of(request)))


def name_of(request: Request) -> str:
    """Who asks."""
    return request.headers.get("x-viewer", "jo")


BEGIN = (RunStarted(turn=1, agent_id="r1"), StepStarted(step_id="s", message_id="m1"))


async def write(backends: Backends, *chunks: ChunkBase) -> None:
    """Write to the stream as a worker does."""
    assert backends.streams is not None
    writer = await backends.streams.create_writer("s1", agent_id="r1", run_id="r1", resume=True)
    await writer.write_many(chunks)


@asynccontextmanager
async def following(
    http: httpx.AsyncClient, link: str = "/sessions/s1/live?shown=0", **headers: str
) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[str]]]:
    """A connection to a session's stream, with its events."""
    async with http.stream("GET", link, headers=headers) as answer:
        yield answer, events_of(answer)


async def events_of(answer: httpx.Response) -> AsyncIterator[str]:
    """The blocks between blank lines, the first of which says when to connect again."""
    read = ""
    async for text in answer.aiter_text():
        *whole, read = (read + text).split("\n\n")
        for each in whole:
            yield each


async def read_until(events: AsyncIterator[str], wanted: str) -> str:
    """All that comes until this does."""
    read = ""
    async for each in events:
        read += each + "\n\n"
        if wanted in read:
            return read
    raise AssertionError(f"{wanted!r} did not come: {read}")
