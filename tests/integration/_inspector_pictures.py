"""Makes docs/images/inspector/ anew: pictures of the pages over the sessions of examples/lamp_shop.

Light, dark, and as narrow as a phone::

    PYTHONPATH=examples/lamp_shop python -m tests.integration._inspector_pictures [PAGE …]
"""

import asyncio
import base64
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, Page
from shop_agents import ASK_RETURN, make_agents
from shop_talk import RETURNS

from helix_temporal.testing.environment import HelixEnv
from helix_temporal.views import SessionViews
from tests._browser import browser
from tests.integration._inspected import Inspector, inspector_over, opened_at
from tests.integration._shop import opened_shop

OUT: Final = Path(__file__).parents[2] / "docs" / "images" / "inspector"
KEPT: Final[Mapping[str, frozenset[str]]] = {
    "dark": frozenset({"sessions", "conversation", "context", "calls"}),
    "narrow": frozenset({"sessions", "conversation", "context", "calls", "timeline"}),
}
"""Which are kept dark and narrow, as pictures take room; light all are but those that show little here."""
LITTLE: Final = frozenset({"maintenance"})
MODES: Final[Mapping[str, dict[str, Any]]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}


async def find_paths(env: HelixEnv, inspector: Inspector) -> dict[str, str]:
    """Paths of the pages by their pictures' names."""
    views = SessionViews(env.backends)
    turns = (await views.read_turns(RETURNS)).turns
    returned = next(each for each in turns if each.messages[0].text == ASK_RETURN)
    points = (await views.list_checkpoints(RETURNS)).checkpoints
    label = returned.messages[-1].position

    def path(name: str, **params: Any) -> str:
        return str(inspector.app.url_path_for(name, **params))

    def one(name: str, **params: Any) -> str:
        return path(name, session_id=RETURNS, **params)

    return {
        "sessions": path("sessions"),
        "calls": f"{path('calls')}?failed=1&when=today",
        "waiting": path("waiting"),
        "maintenance": path("maintenance"),
        "conversation": f"{one('conversation')}#turn-{returned.number}",
        "context": one("context", position=label),
        "state": one("state"),
        "differences": f"{one('state')}?before={points[-1].checkpoint_id}" if points else one("state"),
        "timeline": one("timeline"),
        "tree": one("tree"),
        "usage": one("usage"),
        "storage": f"{one('storage')}?verify=1",
        "message": one("message", position=label),
        "turn": one("turn", number=returned.number),
    }


SHRINK: Final = """async (png) => {
    const image = await createImageBitmap(await (await fetch(png)).blob());
    const canvas = new OffscreenCanvas(image.width, image.height);
    canvas.getContext("2d").drawImage(image, 0, 0);
    const shrunk = await canvas.convertToBlob({type: "image/webp", quality: 0.72});
    return btoa(String.fromCharCode(...new Uint8Array(await shrunk.arrayBuffer())));
}"""


async def shrink_picture(chromium: Browser, png: bytes) -> bytes:
    """A picture as WebP, a third of the bytes."""
    page: Page = await chromium.new_page()
    try:
        found: str = await page.evaluate(SHRINK, f"data:image/png;base64,{base64.b64encode(png).decode()}")
    finally:
        await page.close()
    return base64.b64decode(found)


async def take_pictures(chromium: Browser, inspector: Inspector, paths: Mapping[str, str], out: Path) -> None:
    """A picture of each page in each mode."""
    for mode, options in MODES.items():
        async with opened_at(chromium, inspector, **options) as (page, seen):
            for name, path in _chosen(paths, KEPT.get(mode, paths.keys() - LITTLE)):
                response = await page.goto(inspector.address + path)
                await page.wait_for_timeout(300)
                width = await page.evaluate("document.documentElement.scrollWidth")
                picture = await shrink_picture(chromium, await page.screenshot())
                (out / f"{name}-{mode}.webp").write_bytes(picture)
                found = f"{response and response.status}, {width} wide, {len(picture):,} bytes"
                print(f"{name}-{mode}: {found}", *seen.complaints)  # noqa: T201
                seen.complaints.clear()


def _chosen(paths: Mapping[str, str], names: Collection[str] | None) -> Iterator[tuple[str, str]]:
    return ((name, path) for name, path in paths.items() if not names or name in names)


async def main(names: list[str]) -> None:
    """Fill a shop, look at it."""
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        async with opened_shop(Path(directory)) as env, browser() as chromium:
            agents = {each.name: each for each in make_agents()}
            served = inspector_over(env.backends, client=env.sessions, actions=True, agents=agents)
            async with served as inspector:
                paths = dict(_chosen(await find_paths(env, inspector), names))
                await take_pictures(chromium, inspector, paths, OUT)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
