"""Leases: taken, prolonged and given back, each with a token."""

import asyncio
from typing import Any

import pytest

from helix_temporal.errors import (
    InvalidIdError,
    InvalidRequestError,
)
from helix_temporal.stores.protocols.locks import LockManager
from helix_temporal.testing.builders import an_id
from helix_temporal.testing.contracts._locks_base import (
    BAD_KEYS,
    BAD_TOKENS,
    BAD_TTLS,
    ODD_KEYS,
    SHORT,
    YEAR_2017,
    LocksFixtures,
    ended,
    shown,
    taken,
)


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
        lock = await taken(locks, key, ttl_ms=2_000)
        assert await lock.refresh(60_000)
        await asyncio.sleep(2.1)
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
