"""Server-sent events: chunks as frames, signs of life between them, and an end that is told."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from helix_temporal.errors import HelixError
from helix_temporal.models.base import dump_json
from helix_temporal.models.streams import StoredChunk
from helix_temporal.web.server_end import wait_for_server_end

EVENTS: Final = "text/event-stream"
_LAST: Final = {"type": "http.response.body", "body": b"", "more_body": False}
_LAST_WAIT: Final = 1.0
"""Seconds that a server which stops waits for a client to take the end of its stream."""
RETRY_MS: Final = 1000
"""After so long a browser connects again."""


def event_frame(event: str, data: bytes, sequence: int | None = None) -> bytes:
    """One event; ``data`` is JSON, which holds no line break."""
    place = b"" if sequence is None else b"id: %d\n" % sequence
    return b"%sevent: %s\ndata: %s\n\n" % (place, event.encode(), data)


def error_body(error: HelixError) -> dict[str, Any]:
    """An error as JSON: its name, what it says, and its facts."""
    return {**error.facts, "error": type(error).__name__, "message": str(error)}


async def event_frames(
    chunks: AsyncGenerator[StoredChunk], *, keep_alive: float, end: str
) -> AsyncGenerator[bytes]:
    """Chunks as events with their sequence as id; then ``end``, or the ``error`` that ended them."""
    yield b"retry: %d\n\n" % RETRY_MS
    coming: asyncio.Task[StoredChunk | None] | None = None
    try:
        while True:
            coming = coming or asyncio.create_task(_next_chunk(chunks))
            await asyncio.wait([coming], timeout=keep_alive)
            if not coming.done():
                yield b": still here\n\n"
                continue
            stored, coming = coming.result(), None
            if stored is None:
                yield event_frame("end", dump_json({"reason": end}))
                return
            yield event_frame(_event_name(stored), stored.body, stored.sequence)
    except HelixError as error:
        yield event_frame("error", dump_json(error_body(error)))
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait([coming])
        await chunks.aclose()


async def _next_chunk(chunks: AsyncGenerator[StoredChunk]) -> StoredChunk | None:
    return await anext(chunks, None)


def _event_name(stored: StoredChunk) -> str:
    """The chunk's type; one of an application's own with a line break in it must not break the frame."""
    kind = stored.chunk.type
    return kind if kind.isprintable() else "unknown"


class EventStream(Response):
    """A response that goes on until its frames end, the client is gone or the server stops.

    ``on_end`` is called then.  A browser whose stream ended with the server connects again, and is given what
    it missed.
    """

    def __init__(self, source: AsyncGenerator[bytes], on_end: Callable[[], None]) -> None:
        # Proxies that buffer would keep the events to themselves.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(status_code=200, headers=headers, media_type=EVENTS)
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]
        self._source, self._on_end = source, on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Serve it."""
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        stopped = asyncio.create_task(wait_for_server_end())
        sent = asyncio.create_task(self._send_frames(send, start))
        tasks = {asyncio.create_task(self._wait_for_disconnect(receive)), sent, stopped}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                await _cancel_tasks(tasks)
            finally:
                self._on_end()
        for task in tasks:
            if not task.cancelled() and not isinstance(task.exception(), OSError | None):
                await task
        if sent.cancelled() and not stopped.cancelled():
            with contextlib.suppress(TimeoutError):  # a client that takes nothing any more
                async with asyncio.timeout(_LAST_WAIT):
                    await send(_LAST)

    async def _wait_for_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _send_frames(self, send: Send, start: Any) -> None:
        async with contextlib.aclosing(self._source) as source:
            await send(start)
            async for each in source:
                await send({"type": "http.response.body", "body": each, "more_body": True})
            await send(_LAST)


async def _cancel_tasks(tasks: Iterable["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
