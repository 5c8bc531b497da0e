"""An inspector that is asked without a network, as a browser on this machine would."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.types import ASGIApp

ORIGIN = "http://127.0.0.1:8377"


@asynccontextmanager
async def asking(
    app: ASGIApp, *, base: str = ORIGIN, client: str = "127.0.0.1", **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A browser without a cookie yet, whose connections come from ``client``."""
    transport = httpx.ASGITransport(app, client=(client, 50_000))
    async with httpx.AsyncClient(transport=transport, base_url=base, **options) as found:
        yield found


@asynccontextmanager
async def holding_link(app: Any, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that has opened the printed link."""
    async with asking(app, **options) as browser:
        answer = await browser.get(f"/?token={app.state.access.token}")
        assert answer.status_code == 303
        yield browser


async def walk_links(browser: httpx.AsyncClient, path: str, rel: str) -> list[str]:
    """The page at this path and those that its links lead on to."""
    pages: list[str] = []
    following: str | None = path
    while following is not None:
        answer = await browser.get(following)
        assert answer.status_code == 200, answer.text
        pages.append(answer.text)
        link = re.search(rf'<a rel="{rel}" href="([^"]+)"', answer.text)
        following = None if link is None else link[1].replace("&amp;", "&")
    return pages
