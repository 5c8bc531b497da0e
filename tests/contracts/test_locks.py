"""Every lock manager keeps the same promises."""

import pytest

from helix_temporal.stores.memory.locks import MemoryLocks
from helix_temporal.testing.contracts.locks import LocksContract


class TestMemoryLocks(LocksContract):
    @pytest.fixture
    async def locks(self) -> MemoryLocks:
        """An empty dict."""
        return MemoryLocks()

    @pytest.fixture
    async def another(self, locks: MemoryLocks) -> MemoryLocks:
        """Memory is of one process: there is no other."""
        return locks
