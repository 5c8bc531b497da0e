"""Pure decisions: which error an answer of S3, or the lack of one, stands for."""

import re
from typing import NamedTuple

from helix_temporal.blobs._protocol import ConditionFailedError
from helix_temporal.errors import (
    ArchiveAccessError,
    ConditionalWritesUnsupportedError,
    HelixError,
    InvalidRequestError,
    StoreUnavailableError,
    TooLargeError,
)

_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")
_PASSING = frozenset(
    {
        # Throttling and clumsy servers use 400 and even 200 for these.
        "SlowDown",
        "InternalError",
        "ServiceUnavailable",
        "RequestTimeout",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        # Bytes that were changed on the way.
        "BadDigest",
        "XAmzContentSHA256Mismatch",
        "XAmzContentChecksumMismatch",
        "IncompleteBody",
    }
)


class Place(NamedTuple):
    """What was asked of which bucket; for messages."""

    operation: str
    bucket: str
    key: str
    region: str
    endpoint: str | None = None

    def __str__(self) -> str:
        where = f"region {self.region}" + (f", {self.endpoint}" if self.endpoint else "")
        return f"{self.operation} of {self.key!r} in bucket {self.bucket!r} ({where})"


def code_of(body: bytes) -> str:
    """The error code in an error body, or an empty text when it is not one of S3's."""
    found = _CODE.search(body, 0, 4096)
    return found[1].decode() if found else ""


def is_absent(status: int, code: str) -> bool:
    """Whether the object, and not the bucket or the whole address, is what is not there.

    The code is required: a wrong endpoint or a proxy answers 404 too, and 403 may hide an absent one.
    """
    return status == 404 and code == "NoSuchKey"


def failure(
    place: Place, status: int, code: str, *, create: bool = False, if_match: bool = False
) -> HelixError | ConditionFailedError:
    """The error for an answer that is not a success."""
    found = f"{status} {code}".strip()
    conditional = create or if_match
    if conditional and (status in (409, 412) or (if_match and is_absent(status, code))):
        return ConditionFailedError(f"S3 refused the condition of {place}: {found}")
    if conditional and status == 501:
        return ConditionalWritesUnsupportedError(
            f"S3 does not know the condition of {place}: {found}; use a server with conditional PUT",
            **_facts(place, status, code),
        )
    kind, advice = _kind(status, code)
    return kind(f"S3 refused {place}: {found}; {advice}", **_facts(place, status, code))


def no_answer(place: Place, reason: str) -> StoreUnavailableError:
    """The error for a request whose answer never came, or came in part."""
    return StoreUnavailableError(
        f"S3 gave no whole answer to {place}: {reason}; the request may have taken effect; repeat it later",
        **_facts(place, None, reason),
    )


def no_access(place: Place, reason: str) -> ArchiveAccessError:
    """The error for a request that could not even be made."""
    return ArchiveAccessError(f"cannot ask S3 for {place}: {reason}", **_facts(place, None, reason))


def _kind(status: int, code: str) -> tuple[type[HelixError], str]:
    if code in _PASSING or status in (409, 429) or (status >= 500 and status != 501):
        return StoreUnavailableError, "repeat it later"
    if code == "KeyTooLongError":
        return InvalidRequestError, "this server takes only shorter keys, or shorter parts between slashes"
    if code == "EntityTooLarge":
        return TooLargeError, "this server takes only smaller objects"
    return ArchiveAccessError, "check endpoint, bucket, region, and what the credentials may do"


def _facts(place: Place, status: int | None, code: str) -> dict[str, str | int | None]:
    return {**place._asdict(), "status": status, "code": code}
