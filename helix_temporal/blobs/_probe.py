"""The start-up check that a store honours write conditions."""

import contextlib
import uuid

from helix_temporal.blobs._protocol import BlobStore, ConditionFailedError
from helix_temporal.errors import (
    ArchiveAccessError,
    ConditionalWritesUnsupportedError,
    StoreUnavailableError,
)

_ABSENT_ETAG = "0" * 32


async def prove_conditional_writes(store: BlobStore, prefix: str) -> None:
    """Write, replace and remove one small object of a random name under ``prefix``.

    Raises:
        ConditionalWritesUnsupportedError: A write went through against its condition, or none goes
            through that keeps it.
        StoreUnavailableError: No answer; nothing is concluded.
        ArchiveAccessError: The store refuses access.
    """
    key = f"{prefix.rstrip('/')}/{uuid.uuid4().hex}"
    try:
        await _prove(store, key)
    finally:
        # The verdict counts; twenty bytes that could not be removed harm nobody.
        with contextlib.suppress(StoreUnavailableError, ArchiveAccessError):
            await store.delete(key)


async def _prove(store: BlobStore, key: str) -> None:
    await _must_fail(store, key, b"0", "If-Match on a missing object", if_match=_ABSENT_ETAG)
    first = await _must_pass(store, key, b"first", "If-None-Match: * on a missing object", create=True)
    await _must_fail(store, key, b"1", "If-None-Match: * on an existing object", create=True)
    await _must_pass(store, key, b"second", "If-Match with the current etag", if_match=first)
    await _must_fail(store, key, b"2", "If-Match with a stale etag", if_match=first)


async def _must_fail(
    store: BlobStore, key: str, data: bytes, what: str, *, create: bool = False, if_match: str | None = None
) -> None:
    with contextlib.suppress(ConditionFailedError):
        await store.put(key, data, create=create, if_match=if_match)
        raise _unsupported(what, "was accepted", "refused")
    # A refusal that wrote all the same is as bad as none.
    found = await store.get(key)
    if found is not None and found.data == data:
        raise _unsupported(what, "was answered as refused but written", "refused")


async def _must_pass(
    store: BlobStore, key: str, data: bytes, what: str, *, create: bool = False, if_match: str | None = None
) -> str:
    with contextlib.suppress(ConditionFailedError):
        await store.put(key, data, create=create, if_match=if_match)
    # Read back in any case: a PUT that was sent again is refused although it won.
    found = await store.get(key)
    if found is None or found.data != data:
        raise _unsupported(what, "was refused", "accepted")
    return found.etag


def _unsupported(what: str, found: str, expected: str) -> ConditionalWritesUnsupportedError:
    return ConditionalWritesUnsupportedError(
        f"the object store cannot be used: {what} {found}, it must be {expected}; without working write "
        "conditions two writers overwrite each other; use a server that supports conditional PUT",
        condition=what,
        found=found,
        expected=expected,
    )
