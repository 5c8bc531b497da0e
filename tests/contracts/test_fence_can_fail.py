"""The fence is removed from each hot tier, the rule or its copy: the contract must then fail."""

from collections.abc import AsyncIterator, Awaitable, Callable
from unittest.mock import patch

import pytest

from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.postgres import PostgresBackend, PostgresThreads
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.redis import RedisBackend, scripts
from helix_temporal.stores.redis.scripts import Script
from helix_temporal.stores.sqlite import SqliteBackend, SqliteThreads
from helix_temporal.stores.threads.fences import Fence
from helix_temporal.testing.builders import an_id
from helix_temporal.testing.contracts._hot_fence import WRITES, FenceContract, Write

Promise = Callable[[FenceContract, HotTier, str, Write], Awaitable[None]]

PROMISES = [
    FenceContract.test_an_old_epoch_is_fenced,
    FenceContract.test_a_thread_older_than_the_open_is_refused,
    FenceContract.test_a_closed_epoch_is_fenced,
]
AT_THE_HEAD = [each for each in WRITES if each.id in {"append at the head", "save_slice"}]
"""Others are refused for their place as well."""


class FenceRemoved:
    """A store whose fence admits everybody."""

    @pytest.fixture
    async def unfenced(self) -> HotTier:
        """It is given by each backend."""
        raise NotImplementedError

    @pytest.mark.parametrize("write", AT_THE_HEAD)
    @pytest.mark.parametrize("promise", PROMISES, ids=lambda each: each.__name__)
    async def test_the_contract_sees_it(self, unfenced: HotTier, promise: Promise, write: Write) -> None:
        """An intruder's write is taken."""
        with pytest.raises((pytest.fail.Exception, AssertionError)):
            await promise(FenceContract(), unfenced, f"thread-{an_id()}", write)

    @pytest.mark.parametrize("write", [each for each in AT_THE_HEAD if each.id == "save_slice"])
    async def test_the_contract_sees_a_tombstone_that_lives(self, unfenced: HotTier, write: Write) -> None:
        """A deleted thread comes back."""
        with pytest.raises((pytest.fail.Exception, AssertionError)):
            await FenceContract().test_a_tombstone_is_fenced(unfenced, f"thread-{an_id()}", write)


class TestMemory(FenceRemoved):
    @pytest.fixture
    async def unfenced(self) -> AsyncIterator[MemoryThreads]:
        """The rule itself."""
        with patch.object(Fence, "find_refusal", lambda *_, **__: None):
            yield MemoryThreads()


class TestSqlite(FenceRemoved):
    @pytest.fixture
    async def unfenced(self, sqlite: SqliteBackend) -> AsyncIterator[SqliteThreads]:
        """The rule itself."""
        with patch.object(Fence, "find_refusal", lambda *_, **__: None):
            yield sqlite.threads


class TestRedis(FenceRemoved):
    @pytest.fixture
    async def unfenced(self, redis_url: str, redis_prefix: str) -> AsyncIterator[HotTier]:
        """The copy in Lua."""
        backend = RedisBackend(redis_url, prefix=redis_prefix, timeout=60)
        append, save = _without_refusal(scripts.APPEND), _without_refusal(scripts.SAVE_SLICE)
        with patch.object(scripts, "APPEND", append), patch.object(scripts, "SAVE_SLICE", save):
            yield backend.threads
        await backend.close()


class TestPostgres(FenceRemoved):
    @pytest.fixture
    async def unfenced(self, postgres: PostgresBackend) -> PostgresThreads:
        """The copy in SQL."""
        threads = PostgresThreads(postgres.database, table_prefix=postgres.table_prefix)
        queries = threads._queries
        for name in ("thread_append", "thread_save_slice"):
            queries._texts[name] = _replaced(
                queries[name], "t.epoch = $2 AND NOT t.closed AND NOT t.deleted", "$2::bigint >= 0"
            )
        return threads


def _without_refusal(script: Script) -> Script:
    start = "local function refusal(h, epoch)\n"
    return Script(script.name, _replaced(script.text, start, f"{start}  if epoch then return nil end\n"))


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} stands there {text.count(old)} times"
    return text.replace(old, new)
