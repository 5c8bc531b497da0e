"""A headless Chromium: what ``HELIX_TEST_CHROMIUM`` names, what the set-up brought, or the machine's own."""

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright, expect

# Five seconds by default: a busy machine has a page wait for longer.
expect.set_options(timeout=20_000)

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
    brought = Path(sys.prefix) / "browser" / "chromium"
    names = [os.environ.get("HELIX_TEST_CHROMIUM"), str(brought), "chromium", "chromium-browser"]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        raise FileNotFoundError(f"no Chromium: `make setup` brings {brought}; HELIX_TEST_CHROMIUM names one")
    return Path(found)


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
