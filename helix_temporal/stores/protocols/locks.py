"""Locks: leases with fencing tokens, for those who work outside a session workflow.

A lease may fail to exclude: its holder can pause, and its time runs out meanwhile.  What never fails is
the token: every grant of a key has a higher one than all before it, and the stores refuse writes under a
lower one, which a writer names as its ``epoch``.  Hold a lease to avoid collisions; write under its token to
survive them.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from helix_temporal.models.store_calls import LockInfo


class Lock:
    """A handle to one lease; the lease is in the store, so the handle can be stale.

    Attributes:
        info: What the store granted.
        released: This handle gave it back.
    """

    __slots__ = ("_manager", "info", "released")

    def __init__(self, manager: "LockManager", info: LockInfo) -> None:
        self._manager = manager
        self.info = info
        self.released = False

    def __repr__(self) -> str:
        return f"Lock(key={self.key!r}, fencing_token={self.fencing_token}, owner={self.owner!r})"

    @property
    def key(self) -> str:
        """What is locked."""
        return self.info.key

    @property
    def owner(self) -> str:
        """Who holds it."""
        return self.info.owner

    @property
    def fencing_token(self) -> int:
        """What to write under."""
        return self.info.fencing_token

    async def refresh(self, ttl_ms: int | None = None) -> bool:
        """See `LockManager.refresh`."""
        return await self._manager.refresh(self.key, self.fencing_token, ttl_ms=ttl_ms)

    async def release(self) -> bool:
        """See `LockManager.release`."""
        freed = await self._manager.release(self.key, self.fencing_token)
        self.released = self.released or freed
        return freed


class LockManager(Protocol):
    """Leases on keys, by the store's clock.

    Keys, owners and claims are ids.  Times are milliseconds; a ``ttl_ms`` lies between 1 and 400 days.
    All methods raise `StoreUnavailableError` if the store does not answer, `InvalidIdError` and
    `InvalidRequestError` for arguments out of range.
    """

    async def acquire(
        self, key: str, *, ttl_ms: int | None = None, owner: str | None = None, claim: str | None = None
    ) -> Lock | None:
        """Take a lease if nobody holds one; never waits.

        Args:
            key: What is locked: the session's id, if its stores are written under the token.
            ttl_ms: When the lease ends unless it is refreshed; 30,000 by default.
            owner: Who holds it.  The same owner gets a new lease also while holding one: the token is
                higher and the older handle is lost.  By default everyone is somebody else.
            claim: One try to take it: an operation id.  As long as the lease is held, the same claim of
                the same owner gets the same token again, so an attempt whose answer was lost is repeated.

        Returns:
            The lease, or None if another holds one.
        """
        ...

    async def acquire_wait(
        self,
        key: str,
        *,
        timeout_ms: int | None = None,
        ttl_ms: int | None = None,
        owner: str | None = None,
        claim: str | None = None,
    ) -> Lock | None:
        """Take a lease, trying again until it is free; None after ``timeout_ms`` (None waits for ever).

        Nobody stands in a line: who asks next after the end gets it.  A lease that is granted to a caller
        who is being cancelled is given back, unless the caller named its claim: then it is there for the
        repeat.
        """
        ...

    async def refresh(self, key: str, fencing_token: int, *, ttl_ms: int | None = None) -> bool:
        """Let the lease last ``ttl_ms`` from now, by default as long as it was taken for.

        Returns:
            False if the token holds the lock no more; then it never will again.
        """
        ...

    async def release(self, key: str, fencing_token: int) -> bool:
        """End the lease; whatever the answer, the token holds nothing afterwards.

        Returns:
            True if this call ended it; False if it had ended before, or another holds the lock.
        """
        ...

    async def is_locked(self, key: str) -> bool:
        """Whether somebody holds a lease now."""
        ...

    def hold(
        self,
        key: str,
        *,
        ttl_ms: int | None = None,
        owner: str | None = None,
        claim: str | None = None,
        timeout_ms: int | None = None,
    ) -> AbstractAsyncContextManager[Lock]:
        """Hold a lease for the length of a block, refreshed in the background.

        ::

            async with locks.hold(session_id) as lock:
                await store.save(..., epoch=lock.fencing_token)

        The lease is given back at the end of the block, also by an exception or a cancel.  If it is lost,
        the block is cancelled where it awaits.  Waits for the lock as `acquire_wait` does.

        Raises:
            LockHeldError: Another held it for all of ``timeout_ms``.
            LeaseLostError: The lease ended before the block did: another may have worked meanwhile.
        """
        ...
