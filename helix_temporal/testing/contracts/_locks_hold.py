"""Locks over a block, and tokens that fence: what is done under a lease."""

import asyncio
import time
from typing import Any

import pytest

from helix_temporal.errors import (
    FencedError,
    LeaseLostError,
    LockHeldError,
)
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.locks import Lock, LockManager
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage, ThreadStore
from helix_temporal.testing.builders import a_message, an_answer
from helix_temporal.testing.contracts._locks_base import (
    SHORT,
    LocksFixtures,
    ended,
    taken,
)


class HoldContract(LocksFixtures):
    """A lease for the length of a block."""

    async def test_a_block_holds_the_lock_and_gives_it_back(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """What everyone uses."""
        async with locks.hold(key) as lock:
            assert lock.key == key
            assert await another.acquire(key) is None
        await taken(another, key)

    async def test_the_lock_is_given_back_after_an_exception(self, locks: LockManager, key: str) -> None:
        """The exception is the block's own."""
        with pytest.raises(ZeroDivisionError):
            async with locks.hold(key):
                raise ZeroDivisionError
        assert not await locks.is_locked(key)

    async def test_the_lock_is_given_back_after_a_cancel(self, locks: LockManager, key: str) -> None:
        """A cancelled activity leaves no lease behind, and stays cancelled."""
        inside = asyncio.Event()

        async def work() -> None:
            async with locks.hold(key):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await locks.is_locked(key)

    async def test_a_block_may_last_longer_than_the_lease(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """It is refreshed in the background."""
        async with locks.hold(key, ttl_ms=2_400) as lock:
            await asyncio.sleep(2.5)
            assert await another.acquire(key) is None
            assert await lock.refresh()

    async def test_a_block_whose_lease_is_lost_is_cancelled(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """It hears of it where it awaits, and its caller by a typed error."""
        found: dict[str, Any] = {}
        await another.is_locked(key)  # it is connected by now

        async def work() -> None:
            async with locks.hold(key, ttl_ms=4_000, owner="me") as found["lock"]:
                found["taker"] = await taken(another, key, owner="me")
                try:
                    async with asyncio.timeout(30):
                        await asyncio.Event().wait()
                except asyncio.CancelledError:
                    found["cancelled"] = True
                    raise

        with pytest.raises(LeaseLostError) as caught:
            await work()
        assert found["cancelled"]
        assert caught.value.facts == {"key": key, "fencing_token": found["lock"].fencing_token}
        assert await found["taker"].refresh()

    async def test_a_block_that_ends_after_its_lease_says_so(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """Its work may have met another's, though no refresh came in between to notice."""
        takers: list[Lock] = []
        with pytest.raises(LeaseLostError):
            async with locks.hold(key, owner="me"):
                takers.append(await taken(another, key, owner="me"))
        assert await takers[0].refresh()

    async def test_a_block_may_give_the_lock_back_itself(self, locks: LockManager, key: str) -> None:
        """That is no loss."""
        async with locks.hold(key) as lock:
            assert await lock.release()
        assert not await locks.is_locked(key)

    async def test_a_block_waits_for_its_turn(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """Whoever comes second goes second."""
        order: list[str] = []

        async def second() -> None:
            async with another.hold(key):
                order.append("second")

        async with locks.hold(key):
            waiting = asyncio.create_task(second())
            await asyncio.sleep(0.05)
            order.append("first")
        await waiting
        assert order == ["first", "second"]

    async def test_a_block_that_may_not_wait_is_refused(self, locks: LockManager, key: str) -> None:
        """With an error that can be told from a lost lease, and tried again."""
        lock = await taken(locks, key)
        with pytest.raises(LockHeldError) as caught:
            async with locks.hold(key, timeout_ms=0):
                pytest.fail("the block ran")
        assert caught.value.retryable
        assert await lock.refresh()

    async def test_who_waits_in_vain_gets_none(self, locks: LockManager, key: str) -> None:
        """As one who does not wait."""
        await taken(locks, key)
        assert await locks.acquire_wait(key, timeout_ms=30) is None

    async def test_who_waits_gets_the_lock_when_its_lease_ends(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """Also if the holder died."""
        first = await taken(locks, key, ttl_ms=SHORT)
        second = await another.acquire_wait(key)
        assert second is not None
        assert second.fencing_token > first.fencing_token

    async def test_thirty_two_blocks_run_one_after_another(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """No update is lost, and the tokens are in the order of the blocks."""
        tokens: list[int] = []

        async def work(manager: LockManager) -> None:
            async with manager.hold(key) as lock:
                before = len(tokens)
                await asyncio.sleep(0)
                tokens[before:] = [lock.fencing_token]

        await asyncio.gather(*(work(manager) for manager in [locks, another] * 16))
        assert len(tokens) == 32
        assert tokens == sorted(set(tokens))


class FencingContract(LocksFixtures):
    """Why tokens are there: writes under a lower one are refused by what is written to."""

    async def test_a_holder_that_slept_writes_nothing(
        self, locks: LockManager, another: LockManager, threads: ThreadStore, key: str
    ) -> None:
        """Its time ran out, another took over; what the other wrote stays."""
        old = await taken(locks, key, ttl_ms=SHORT)
        head = await opened(threads, key, old.fencing_token)
        await ended(locks, key)
        new = await taken(another, key)
        head = await opened(threads, key, new.fencing_token)
        await threads.append(step(key, new.fencing_token, head, "of the new holder"))
        with pytest.raises(FencedError):
            await threads.append(step(key, old.fencing_token, head, "of the old holder"))
        assert await bodies(threads, key) == [b"of the new holder", b"ok"]

    async def test_an_equal_token_writes_again(
        self, locks: LockManager, threads: ThreadStore, key: str
    ) -> None:
        """As long as nobody else came, the holder goes on."""
        lock = await taken(locks, key)
        head = await opened(threads, key, lock.fencing_token)
        done = await threads.append(step(key, lock.fencing_token, head, "one"))
        await lock.refresh()
        await threads.append(step(key, lock.fencing_token, done.head, "two"))
        assert await bodies(threads, key) == [b"one", b"ok", b"two", b"ok"]


class ServerClockContract(LocksFixtures):
    """For stores on a server: only its clock counts."""

    @pytest.mark.parametrize("days", [-400, 400])
    async def test_a_wrong_clock_here_neither_ends_nor_prolongs_a_lease(
        self, locks: LockManager, another: LockManager, key: str, monkeypatch: pytest.MonkeyPatch, days: int
    ) -> None:
        """A worker whose clock is off by more than a year sees what all others see."""
        right = await taken(locks, key, ttl_ms=60_000)
        seconds, nanoseconds = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: seconds() + days * 86_400)
        monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + days * 86_400 * 10**9)
        assert await another.acquire(key) is None
        assert await right.refresh(SHORT)
        await ended(another, key)
        wrong = await taken(another, key)
        assert 0 < wrong.fencing_token - right.fencing_token < 3600 * 10**6


async def opened(threads: ThreadStore, thread_id: str, epoch: int) -> Head:
    """Take the thread's epoch."""
    return (await threads.open(OpenThread(thread_id, epoch, f"holder-{epoch}"))).header.head


def step(thread_id: str, epoch: int, head: Head, text: str) -> StepAppend:
    """One finished turn."""
    return StepAppend(thread_id, epoch, head, (a_message(text),), an_answer("ok"), commits=True)


async def bodies(threads: ThreadStore, thread_id: str) -> list[bytes]:
    """What the thread holds."""
    return [message.body for message in (await threads.read(ReadPage(thread_id))).messages]
