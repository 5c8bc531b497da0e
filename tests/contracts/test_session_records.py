"""Every store of sessions keeps the same promises."""

import pytest

from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.testing.contracts.session_records import SessionRecordsWithThreadsContract


class TestMemorySessions(SessionRecordsWithThreadsContract):
    @pytest.fixture
    async def threads(self) -> MemoryThreads:
        """An empty dict."""
        return MemoryThreads()

    @pytest.fixture
    async def store(self, threads: MemoryThreads) -> MemorySessions:
        """An empty dict beside it."""
        return MemorySessions(threads)
