"""Whether a server that did not answer speaks TLS where the URL says it does not, or the reverse."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Final

_SECONDS: Final = 2.0
_FIRST_BYTES: Final = (b"+", b"-")
"""Of any answer to PING, also to a user who may not."""


async def find_mismatch(host: str, port: int, *, tls: bool) -> str:
    """What is wrong with the URL, and what to do; empty if that is not it.

    Args:
        host: Of the server.
        port: Of the server.
        tls: The URL says that it speaks TLS.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            if tls and await _speaks_plainly(host, port):
                return (
                    "speaks without TLS, and redis_url says rediss://; name its TLS port, or write redis://"
                )
            if not tls and await _speaks_tls(host, port):
                return "speaks TLS, and redis_url says redis://; write rediss://, or name its plain port"
    except (OSError, TimeoutError):
        # Neither is told of a server that is not there.
        return ""
    return ""


async def _speaks_plainly(host: str, port: int) -> bool:
    async with _connected(host, port, None) as (reader, writer):
        writer.write(b"PING\r\n")
        return await reader.read(1) in _FIRST_BYTES


async def _speaks_tls(host: str, port: int) -> bool:
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent: whose certificate it is does not matter.
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    async with _connected(host, port, unchecked):
        return True


@contextlib.asynccontextmanager
async def _connected(
    host: str, port: int, context: ssl.SSLContext | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
