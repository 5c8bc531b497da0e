"""What a lease decides, without I/O: the rows of memory and files are changed by these.

Redis and PostgreSQL, whose atomic unit is a script or a statement, repeat them there.
"""

from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from helix_temporal.errors import InvalidRequestError, LeaseLostError
from helix_temporal.models.ids import validate_id
from helix_temporal.models.locks import MAX_TTL_MS, LockInfo

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

    def held(self, now: int) -> bool:
        """Whether the lease has not ended."""
        return self.expires_at * _US_PER_MS > now

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


def take(row: LeaseRow | None, wanted: Claim, now: int) -> LeaseRow | None:
    """The row after a try to take the lease at a microsecond of the store's clock; None if another has it."""
    end = _end(now, wanted.ttl_ms)
    if row is not None and row.held(now):
        if row.owner != wanted.owner:
            return None
        if row.claim == wanted.claim:
            # An attempt whose answer was lost: the same grant, and its full time again.
            return replace(row, ttl_ms=wanted.ttl_ms, expires_at=max(row.expires_at, end))
    token = max(now, row.fencing_token + 1 if row is not None else 1)
    return LeaseRow(wanted.key, wanted.owner, wanted.claim, token, wanted.ttl_ms, now // _US_PER_MS, end)


def _end(now: int, ttl_ms: int) -> int:
    """Not before the time is over: holders count from before they asked."""
    return -(-now // _US_PER_MS) + ttl_ms


def extend(row: LeaseRow | None, token: int, ttl_ms: int | None, now: int) -> LeaseRow | None:
    """The row after a refresh; None if the token holds nothing."""
    if row is None or row.fencing_token != token or not row.held(now):
        return None
    lasting = row.ttl_ms if ttl_ms is None else ttl_ms
    return replace(row, ttl_ms=lasting, expires_at=_end(now, lasting))


def free(row: LeaseRow | None, token: int, now: int) -> LeaseRow | None:
    """The row after a release; None if the token holds nothing."""
    if row is None or row.fencing_token != token or not row.held(now):
        return None
    return ended(row)


def ended(row: LeaseRow) -> LeaseRow:
    """The row without its lease; the token stays."""
    return replace(row, expires_at=0)


# ---- arguments and errors ---------------------------------------------------------------------------


def claimed(key: str, owner: str | None, claim: str | None, ttl_ms: int) -> Claim:
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
