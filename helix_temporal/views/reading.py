"""Stores for who only looks at sessions: no read changes one."""

from helix_temporal.client import ReadableStores, SessionStores
from helix_temporal.coldtier import TieredThreads
from helix_temporal.stores.sessions.reading import sessions_for_reading


def stores_for_reading(stores: ReadableStores) -> SessionStores:
    """The same stores without their repairs.

    A session's workers drop a damaged hot thread whose archive is whole, and make a lost row again.  Here the
    damage is an error (`StoreCorruptError`), and a lost row is read from the outline in its thread.
    """
    threads = stores.threads
    if isinstance(threads, TieredThreads):
        threads = threads.for_reading()
    sessions = sessions_for_reading(stores.sessions, threads) if stores.keeps_sessions else None
    return SessionStores(threads=threads, usage=stores.usage, sessions=sessions)
