"""Makes docs/images/inspector/ anew: pictures of the pages over the sessions of examples/lamp_shop.

Light, dark, and as narrow as a phone::

    PYTHONPATH=examples/lamp_shop python -m tests.integration._inspector_pictures [PAGE …]
"""

import asyncio
import base64
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, Page
from shop_agents import ASK_RETURN, make_agents
from shop_talk import RETURNS
from temporalio.client import Client

from helix_temporal import Settings, connect
from helix_temporal.devstack import start_stack
from helix_temporal.testing.environment import HelixEnv
from helix_temporal.views import SessionViews
from tests._browser import browser
from tests._commands import read_until, start
from tests.integration._inspected import Inspector, inspector_over, opened_at
from tests.integration._shop import opened_shop

OUT: Final = Path(__file__).parents[2] / "docs" / "images" / "inspector"
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
            for name, path in paths.items():
                response = await page.goto(inspector.address + path)
                await page.wait_for_timeout(300)
                width = await page.evaluate("document.documentElement.scrollWidth")
                picture = await shrink_picture(chromium, await page.screenshot())
                (out / f"{name}-{mode}.webp").write_bytes(picture)
                found = f"{response and response.status}, {width} wide, {len(picture):,} bytes"
                print(f"{name}-{mode}: {found}", *seen.complaints)  # noqa: T201
                seen.complaints.clear()


def _chosen(paths: Mapping[str, str], names: Collection[str]) -> Iterator[tuple[str, str]]:
    return ((name, path) for name, path in paths.items() if not names or name in names)


@asynccontextmanager
async def kept_schedules(env: HelixEnv) -> AsyncIterator[Client]:
    """A server that has schedules, as that of the shop has none, and a maintenance worker that keeps them."""
    with start_stack(["temporal"]) as stack:
        of_shop = env.backends.settings
        variables = {
            **stack.get_environment("temporal"),
            "HELIX_DATA_DIRECTORY": str(of_shop.data_directory),
            "HELIX_COLD_DIRECTORY": str(of_shop.cold_directory),
            "HELIX_TASK_QUEUE": of_shop.task_queue,
        }
        process = start(OUT, variables, "maintenance")
        try:
            await asyncio.to_thread(read_until, process, "helix-maintenance/")
            client, _ = await connect(Settings.from_env(variables))
            await asyncio.sleep(70)  # until those of each minute have run
            yield client
        finally:
            process.terminate()
            await asyncio.to_thread(process.communicate)


async def main(names: list[str]) -> None:
    """Fill a shop, look at it."""
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        async with opened_shop(Path(directory)) as env, browser() as chromium:
            shown: dict[str, Any] = {
                "client": env.sessions,
                "actions": True,
                "agents": {each.name: each for each in make_agents()},
            }
            async with (
                kept_schedules(env) as temporal,
                inspector_over(env.backends, temporal=temporal, **shown) as inspector,
            ):
                paths = dict(_chosen(await find_paths(env, inspector), names))
                await take_pictures(chromium, inspector, paths, OUT)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
