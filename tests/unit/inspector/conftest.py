"""What several tests of the inspector need."""

from collections.abc import AsyncIterator

import httpx
import pytest

from helix_temporal.backends import Backends
from tests.unit._web import http_client, served
from tests.unit.inspector._live_streams import make_app


@pytest.fixture
async def http(backends: Backends) -> AsyncIterator[httpx.AsyncClient]:
    """A browser of an inspector over the stores of the test."""
    async with served(make_app(backends)) as port, http_client(port) as client:
        yield client
