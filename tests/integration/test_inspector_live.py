"""A conversation that is followed in a browser while it goes on."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from helix_temporal.agents import ModelRequest
from helix_temporal.models.streams import TextChunk
from helix_temporal.testing.environment import HelixEnv
from tests._browser import browser
from tests.integration._inspected import inspector_over, opened_at, served_desk, session_path
from tests.workflows._desk import Desk, Gate

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def desk() -> Desk:
    """What agents say."""
    return Desk()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(desk: Desk) -> AsyncIterator[HelixEnv]:
    """A worker with stores in memory."""
    async with served_desk(desk) as env:
        yield env


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    """A browser."""
    async with browser() as opened:
        yield opened


async def test_a_turn_is_followed_from_its_first_word_to_the_thread(
    env: HelixEnv, desk: Desk, chromium: Browser
) -> None:
    """What is written stands on the page at once, and in the end it is what is stored."""
    gate = Gate()

    async def speak(request: ModelRequest) -> AsyncIterator[str]:
        yield "Lighthouses <b>shine</b>"
        await gate.passing()
        yield " at\r\n night."

    desk.streams["live-1"] = speak
    desk.scripts["live-1"] = lambda request: "unused"
    await env.sessions.ask("live-1", "first", agent="main")
    async with inspector_over(env.backends, client=env.sessions) as inspector:
        async with opened_at(chromium, inspector) as (page, seen):
            await page.goto(inspector.address + session_path(inspector.app, "live-1"))
            await expect(page.locator("#live-status")).to_contain_text("Following")
            print(await page.content())
            print(seen)
