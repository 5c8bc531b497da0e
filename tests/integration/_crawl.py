"""Looking at every page that links lead to."""

import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urldefrag, urljoin, urlsplit

from playwright.async_api import Page

from tests.integration._inspected import Inspector


def kind_of(address: str) -> str:
    """Which page it is, whoever's: the last word of its path without ids and numbers."""
    path = urlsplit(address).path
    rest = re.sub(r"^/sessions/[^/]+", "/sessions/*", path)
    return re.sub(r"/\d+", "/*", rest)


async def crawl(
    page: Page,
    inspector: Inspector,
    look: Callable[[Page], Awaitable[None]],
    *,
    starts: Sequence[str] = (),
    most: int = 200,
    each_kind: int = 12,
) -> list[str]:
    """Open the first page, ``starts`` and what they link to, as far as that is the inspector's.

    Args:
        page: The window.
        inspector: Whose pages.
        look: Is called on each page.
        starts: Paths to begin with.
        most: Pages.
        each_kind: Pages of one kind: a list links to fifty conversations.

    Returns:
        The addresses that were opened.
    """
    waiting = deque([*(inspector.address + start for start in starts), inspector.address + "/"])
    known, kinds, opened = set(waiting), Counter[str](), list[str]()
    while waiting and len(opened) < most:
        address = waiting.popleft()
        kinds[kind_of(address)] += 1
        if kinds[kind_of(address)] > each_kind:
            continue
        answer = await page.goto(address, wait_until="load")
        assert answer is not None
        assert answer.status < 500, f"{answer.status} {address}: {await page.locator('main').inner_text()}"
        opened.append(address)
        await look(page)
        links = await page.evaluate("() => [...document.querySelectorAll('a[href]')].map(each => each.href)")
        for link in links:
            found = urldefrag(urljoin(address, link)).url
            if found.startswith(inspector.address) and found not in known and "/live" not in found:
                known.add(found)
                waiting.append(found)
    return opened
