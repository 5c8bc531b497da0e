"""The streaming page in a real browser: a session is seen live, and lost connections lose nothing."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from helix_temporal.testing.proxy import FaultProxy
from tests._browser import browser
from tests.docs._pages import ROOT
from tests.docs.test_examples import environment, variables

__all__ = ["variables"]

WORDS = 200
CUTS = 4

SLOWLY = """
import asyncio, runpy, sys
from pathlib import Path
from types import SimpleNamespace

program, quick = map(Path, sys.argv[1:])
sys.path.insert(0, str(program.parent))
import story

async def sleep(seconds):
    await asyncio.sleep(0.01 if quick.exists() else 0.3)

story.asyncio = SimpleNamespace(sleep=sleep)
runpy.run_path(str(program), run_name="__main__")
"""
"""The example, whose story is told slowly, for a minute, until there is a file: a test may take its time."""


@asynccontextmanager
async def serving(variables: Mapping[str, str], quick: Path | None = None) -> AsyncIterator[str]:
    """The example, for as long as the block lasts; gives its address.

    Its story is told slowly for as long as the file ``quick`` is not there, if one is named.
    """
    program = str(ROOT / "examples" / "streaming_page" / "streaming_page.py")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *((program,) if quick is None else ("-c", SLOWLY, program, str(quick)))),
        cwd=ROOT,
        env=environment(variables),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        found = re.search(r"http://(127\.0\.0\.1:\d+)/", line)
        assert found, line
        yield found[1]
    finally:
        process.terminate()
        async with asyncio.timeout(30):
            await process.wait()


async def tell(page: Page, place: str) -> None:
    """Ask for a story."""
    await page.fill("#text", place)
    await page.click("button")


def whole(place: str) -> str:
    """The story as the model tells it."""
    first = f"{place} is known for its lighthouse."
    return " ".join([first, *(f"word{number}" for number in range(1, WORDS)), ""])


@pytest.mark.slow
async def test_lost_connections_lose_and_double_nothing(variables: dict[str, str], tmp_path: Path) -> None:
    """What the page has put together from pieces, over many connections, is the answer in the thread."""
    quick = tmp_path / "quick"
    async with serving(variables, quick) as address, FaultProxy.start(address) as proxy, browser() as opened:
        page = await opened.new_page()
        await page.goto(f"http://{proxy.address}/#cut")
        await tell(page, "Skagen")
        answer = page.locator(".assistant .text", has_text="lighthouse")
        await expect(answer).to_contain_text("word5 ", timeout=60_000)
        for cut in range(CUTS):
            # Connected again, and told something since.
            await page.wait_for_function(f"connections > {cut}", timeout=30_000)
            said = len(await answer.text_content() or "")
            await page.wait_for_function(
                f"[...shown.values()].some((each) => each.text.length > {said})", timeout=30_000
            )
            proxy.refuse()
            await asyncio.sleep(0.05)
            proxy.refuse(False)
        # Connected for the last time before the story ends.
        await page.wait_for_function(f"connections > {CUTS}", timeout=30_000)
        quick.touch()
        await expect(page.locator("body")).to_have_attribute("data-ended", "completed", timeout=60_000)
        await page.screenshot(path=tmp_path / "page.png")
        # Told by the pieces alone: nothing had to be read from the thread to make it right.
        assert await page.evaluate("mended") == 0
        assert await page.evaluate("connections") > CUTS
        assert await answer.evaluate("each => each.textContent") == whole("Skagen")
        assert await answer.count() == 1
        await page.reload()
        await expect(answer).to_have_count(1, timeout=30_000)
        assert await answer.evaluate("each => each.textContent") == whole("Skagen")


@pytest.mark.slow
async def test_two_who_watch_see_the_same(variables: dict[str, str]) -> None:
    """One asks, the other opened the page in mid-answer: both end with the question and the whole answer."""
    async with serving(variables) as address, browser() as opened:
        asking, watching = await opened.new_page(), await opened.new_page()
        await asking.goto(f"http://{address}/#both")
        await tell(asking, "Cape Finisterre")
        await expect(asking.locator(".assistant .text", has_text="word20 ")).to_have_count(1, timeout=60_000)
        assert await asking.locator(".thinking", has_text="look it up").count() == 1
        assert "look_up" in (await asking.locator(".assistant .tool").first.text_content() or "")
        await watching.goto(f"http://{address}/#both")
        for page in (asking, watching):
            await expect(page.locator("body")).to_have_attribute("data-ended", "completed", timeout=60_000)
            answer = page.locator(".assistant .text", has_text="lighthouse")
            assert await answer.evaluate("each => each.textContent") == whole("Cape Finisterre")
            await expect(page.locator(".user")).to_have_text("Cape Finisterre", timeout=10_000)
