"""Deleting a session: what is asked, what was removed, and what is left."""

from pydantic import Field

from helix_temporal.models._base import Model
from helix_temporal.models.ids import Id


class EraseSessionInput(Model):
    """Remove one session from all stores of the workers; its sub-agents' are named apart.

    Attributes:
        thread_id: Of its messages, where that is another id.
        keep_usage: Leave what was recorded of its use, for invoices.
    """

    session_id: Id
    thread_id: Id | None = None
    keep_usage: bool = False


class LeftBehind(Model):
    """Something of a session that is still there.

    Attributes:
        what: ``thread``, ``state``, ``executions``, ``sub_agents`` or ``late_writes``.
        where: Whose, or which.
        why: And what to do.
    """

    what: str
    where: str
    why: str


class EraseSessionResult(Model):
    """What was there and is gone: ``thread``, ``state``, ``stream``, ``usage``; a repeat finds nothing."""

    removed: tuple[str, ...] = ()
    left: tuple[LeftBehind, ...] = ()


class DeleteResult(Model):
    """What a deletion did; a repeat tells only what it found itself.

    Attributes:
        sessions: The session, and those of its sub-agents.
        removed: How many of what: ``thread``, ``state``, ``stream``, ``usage``, ``execution``.
        pending: Executions whose deletion the server has accepted, and not carried out yet: it does so some
            seconds to a minute later, by itself.
        left: What is still there, and stays unless somebody does something.
    """

    sessions: tuple[str, ...] = ()
    removed: dict[str, int] = Field(default_factory=dict)
    pending: tuple[str, ...] = ()
    left: tuple[LeftBehind, ...] = ()

    @property
    def complete(self) -> bool:
        """Nothing is left, and the server has carried out what it has accepted."""
        return not (self.left or self.pending)
