"""Stores for who only looks at sessions: no read changes one."""

from helix_temporal.client import ReadableStores, SessionStores
from helix_temporal.coldtier import TieredThreads
from helix_temporal.stores.sessions.reading import sessions_for_reading


def stores_for_reading(stores: ReadableStores, *, with_lost_rows: bool = True) -> SessionStores:
    """The same stores without their repairs.

    A session's workers drop a damaged hot thread whose archive is whole, and make a lost row again.  Here the
    damage is an error (`StoreCorruptError`), and a lost row is read from the outline in its thread.

    Args:
        stores: As the workers have them.
        with_lost_rows: False: a session without a row is not there, and its thread is not asked.
    """
    threads = stores.threads
    if isinstance(threads, TieredThreads):
        threads = threads.for_reading()
    outlined_in = threads if with_lost_rows else None
    sessions = sessions_for_reading(stores.sessions, outlined_in) if stores.keeps_sessions else None
    return SessionStores(threads=threads, usage=stores.usage, sessions=sessions)
