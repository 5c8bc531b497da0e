"""How long views wait for the stores of threads: one that was silent is not waited for again and again."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

from helix_temporal.blobs.protocol import Blob, BlobInfo, BlobStore
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.readable import ReadableStores

T = TypeVar("T")

PATIENCE: Final = 4.0
"""Seconds that a view waits for one answer of a store, if settings don't give S3 longer."""
_REMEMBERED: Final = 30.0
"""Seconds for which a silent store is not asked again: a page takes less, and a long command goes on."""


def choose_patience(stores: ReadableStores) -> float:
    """Seconds to wait for one answer: where settings allow S3 longer (``s3_read``), as long as that."""
    settings = getattr(stores, "settings", None)
    return PATIENCE if settings is None else max(PATIENCE, settings.timeouts.s3_read.total_seconds())


class Patience:
    """Waits for the answers of one store; after the first that does not come, calls fail at once for a while.

    Args:
        store: What it is called in errors.
        seconds: To wait for one answer.
    """

    def __init__(self, store: str, seconds: float) -> None:
        self._store, self._seconds = store, seconds
        self._silent_until = 0.0

    async def wait(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of the store.

        Raises:
            StoreUnavailableError: There was none in time, or to a call shortly before.
        """
        if time.monotonic() < self._silent_until:
            raise self._make_error()
        try:
            async with asyncio.timeout(self._seconds):
                return await call()
        except TimeoutError as error:
            self._silent_until = time.monotonic() + _REMEMBERED
            raise self._make_error() from error

    def _make_error(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"{self._store} did not answer within {self._seconds:g} s; helix-temporal doctor tells more"
        )


class PatientHotTier:
    """`HotTier` around another one, each of whose calls is waited for with patience."""

    def __init__(self, inner: HotTier, patience: Patience) -> None:
        self._inner, self._patience = inner, patience

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(call):
            return call

        async def wait(*arguments: Any, **named: Any) -> Any:
            return await self._patience.wait(lambda: call(*arguments, **named))

        return wait


class PatientBlobs:
    """What a view reads of a `BlobStore`, each answer waited for with patience."""

    def __init__(self, inner: BlobStore, patience: Patience) -> None:
        self._inner, self._patience = inner, patience

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, key: str) -> Blob | None:
        """As `BlobStore.get`."""
        return await self._patience.wait(lambda: self._inner.get(key))

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """As `BlobStore.list`; the patience is for each object."""
        found = aiter(self._inner.list(prefix))
        while (info := await self._patience.wait(lambda: anext(found, None))) is not None:
            yield info
