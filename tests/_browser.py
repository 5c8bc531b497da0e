"""A headless Chromium: the one that the set-up brings, or the one that ``HELIX_TEST_CHROMIUM`` names."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

# It must not look for anything outside this machine, and runs as root where the tests do.
_QUIETLY = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> Path:
    """Where it is.

    Raises:
        FileNotFoundError: There is none; `make setup` brings it.
    """
    given = os.environ.get("HELIX_TEST_CHROMIUM")
    path = Path(given) if given else Path(sys.prefix) / "browser" / "chromium"
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: no Chromium; `make setup` brings one, HELIX_TEST_CHROMIUM names another"
        )
    return path


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A browser with an empty profile, closed at the end."""
    path = chromium()
    libraries = {"LD_LIBRARY_PATH": str(path.parent / "lib")} if (path.parent / "lib").is_dir() else {}
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(
            executable_path=path, args=_QUIETLY, env={**os.environ, **libraries}
        )
        try:
            yield opened
        finally:
            await opened.close()
