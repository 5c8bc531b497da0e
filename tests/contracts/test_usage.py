"""Every usage store keeps the same promises."""

import pytest

from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.testing.contracts.usage import UsageContract


class TestMemoryUsage(UsageContract):
    @pytest.fixture
    async def usage(self) -> MemoryUsage:
        """An empty dict."""
        return MemoryUsage()

    @pytest.fixture
    async def another(self, usage: MemoryUsage) -> MemoryUsage:
        """Memory is of one process: there is no other."""
        return usage
