"""An application on a real port, and a browser's side of server-sent events over a bare connection."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import httpx
import uvicorn
from temporalio.client import Client
from temporalio.converter import DataConverter

from helix_temporal._converter import user_data_converter
from helix_temporal.client import SessionClient
from helix_temporal.models.sessions import CallPolicy
from helix_temporal.models.streams import ChunkBase
from helix_temporal.stores.protocols.streams import StreamStore


class Event(NamedTuple):
    """One server-sent event."""

    id: int | None
    name: str
    data: str


async def until(met: Callable[[], bool]) -> None:
    """Wait until it is so."""
    while not met():  # noqa: ASYNC110 (of things that tell nobody)
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[int]:
    """The port on which the application is served while the block runs."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="warning", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serving = asyncio.create_task(server._serve())
    await until(lambda: server.started)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


def http_client(port: int, **options: Any) -> httpx.AsyncClient:
    """A client of the application on this port.

    It waits as long as the test may: httpx gives up after five seconds, which says how busy the machine is.
    """
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=None, **options)


class _NoServer(Client):
    """In the place of Temporal's client, where nothing is asked of Temporal."""

    def __init__(self) -> None:
        self._converter = user_data_converter(None)

    @property
    def data_converter(self) -> DataConverter:
        return self._converter

    @property
    def namespace(self) -> str:
        return "default"

    def config(self, *, active_config: bool = False) -> Any:
        return {"plugins": []}


def streams_alone(store: StreamStore) -> SessionClient:
    """A client that only reads streams: it has no server to talk to."""
    return SessionClient(_NoServer(), policy=CallPolicy(), streams=store)


async def write(store: StreamStore, *chunks: ChunkBase, run_id: str = "r1", stream: str = "s1") -> None:
    """Write chunks as a run's worker does."""
    writer = await store.create_writer(stream, agent_id=run_id, run_id=run_id)
    await writer.write_many(chunks)


class Connection:
    """One connection of a browser; ``status`` and then events."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int) -> None:
        self._reader, self._writer, self.status = reader, writer, status
        self.comments = 0

    def drop(self) -> None:
        """Lose the connection, as when a train enters a tunnel."""
        self._writer.transport.abort()

    async def line(self) -> str | None:
        """The next line of the body that is not a size of the transfer's own; None at its end."""
        size = await self._reader.readline()
        if size.strip() in {b"", b"0"}:
            return None
        return (await self._reader.readexactly(int(size, 16) + 2)).decode().removesuffix("\r\n")

    async def events(self) -> AsyncIterator[Event]:
        """Events until the response ends."""
        while (text := await self.line()) is not None:
            for block in text.removesuffix("\n\n").split("\n\n"):
                event = self._event(block)
                if event is not None:
                    yield event

    def _event(self, block: str) -> Event | None:
        if block.startswith(":"):
            self.comments += 1
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" not in fields:
            return None
        return Event(int(fields["id"]) if "id" in fields else None, fields["event"], fields["data"])


@contextlib.asynccontextmanager
async def connected(port: int, path: str, **headers: str) -> AsyncIterator[Connection]:
    """Ask for a path with a bare HTTP/1.1 request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    writer.write("\r\n".join(lines).encode())
    try:
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        yield Connection(reader, writer, status)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
