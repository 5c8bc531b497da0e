"""A pooler in transaction mode, as small as can be: each transaction goes to the next server connection.

It speaks just enough of PostgreSQL's protocol: it answers a client's start itself, and gives a client a
server connection from its first message until the server says that no transaction is open.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_SSL_REQUEST: Final = 80877103
_CANCEL_REQUEST: Final = 80877102
_VERSION: Final = 196608
_IDLE: Final = b"I"


class Pooler:
    """Attributes: ``dsn``; ``transactions``: how many server connections were given out, one for each."""

    def __init__(self, dsn: str, servers: int) -> None:
        self._parts = urlsplit(dsn)
        self._wanted = servers
        self._servers: asyncio.Queue[Streams] = asyncio.Queue()
        self._greeting = b""
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.transactions = 0
        self.dsn = ""

    async def start(self) -> asyncio.Server:
        """Connect to the server and listen."""
        for _ in range(self._wanted):
            await self._servers.put(await self._connect())
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.dsn = self._parts._replace(netloc=f"{self._parts.username}@127.0.0.1:{port}").geturl()
        return server

    async def close(self) -> None:
        """Let go of everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._open:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    async def _connect(self) -> Streams:
        reader, writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._open.add(writer)
        names = b"user\0%b\0database\0%b\0client_encoding\0utf-8\0\0"
        body = names % ((self._parts.username or "").encode(), self._parts.path[1:].encode())
        writer.write(struct.pack("!ii", len(body) + 8, _VERSION) + body)
        self._greeting = b""
        while True:
            kind, message = await _message(reader)
            self._greeting += message
            if kind == b"Z":
                return reader, writer

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        try:
            if await self._greet(reader, writer):
                while True:
                    await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._open.discard(writer)
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        while True:
            size, code = struct.unpack("!ii", await reader.readexactly(8))
            await reader.readexactly(size - 8)
            if code == _CANCEL_REQUEST:
                return False
            if code != _SSL_REQUEST:
                writer.write(self._greeting)
                return True
            writer.write(b"N")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One transaction: from a client's message to the server's word that it is idle."""
        kind, message = await _message(reader)
        if kind == b"X":
            raise ConnectionResetError
        server = await self._servers.get()
        self.transactions += 1
        server[1].write(message)
        up = asyncio.create_task(_pass_on(reader, server[1]))
        try:
            while True:
                kind, message = await _message(server[0])
                if kind == b"Z" and message[-1:] == _IDLE:
                    break
                writer.write(message)
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
        # To the end of the queue: the next transaction of this client meets another server connection.
        await self._servers.put(server)
        writer.write(message)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        _, message = await _message(reader)
        writer.write(message)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


@asynccontextmanager
async def pooled(dsn: str, servers: int = 3) -> AsyncIterator[Pooler]:
    """A pooler in front of a server."""
    pooler = Pooler(dsn, servers)
    listening = await pooler.start()
    try:
        yield pooler
    finally:
        listening.close()
        await pooler.close()
