"""What every lock manager promises.

::

    class TestMyLocks(LocksContract):
        @pytest.fixture
        async def locks(self): ...     # an empty store

        @pytest.fixture
        async def another(self): ...   # a second manager on the same store, as another process has one

Leases that must end in a test last 80 ms; those that must not, 30 s: a slow machine fails nothing.
"""

import asyncio
import time
from typing import Any, Final

import pytest

from helix_temporal.errors import (
    FencedError,
    InvalidIdError,
    InvalidRequestError,
    LeaseLostError,
    LockHeldError,
)
from helix_temporal.models.records import Head
from helix_temporal.stores.alone import HotThreads
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.locks import Lock, LockManager
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage, ThreadStore
from helix_temporal.testing.builders import a_message, an_answer, an_id

SHORT: Final = 80
"""Milliseconds of a lease that is to end by itself."""

YEAR_2017: Final = 1_500_000_000_000_000

ODD_KEYS: Final = (
    "a", "A", "a:b", "a/b", "a\\b", "../a", "..", "*", "a?[b]", "{x}", "a}b", "{}", "%2e%2e", "a b", "'; --",
    "é", "e\u0301", "🔒", "lock", "locks", "CON", "x" * 256, "x" * 255 + "y", "é" * 200,
)  # fmt: skip

BAD_KEYS: Final = ("", "x" * 257, "a\x00b", "a\nb", "\ud800", None, 5, b"x", True)
BAD_TTLS: Final = (0, -1, True, 1.5, float("nan"), float("inf"), "30000", 10**12, 2**63, 10**5000)
BAD_TOKENS: Final = (0, -1, True, 1.0, "7", None, 2**63, 10**5000)


def shown(value: object) -> str:
    """Short, and no integer of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"{value.bit_length()}bits"
    return ascii(value)


async def ended(locks: LockManager, key: str) -> None:
    """Wait until nobody holds the key."""
    async with asyncio.timeout(30):
        while await locks.is_locked(key):  # noqa: ASYNC110 — the store does not call back
            await asyncio.sleep(0.005)


async def taken(locks: LockManager, key: str, **options: Any) -> Lock:
    """A lease that nobody else has."""
    lock = await locks.acquire(key, **options)
    assert lock is not None, f"{key!r} is held"
    return lock


class LocksFixtures:
    """What a binding brings."""

    @pytest.fixture
    async def locks(self) -> LockManager:
        """A manager on an empty store."""
        raise NotImplementedError("bind the contract: override the fixture `locks`")

    @pytest.fixture
    async def another(self) -> LockManager:
        """A second manager on the same store."""
        raise NotImplementedError("bind the contract: override the fixture `another`")

    @pytest.fixture
    async def threads(self) -> ThreadStore:
        """Where holders write under their tokens."""
        return HotThreads(MemoryThreads())

    @pytest.fixture
    def key(self) -> str:
        """A key of this test's own."""
        return f"key-{an_id()}"


class AcquireContract(LocksFixtures):
    """Who gets the lock."""

    async def test_a_free_lock_is_taken(self, locks: LockManager, key: str) -> None:
        """The lease says whose it is and how long it lasts, by the store's clock."""
        lock = await taken(locks, key, ttl_ms=20_000, owner="me")
        assert (lock.key, lock.owner, lock.info.ttl_ms) == (key, "me", 20_000)
        assert lock.info.expires_at - lock.info.acquired_at in {20_000, 20_001}
        assert await locks.is_locked(key)

    async def test_a_lease_lasts_thirty_seconds_unless_said_otherwise(
        self, locks: LockManager, key: str
    ) -> None:
        """The default of the reference."""
        assert (await taken(locks, key)).info.ttl_ms == 30_000

    async def test_a_held_lock_is_refused(self, locks: LockManager, another: LockManager, key: str) -> None:
        """Neither here nor in another process; without an owner everyone is somebody else."""
        await taken(locks, key)
        assert await locks.acquire(key) is None
        assert await another.acquire(key) is None
        assert await another.acquire(key, owner="me", claim="mine") is None

    async def test_a_released_lock_is_free(self, locks: LockManager, another: LockManager, key: str) -> None:
        """Nobody waits for the end of a lease that was given back."""
        lock = await taken(locks, key)
        assert await lock.release()
        assert not await another.is_locked(key)
        await taken(another, key)

    async def test_an_ended_lease_frees_the_lock(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """A holder that died holds nobody up for longer."""
        await taken(locks, key, ttl_ms=SHORT)
        await ended(another, key)
        await taken(another, key)

    async def test_keys_do_not_touch_each_other(self, locks: LockManager) -> None:
        """Odd ones, long ones, ones that differ in case or spelling only: each is a lock of its own."""
        own = an_id()[:8]
        keys = [*ODD_KEYS, *(f"{key}{own}" for key in ODD_KEYS if len(key) < 200)]
        tokens = [await taken(locks, key) for key in keys]
        assert [lock.key for lock in tokens] == keys
        assert [await lock.release() for lock in tokens] == [True] * len(keys)

    async def test_thirty_two_at_once_get_one_lock(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """A lock that two hold is none."""
        managers = [locks, another] * 16
        found = await asyncio.gather(*(each.acquire(key) for each in managers))
        assert len([lock for lock in found if lock is not None]) == 1

    @pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
    async def test_a_bad_key_is_refused(self, locks: LockManager, key: Any) -> None:
        """Before anything is asked of the store, and with a word that says why."""
        for call in (locks.acquire(key), locks.is_locked(key), locks.refresh(key, 1), locks.release(key, 1)):
            with pytest.raises(InvalidIdError, match="lock key"):
                await call

    @pytest.mark.parametrize("ttl_ms", BAD_TTLS, ids=shown)
    async def test_a_bad_time_is_refused(self, locks: LockManager, key: str, ttl_ms: Any) -> None:
        """A lease without end, or one that is over before it began, is a mistake."""
        with pytest.raises(InvalidRequestError, match="ttl_ms"):
            await locks.acquire(key, ttl_ms=ttl_ms)
        lock = await taken(locks, key)
        with pytest.raises(InvalidRequestError, match="ttl_ms"):
            await lock.refresh(ttl_ms)
        assert await lock.release()

    @pytest.mark.parametrize("name", ["owner", "claim"])
    @pytest.mark.parametrize("value", ["", "a\x00b", "x" * 257, 7], ids=ascii)
    async def test_a_bad_owner_or_claim_is_refused(
        self, locks: LockManager, key: str, name: str, value: Any
    ) -> None:
        """They are stored like ids."""
        options: dict[str, Any] = {name: value}
        with pytest.raises(InvalidIdError, match=name):
            await locks.acquire(key, **options)
        assert not await locks.is_locked(key)


class TokenContract(LocksFixtures):
    """Tokens never go back, whatever happens."""

    async def test_a_token_is_not_lower_than_the_time_in_microseconds(
        self, locks: LockManager, key: str
    ) -> None:
        """Tokens and epochs of threads compare: both are microseconds."""
        assert (await taken(locks, key)).fencing_token > YEAR_2017

    async def test_tokens_grow_over_releases(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """Also from one process to another and back."""
        tokens = []
        for manager in (locks, another, locks, another):
            lock = await taken(manager, key)
            tokens.append(lock.fencing_token)
            await lock.release()
        assert tokens == sorted(set(tokens))

    async def test_tokens_grow_over_ends(self, locks: LockManager, another: LockManager, key: str) -> None:
        """The next holder's writes shut out those of the one whose time ran out."""
        first = await taken(locks, key, ttl_ms=SHORT)
        await ended(locks, key)
        second = await taken(another, key)
        assert second.fencing_token > first.fencing_token

    async def test_a_repeated_claim_gets_the_same_token(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """An attempt whose answer was lost must not wait for its own lease to end."""
        first = await taken(locks, key, owner="me", claim="op-1")
        again = await taken(another, key, owner="me", claim="op-1")
        assert again.fencing_token == first.fencing_token
        assert again.info.acquired_at == first.info.acquired_at
        assert await first.release()

    async def test_a_repeated_claim_without_an_owner_gets_the_same_token(
        self, locks: LockManager, key: str
    ) -> None:
        """An operation id is enough to be known by."""
        first = await taken(locks, key, claim="op-1")
        assert (await taken(locks, key, claim="op-1")).fencing_token == first.fencing_token

    async def test_a_repeated_claim_lasts_as_long_as_a_new_one(self, locks: LockManager, key: str) -> None:
        """Who asks again has all of the time ahead, not what the lost answer left of it."""
        first = await taken(locks, key, owner="me", claim="op-1", ttl_ms=5_000)
        await asyncio.sleep(0.02)
        again = await taken(locks, key, owner="me", claim="op-1", ttl_ms=5_000)
        assert again.info.expires_at > first.info.expires_at

    async def test_a_repeated_claim_never_shortens_the_lease(self, locks: LockManager, key: str) -> None:
        """A late attempt arrives after the refreshes of an earlier one."""
        first = await taken(locks, key, owner="me", claim="op-1")
        again = await taken(locks, key, owner="me", claim="op-1", ttl_ms=SHORT)
        assert again.info.expires_at >= first.info.expires_at

    async def test_thirty_two_repeats_of_one_claim_get_one_token(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """However many attempts are on their way."""
        managers = [locks, another] * 16
        found = await asyncio.gather(*(taken(each, key, owner="me", claim="op-1") for each in managers))
        assert len({lock.fencing_token for lock in found}) == 1

    async def test_the_claim_of_another_owner_is_another_claim(self, locks: LockManager, key: str) -> None:
        """Two workflows may mint the same operation id."""
        await taken(locks, key, owner="me", claim="op-1")
        assert await locks.acquire(key, owner="you", claim="op-1") is None

    async def test_a_new_claim_of_the_same_owner_gets_a_higher_token(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """An owner that starts over shuts out what it did before; the older handle is stale."""
        old = await taken(locks, key, owner="me", claim="op-1")
        new = await taken(another, key, owner="me", claim="op-2")
        assert new.fencing_token > old.fencing_token
        assert not await old.refresh()
        assert not await old.release()
        assert await new.refresh()

    async def test_an_owner_that_names_no_claim_starts_over_each_time(
        self, locks: LockManager, key: str
    ) -> None:
        """Each call is a claim of its own."""
        tokens = [(await taken(locks, key, owner="me")).fencing_token for _ in range(4)]
        assert tokens == sorted(set(tokens))

    async def test_a_claim_whose_lease_has_ended_gets_a_new_token(self, locks: LockManager, key: str) -> None:
        """Another may have held the lock meanwhile: the old token must not come to life again."""
        first = await taken(locks, key, owner="me", claim="op-1")
        await first.release()
        again = await taken(locks, key, owner="me", claim="op-1")
        assert again.fencing_token > first.fencing_token


class RefreshContract(LocksFixtures):
    """How a lease goes on, and how it ends."""

    async def test_a_refresh_extends_the_lease(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """It would have ended long before."""
        lock = await taken(locks, key, ttl_ms=600)
        assert await lock.refresh(60_000)
        await asyncio.sleep(0.7)
        assert await another.acquire(key) is None

    async def test_a_refresh_lasts_as_long_as_the_lease_did(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """Without a time, the lease's own."""
        lock = await taken(locks, key, ttl_ms=60_000)
        assert await lock.refresh(SHORT)
        await ended(another, key)
        assert not await lock.refresh()

    async def test_a_refresh_after_the_end_changes_nothing(self, locks: LockManager, key: str) -> None:
        """A lease that was over once is over, though nobody else took it."""
        lock = await taken(locks, key, ttl_ms=SHORT)
        await ended(locks, key)
        assert not await lock.refresh(60_000)
        assert not await locks.is_locked(key)

    async def test_a_refresh_after_the_loss_does_not_touch_the_next_holder(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """A holder that slept through its time is told so."""
        lost = await taken(locks, key, ttl_ms=SHORT)
        await ended(locks, key)
        held = await taken(another, key)
        assert not await lost.refresh(60_000)
        assert await held.refresh()

    async def test_a_stale_release_does_not_free_the_next_holder(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """The classic mistake of locks that compare names instead of tokens."""
        lost = await taken(locks, key, ttl_ms=SHORT, owner="worker")
        await ended(locks, key)
        held = await taken(another, key, owner="worker")
        assert not await lost.release()
        assert await another.is_locked(key)
        assert await held.release()

    async def test_a_release_is_repeated_without_effect(self, locks: LockManager, key: str) -> None:
        """The second answer says that there was nothing to do."""
        lock = await taken(locks, key)
        assert [await lock.release(), await lock.release()] == [True, False]

    async def test_a_refresh_after_the_release_is_refused(self, locks: LockManager, key: str) -> None:
        """What was given back is gone."""
        lock = await taken(locks, key)
        await lock.release()
        assert not await lock.refresh()
        assert not await locks.is_locked(key)

    async def test_a_key_that_was_never_locked_is_free(self, locks: LockManager, key: str) -> None:
        """And has nothing to refresh or release."""
        answers = [await locks.is_locked(key), await locks.refresh(key, 7), await locks.release(key, 7)]
        assert answers == [False, False, False]

    @pytest.mark.parametrize("token", BAD_TOKENS, ids=shown)
    async def test_a_bad_token_is_refused(self, locks: LockManager, key: str, token: Any) -> None:
        """A number that acquire cannot have returned."""
        for call in (locks.refresh(key, token), locks.release(key, token)):
            with pytest.raises(InvalidRequestError, match="fencing_token"):
                await call


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
        async with locks.hold(key, ttl_ms=900) as lock:
            await asyncio.sleep(1.1)
            assert await another.acquire(key) is None
            assert await lock.refresh()

    async def test_a_block_whose_lease_is_lost_is_cancelled(
        self, locks: LockManager, another: LockManager, key: str
    ) -> None:
        """It hears of it where it awaits, and its caller by a typed error."""
        found: dict[str, Any] = {}
        await another.is_locked(key)  # it is connected by now

        async def work() -> None:
            async with locks.hold(key, ttl_ms=900, owner="me") as found["lock"]:
                found["taker"] = await taken(another, key, owner="me")
                try:
                    await asyncio.wait_for(asyncio.Event().wait(), 30)
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


class LocksContract(AcquireContract, TokenContract, RefreshContract, HoldContract, FencingContract):
    """All of it."""


async def opened(threads: ThreadStore, thread_id: str, epoch: int) -> Head:
    """Take the thread's epoch."""
    return (await threads.open(OpenThread(thread_id, epoch, f"holder-{epoch}"))).header.head


def step(thread_id: str, epoch: int, head: Head, text: str) -> StepAppend:
    """One finished turn."""
    return StepAppend(thread_id, epoch, head, (a_message(text),), an_answer("ok"), commits=True)


async def bodies(threads: ThreadStore, thread_id: str) -> list[bytes]:
    """What the thread holds."""
    return [record.body for record in (await threads.read(ReadPage(thread_id))).records]
