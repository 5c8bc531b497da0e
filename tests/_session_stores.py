"""Session stores over each backend's place."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.contracts.session_store import OpenSessions, SessionOpener
from tests._sessions import Place, PlaceOpener


@asynccontextmanager
async def _sessions_over(place: PlaceOpener, **options: Any) -> AsyncIterator[OpenSessions]:
    async with place() as found:
        yield store_over(found, **options)


def store_over(place: Place, **options: Any) -> OpenSessions:
    """The session store of a place."""
    store = RowSessions(place.rows, HotThreads(place.threads), **options)
    return OpenSessions(store, place.threads)


def sessions_over(place: PlaceOpener, **options: Any) -> SessionOpener:
    """The session store of a place, each time with connections and queues of its own."""
    return partial(_sessions_over, place, **options)
