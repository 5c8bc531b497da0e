"""Activities ``helix.locks.*``: leases for workflows that guard something of their own."""

from temporalio import activity

from helix_temporal.activities._context import default_owner
from helix_temporal.activities._errors import typed
from helix_temporal.models.locks import (
    AcquireLockInput,
    AcquireLockResult,
    RefreshLockInput,
    RefreshLockResult,
    ReleaseLockInput,
    ReleaseLockResult,
)
from helix_temporal.stores.protocols.locks import LockManager


class LockActivities:
    """Locks over the protocol alone.  A session workflow needs none: its epoch is its fence."""

    def __init__(self, locks: LockManager) -> None:
        self._locks = locks

    @activity.defn(name="helix.locks.acquire")
    @typed
    async def acquire(self, request: AcquireLockInput) -> AcquireLockResult:
        """Take a lease; a second attempt finds the token of the first.

        No lock means that another holds it: a workflow waits by a timer and asks again.
        """
        lock = await self._locks.acquire(
            request.key,
            ttl_ms=request.ttl_ms,
            owner=request.owner or default_owner(),
            claim=request.operation_id,
        )
        return AcquireLockResult(lock=None if lock is None else lock.info)

    @activity.defn(name="helix.locks.refresh")
    @typed
    async def refresh(self, request: RefreshLockInput) -> RefreshLockResult:
        """Let a lease go on; a second attempt does so from then on."""
        held = await self._locks.refresh(request.key, request.fencing_token, ttl_ms=request.ttl_ms)
        return RefreshLockResult(held=held)

    @activity.defn(name="helix.locks.release")
    @typed
    async def release(self, request: ReleaseLockInput) -> ReleaseLockResult:
        """Give a lease back; a second attempt finds nothing to do, and says so."""
        return ReleaseLockResult(released=await self._locks.release(request.key, request.fencing_token))
