"""A TCP proxy in front of a real server, for faults of the network at chosen places.

It knows no protocol.  A *reply* begins with the first byte that comes from the server after the client
has sent something on that connection: right for servers that answer one request at a time, after they
have all of it.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class CutReply:
    """Pass ``after`` bytes of the reply on, then close both connections."""

    after: int = 0


@dataclass(frozen=True, slots=True)
class StallReply:
    """Pass ``after`` bytes of the reply on, then nothing more, with the connection left open."""

    after: int = 0


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """Keep the request back until ``release``; it then reaches the server even if its client has gone."""


ProxyFault = CutReply | StallReply | HoldRequest


class FaultProxy:
    """Passes bytes between its own port on 127.0.0.1 and a server, and breaks off by script.

    Attributes:
        connections: How many were accepted.
        replies: How many replies began, broken ones included.
        bytes_up: Bytes that clients sent.
        bytes_down: Bytes that the server sent, passed on or not.
    """

    def __init__(self, host: str, port: int) -> None:
        self.connections = self.replies = self.bytes_up = self.bytes_down = 0
        self._target = (host, port)
        self._script: deque[ProxyFault | None] = deque()
        self._delays: list[tuple[bytes, float]] = []
        self._refusing = False
        self._flows = asyncio.Event()
        self._flows.set()
        self._released = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, target: str) -> AsyncIterator[Self]:
        """A running proxy to ``target``, like ``http://127.0.0.1:8333`` or ``127.0.0.1:6379``."""
        parts = urlsplit(target if "//" in target else f"//{target}")
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"a proxy needs a host and a port to go to, found {target!r}")
        proxy = cls(parts.hostname, parts.port)
        proxy._server = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        try:
            yield proxy
        finally:
            await proxy._stop()

    @property
    def address(self) -> str:
        """``127.0.0.1:port`` of the proxy."""
        if self._server is None:
            raise RuntimeError("the proxy is not running; use `async with FaultProxy.start(...)`")
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def fail(self, fault: ProxyFault, *, skip: int = 0, times: int = 1) -> None:
        """Break the next ``times`` exchanges, after ``skip`` that pass; several calls queue up."""
        self._script.extend([None] * skip)
        self._script.extend([fault] * times)

    def delay(self, containing: str, seconds: float) -> None:
        """From now on pass requests whose first bytes contain this text on only after ``seconds``.

        For HTTP: ``PUT`` and a part of the path choose the requests of one object.
        """
        self._delays.append((containing.encode(), seconds))

    def forget(self) -> None:
        """Let the faults be that have not struck yet, and delay nothing any more."""
        self._script.clear()
        self._delays.clear()

    def refuse(self, refusing: bool = True) -> None:
        """Close every connection at once, those that stand and new ones: the server is down."""
        self._refusing = refusing
        if refusing:
            for task in self._running:
                task.cancel()

    def freeze(self, frozen: bool = True) -> None:
        """Pass nothing on, either way, with all connections left open: the server is silent.

        It gets afterwards what was sent meanwhile, also by clients that have gone.
        """
        if frozen:
            self._flows.clear()
        else:
            self._flows.set()

    def release(self) -> None:
        """Let requests that are held go on to the server."""
        self._released.set()
        self._released = asyncio.Event()

    async def idle(self) -> None:
        """Wait until no connection stands: what was released has been passed on and answered."""
        while self._running:
            await asyncio.wait(self._running)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._refusing:
            writer.close()
            return
        exchange = _Exchange(self, reader, writer)
        task = asyncio.create_task(exchange.run(*self._target))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        # Not in the task: it may be cancelled before it starts, or again while it ends.
        task.add_done_callback(lambda _: exchange.close())

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await asyncio.sleep(0.01)  # closing takes some rounds of the event loop

    def next_fault(self) -> ProxyFault | None:
        """What happens to the exchange that begins now."""
        return self._script.popleft() if self._script else None

    def delay_of(self, request: bytes) -> float:
        """Seconds by which the request that begins with these bytes is late."""
        return max((seconds for text, seconds in self._delays if text in request), default=0.0)

    async def flowing(self) -> None:
        """Wait until bytes are passed on."""
        await self._flows.wait()

    def holding(self) -> asyncio.Event:
        """Set by the next ``release``."""
        return self._released


class _Exchange:
    """One connection of a client and its counterpart at the server."""

    def __init__(
        self, proxy: FaultProxy, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._client_in, self._client_out = client_in, client_out
        self._server_out: asyncio.StreamWriter | None = None
        self._fault: ProxyFault | None = None
        self._asking = False  # the client has sent something since the last reply began
        self._answered = asyncio.Event()
        self._sent = 0

    async def run(self, host: str, port: int) -> None:
        try:
            server_in, self._server_out = await asyncio.open_connection(host, port)
        except OSError:
            return
        up = asyncio.create_task(self._pass_up(self._server_out))
        down = asyncio.create_task(self._pass_down(server_in))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            # A client that leaves is followed at once unless its request was held back.
            if isinstance(self._fault, HoldRequest) and not down.done():
                async with asyncio.timeout(10):
                    await self._answered.wait()
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    def close(self) -> None:
        """Close both connections."""
        self._client_out.close()
        if self._server_out is not None:
            self._server_out.close()

    async def _pass_up(self, server_out: asyncio.StreamWriter) -> None:
        while data := await self._client_in.read(_CHUNK):
            self._proxy.bytes_up += len(data)
            if not self._asking:
                self._asking, self._sent = True, 0
                self._answered.clear()
                self._fault = self._proxy.next_fault()
                if isinstance(self._fault, HoldRequest):
                    await self._proxy.holding().wait()
                await asyncio.sleep(self._proxy.delay_of(data))
            await self._proxy.flowing()
            server_out.write(data)
            await server_out.drain()

    async def _pass_down(self, server_in: asyncio.StreamReader) -> None:
        while data := await server_in.read(_CHUNK):
            self._proxy.bytes_down += len(data)
            if self._asking:
                self._proxy.replies += 1
                self._asking = False
                self._answered.set()
            await self._proxy.flowing()
            if not await self._pass_reply(data):
                return

    async def _pass_reply(self, data: bytes) -> bool:
        """Whether the connection goes on."""
        if isinstance(self._fault, CutReply | StallReply):
            data = data[: max(0, self._fault.after - self._sent)]
        self._sent += len(data)
        with contextlib.suppress(ConnectionError):
            self._client_out.write(data)
            await self._client_out.drain()
        if isinstance(self._fault, CutReply):
            return self._sent < self._fault.after
        return True
