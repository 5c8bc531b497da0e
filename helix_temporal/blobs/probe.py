"""The start-up check that a store honours write conditions, and what this process has proved already."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from helix_temporal._retries import retry_pause
from helix_temporal.blobs.protocol import BlobStore, ConditionFailedError
from helix_temporal.errors import (
    ArchiveAccessError,
    ConditionalWritesUnsupportedError,
    StoreUnavailableError,
)
from helix_temporal.models.newest import Newest

T = TypeVar("T")

_ABSENT_ETAG: Final = "0" * 32
_KEYS: Final = 4
_WRITERS: Final = 2
"""On so many keys so many writers race to create an object, on as many others to replace one; all at once.

Few writers on many keys: where a server lets those of one key wait for each other (SeaweedFS: a second
each), the check takes that long once.
"""

_TRIES: Final = 10
_SECONDS: Final = 10.0


async def prove_conditional_writes(store: BlobStore, prefix: str) -> None:
    """Write, replace and remove small objects of random names, some by several writers at once.

    What is passing (503, time-outs, lost connections) is repeated, for ten seconds in all.

    Raises:
        ConditionalWritesUnsupportedError: A write went through against its condition, two went through of
            which one had to fail, or none goes through that keeps it.
        StoreUnavailableError: No answer; nothing is concluded.
        ArchiveAccessError: The store refuses access.
    """
    probe = _Probe(store)
    name = f"{prefix.rstrip('/')}/{uuid.uuid4().hex}"
    created = [f"{name}-{number}" for number in range(_KEYS)]
    replaced = [f"{name}-{number}" for number in range(_KEYS, 2 * _KEYS)]
    try:
        races = [probe.one_by_one(name), *map(probe.race_to_create, created)]
        races += map(probe.race_to_replace, replaced)
        for verdict in await asyncio.gather(*races, return_exceptions=True):
            if verdict is not None:
                raise verdict
    finally:
        # The verdict counts; a few bytes that could not be removed harm nobody.
        await asyncio.gather(*map(probe.remove_object, (name, *created, *replaced)))


class _Probe:
    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._end = time.monotonic() + _SECONDS

    async def one_by_one(self, key: str) -> None:
        """Each condition, kept and broken."""
        await self._must_fail(key, b"0", "If-Match on a missing object", if_match=_ABSENT_ETAG)
        first = await self._must_pass(key, b"first", "If-None-Match: * on a missing object", create=True)
        await self._must_fail(key, b"1", "If-None-Match: * on an existing object", create=True)
        await self._must_pass(key, b"second", "If-Match with the current etag", if_match=first)
        await self._must_fail(key, b"2", "If-Match with a stale etag", if_match=first)

    async def race_to_create(self, key: str) -> None:
        """Several writers create an object at once."""
        await self._race_writers(key, "If-None-Match: * of several writers", None)

    async def race_to_replace(self, key: str) -> None:
        """Several writers replace the same object at once."""
        etag = await self._must_pass(key, b"first", "If-None-Match: * on a missing object", create=True)
        await self._race_writers(key, "If-Match of several writers", etag)

    async def remove_object(self, key: str) -> None:
        """Remove an object, if the store answers."""
        with contextlib.suppress(StoreUnavailableError, ArchiveAccessError):
            await self.repeat_call(lambda: self._store.delete(key))

    async def _race_writers(self, key: str, what: str, etag: str | None) -> None:
        """Let several writers go at once, of which one may win, and only what it wrote is there.

        A server that looks first and writes then lets several win.
        """
        writers = [b"%d %s" % (number, uuid.uuid4().hex.encode()) for number in range(_WRITERS)]

        async def write_once(data: bytes) -> bytes | None:
            try:
                await self.repeat_call(lambda: self._store.put(key, data, create=etag is None, if_match=etag))
            except ConditionFailedError:
                return None
            return data

        results = await asyncio.gather(*map(write_once, writers), return_exceptions=True)
        for each in results:
            if isinstance(each, BaseException):
                raise each
        won = [each for each in results if each is not None]
        found = await self.repeat_call(lambda: self._store.get(key))
        if len(won) > 1:
            raise _unsupported_error(what, f"at once was accepted {len(won)} times", "accepted once")
        if won and (found is None or found.data != won[0]):
            raise _unsupported_error(what, "at once was answered as refused but written", "refused")

    async def repeat_call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call again while its failure is passing; a repeated write may be refused for its success."""
        for attempt in range(_TRIES - 1):
            pause = retry_pause(attempt, first=0.05, longest=1.0)
            try:
                return await call()
            except StoreUnavailableError:
                if time.monotonic() + pause > self._end:
                    raise
            await asyncio.sleep(pause)
        return await call()

    async def _must_fail(
        self, key: str, data: bytes, what: str, *, create: bool = False, if_match: str | None = None
    ) -> None:
        with contextlib.suppress(ConditionFailedError):
            await self.repeat_call(lambda: self._store.put(key, data, create=create, if_match=if_match))
            raise _unsupported_error(what, "was accepted", "refused")
        # A refusal that wrote all the same is as bad as none.
        found = await self.repeat_call(lambda: self._store.get(key))
        if found is not None and found.data == data:
            raise _unsupported_error(what, "was answered as refused but written", "refused")

    async def _must_pass(
        self, key: str, data: bytes, what: str, *, create: bool = False, if_match: str | None = None
    ) -> str:
        with contextlib.suppress(ConditionFailedError):
            await self.repeat_call(lambda: self._store.put(key, data, create=create, if_match=if_match))
        # Read back in any case: a PUT that was sent again is refused although it won.
        found = await self.repeat_call(lambda: self._store.get(key))
        if found is None or found.data != data:
            raise _unsupported_error(what, "was refused", "accepted")
        return found.etag


def _unsupported_error(what: str, found: str, expected: str) -> ConditionalWritesUnsupportedError:
    return ConditionalWritesUnsupportedError(
        f"the object store cannot be used: {what} {found}, it must be {expected}; without working write "
        "conditions two writers overwrite each other; use a server that supports conditional PUT",
        condition=what,
        found=found,
        expected=expected,
    )


_ANSWERS: Final = "answers"
"""An object that is not there."""
_PROVED_SECONDS: Final = 3600.0
_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class ProvedPlace:
    """A part of a bucket as one account sees it."""

    endpoint: str | None
    region: str
    bucket: str
    prefix: str
    access_key: str | None


_proved = Newest[ProvedPlace, float](_MOST)


async def prove_once(store: BlobStore, prefix: str, place: ProvedPlace | None) -> None:
    """Prove that a store honours write conditions, unless this process has, within the last hour.

    Nothing is asked for outside ``prefix``: an account may have no more rights than below it.

    In any case one read shows first that it answers and gives access: one that is away is told at once.  A
    store without a place is proved every time, and so is one that failed.

    Raises:
        As `BlobStore.probe`.
    """
    await store.get(f"{prefix.rstrip('/')}/{_ANSWERS}")
    until = None if place is None else _proved.get(place)
    if until is not None and time.monotonic() < until:
        return
    await store.probe(prefix)
    if place is not None:
        _proved[place] = time.monotonic() + _PROVED_SECONDS
