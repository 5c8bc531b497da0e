"""Stand-ins for providers."""

from collections.abc import AsyncIterator

import pytest

from tests.adapters._standin import StandIn, standing_in


@pytest.fixture
async def standin() -> AsyncIterator[StandIn]:
    """A server of the test's own, for a vendor's client to talk to."""
    async with standing_in() as server:
        yield server
