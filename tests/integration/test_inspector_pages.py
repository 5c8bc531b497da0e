"""The inspector's pages in a real browser, over the sessions of a shop: for everybody, by any means."""

import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from shop_agents import make_agents
from shop_talk import RETURNS

from helix_temporal.testing.environment import HelixEnv
from tests._browser import browser
from tests.integration._crawl import crawl
from tests.integration._inspected import Inspector, find_faults, inspector_over, opened_at
from tests.integration._inspector_pictures import MODES, find_paths
from tests.integration._shop import opened_shop

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

PAGES = [
    "sessions", "calls", "waiting", "maintenance", "conversation", "context", "state", "differences",
    "timeline", "tree", "usage", "storage", "message", "turn",
]  # fmt: skip
MAX_ROWS = 400
"""Elements of a page that are rows of something."""


class Shop(NamedTuple):
    """A shop's sessions, the inspector over them, and paths of its pages."""

    env: HelixEnv
    inspector: Inspector
    paths: dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    """Sessions in SQLite over an archive in a directory."""
    with tempfile.TemporaryDirectory(prefix="helix-shop-") as directory:
        async with opened_shop(Path(directory)) as env:
            agents = {agent.name: agent for agent in make_agents()}
            async with inspector_over(
                env.backends, agents=agents, client=env.sessions, actions=True
            ) as found:
                yield Shop(env, found, await find_paths(env, found))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    """A browser."""
    async with browser() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def page(shop: Shop, chromium: Browser) -> AsyncIterator[Page]:
    """A window on the first page; the policy stopped nothing in it."""
    async with opened_at(chromium, shop.inspector) as (page, _):
        yield page
        assert shop.inspector.reports == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_axe_finds_nothing(shop: Shop, chromium: Browser, mode: str) -> None:
    """Colours, names, headings, landmarks: for who can't see the page as we do, light, dark and narrow."""
    faults = {}
    async with opened_at(chromium, shop.inspector, reduced_motion="reduce", **MODES[mode]) as (page, _):
        for name in PAGES:
            await page.goto(shop.inspector.address + shop.paths[name])
            faults[name] = await find_faults(page)
        await page.goto(f"{shop.inspector.address}/sessions/nobody")
        faults["error"] = await find_faults(page)
    assert {name: found for name, found in faults.items() if found} == {}


async def test_the_page_for_who_is_refused_is_one_for_everybody(shop: Shop, chromium: Browser) -> None:
    """Whoever comes without the link is told what to do, in the same colours."""
    window = await chromium.new_page()
    answer = await window.goto(shop.inspector.address)
    assert answer is not None
    assert answer.status == 403
    assert await find_faults(window) == []
    await window.close()


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_fits_a_phone(shop: Shop, chromium: Browser, name: str) -> None:
    """Nothing sticks out to the right; wide things scroll by themselves."""
    async with opened_at(chromium, shop.inspector, **MODES["narrow"]) as (page, _):
        await page.goto(shop.inspector.address + shop.paths[name])
        wide = await page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0


async def test_a_reason_has_the_whole_width_of_a_phone(shop: Shop, chromium: Browser) -> None:
    """It stood to the right of "Approve", narrow, with a hole on its left."""
    async with opened_at(chromium, shop.inspector, **MODES["narrow"]) as (page, _):
        await page.goto(shop.inspector.address + shop.paths["waiting"])
        reason = await page.locator(".decide .reason").first.bounding_box()
        box = await page.locator(".decide").first.bounding_box()
    assert reason is not None
    assert box is not None
    assert reason["x"] == pytest.approx(box["x"], abs=1)


@pytest.mark.parametrize("path", ["/?tag=a", "/calls?tag=a&failed=1"])
async def test_the_filter_is_cleared_beside_where_it_is_set(page: Page, shop: Shop, path: str) -> None:
    """A lone "Clear" stood on a line of its own; and the hint for a time was cut."""
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.goto(shop.inspector.address + path)
    ends = [
        await page.locator(".filter").get_by_text(word, exact=True).bounding_box()
        for word in ("Filter", "Clear")
    ]
    assert abs(ends[0]["y"] - ends[1]["y"]) < 10  # type: ignore[index]
    cut = "each => each.placeholder.length > each.size"
    assert await page.locator(".filter input").evaluate_all(f"all => all.some({cut})") is False


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_can_be_read_without_javascript(shop: Shop, chromium: Browser, name: str) -> None:
    """What it says is in the HTML: for text browsers, for who switches scripts off, and for us."""
    async with opened_at(chromium, shop.inspector) as (page, _):
        await page.goto(shop.inspector.address + shop.paths[name])
        await page.wait_for_load_state("load")
        with_scripts = await page.locator("main h1").all_inner_texts()
    async with opened_at(chromium, shop.inspector, java_script_enabled=False) as (page, seen):
        answer = await page.goto(shop.inspector.address + shop.paths[name])
        assert answer is not None
        assert answer.status == 200
        assert await page.locator("main h1").all_inner_texts() == with_scripts
        assert len(await page.locator("main").inner_text()) > 40
        assert seen.foreign == []


UNTIL_QUIET = """() => new Promise(resolve => {
    let timer = setTimeout(resolve, 1000);
    new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(resolve, 1000); })
        .observe(document.querySelector('main'), {childList: true, subtree: true});
})"""
"""Resolves once nothing of the page has been replaced for a second."""


@pytest.mark.parametrize("name", PAGES)
async def test_everything_that_can_be_used_is_reached_with_the_tabulator(
    shop: Shop, page: Page, name: str
) -> None:
    """Without a mouse; and one sees where one is."""
    await page.goto(shop.inspector.address + shop.paths[name])
    if name == "conversation":
        # What is live replaces the turn under way.
        await expect(page.locator("#live-status")).to_contain_text("Following")
        await page.evaluate(UNTIL_QUIET)
    wanted = await page.evaluate(
        """() => [...document.querySelectorAll('a[href],button,input,select,textarea,summary')]
            .filter(each => each.checkVisibility({checkVisibilityCSS: true}) && !each.disabled
                && each.type !== 'hidden' && each.tabIndex >= 0)
            .map((each, at) => { each.dataset.reached = at; return String(at); })"""
    )
    await page.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0); }")
    reached, unseen = set[str](), list[str]()
    for _ in range(len(wanted) + 10):
        await page.keyboard.press("Tab")
        at, shown = await page.evaluate(
            """() => { const now = document.activeElement, style = getComputedStyle(now);
                const marked = style.outlineStyle !== 'none' || style.boxShadow !== 'none';
                return [now.dataset?.reached ?? '', marked]; }"""
        )
        reached.add(at)
        unseen += [at] if at and not shown else []
    assert set(wanted) - reached == set()
    assert unseen == []


async def test_on_paper_nothing_is_covered_or_cut(shop: Shop, page: Page) -> None:
    """The link to the content lay over the last line of each sheet, and long arguments were cut."""
    await page.goto(shop.inspector.address + shop.paths["conversation"])
    await page.emulate_media(media="print")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_hidden()
    await expect(page.locator(".code").first).to_have_css("max-height", "none")


async def test_a_row_is_chosen_and_opened_with_keys(page: Page) -> None:
    """As in a mail program: j, k, Enter; g s leads back."""
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("k")
    chosen = page.locator("[data-row].chosen a.main-link")
    address = await chosen.get_attribute("href")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(f"{re.escape(str(address))}$"))
    await page.wait_for_load_state()  # keys that come before its scripts do nothing
    await page.keyboard.press("g")
    await page.keyboard.press("s")
    await expect(page.locator("h1")).to_have_text("Sessions")


async def test_the_skip_link_comes_first(page: Page) -> None:
    """Whoever tabs need not pass the head of each page."""
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    assert await page.evaluate("() => document.activeElement.id") == "main"


class Clicks:
    """Counts clicks; typing is none."""

    def __init__(self) -> None:
        self.count = 0

    async def click(self, page: Page, name: str) -> None:
        """Click the first link of this name."""
        await page.get_by_role("link", name=name).first.click()
        self.count += 1


async def test_which_call_of_a_user_failed_and_what_the_model_was_given(page: Page) -> None:
    """The question that the page is for, from the first page, in four clicks at most."""
    clicks = Clicks()
    await page.get_by_label("User").first.fill("maria.keller")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("maria"))  # the first page has links of that name as well
    await clicks.click(page, "Failed tool calls")
    await expect(page.locator("main")).to_contain_text("create_return_label")
    await expect(page.locator("main")).to_contain_text("pickup_date")
    await clicks.click(page, "What the model was given")
    await expect(page.locator("main")).to_contain_text("find_order")
    assert clicks.count <= 4


async def test_no_page_has_more_rows_than_a_phone_can_draw(shop: Shop, page: Page) -> None:
    """Nor one that links from them lead to."""
    rows: dict[str, int] = {}

    async def count(window: Page) -> None:
        rows[window.url] = await window.evaluate(
            "() => document.querySelectorAll('tr,li,article,details,section,p.part').length"
        )

    await crawl(page, shop.inspector, count, starts=[shop.paths["conversation"]], most=60, each_kind=5)
    assert len(rows) > 25
    assert {url: found for url, found in rows.items() if found > MAX_ROWS} == {}


async def test_links_within_the_inspector_lead_somewhere(shop: Shop, page: Page) -> None:
    """A broken link is found by whoever needs it."""
    broken = []

    async def look(window: Page) -> None:
        heading = await window.locator("h1").first.inner_text()
        if heading in {"Not here", "This page failed"}:
            broken.append(window.url)

    await crawl(page, shop.inspector, look, starts=list(shop.paths.values()), most=120, each_kind=8)
    assert broken == []


async def test_a_turns_link_opens_at_the_turn(shop: Shop, page: Page) -> None:
    """What somebody sends to a colleague."""
    await page.goto(shop.inspector.address + shop.paths["conversation"])
    anchor = shop.paths["conversation"].partition("#")[2]
    await expect(page.locator(f"#{anchor}")).to_be_in_viewport()
    assert RETURNS.split("/", maxsplit=1)[0] in page.url.replace("~2f", "/")
