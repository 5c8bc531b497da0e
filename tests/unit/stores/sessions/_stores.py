"""Session stores of tests: all in memory, the threads beside the sessions or elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.stores.memory import MemorySessions, MemoryThreads
from helix_temporal.stores.protocols.session_rows import (
    RowsCommitted,
    SessionCommit,
    SessionView,
    WantedRows,
)
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads


@dataclass
class Clock:
    """A clock that a test moves."""

    at: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.at


class WatchedSessions(MemorySessions):
    """Counts calls, and fails where it is told to."""

    def __init__(self, threads: MemoryThreads | None = None, **more: Any) -> None:
        super().__init__(threads, **more)
        self.calls: list[str] = []
        self.before_commit: Callable[[SessionCommit], None] = lambda change: None
        self.lose_answers = 0

    async def view(self, session_id: str, wanted: WantedRows = WantedRows()) -> SessionView:  # noqa: B008 (frozen)
        self.calls.append("view")
        return await super().view(session_id, wanted)

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        self.calls.append("commit")
        self.before_commit(change)
        done = await super().commit(change)
        if self.lose_answers:
            self.lose_answers -= 1
            raise StoreUnavailableError("the answer was lost")
        return done


@dataclass
class Together:
    """Sessions and threads in one place."""

    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.hot = MemoryThreads(clock=self.clock)
        self.rows = WatchedSessions(self.hot, clock=self.clock)
        self.threads = HotThreads(self.hot)
        self.store = self.another()

    def another(self, **options: Any) -> RowSessions:
        """A session store as another process has it."""
        return RowSessions(self.rows, self.threads, **options)


@dataclass
class Apart:
    """Sessions in one place, threads in another, though the first could keep threads as well."""

    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.hot = MemoryThreads(clock=self.clock)
        self.rows = WatchedSessions(MemoryThreads(clock=self.clock), clock=self.clock)
        self.threads = HotThreads(self.hot)
        self.store = self.another()

    def another(self, **options: Any) -> RowSessions:
        """A session store as another process has it."""
        return RowSessions(self.rows, self.threads, together=False, **options)


@dataclass
class Tiered:
    """Sessions and hot threads in one place or two, the threads archived in blobs."""

    keeps_threads: bool
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.hot = MemoryThreads(clock=self.clock)
        self.blobs = MemoryBlobs()
        self.rows = WatchedSessions(self.hot if self.keeps_threads else None, clock=self.clock)
        self.threads = TieredThreads(self.hot, self.blobs, clock=self.clock)
        self.store = RowSessions(self.rows, self.threads)
