"""A seed for each campaign, shown with whatever it found; a stage for single activities."""

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal.settings import Settings
from tests.chaos._stage import Stage
from tests.chaos._waiting import where_tasks_wait


@pytest.fixture
def seed(record_property: pytest.FixtureRequest) -> int:
    """Random, or ``HELIX_TEST_CHAOS_SEED``; written into the report."""
    given = os.environ.get("HELIX_TEST_CHAOS_SEED")
    found = int(given) if given else secrets.randbelow(2**31)
    record_property("seed", found)  # type: ignore[operator]
    return found


@pytest.fixture
async def stage(settings: Settings, tmp_path: Path) -> AsyncIterator[Stage]:
    """Real stores, to call activities on."""
    async with Stage.open(settings, tmp_path) as stage:
        yield stage


@pytest.fixture(autouse=True)
async def told_where_it_hangs(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Shortly before a test is given up, say what each task waits for: the time limit shows only the loop."""
    marker = request.node.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker and marker.args else request.config.getini("timeout") or 120)
    given = request.config.getoption("timeout", None)
    loop = asyncio.get_running_loop()

    def tell() -> None:
        sys.stderr.write(where_tasks_wait(loop))

    timer = loop.call_later(0.9 * float(given or limit), tell)
    yield
    timer.cancel()
