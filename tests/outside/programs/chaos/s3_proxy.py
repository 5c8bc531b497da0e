"""Between the workers and S3: requests are late, repeated, refused, answered with 503, or unanswered."""

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

_BUSY: Final = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 87\r\n"
    b"Connection: close\r\n\r\n<Error><Code>SlowDown</Code>"
    b"<Message>Please reduce your request rate.</Message></Error>"
)


@dataclass
class Trouble:
    """How likely each fault is for one request, 0 to 1."""

    late: float = 0
    twice: float = 0
    refused: float = 0
    busy: float = 0
    lost: float = 0
    seconds: float = 1.0


@dataclass
class S3Proxy:
    """Forwards HTTP requests byte by byte; ``trouble`` may be changed at any time."""

    upstream: tuple[str, int]
    seed: int
    trouble: Trouble = field(default_factory=Trouble)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(f"s3 {self.seed}")
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listen; the address to give to the workers."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    async def stop(self) -> None:
        """Serve nobody any more; requests that were to be repeated are dropped."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, OSError):
            while (request := await _read_message(reader)) is not None:
                if not await self._answer(request, writer):
                    break
        writer.close()

    async def _answer(self, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        trouble, method = self.trouble, request.split(b" ", 1)[0].decode()
        if self._happens(trouble.refused, "refused"):
            return False
        if self._happens(trouble.busy, "503"):
            writer.write(_BUSY)
            await writer.drain()
            return False
        if self._happens(trouble.late, f"{method} late"):
            await asyncio.sleep(self._random.uniform(0, 2 * trouble.seconds))
        response = await self._forward(request)
        if method == "PUT" and self._happens(trouble.twice, "PUT twice"):
            task = asyncio.create_task(self._repeat(request, self._random.uniform(0, 5 * trouble.seconds)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._happens(trouble.lost, f"{method} answer lost"):
            return False
        writer.write(response)
        await writer.drain()
        return b"\r\nconnection: close" not in response.split(b"\r\n\r\n", 1)[0].lower()

    def _happens(self, chance: float, what: str) -> bool:
        happens = chance > 0 and self._random.random() < chance
        self.seen[what] += happens
        return happens

    async def _repeat(self, request: bytes, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, OSError):
            await self._forward(request)

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self.upstream)
        try:
            writer.write(request)
            await writer.drain()
            response = await _read_message(reader, to=request.split(b" ", 1)[0])
            if response is None:
                raise ConnectionResetError("S3 closed the connection without an answer")
            if response.startswith(b"HTTP/1.1 100"):
                response = await _read_message(reader, to=request.split(b" ", 1)[0]) or b""
            return response
        finally:
            writer.close()


async def _read_message(reader: asyncio.StreamReader, *, to: bytes | None = None) -> bytes | None:
    """One request, or one response ``to`` a method; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:] if line)
    }
    if to is not None and (to == b"HEAD" or head.split(b" ", 2)[1][:3] in {b"204", b"304", b"100"}):
        return head
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        return head + await _read_chunks(reader)
    if b"content-length" in headers:
        return head + await reader.readexactly(int(headers[b"content-length"]))
    return head + (await reader.read() if to is not None else b"")


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        size = await reader.readuntil(b"\r\n")
        body += size + await reader.readexactly(int(size.split(b";")[0], 16) + 2)
        if int(size.split(b";")[0], 16) == 0:
            return body
