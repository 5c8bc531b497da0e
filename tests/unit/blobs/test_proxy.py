"""The proxy breaks connections exactly where a test says."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from helix_temporal.testing.proxy import CutReply, FaultProxy, HoldRequest, StallReply


class EchoServer:
    """Answers each line with ``<line`` and remembers it."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.open: set[asyncio.Transport] = set()
        self.address = ""

    def connected(self) -> asyncio.Protocol:
        """A new connection."""
        return EchoConnection(self)


class EchoConnection(asyncio.Protocol):
    """Lines are short and come whole."""

    def __init__(self, server: EchoServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.open.add(transport)

    def data_received(self, data: bytes) -> None:
        """Answer."""
        self._server.lines.append(data)
        self._transport.write(b"<" + data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._server.open.discard(self._transport)


class Client:
    """One connection to the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, line: bytes) -> bytes:
        """What comes back for a line: a line, or less where the connection ends."""
        try:
            self._writer.write(line)
            await self._writer.drain()
            return await self._reader.readline()
        except ConnectionError:
            return b""

    async def close(self) -> None:
        """Leave."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


@pytest.fixture
async def echo() -> AsyncIterator[EchoServer]:
    """A real server on TCP."""
    echo = EchoServer()
    server = await asyncio.get_running_loop().create_server(echo.connected, "127.0.0.1", 0)
    echo.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield echo
    server.close()
    for transport in echo.open:
        transport.abort()
    await asyncio.sleep(0)


@pytest.fixture
async def proxy(echo: EchoServer) -> AsyncIterator[FaultProxy]:
    """The proxy before it."""
    async with FaultProxy.start(echo.address) as proxy:
        yield proxy


async def connect(proxy: FaultProxy) -> Client:
    """A new client."""
    host, port = proxy.address.split(":")
    return Client(*await asyncio.open_connection(host, int(port)))


async def test_without_faults_everything_passes(proxy: FaultProxy) -> None:
    """And is counted."""
    client = await connect(proxy)
    assert [await client.ask(b"one\n"), await client.ask(b"two\n")] == [b"<one\n", b"<two\n"]
    assert (proxy.connections, proxy.replies, proxy.bytes_up, proxy.bytes_down) == (1, 2, 8, 10)
    await client.close()


async def test_a_reply_is_lost_after_the_server_acted(proxy: FaultProxy, echo: EchoServer) -> None:
    """The caller can't tell whether it happened; it did."""
    proxy.fail(CutReply())
    client = await connect(proxy)
    assert await client.ask(b"one\n") == b""
    assert echo.lines == [b"one\n"]
    await client.close()


async def test_a_reply_is_cut_at_a_byte(proxy: FaultProxy) -> None:
    """Half an answer, then the end."""
    proxy.fail(CutReply(after=3))
    client = await connect(proxy)
    assert await client.ask(b"one\n") == b"<on"
    await client.close()


async def test_a_reply_stalls_at_a_byte(proxy: FaultProxy) -> None:
    """Half an answer, then silence."""
    proxy.fail(StallReply(after=3))
    client = await connect(proxy)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.ask(b"one\n"), timeout=0.1)
    await client.close()


async def test_a_fault_may_be_meant_for_a_later_exchange(proxy: FaultProxy) -> None:
    """PUT number n loses its reply."""
    proxy.fail(CutReply(), skip=2)
    client = await connect(proxy)
    assert [await client.ask(b"x\n") for _ in range(3)] == [b"<x\n", b"<x\n", b""]
    await client.close()


async def test_a_held_request_arrives_after_its_client_left(proxy: FaultProxy, echo: EchoServer) -> None:
    """A write that lands long after its caller gave up."""
    proxy.fail(HoldRequest())
    client = await connect(proxy)
    asking = asyncio.create_task(client.ask(b"late\n"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asking, timeout=0.1)
    await client.close()
    assert echo.lines == []
    proxy.release()
    await proxy.idle()
    assert echo.lines == [b"late\n"]


async def test_a_held_request_is_answered_to_who_waits(proxy: FaultProxy) -> None:
    """Slow is not lost."""
    proxy.fail(HoldRequest())
    client = await connect(proxy)
    asking = asyncio.create_task(client.ask(b"slow\n"))
    await asyncio.sleep(0.05)
    assert not asking.done()
    proxy.release()
    assert await asking == b"<slow\n"
    await client.close()


async def test_a_server_can_be_down_and_up_again(proxy: FaultProxy) -> None:
    """Standing connections end, new ones are closed, until it is back."""
    standing = await connect(proxy)
    assert await standing.ask(b"one\n") == b"<one\n"
    proxy.refuse()
    assert await standing.ask(b"two\n") == b""
    late = await connect(proxy)
    assert await late.ask(b"three\n") == b""
    proxy.refuse(False)
    back = await connect(proxy)
    assert await back.ask(b"four\n") == b"<four\n"
    await asyncio.gather(standing.close(), late.close(), back.close())
