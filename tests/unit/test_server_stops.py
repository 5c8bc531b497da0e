"""A server that is told to end while pages are open."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from helix_temporal.web import server_end
from helix_temporal.web.event_stream import EventStream
from tests.unit._web import http_client

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0
"""Seconds: a stream that is waited for lasts a quarter of an hour."""


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader, int]]:
    """The application, served by uvicorn as from a shell, with its log and its port."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "tests.unit._stopping_app:app", "--port", "0"),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    log = process.stderr
    assert log is not None
    try:
        found, lines = None, b""
        while found is None:
            line = await log.readline()
            lines += line
            assert line, lines.decode()
            found = re.search(rb"running on http://127.0.0.1:(\d+)", line)
        yield process, log, int(found[1])
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("path", ["/inspector/sessions/s1/live?shown=0", "/web/sessions/s1/events"])
async def test_a_server_that_is_told_to_end_does_not_wait_for_open_pages(path: str) -> None:
    """A roll-out would be as slow as the grace that it is given, and ended by SIGKILL."""
    async with (
        serving() as (process, log, port),
        http_client(port) as http,
        http.stream("GET", path) as answer,
    ):
        pieces = answer.aiter_text()
        await anext(pieces)
        process.terminate()
        async with asyncio.timeout(PATIENCE):
            async for _ in pieces:
                pass
            said = (await log.read()).decode()
            await process.wait()
    assert "Application shutdown complete" in said
    assert "Traceback" not in said
    assert "ERROR" not in said


async def test_a_stream_that_begins_while_the_server_stops_has_a_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind a middleware that lets others run, its end was sent first: an error of the server's."""
    monkeypatch.setattr(server_end, "is_server_stopping", lambda: True)
    sent: list[str] = []

    async def send(message: Any) -> None:
        await asyncio.sleep(0)
        sent.append(message["type"])

    async def wait_forever() -> Any:
        await asyncio.Event().wait()

    async def speak() -> AsyncGenerator[bytes]:
        yield b"data: x\n\n"
        await wait_forever()

    await EventStream(speak(), lambda: None)({}, wait_forever, send)
    assert sent == ["http.response.start", "http.response.body", "http.response.body"]
