"""Locks above the backends: waiting, holding, refreshing in the background.

A backend brings four atomic operations (`_take`, `_extend`, `_free`, `_held`); everything else is here,
once.
"""

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    InvalidRequestError,
    LockHeldError,
    StoreUnavailableError,
)
from helix_temporal.models.ids import validate_id
from helix_temporal.models.locks import DEFAULT_TTL_MS, LockInfo
from helix_temporal.stores import _lease_rules as rules
from helix_temporal.stores._lease_rules import Claim
from helix_temporal.stores.protocols.locks import Lock

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.5
_REFRESHES: Final = 3
"""A lease is refreshed so often within its time: two may fail before it is lost."""

_log = logging.getLogger("helix_temporal.locks")


class Leases(ABC):
    """`LockManager` over the atomic operations of one backend.

    Args:
        default_ttl_ms: How long a lease lasts if the caller does not say.

    Raises:
        InvalidConfigError: ``default_ttl_ms`` is out of range.
    """

    def __init__(self, *, default_ttl_ms: int = DEFAULT_TTL_MS) -> None:
        try:
            self._default_ttl_ms = rules.check_milliseconds(default_ttl_ms, "default_ttl_ms")
        except InvalidRequestError as error:
            raise InvalidConfigError(str(error)) from None

    # -- what a backend brings

    @abstractmethod
    async def _take(self, wanted: Claim) -> LockInfo | None:
        """`rules.take` on the stored row, atomically, by the store's clock."""

    @abstractmethod
    async def _extend(self, key: str, token: int, ttl_ms: int | None) -> bool:
        """`rules.extend` on the stored row."""

    @abstractmethod
    async def _free(self, key: str, token: int) -> bool:
        """`rules.free` on the stored row."""

    @abstractmethod
    async def _held(self, key: str) -> bool:
        """Whether the stored row's lease has not ended."""

    # -- one operation each

    async def acquire(
        self, key: str, *, ttl_ms: int | None = None, owner: str | None = None, claim: str | None = None
    ) -> Lock | None:
        """See `LockManager.acquire`."""
        info = await self._take(self._claimed(key, owner, claim, ttl_ms))
        return None if info is None else Lock(self, info)

    async def refresh(self, key: str, fencing_token: int, *, ttl_ms: int | None = None) -> bool:
        """See `LockManager.refresh`."""
        if ttl_ms is not None:
            rules.check_milliseconds(ttl_ms, "ttl_ms")
        return await self._extend(validate_id(key, "lock key"), rules.check_token(fencing_token), ttl_ms)

    async def release(self, key: str, fencing_token: int) -> bool:
        """See `LockManager.release`."""
        return await self._free(validate_id(key, "lock key"), rules.check_token(fencing_token))

    async def is_locked(self, key: str) -> bool:
        """See `LockManager.is_locked`."""
        return await self._held(validate_id(key, "lock key"))

    def _claimed(self, key: str, owner: str | None, claim: str | None, ttl_ms: int | None) -> Claim:
        return rules.claimed(key, owner, claim, self._default_ttl_ms if ttl_ms is None else ttl_ms)

    # -- waiting

    async def acquire_wait(
        self,
        key: str,
        *,
        timeout_ms: int | None = None,
        ttl_ms: int | None = None,
        owner: str | None = None,
        claim: str | None = None,
    ) -> Lock | None:
        """See `LockManager.acquire_wait`."""
        found = await self._waited(self._claimed(key, owner, claim, ttl_ms), timeout_ms)
        return None if found is None else found[0]

    async def _waited(self, wanted: Claim, timeout_ms: int | None) -> tuple[Lock, float] | None:
        """The lease, and the loop's time before which it was not granted."""
        if timeout_ms is not None:
            rules.check_milliseconds(timeout_ms, "timeout_ms", least=0)
        time = asyncio.get_running_loop().time
        end = None if timeout_ms is None else time() + timeout_ms / 1000
        pause = _FIRST_PAUSE
        while True:
            asked = time()
            info = await self._taken_or_given_back(wanted)
            if info is not None:
                return Lock(self, info), asked
            left = _LONGEST_PAUSE if end is None else end - time()
            if left <= 0:
                return None
            # Spread, so that those who wait do not all ask at the same time.
            await asyncio.sleep(min(left, pause * random.uniform(0.5, 1.0)))  # noqa: S311 — no secret
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _taken_or_given_back(self, wanted: Claim) -> LockInfo | None:
        """One try.  Cancelled in the middle of it, what was granted is given back first.

        Not if the claim has a name: an attempt that repeats it may hold the same lease by now.
        """
        taking = asyncio.ensure_future(self._take(wanted))
        cancel = await _ended(taking)
        if cancel is None:
            return taking.result()
        info = None if taking.exception() else taking.result()
        if info is not None and not wanted.named:
            await self._give_back(Lock(self, info))
        raise cancel

    async def _give_back(self, lock: Lock) -> bool:
        """Release, come what may: False if there was nothing to release any more."""
        freeing = asyncio.ensure_future(self._free(lock.key, lock.fencing_token))
        cancel = await _ended(freeing)
        try:
            freed = freeing.result()
        except HelixError as error:
            # The work is done and the lease ends by itself: nothing that the caller should fail by.
            _log.warning("lease %d on %r was not given back: %s", lock.fencing_token, lock.key, error)
            freed = True
        if cancel is not None:
            raise cancel
        return freed or lock.released

    # -- holding

    @asynccontextmanager
    async def hold(
        self,
        key: str,
        *,
        ttl_ms: int | None = None,
        owner: str | None = None,
        claim: str | None = None,
        timeout_ms: int | None = None,
    ) -> AsyncIterator[Lock]:
        """See `LockManager.hold`."""
        found = await self._waited(self._claimed(key, owner, claim, ttl_ms), timeout_ms)
        if found is None:
            raise LockHeldError(
                f"lock {key!r} is held by another and was not free within {timeout_ms} ms; try later", key=key
            )
        lock, asked = found
        scope = asyncio.timeout(None)
        try:
            async with scope, self._refreshed(lock, asked, scope):
                yield lock
        except BaseException as error:
            await self._give_back(lock)
            if scope.expired() and isinstance(error, Exception):
                raise rules.lease_lost(lock.key, lock.fencing_token) from error
            raise
        if not await self._give_back(lock) or scope.expired():
            raise rules.lease_lost(lock.key, lock.fencing_token)

    @asynccontextmanager
    async def _refreshed(self, lock: Lock, asked: float, scope: asyncio.Timeout) -> AsyncIterator[None]:
        """Refresh in the background; whatever ends that before its time ends the scope."""
        refreshing = asyncio.create_task(self._refresh(lock, asked))
        now = asyncio.get_running_loop().time

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                scope.reschedule(now())

        refreshing.add_done_callback(ended)
        try:
            yield
        finally:
            refreshing.cancel()
            cancel = await _ended(refreshing)
            if not refreshing.cancelled() and (problem := refreshing.exception()) is not None:
                _log.warning("lease %d on %r cannot be refreshed: %s", lock.fencing_token, lock.key, problem)
            if cancel is not None:
                raise cancel

    async def _refresh(self, lock: Lock, asked: float) -> None:
        """Refresh until the lease is lost.

        By this process's monotonic clock it ends ``ttl_ms`` after the last refresh was *asked* for, which
        is not later than in the store.
        """
        time = asyncio.get_running_loop().time
        lasting = lock.info.ttl_ms / 1000
        end, pause = asked + lasting, lasting / _REFRESHES
        while True:
            await asyncio.sleep(min(pause, max(end - time(), 0)))
            asked = time()
            try:
                async with asyncio.timeout_at(end):
                    held = await self._extend(lock.key, lock.fencing_token, None)
            except TimeoutError:
                return
            except StoreUnavailableError:
                if time() >= end:
                    return
                pause = lasting / _REFRESHES / 4
                continue
            if not held:
                return
            end, pause = asked + lasting, lasting / _REFRESHES


async def _ended(task: "asyncio.Future[T]") -> asyncio.CancelledError | None:
    """Wait for the task's end, whoever cancels the waiting; the cancel that came meanwhile."""
    cancel = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancel = error
    return cancel
