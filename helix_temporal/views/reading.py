"""Stores for who only looks at sessions: no read changes one."""

from typing import TYPE_CHECKING, cast

from helix_temporal.coldtier import TieredThreads
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.readable import ReadableStores, SessionStores
from helix_temporal.stores.protocols.threads import ThreadStore
from helix_temporal.stores.sessions.reading import sessions_for_reading
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.views.patience import PATIENCE, Patience, PatientBlobs, PatientHotTier

if TYPE_CHECKING:
    from helix_temporal.blobs.protocol import BlobStore


def stores_for_reading(
    stores: ReadableStores, patience: float | None = None, *, with_lost_rows: bool = True
) -> SessionStores:
    """The same stores without their repairs.

    A session's workers drop a damaged hot thread whose archive is whole, and make a lost row again.  Here the
    damage is an error (`StoreCorruptError`), and a lost row is read from the outline in its thread.

    Args:
        stores: The workers' ones.
        patience: Seconds that reads of threads wait for one answer of the archive, and at most `PATIENCE` of
            the hot store; None leaves it to the stores.
        with_lost_rows: False: a session without a row is not there, and its thread is not asked.
    """
    threads = stores.threads if patience is None else _be_patient(stores.threads, patience)
    if patience is None and isinstance(threads, TieredThreads):
        threads = threads.for_reading()
    outlined_in = threads if with_lost_rows else None
    sessions = sessions_for_reading(stores.sessions, outlined_in) if stores.keeps_sessions else None
    return SessionStores(threads=threads, usage=stores.usage, sessions=sessions)


def _be_patient(threads: ThreadStore, seconds: float) -> ThreadStore:
    """Threads for reading, which wait so long at most; another one's store is taken as it is."""
    hot, archive = Patience("the hot store", min(seconds, PATIENCE)), Patience("the archive", seconds)

    def wrap_hot(inner: HotTier) -> HotTier:
        return cast("HotTier", PatientHotTier(inner, hot))

    if isinstance(threads, TieredThreads):
        return threads.for_reading(wrap_hot, lambda inner: cast("BlobStore", PatientBlobs(inner, archive)))
    return threads.with_hot(wrap_hot) if isinstance(threads, HotThreads) else threads
