"""Locks above the backends: what a lease decides; waiting, holding, refreshing in the background.

Redis and PostgreSQL decide the same in scripts and statements, below comments ``rule: stores.locks.`` and the
rule's name.
"""

import asyncio
import itertools
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeVar
from uuid import uuid4

from helix_temporal._retries import retry_pause
from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    InvalidRequestError,
    LeaseLostError,
    LockHeldError,
    StoreUnavailableError,
)
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import is_past
from helix_temporal.models.store_calls import DEFAULT_TTL_MS, MAX_TTL_MS, LockInfo
from helix_temporal.stores.protocols.locks import Lock

_US_PER_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Claim:
    """One try to take a lease: who, by which operation, for how many milliseconds.

    Attributes:
        named: The caller named it, so others may be repeating it at this moment.
    """

    key: str
    owner: str
    claim: str
    ttl_ms: int
    named: bool


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """The last grant of a key; never dropped, so that tokens never go back.

    Attributes:
        acquired_at, expires_at: Milliseconds since 1970 by the store's clock; ``expires_at`` is 0 once it
            was given back.
    """

    key: str
    owner: str
    claim: str
    fencing_token: int
    ttl_ms: int
    acquired_at: int
    expires_at: int

    # copies: redis, postgres
    def held(self, now: int) -> bool:
        """Whether the lease has not ended."""
        return not is_past(self.expires_at * _US_PER_MS, now)

    @property
    def info(self) -> LockInfo:
        """As callers see it."""
        return LockInfo(
            key=self.key,
            owner=self.owner,
            fencing_token=self.fencing_token,
            ttl_ms=self.ttl_ms,
            acquired_at=self.acquired_at,
            expires_at=self.expires_at,
        )


# copies: redis, postgres
def take_lease(row: LeaseRow | None, wanted: Claim, now: int) -> LeaseRow | None:
    """The row after a try to take the lease at a microsecond of the store's clock; None if another has it."""
    end = _lease_end(now, wanted.ttl_ms)
    if row is not None and row.held(now):
        if row.owner != wanted.owner:
            return None
        if row.claim == wanted.claim:
            # An attempt whose answer was lost: the same grant, and its full time again.
            return replace(row, ttl_ms=wanted.ttl_ms, expires_at=max(row.expires_at, end))
    token = max(now, row.fencing_token + 1 if row is not None else 1)
    return LeaseRow(wanted.key, wanted.owner, wanted.claim, token, wanted.ttl_ms, now // _US_PER_MS, end)


# copies: redis, postgres
def _lease_end(now: int, ttl_ms: int) -> int:
    """Not before the time is over: holders count from before they asked."""
    return -(-now // _US_PER_MS) + ttl_ms


# copies: redis, postgres
def extend_lease(row: LeaseRow | None, token: int, ttl_ms: int | None, now: int) -> LeaseRow | None:
    """The row after a refresh; None if the token holds nothing."""
    if row is None or row.fencing_token != token or not row.held(now):
        return None
    lasting = row.ttl_ms if ttl_ms is None else ttl_ms
    return replace(row, ttl_ms=lasting, expires_at=_lease_end(now, lasting))


# copies: redis, postgres
def release_lease(row: LeaseRow | None, token: int, now: int) -> LeaseRow | None:
    """The row after a release; None if the token holds nothing."""
    if row is None or row.fencing_token != token or not row.held(now):
        return None
    return row_without_lease(row)


def row_without_lease(row: LeaseRow) -> LeaseRow:
    """The row without its lease; the token stays."""
    return replace(row, expires_at=0)


# ---- arguments and errors ---------------------------------------------------------------------------


def build_claim(key: str, owner: str | None, claim: str | None, ttl_ms: int) -> Claim:
    """The claim of a call, its gaps filled.

    Raises:
        InvalidIdError, InvalidRequestError: An argument is not acceptable.
    """
    validate_id(key, "lock key")
    named = claim is not None
    claim = uuid4().hex if claim is None else validate_id(claim, "claim")
    # A claim without an owner is its own owner: else its repeat would come from somebody else.
    owner = claim if owner is None else validate_id(owner, "lock owner")
    return Claim(key, owner, claim, check_milliseconds(ttl_ms, "ttl_ms"), named)


def check_milliseconds(value: object, what: str, *, least: int = 1) -> int:
    """A number of milliseconds up to 400 days.

    Raises:
        InvalidRequestError: It is no int, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequestError(f"{what}: milliseconds as int expected, got {type(value).__name__}")
    if not least <= value <= MAX_TTL_MS:
        found = value if value.bit_length() < 64 else f"{value.bit_length()} bits"
        raise InvalidRequestError(f"{what}: {least} to {MAX_TTL_MS} ms (400 days) expected, got {found}")
    return value


def check_token(value: object) -> int:
    """A fencing token.

    Raises:
        InvalidRequestError: It is no int of 64 bits above 0.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequestError(f"fencing_token: int expected, got {type(value).__name__}")
    if not 0 < value < 2**63:
        raise InvalidRequestError("fencing_token: 1 to 2^63 - 1 expected; use what acquire returned")
    return value


def lease_lost(key: str, token: int) -> LeaseLostError:
    """The lease ended before its block did."""
    return LeaseLostError(
        f"lease {token} on {key!r} ended before the work under it: another may hold the lock; "
        "read again and start over",
        key=key,
        fencing_token=token,
    )


T = TypeVar("T")

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
            self._default_ttl_ms = check_milliseconds(default_ttl_ms, "default_ttl_ms")
        except InvalidRequestError as error:
            raise InvalidConfigError(str(error)) from None

    # -- what a backend brings

    @abstractmethod
    async def _take_lease(self, wanted: Claim) -> LockInfo | None:
        """`take_lease` on the stored row, atomically, by the store's clock."""

    @abstractmethod
    async def _extend_lease(self, key: str, token: int, ttl_ms: int | None) -> bool:
        """`extend_lease` on the stored row."""

    @abstractmethod
    async def _release_lease(self, key: str, token: int) -> bool:
        """`release_lease` on the stored row."""

    @abstractmethod
    async def _is_held(self, key: str) -> bool:
        """Whether the stored row's lease has not ended."""

    # -- one operation each

    async def acquire(
        self, key: str, *, ttl_ms: int | None = None, owner: str | None = None, claim: str | None = None
    ) -> Lock | None:
        """See `LockManager.acquire`."""
        info = await self._take_lease(self._build_claim(key, owner, claim, ttl_ms))
        return None if info is None else Lock(self, info)

    async def refresh(self, key: str, fencing_token: int, *, ttl_ms: int | None = None) -> bool:
        """See `LockManager.refresh`."""
        if ttl_ms is not None:
            check_milliseconds(ttl_ms, "ttl_ms")
        return await self._extend_lease(validate_id(key, "lock key"), check_token(fencing_token), ttl_ms)

    async def release(self, key: str, fencing_token: int) -> bool:
        """See `LockManager.release`."""
        return await self._release_lease(validate_id(key, "lock key"), check_token(fencing_token))

    async def is_locked(self, key: str) -> bool:
        """See `LockManager.is_locked`."""
        return await self._is_held(validate_id(key, "lock key"))

    def _build_claim(self, key: str, owner: str | None, claim: str | None, ttl_ms: int | None) -> Claim:
        return build_claim(key, owner, claim, self._default_ttl_ms if ttl_ms is None else ttl_ms)

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
        found = await self._wait_for_lease(self._build_claim(key, owner, claim, ttl_ms), timeout_ms)
        return None if found is None else found[0]

    async def _wait_for_lease(self, wanted: Claim, timeout_ms: int | None) -> tuple[Lock, float] | None:
        """The lease, and the loop's time before which it was not granted."""
        if timeout_ms is not None:
            check_milliseconds(timeout_ms, "timeout_ms", least=0)
        time = asyncio.get_running_loop().time
        end = None if timeout_ms is None else time() + timeout_ms / 1000
        for attempt in itertools.count():
            asked = time()
            info = await self._taken_or_given_back(wanted)
            if info is not None:
                return Lock(self, info), asked
            pause = retry_pause(attempt, first=0.01, longest=0.5)
            left = pause if end is None else end - time()
            if left <= 0:
                return None
            await asyncio.sleep(min(left, pause))
        raise AssertionError("unreachable")

    async def _taken_or_given_back(self, wanted: Claim) -> LockInfo | None:
        """One try.  Cancelled in the middle of it, what was granted is given back first.

        Not if the claim has a name: an attempt that repeats it may hold the same lease by now.
        """
        taking = asyncio.ensure_future(self._take_lease(wanted))
        cancel = await _wait_for_end(taking)
        if cancel is None:
            return taking.result()
        info = None if taking.exception() else taking.result()
        if info is not None and not wanted.named:
            await self._give_back(Lock(self, info))
        raise cancel

    async def _give_back(self, lock: Lock) -> bool:
        """Release, come what may: False if there was nothing to release any more."""
        freeing = asyncio.ensure_future(self._release_lease(lock.key, lock.fencing_token))
        cancel = await _wait_for_end(freeing)
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
        found = await self._wait_for_lease(self._build_claim(key, owner, claim, ttl_ms), timeout_ms)
        if found is None:
            raise LockHeldError(
                f"lock {key!r} is held by another and was not free within {timeout_ms} ms; try later", key=key
            )
        lock, asked = found
        scope = asyncio.timeout(None)
        try:
            async with scope, self._refresh_in_background(lock, asked, scope):
                yield lock
        except BaseException as error:
            await self._give_back(lock)
            if scope.expired() and isinstance(error, Exception):
                raise lease_lost(lock.key, lock.fencing_token) from error
            raise
        if not await self._give_back(lock) or scope.expired():
            raise lease_lost(lock.key, lock.fencing_token)

    @asynccontextmanager
    async def _refresh_in_background(
        self, lock: Lock, asked: float, scope: asyncio.Timeout
    ) -> AsyncIterator[None]:
        """Refresh in the background; whatever ends that before its time ends the scope."""
        refreshing = asyncio.create_task(self._refresh_until_lost(lock, asked))
        now = asyncio.get_running_loop().time

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                scope.reschedule(now())

        refreshing.add_done_callback(ended)
        try:
            yield
        finally:
            refreshing.cancel()
            cancel = await _wait_for_end(refreshing)
            if not refreshing.cancelled() and (problem := refreshing.exception()) is not None:
                _log.warning("lease %d on %r cannot be refreshed: %s", lock.fencing_token, lock.key, problem)
            if cancel is not None:
                raise cancel

    async def _refresh_until_lost(self, lock: Lock, asked: float) -> None:
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
                    held = await self._extend_lease(lock.key, lock.fencing_token, None)
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


RowRule = Callable[[LeaseRow | None, int], LeaseRow | None]
"""A rule above: the stored row and the time in, the row to be stored out; None changes nothing."""


class RowLeases(Leases):
    """`Leases` of a backend that keeps a row a key and goes by this machine's clock.

    Args:
        default_ttl_ms: How long a lease lasts if the caller does not say.
        clock: Seconds since 1970.
    """

    def __init__(
        self, *, default_ttl_ms: int = DEFAULT_TTL_MS, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(default_ttl_ms=default_ttl_ms)
        self._clock = clock

    @abstractmethod
    async def _load_row(self, key: str) -> LeaseRow | None:
        """The row as it is stored; None if there is none."""

    @abstractmethod
    async def _change_row(self, key: str, rule: RowRule) -> LeaseRow | None:
        """Apply a rule to the stored row, atomically; what the rule answered."""

    async def _take_lease(self, wanted: Claim) -> LockInfo | None:
        row = await self._change_row(wanted.key, lambda row, now: take_lease(row, wanted, now))
        return None if row is None else row.info

    async def _extend_lease(self, key: str, token: int, ttl_ms: int | None) -> bool:
        row = await self._change_row(key, lambda row, now: extend_lease(row, token, ttl_ms, now))
        return row is not None

    async def _release_lease(self, key: str, token: int) -> bool:
        row = await self._change_row(key, lambda row, now: release_lease(row, token, now))
        return row is not None

    async def _is_held(self, key: str) -> bool:
        row = await self._load_row(key)
        return row is not None and row.held(self._read_clock())

    def _read_clock(self) -> int:
        """Microseconds since 1970."""
        return int(self._clock() * 1_000_000)


async def _wait_for_end(task: "asyncio.Future[T]") -> asyncio.CancelledError | None:
    """Wait for the task's end, whoever cancels the waiting; the cancel that came meanwhile."""
    cancel = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancel = error
    return cancel
