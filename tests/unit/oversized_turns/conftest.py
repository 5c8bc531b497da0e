"""Sessions in a directory, as another process reads them; ``variables`` of a test's module says where."""

from collections.abc import AsyncIterator

import httpx
import pytest

from helix_temporal import Settings
from helix_temporal.backends import Backends
from helix_temporal.inspector import create_inspector
from tests.unit.inspector._asking import holding_link


@pytest.fixture
async def stores(variables: dict[str, str]) -> AsyncIterator[Backends]:
    """The same sessions for a process that reads them."""
    made = Backends(Settings.from_env(variables))
    yield made
    await made.close()


@pytest.fixture
async def browser(stores: Backends) -> AsyncIterator[httpx.AsyncClient]:
    """A browser on the inspector."""
    async with holding_link(create_inspector(stores)) as opened:
        yield opened
