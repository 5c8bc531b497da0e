"""Holding a lease when things go wrong: stores that do not answer, cancels at the worst moment."""

import asyncio
import logging

import pytest

from helix_temporal.errors import (
    InvalidConfigError,
    InvalidRequestError,
    LeaseLostError,
    StoreUnavailableError,
    UnsupportedServerError,
)
from helix_temporal.models.store_calls import LockInfo
from helix_temporal.stores.locks import Claim
from helix_temporal.stores.memory.locks import MemoryLocks, NoOpLockManager


class Troubled(MemoryLocks):
    """Memory behind a network: calls can fail, hang, or lose their answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = asyncio.Event()
        self.failing: Exception | None = None
        self.failures = 0
        self.refreshes = 0

    async def _take_lease(self, wanted: Claim) -> LockInfo | None:
        found = await super()._take_lease(wanted)
        self.asked.set()
        await self.answers.wait()
        return found

    async def _extend_lease(self, key: str, token: int, ttl_ms: int | None) -> bool:
        self.refreshes += 1
        await self.answers.wait()
        self._fail()
        return await super()._extend_lease(key, token, ttl_ms)

    async def _release_lease(self, key: str, token: int) -> bool:
        self.asked.set()
        await self.answers.wait()
        self._fail()
        return await super()._release_lease(key, token)

    def _fail(self) -> None:
        if self.failing is not None:
            self.failures += 1
            raise self.failing


@pytest.fixture
def locks() -> Troubled:
    """Healthy at first."""
    return Troubled()


async def test_a_block_is_cancelled_when_the_store_is_away_for_all_of_the_lease(locks: Troubled) -> None:
    """By then another may have been granted the lock."""
    locks.failing = StoreUnavailableError("down")
    with pytest.raises(LeaseLostError):
        async with locks.hold("k", ttl_ms=2_000):
            await asyncio.wait_for(asyncio.Event().wait(), 30)
    assert locks.refreshes > 1


async def test_a_block_is_cancelled_when_the_store_never_answers(locks: Troubled) -> None:
    """A refresh that hangs must not let the lease run out unnoticed."""

    async def work() -> None:
        async with locks.hold("k", ttl_ms=100):
            locks.answers.clear()
            try:
                await asyncio.wait_for(asyncio.Event().wait(), 30)
            finally:
                locks.answers.set()

    with pytest.raises(LeaseLostError):
        await work()


async def test_a_block_survives_a_store_that_is_away_for_a_moment(locks: Troubled) -> None:
    """A failover shorter than the lease costs nothing."""
    time = asyncio.get_running_loop().time
    ended = time() + 3.1
    async with locks.hold("k", ttl_ms=3_000):
        locks.failing = StoreUnavailableError("failover")
        async with asyncio.timeout(30):
            while locks.failures == 0:  # noqa: ASYNC110 — the store does not call back
                await asyncio.sleep(0.01)
        locks.failing = None
        await asyncio.sleep(ended - time())
        assert await locks.is_locked("k")


async def test_a_block_is_cancelled_when_the_lease_can_never_be_refreshed(
    locks: Troubled, caplog: pytest.LogCaptureFixture
) -> None:
    """Rights that were taken away do not come back by waiting; the log says what was wrong."""

    async def work() -> None:
        async with locks.hold("k", ttl_ms=3_000):
            locks.failing = UnsupportedServerError("read-only")
            try:
                await asyncio.wait_for(asyncio.Event().wait(), 30)
            finally:
                locks.failing = None

    with caplog.at_level(logging.WARNING, "helix_temporal.locks"), pytest.raises(LeaseLostError):
        await work()
    assert "read-only" in caplog.text


async def test_work_that_is_done_does_not_fail_by_a_release_that_does(
    locks: Troubled, caplog: pytest.LogCaptureFixture
) -> None:
    """The lease ends by itself."""
    with caplog.at_level(logging.WARNING, "helix_temporal.locks"):
        async with locks.hold("k"):
            locks.failing = StoreUnavailableError("down")
    assert "not given back" in caplog.text


async def test_a_cancel_during_the_acquire_leaves_no_lease(locks: Troubled) -> None:
    """The store has granted it, the answer is on its way: it is given back before the cancel goes on."""
    await _cancelled_while_it_acquires(locks, None)
    assert not await locks.is_locked("k")


async def test_a_cancel_during_the_acquire_leaves_the_lease_of_a_named_claim(locks: Troubled) -> None:
    """An attempt that timed out must not release what the next attempt has already been given."""
    await _cancelled_while_it_acquires(locks, "op-1")
    assert await locks.is_locked("k")
    assert await locks.acquire("k", claim="op-1") is not None


async def _cancelled_while_it_acquires(locks: Troubled, claim: str | None) -> None:
    locks.answers.clear()
    waiting = asyncio.create_task(locks.acquire_wait("k", claim=claim))
    await locks.asked.wait()
    waiting.cancel()
    await asyncio.sleep(0)
    locks.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_second_cancel_does_not_stop_the_release(locks: Troubled) -> None:
    """A worker that shuts down cancels whoever is still cleaning up."""

    async def work() -> None:
        async with locks.hold("k"):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await locks.asked.wait()
    await asyncio.sleep(0)
    locks.asked.clear()
    locks.answers.clear()
    task.cancel()
    await locks.asked.wait()
    task.cancel()
    await asyncio.sleep(0)
    locks.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await locks.is_locked("k")


async def test_a_time_out_around_a_block_stays_a_time_out(locks: Troubled) -> None:
    """It is the caller's own, no loss of the lease."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02), locks.hold("k"):
            await asyncio.Event().wait()
    assert not await locks.is_locked("k")


@pytest.mark.parametrize("failure", [StoreUnavailableError("down"), UnsupportedServerError("read-only")])
async def test_an_error_of_the_block_is_not_hidden_by_a_failed_release(
    locks: Troubled, failure: Exception
) -> None:
    """What went wrong first is what the caller must know."""

    async def work() -> None:
        async with locks.hold("k"):
            locks.failing = failure
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()


async def test_a_block_that_swallows_its_cancel_is_told_at_its_end(locks: Troubled) -> None:
    """Work under a lost lease never looks like success."""

    async def work() -> None:
        async with locks.hold("k", ttl_ms=90, owner="me"):
            await locks.acquire("k", owner="me")
            try:
                await asyncio.wait_for(asyncio.Event().wait(), 30)
            except asyncio.CancelledError:
                return

    with pytest.raises(LeaseLostError):
        await work()


async def test_no_task_is_left_behind(locks: Troubled) -> None:
    """The background refresh ends with its block."""
    before = asyncio.all_tasks()
    async with locks.hold("k"):
        assert len(asyncio.all_tasks()) == len(before) + 1
    assert asyncio.all_tasks() == before


async def test_clear_ends_all_leases_and_keeps_their_tokens() -> None:
    """A test that starts over must not meet a token that was there before."""
    frozen = MemoryLocks(clock=lambda: 1_700_000_000.0)
    first = await frozen.acquire("k")
    frozen.clear()
    assert frozen.get_active_locks() == []
    second = await frozen.acquire("k")
    assert first is not None
    assert second is not None
    assert second.fencing_token == first.fencing_token + 1
    assert frozen.get_active_locks() == [second.info]


async def test_tokens_grow_though_the_clock_goes_back() -> None:
    """A server that was set right by its time service."""
    times = iter([2_000.0, 1_000.0, 500.0, 400.0, 300.0])
    skewed = MemoryLocks(clock=lambda: next(times))
    first = await skewed.acquire("k", owner="me")
    second = await skewed.acquire("k", owner="me")
    assert first is not None
    assert second is not None
    assert second.fencing_token == first.fencing_token + 1


async def test_no_lock_at_all_grants_everything_with_growing_tokens() -> None:
    """One process that wants no leases is fenced all the same."""
    none = NoOpLockManager()
    found = [await none.acquire(key) for key in ("a", "a", "b", "a")]
    tokens = [lock.fencing_token for lock in found if lock is not None]
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 4
    assert not await none.is_locked("a")


async def test_no_lock_at_all_can_be_held() -> None:
    """Code that holds a lock need not know."""
    none = NoOpLockManager()
    async with none.hold("a") as outer, none.hold("a") as inner:
        assert inner.fencing_token > outer.fencing_token
        assert await outer.refresh()
    assert await outer.release()


@pytest.mark.parametrize("default", [0, -1, True, 1.5, 10**12])
def test_a_default_out_of_range_is_refused(default: int) -> None:
    """At start-up, not at the first lease."""
    with pytest.raises(InvalidConfigError, match="default_ttl_ms"):
        MemoryLocks(default_ttl_ms=default)


@pytest.mark.parametrize("timeout", [-1, 1.5, True, 10**12])
async def test_a_wait_out_of_range_is_refused(timeout: int) -> None:
    """Milliseconds are ints everywhere."""
    with pytest.raises(InvalidRequestError, match="timeout_ms"):
        await MemoryLocks().acquire_wait("k", timeout_ms=timeout)
