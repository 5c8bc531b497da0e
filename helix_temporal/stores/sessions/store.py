"""The session store of all backends: the rules once, over the port `SessionRecords`."""

from helix_temporal.stores.sessions.checkpoints import CheckpointsPart
from helix_temporal.stores.sessions.commit import CommitPart
from helix_temporal.stores.sessions.life import LifePart
from helix_temporal.stores.sessions.lists import ListsPart
from helix_temporal.stores.sessions.whole import WholePart


class RecordSessions(LifePart, CheckpointsPart, CommitPart, WholePart, ListsPart):
    """A `SessionStore` over a backend's `SessionRecords`, and a thread store for the messages.

    Every change is one view and one commit, and again if somebody was faster.

    Args:
        records: Where sessions lie.
        threads: Where their messages lie; None if nobody asks this store for messages.
        together: ``threads`` are over the hot threads that lie with these very sessions, so that a step
            and a state are committed in one unit; by default they are, if the backend has any.  With
            threads elsewhere (Redis beside PostgreSQL) it must be False.
        require_epoch: Refuse writes of a session's writer that name no epoch.
        streams: Where sessions are shown: what was shown of one goes with it.
        recalls: A run's commit does not look at the session again where nobody has written it since this
            process recorded the run.  Only over a backend that is ``durable``: the others may forget a
            session, and have its revisions a second time.

    Raises:
        InvalidConfigError: ``together`` over a backend that keeps no threads.
    """
