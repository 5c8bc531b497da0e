"""Every store of sessions keeps the same promises."""

from pathlib import Path

import pytest

from helix_temporal.stores.file import FileBackend
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.session_records import SessionRecords
from helix_temporal.testing.contracts.session_records import SessionRecordsWithThreadsContract
from tests.contracts._alternating import alternating


class TestMemorySessions(SessionRecordsWithThreadsContract):
    @pytest.fixture
    async def threads(self) -> MemoryThreads:
        """An empty dict."""
        return MemoryThreads()

    @pytest.fixture
    async def store(self, threads: MemoryThreads) -> MemorySessions:
        """An empty dict beside it."""
        return MemorySessions(threads)


class TestFileSessions(SessionRecordsWithThreadsContract):
    @pytest.fixture
    async def backend(self, tmp_path: Path) -> FileBackend:
        """A directory that is not there yet."""
        return FileBackend(tmp_path / "data")

    @pytest.fixture
    async def threads(self, backend: FileBackend) -> HotTier:
        """Its threads."""
        return backend.threads

    @pytest.fixture
    async def store(self, backend: FileBackend) -> SessionRecords:
        """Its sessions."""
        return backend.sessions


class TestFileSessionsOfTwoProcesses(SessionRecordsWithThreadsContract):
    @pytest.fixture
    async def threads(self, tmp_path: Path) -> HotTier:
        """The threads of a third."""
        return FileBackend(tmp_path / "data").threads

    @pytest.fixture
    async def store(self, tmp_path: Path) -> SessionRecords:
        """Every call goes to the other one than the call before."""
        return alternating(FileBackend(tmp_path / "data").sessions, FileBackend(tmp_path / "data").sessions)
