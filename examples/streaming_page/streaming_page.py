"""A page that shows a session live: ``make example NAME=streaming_page``, then open what it prints.

A worker and a web server in one process; ``PORT`` chooses the port, a free one otherwise.
"""

import asyncio
import contextlib
import logging
import os
import socket
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Mount, Route
from story import story

from helix_temporal import HelixWorker, SessionClient, Settings, connect
from helix_temporal.web import create_sse_app

PAGE = Path(__file__).with_name("page.html")


async def page(_request: Request) -> FileResponse:
    """The page."""
    return FileResponse(PAGE)


async def main() -> None:
    """Serve until Ctrl-C."""
    settings = Settings.from_env(os.environ)
    client, plugin = await connect(settings, [story])
    sessions = SessionClient(client, task_queue=settings.task_queue)
    app = Starlette(
        routes=[Route("/", page), Mount("/", create_sse_app(sessions, agent=story.name, keep_alive=5.0))]
    )
    listening = socket.create_server(("127.0.0.1", int(os.environ.get("PORT", "0"))))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    async with HelixWorker(client, plugin):
        print(f"Open http://127.0.0.1:{listening.getsockname()[1]}/  (Ctrl-C stops it)", flush=True)
        await server.serve(sockets=[listening])


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
