"""What the cold tier needs of an object store."""

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol


class Blob(NamedTuple):
    """An object's bytes and the tag that a conditional replace names (opaque, unquoted)."""

    data: bytes
    etag: str


class BlobInfo(NamedTuple):
    """One line of a listing.

    Attributes:
        modified: When the object was last written: seconds since 1970 by the store's clock, to the second
            at least; None if the store does not tell.
    """

    key: str
    size: int
    etag: str
    modified: float | None = None


class ConditionFailedError(Exception):
    """A conditional write was refused: 412, 409, or 404 under If-Match.

    Never proof that somebody else won: an HTTP client that re-sends a PUT on a dropped connection
    gets this for its own success.  The caller reads back.  Internal: it never leaves the cold tier.
    """


class BlobStore(Protocol):
    """Objects by key.  No client observes a partly written object.

    Raises (every method):
        StoreUnavailableError: Throttled, 5xx, time-out or connection lost; a write may have happened,
            or may still happen later.
        ArchiveAccessError: The bucket is missing or access is denied.
    """

    async def get(self, key: str) -> Blob | None:
        """The whole object; None if and only if it is not there (a missing bucket is an error)."""
        ...

    async def put(self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None) -> str:
        """Write the object in one request and return its etag.

        ``create`` writes only if nothing is there; ``if_match`` only over that very etag.

        Raises:
            ConditionFailedError: The condition did not hold, as far as the server's answer tells.
        """
        ...

    async def copy(self, source: str, target: str) -> None:
        """Copy within the store, on the server's side; overwrites.

        Raises:
            ConditionFailedError: The source is not there.
        """
        ...

    def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """All objects whose key starts with ``prefix``, in any order."""
        ...

    async def delete(self, key: str) -> None:
        """Remove the object; nothing if it is not there."""
        ...

    async def probe(self) -> None:
        """Prove at start-up that conditional writes work here, on an object of its own.

        Raises:
            ConditionalWritesUnsupportedError: Creating twice or a stale If-Match succeeded.
        """
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...
