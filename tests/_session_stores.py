"""Session stores over each backend's place."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from helix_temporal.stores.alone import HotThreads
from helix_temporal.stores.sessions import RecordSessions
from helix_temporal.testing.contracts.session_store import OpenSessions, SessionOpener
from tests._sessions import Place, PlaceOpener


@asynccontextmanager
async def _sessions_over(place: PlaceOpener) -> AsyncIterator[OpenSessions]:
    async with place() as found:
        yield store_over(found)


def store_over(place: Place) -> OpenSessions:
    """The session store of a place."""
    return OpenSessions(RecordSessions(place.records, HotThreads(place.threads)), place.threads)


def sessions_over(place: PlaceOpener) -> SessionOpener:
    """The session store of a place, each time with connections and queues of its own."""
    return partial(_sessions_over, place)
