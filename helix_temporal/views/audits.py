"""A session's thread read and checked in full, for whoever looks at where it is stored."""

from helix_temporal.coldtier import TieredThreads
from helix_temporal.models.states import SessionState
from helix_temporal.stores.protocols.threads import Audit
from helix_temporal.views.access import ViewedSessions


async def verify_thread(viewed: ViewedSessions, state: SessionState) -> Audit | None:
    """What is wrong with the archive of a session's thread; None where there is no archive.

    Raises:
        StoreUnavailableError: The archive does not answer.
    """
    if not isinstance(viewed.threads, TieredThreads):
        return None
    return await viewed.threads.upkeep.audit(state.thread_id or state.session_id)
