"""Sessions of a real worker, and the inspector over their stores, in a real browser."""

import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, Page
from starlette.applications import Starlette

from helix_temporal.inspector import create_inspector
from helix_temporal.inspector.server import bind, link_to, serving
from helix_temporal.testing.environment import HelixEnv, helix_env
from helix_temporal.testing.proxy import FaultProxy
from tests.workflows._desk import Desk

AXE = Path(__file__).parents[2] / ".venv" / "browser" / "axe.min.js"


@dataclass
class Inspector:
    """An inspector that is served.

    Attributes:
        link: Its first page, with the token.
        address: Without it and without a slash at the end.
        reports: What browsers tell that the policy has stopped.
    """

    app: Starlette
    link: str
    reports: list[bytes] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.link.partition("/?")[0]


@contextlib.asynccontextmanager
async def inspector_over(stores: Any, **options: Any) -> AsyncIterator[Inspector]:
    """The inspector over these stores on a port of its own."""
    reports: list[bytes] = []
    app = create_inspector(stores, reports=reports, **options)
    with bind("127.0.0.1", 0) as listening:
        async with serving(app, listening):
            yield Inspector(app, link_to(app, listening), reports)


@contextlib.asynccontextmanager
async def inspector_behind_proxy(stores: Any, **options: Any) -> AsyncIterator[tuple[Inspector, FaultProxy]]:
    """The inspector, which browsers reach through a network that can fail."""
    reports: list[bytes] = []
    with bind("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        async with FaultProxy.start(f"127.0.0.1:{port}") as proxy:
            app = create_inspector(stores, reports=reports, hosts=[proxy.address], **options)
            async with serving(app, listening):
                link = link_to(app, listening).replace(f"127.0.0.1:{port}", proxy.address)
                yield Inspector(app, link, reports), proxy


@dataclass
class Watched:
    """What a browser did beside showing pages.

    Attributes:
        foreign: Addresses of other hosts that it asked for.
        complaints: Errors of its console, such as of scripts and of the policy.
        dialogs: Texts of dialogs that scripts opened.
    """

    foreign: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)


async def watch(context: BrowserContext, address: str) -> Watched:
    """Note what the browser does from now on; nothing of it reaches another host."""
    seen, host = Watched(), urlsplit(address).netloc

    async def route(each: Any) -> None:
        if urlsplit(each.request.url).netloc == host or each.request.url.startswith("data:"):
            await each.continue_()
        else:
            seen.foreign.append(each.request.url)
            await each.abort()

    async def dismiss(each: Any) -> None:
        seen.dialogs.append(each.message)
        await each.dismiss()

    def listen(page: Page) -> None:
        page.on("dialog", dismiss)
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.on("console", lambda said: seen.complaints.append(said.text) if said.type == "error" else None)

    await context.route("**/*", route)
    context.on("page", listen)
    return seen


@contextlib.asynccontextmanager
async def opened_at(
    chromium: Browser, inspector: Inspector, **options: Any
) -> AsyncIterator[tuple[Page, Watched]]:
    """A window of its own in which the printed link was opened."""
    context = await chromium.new_context(**options)
    try:
        seen = await watch(context, inspector.address)
        page = await context.new_page()
        await page.goto(inspector.link)
        yield page, seen
    finally:
        await context.close()


@contextlib.asynccontextmanager
async def served_desk(desk: Desk, **options: Any) -> AsyncIterator[HelixEnv]:
    """A worker for the desk's agents."""
    async with helix_env(desk.agents(), **options) as env:
        yield env


async def find_faults(page: Page) -> list[str]:
    """What axe finds wrong with a page, one line each."""
    await page.evaluate(AXE.read_text())
    found = await page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{each['id']}: {node['html'][:160]} ({node['failureSummary'][:200]})"
        for each in found
        for node in each["nodes"]
    ]


def session_path(app: Starlette, session_id: str, page: str = "conversation") -> str:
    """The path of a session's page."""
    return str(app.url_path_for(page, session_id=session_id))


def words(text: str) -> str:
    """Text with single blanks, as a reader sees it."""
    return re.sub(r"\s+", " ", text).strip()
