"""Leases on keys, and one input and one result per activity ``helix.locks.*``.

These models are in workflow histories: fields are added with defaults, never renamed or removed.
"""

from typing import Annotated, Final

from pydantic import Field

from helix_temporal.models._base import Model
from helix_temporal.models.ids import Id

DEFAULT_TTL_MS: Final = 30_000
MAX_TTL_MS: Final = 400 * 24 * 3600 * 1000
"""400 days."""

FencingToken = Annotated[int, Field(strict=True, ge=1, lt=2**63)]
"""Grows with every grant of a key, for ever; the microsecond of the grant, or one more than the last."""

TtlMs = Annotated[int, Field(strict=True)]
"""Milliseconds; the store checks the range."""


class LockInfo(Model):
    """A lease as the store granted it.

    Attributes:
        fencing_token: What the holder writes under (as ``epoch``): a store refuses a lower one.
        ttl_ms: Milliseconds from a grant or refresh to its end.
        acquired_at, expires_at: Milliseconds since 1970 by the store's clock.
    """

    key: str
    owner: str
    fencing_token: FencingToken
    ttl_ms: int
    acquired_at: int
    expires_at: int


class AcquireLockInput(Model):
    """Take a lease.

    Attributes:
        operation_id: Minted in the workflow; all attempts with the same one get the same token.
        owner: Defaults to the calling workflow's first execution.
    """

    key: Id
    operation_id: Id
    ttl_ms: TtlMs | None = None
    owner: Id | None = None


class AcquireLockResult(Model):
    """The lease, or none if somebody else holds one."""

    lock: LockInfo | None = None


class RefreshLockInput(Model):
    """Make a lease last ``ttl_ms`` from now; by default as long as it was taken for."""

    key: Id
    fencing_token: FencingToken
    ttl_ms: TtlMs | None = None


class RefreshLockResult(Model):
    """Whether the token still held the lock; false is for good."""

    held: bool


class ReleaseLockInput(Model):
    """Give a lease back."""

    key: Id
    fencing_token: FencingToken


class ReleaseLockResult(Model):
    """Whether this call freed the lock; a repeat, or one that comes after the end, did not."""

    released: bool
