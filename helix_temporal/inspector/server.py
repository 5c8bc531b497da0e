"""Serving the inspector by itself, on this machine."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette

from helix_temporal.errors import InvalidConfigError
from helix_temporal.inspector.access import LocalAccess, is_loopback


def bind(host: str, port: int, *, local: bool = True) -> socket.socket:
    """A socket that listens; port 0 takes a free one.

    Raises:
        InvalidConfigError: The address is not this machine's alone, and nothing asks who comes there; or
            something else listens on the port.
    """
    if local and not is_loopback(host):
        raise InvalidConfigError(
            f"the inspector listens on this machine alone, as nothing asks who comes: got host {host!r}, "
            "expected 127.0.0.1, ::1 or localhost; mount create_inspector(authorise=…) in an application "
            "to serve others"
        )
    plain = host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(plain, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            # Only then is it certain that nobody else listens there.
            found.listen(128)
        except BaseException:
            found.close()
            raise
    except OSError as error:
        raise InvalidConfigError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; "
            "give another --port, or 0 for any that is free"
        ) from error
    return found


def link_to(app: Starlette, listening: socket.socket) -> str:
    """The address of the first page, with the token where one is needed."""
    host, port = listening.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    access = app.state.access
    query = f"?{urlencode({'token': access.token})}" if isinstance(access, LocalAccess) else ""
    return f"http://{name}:{port}/{query}"


class InspectorServer(uvicorn.Server):
    """Serves until it is told to end; open streams end at once, as the application is told first."""

    def __init__(self, app: Starlette) -> None:
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # paths have ids in them, and the first one the token
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, which would go on for as long as they are waited for; then the rest."""
        self._app.state.live.close()
        await super().shutdown(sockets)

    async def serve_on(self, listening: socket.socket) -> None:
        """Serve; the one who calls sees to signals."""
        await self._serve([listening])


@asynccontextmanager
async def serving(app: Starlette, listening: socket.socket) -> AsyncIterator[None]:
    """The application is served while the block runs."""
    server = InspectorServer(app)
    task = asyncio.create_task(server.serve_on(listening))
    try:
        yield
    finally:
        server.should_exit = True
        await task
