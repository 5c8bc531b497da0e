"""Every hot tier keeps the same promises."""

import pytest

from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.testing.contracts.hot_tier import HotTierContract, TimeToLive


class TestMemoryThreads(HotTierContract):
    @pytest.fixture
    async def store(self) -> MemoryThreads:
        """An empty dict."""
        return MemoryThreads()

    @pytest.fixture
    async def time_to_live(self, store: MemoryThreads) -> TimeToLive:
        """Asks the store itself."""

        async def ask(thread_id: str) -> float | None:
            return store.expires_in(thread_id)

        return ask
