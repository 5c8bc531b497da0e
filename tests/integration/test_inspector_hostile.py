"""Hostile text in every field of sessions, on every page, in a real browser: nothing of it runs."""

import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from helix_temporal.testing.environment import HelixEnv, helix_env
from tests._browser import browser
from tests.integration import _hostile
from tests.integration._crawl import crawl
from tests.integration._inspected import Inspector, Watched, inspector_over, opened_at, session_path
from tests.unit._web import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(300)]


class Scene(NamedTuple):
    """Hostile sessions, and the inspector over them."""

    env: HelixEnv
    inspector: Inspector
    ids: list[str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene() -> AsyncIterator[Scene]:
    """Sessions whose every field is hostile; one of them has a conversation of it, another a huge message."""
    async with helix_env([_hostile.make_agent()]) as env:
        ids = await _hostile.make_sessions(env)
        send = _hostile.sender_of(env)
        await send(ids[0], "\n".join(_hostile.TEXTS))
        await send(ids[1], _hostile.HUGE)
        async with inspector_over(env.backends, client=env.sessions, actions=True) as inspector:
            yield Scene(env, inspector, ids)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    """A browser."""
    async with browser() as opened:
        yield opened


async def has_run(page: Page) -> bool:
    """Whether a script of the corpus has."""
    return bool(await page.evaluate(f"() => '{_hostile.MARK}' in window"))


def check_quiet(seen: Watched, inspector: Inspector) -> None:
    """Nothing was stopped, because nothing was tried."""
    assert seen.dialogs == []
    assert seen.foreign == []
    assert [json.loads(each) for each in inspector.reports] == []
    assert [text for text in seen.complaints if "40" not in text[:80]] == []


async def test_the_policy_tells_what_it_stops(scene: Scene, chromium: Browser) -> None:
    """Otherwise the other tests here would find nothing, whatever the pages let through."""
    async with opened_at(chromium, scene.inspector) as (page, seen):
        await page.evaluate(
            f"() => {{ const made = document.createElement('script'); made.textContent = '{_hostile.MARK}=1';"
            " document.body.append(made); new Image().src = 'http://evil.example/i.png'; }"
        )
        # The browser tells of both when it likes; one that came later would be the next test's.
        await until(lambda: stopped(scene.inspector) == {"script-src-elem", "img-src"})
        await until(lambda: seen.complaints != [])
        assert not await has_run(page)
        assert seen.foreign == []
    scene.inspector.reports.clear()


def stopped(inspector: Inspector) -> set[str]:
    """By which directives, as browsers have told so far."""
    return {json.loads(each)["csp-report"]["effective-directive"] for each in inspector.reports}


async def test_nothing_runs_on_any_page(scene: Scene, chromium: Browser) -> None:
    """All pages that links lead to, with everything unfolded, hovered and focused."""
    ran = []

    async def look(page: Page) -> None:
        await page.evaluate("() => document.querySelectorAll('details').forEach(each => each.open = true)")
        await page.evaluate(
            "() => document.querySelectorAll('a,button,input,summary').forEach(each => each.focus())"
        )
        if await has_run(page):
            ran.append(page.url)

    async with opened_at(chromium, scene.inspector) as (page, seen):
        starts = [session_path(scene.inspector.app, each) for each in scene.ids[:3]]
        visited = await crawl(page, scene.inspector, look, starts=starts, most=120)
        check_quiet(seen, scene.inspector)
    assert ran == []
    assert len(visited) >= 60


async def test_hostile_text_can_be_read(scene: Scene, chromium: Browser) -> None:
    """Dropping it would be safe as well, and no use."""
    async with opened_at(chromium, scene.inspector) as (page, _):
        await page.goto(scene.inspector.address + session_path(scene.inspector.app, scene.ids[0]))
        text = await page.locator("main").inner_text()
        assert f"<script>window.{_hostile.MARK}=1</script>" in text
        assert "{{7*7}}" in text
        assert "49" not in await page.locator("h1").inner_text()
        assert "U+202E" in text


async def test_links_lead_nowhere_else(scene: Scene, chromium: Browser) -> None:
    """No text of a model is a link, and no link leaves the inspector."""
    async with opened_at(chromium, scene.inspector) as (page, _):
        await page.goto(scene.inspector.address + session_path(scene.inspector.app, scene.ids[0]))
        hrefs = await page.evaluate(
            "() => [...document.querySelectorAll('a,form')].map(each => each.href || each.action)"
        )
    assert [each for each in hrefs if not str(each).startswith(scene.inspector.address)] == []


async def test_a_huge_message_is_cut(scene: Scene, chromium: Browser) -> None:
    """A page of a megabyte in thousands of rows would hang a phone."""
    async with opened_at(chromium, scene.inspector) as (page, _):
        response = await page.goto(scene.inspector.address + session_path(scene.inspector.app, scene.ids[1]))
        assert response is not None
        assert len(await response.body()) < 300_000
