"""A seed for each campaign, shown with whatever it found; a stage for single activities."""

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal.settings import Settings
from tests.chaos._stage import Stage


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
