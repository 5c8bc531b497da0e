"""The stores that whoever reads sessions needs, together."""

from dataclasses import dataclass
from typing import Protocol

from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ThreadStore
from helix_temporal.stores.protocols.usage import UsageStore


class ReadableStores(Protocol):
    """Where the workers have sessions: a `helix_temporal.backends.Backends`, or `SessionStores`."""

    @property
    def threads(self) -> ThreadStore:
        """Messages, and the slice."""
        ...

    @property
    def usage(self) -> UsageStore:
        """What sessions used."""
        ...

    @property
    def keeps_sessions(self) -> bool:
        """Whether the workers have a session store; otherwise nobody asks for `sessions`."""
        ...

    @property
    def sessions(self) -> SessionStore | None:
        """States and checkpoints."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStores:
    """Stores from anywhere, as a `SessionClient` reads them.

    They must be those of the workers, with the same prefixes; whoever made them closes them.

    Attributes:
        threads: A hot tier alone, as `HotThreads`, or over the archive, as `TieredThreads`.
        usage: What sessions used.
        sessions: States and checkpoints; None where the workers have no session store.
    """

    threads: ThreadStore
    usage: UsageStore
    sessions: SessionStore | None = None

    @property
    def keeps_sessions(self) -> bool:
        """Whether there is a session store."""
        return self.sessions is not None
