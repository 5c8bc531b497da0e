"""A stand-in for a provider: a real HTTP server that gives scripted answers and keeps what it was asked."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came; ``headers`` in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    data: bytes

    @property
    def body(self) -> Any:
        """The body, read as JSON; keys keep their order."""
        return json.loads(self.data)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer.

    Attributes:
        chunks: The body, each piece sent by itself.
        cut: The connection breaks after the last chunk, in the middle of the body.
        before: Awaited before the first byte.
    """

    chunks: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    before: Callable[[], Any] | None = None


def plain(value: Any, *, status: int = 200, **headers: str) -> Reply:
    """A JSON body; names of headers with ``_`` for ``-``."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply((json.dumps(value).encode(),), status, {"content-type": "application/json"} | named)


def events(*each: tuple[str, Any] | Any, cut: bool = False, **headers: str) -> Reply:
    """A body of server-sent events: data, or a name and data; text goes as it is, all else as JSON."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    chunks = [_event(*one) if isinstance(one, tuple) else _event("", one) for one in each]
    return Reply(chunks, 200, {"content-type": "text/event-stream"} | named, cut=cut)


def _event(name: str, data: Any) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


class StandIn:
    """Answers requests with what `will` was given, in order; without an answer it says so with 400.

    Attributes:
        asked: All requests so far.
        always: Answers instead, by request, where it is set.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[Asked] = []
        self.always: Callable[[Asked], Reply] | None = None
        self._replies: list[Reply] = []

    def will(self, *replies: Reply) -> None:
        """Answer so, after what it was told before."""
        self._replies += replies

    @property
    def bodies(self) -> list[Any]:
        """The bodies of all requests."""
        return [each.body for each in self.asked]

    def _reply(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if self.always is not None:
            return self.always(asked)
        if self._replies:
            return self._replies.pop(0)
        return plain({"error": {"type": "stand_in", "message": "no answer is left"}}, status=400)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        # The client may go away, as a cancelled call does.
        with contextlib.suppress(ConnectionError):
            async with contextlib.aclosing(_Closing(writer)):
                asked = await _request(reader)
                if asked is not None:
                    await self._send(writer, self._reply(asked))

    async def _send(self, writer: asyncio.StreamWriter, reply: Reply) -> None:
        if reply.before is not None:
            await reply.before()
        headers = {**reply.headers, "connection": "close", "transfer-encoding": "chunked"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} Status\r\n{lines}\r\n".encode())
        for chunk in reply.chunks:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
        if not reply.cut:
            writer.write(b"0\r\n\r\n")
            await writer.drain()


class _Closing:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def aclose(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def _request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    if method == "PRI":
        # A client of a server that had this port before it came back to speak HTTP/2 with it.
        return None
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)
    }
    return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


@contextlib.asynccontextmanager
async def standing_in() -> AsyncIterator[StandIn]:
    """A stand-in on a port of its own while the block runs."""
    standin = StandIn("")
    server = await asyncio.start_server(standin.serve, "127.0.0.1", 0)
    async with server:
        standin.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield standin
