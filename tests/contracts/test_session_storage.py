"""The façade keeps its sessions alike wherever they are."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from helix_temporal.errors import InvalidConfigError, StoreCorruptError
from helix_temporal.facade import (
    create_session_storage,
    get_default_storage,
    set_default_storage,
)
from helix_temporal.facade.documents import FileSessionStorage
from helix_temporal.models.facade import StoredSession
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.memory.storage import MemorySessionStorage
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.postgres.storage import PostgresSessionStorage
from helix_temporal.stores.redis.storage import RedisSessionStorage
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.storage import StoreSessionStorage
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.contracts.session_storage import SessionStorageContract


class TestMemoryStorage(SessionStorageContract):
    @pytest.fixture
    async def storage(self) -> MemorySessionStorage:
        """A dict."""
        return MemorySessionStorage()


class TestFileStorage(SessionStorageContract):
    @pytest.fixture
    async def storage(self, tmp_path: Path) -> FileSessionStorage:
        """A directory that is not there yet."""
        return FileSessionStorage(tmp_path / "sessions")

    async def test_foreign_and_damaged_files_are_passed_over(
        self, storage: FileSessionStorage, tmp_path: Path
    ) -> None:
        """A list shows what is ours; loading a damaged one says so."""
        await storage.save(StoredSession(id="mine"))
        (tmp_path / "sessions" / "notes.txt").write_text("not ours")
        (tmp_path / "sessions" / "half.json").write_text('{"id": "half"')
        assert await storage.list() == ["mine"]
        with pytest.raises(StoreCorruptError):
            await storage.load("half")


class TestRedisStorage(SessionStorageContract):
    @pytest.fixture
    async def storage(self, redis_url: str, redis_prefix: str) -> AsyncIterator[RedisSessionStorage]:
        """A real server."""
        storage = RedisSessionStorage(redis_url, prefix=redis_prefix)
        yield storage
        await storage.close()

    async def test_a_damaged_session_is_told_and_hides_no_other(
        self, storage: RedisSessionStorage, redis_url: str, redis_prefix: str
    ) -> None:
        """Without what is in it; a list shows the others."""
        await storage.save(StoredSession(id="mine"))
        async with Redis.from_url(redis_url) as redis:
            await redis.set(f"{redis_prefix}facade:half", b'{"id": "secret"')
        assert await storage.list() == ["mine"]
        with pytest.raises(StoreCorruptError) as caught:
            await storage.load("half")
        assert "secret" not in str(caught.value)


class TestPostgresStorage(SessionStorageContract):
    @pytest.fixture
    async def storage(
        self, postgres_dsn: str, postgres: PostgresBackend
    ) -> AsyncIterator[PostgresSessionStorage]:
        """Tables of its own on a real server."""
        storage = PostgresSessionStorage(postgres_dsn, table_prefix=postgres.table_prefix)
        yield storage
        await storage.close()


class TestStoreStorage(SessionStorageContract):
    @pytest.fixture
    async def storage(self) -> StoreSessionStorage:
        """Any session store with threads."""
        backend = MemoryBackend()
        return StoreSessionStorage(RowSessions(backend.sessions, HotThreads(backend.threads)), backend.locks)


def test_a_storage_is_made_by_its_kind(tmp_path: Path) -> None:
    """What a kind needs and is not given is told."""
    assert isinstance(create_session_storage(), MemorySessionStorage)
    assert isinstance(create_session_storage("file", directory=tmp_path), FileSessionStorage)
    for kind in ("file", "redis", "postgres", "sqlite"):
        with pytest.raises(InvalidConfigError):
            create_session_storage(kind)  # type: ignore[arg-type]


def test_the_default_is_for_later_sessions() -> None:
    """Setting it moves nobody (case 127)."""
    mine = MemorySessionStorage()
    set_default_storage(mine, here=True)
    assert get_default_storage() is mine
    set_default_storage(None, here=True)
    assert get_default_storage() is get_default_storage()
