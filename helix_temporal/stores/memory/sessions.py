"""Sessions in this process: the reference implementation of the port; gone with the process."""

import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import DueSession, ExpiredSession, SessionPage, SessionQuery
from helix_temporal.stores.memory.threads import MemoryThreads
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.session_rows import (
    STATE_ALONE,
    RowKind,
    RowPage,
    RowsCommitted,
    SessionCommit,
    SessionRow,
    SessionView,
    StoredState,
    WantedRows,
)
from helix_temporal.stores.sessions import operations as ops
from helix_temporal.stores.sessions.operations import NOTHING, SessionImage
from helix_temporal.stores.threads.operations import not_hot_error


class MemorySessions:
    """`SessionRows` in a dict.  No method awaits, so each is atomic on its event loop.

    Args:
        threads: The hot threads that lie with the sessions, so that a step and a state commit together.
        clock: Seconds since 1970.
    """

    durable: bool = False

    def __init__(
        self, threads: MemoryThreads | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._threads, self._clock = threads, clock
        self._sessions: dict[str, SessionImage] = {}
        self._births = itertools.count(1)
        self.keeps_threads: bool = threads is not None

    # -- for tests

    def clear(self) -> None:
        """Forget all sessions, and what was remembered of deleted ones; threads stay."""
        self._sessions.clear()

    def get_all_session_ids(self) -> list[str]:
        """Ids of all sessions, in the order of their creation."""
        return [each.state.session_id for each in self._stored_states()]

    def get_sync(self, session_id: str) -> SessionState | None:
        """A copy of a state; None if there is no such session."""
        stored = self._held_session(session_id).stored
        return None if stored is None else stored.state.model_copy(deep=True)

    # -- the port

    async def view(self, session_id: str, wanted: WantedRows = STATE_ALONE) -> SessionView:
        """See `SessionRows.view`."""
        held = self._held_session(session_id)
        return SessionView(
            revision=held.revision,
            max_epoch=held.max_epoch,
            now=self._read_clock(),
            state=held.stored.body if held.stored else None,
            rows=ops.select_rows(held, wanted),
            thread=self._threads.header_now(session_id) if wanted.thread and self._threads else None,
            birth=held.birth,
        )

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """See `SessionRows.commit`."""
        after = ops.apply_commit(self._held_session(change.session_id), change, next(self._births))
        if after is None:
            return None
        appended = None if change.append is None else self._append_step(change.append)
        if after.stored is not None:
            after = replace(after, stored=_copy_state(after.stored))
        self._sessions[change.session_id] = after
        return RowsCommitted(after.revision, appended)

    async def read_page(
        self,
        session_id: str,
        kind: RowKind,
        *,
        limit: int,
        after: tuple[int, str] | None = None,
        descending: bool = False,
        count: bool = True,
    ) -> RowPage:
        """See `SessionRows.read_page`."""
        return ops.page_rows(
            self._held_session(session_id),
            kind,
            limit=limit,
            after=after,
            descending=descending,
            count=count,
        )

    async def read_group(
        self,
        session_id: str,
        kind: RowKind,
        group: str,
        *,
        limit: int,
        after: str | None = None,
        descending: bool = False,
    ) -> tuple[SessionRow, ...]:
        """See `SessionRows.read_group`."""
        return ops.read_group(
            self._held_session(session_id), kind, group, limit=limit, after=after, descending=descending
        )

    async def list_groups(
        self, session_id: str, kind: RowKind, *, first: str, stop: str, limit: int
    ) -> tuple[str, ...]:
        """See `SessionRows.list_groups`."""
        return ops.list_groups(self._held_session(session_id), kind, first, stop, limit)

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """See `SessionRows.list_sessions`; memory has no index and needs none."""
        return ops.list_sessions((each.state for each in self._stored_states()), query)

    async def scan(self) -> AsyncIterator[str]:
        """See `SessionRows.scan`."""
        for session_id in self.get_all_session_ids():
            if self._held_session(session_id).stored is not None:
                yield session_id

    async def list_expired(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[ExpiredSession, ...]:
        """See `SessionRows.list_expired`."""
        return ops.list_expired(
            (each.state for each in self._stored_states()), before, limit=limit, after=after
        )

    async def list_due(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[DueSession, ...]:
        """See `SessionRows.list_due`."""
        return ops.list_due(self._stored_states(), before, limit=limit, after=after)

    async def list_cleanup_pending(self, *, limit: int, after: str | None = None) -> tuple[str, ...]:
        """See `SessionRows.list_cleanup_pending`."""
        pending = sorted(
            each.state.session_id for each in self._stored_states() if each.state.cleanup_pending
        )
        return tuple([each for each in pending if after is None or each > after][:limit])

    async def purge_operations(self, before: int, *, limit: int) -> int:
        """See `SessionRows.purge_operations`."""
        gone = 0
        for session_id, held in list(self._sessions.items()):
            self._sessions[session_id], removed = ops.without_old_operations(held, before, limit - gone)
            gone += removed
        return gone

    async def now(self) -> int:
        """See `SessionRows.now`."""
        return self._read_clock()

    async def check(self) -> None:
        """Nothing to refuse."""

    async def close(self) -> None:
        """Nothing to give back."""

    # -- inside

    def _held_session(self, session_id: str) -> SessionImage:
        return self._sessions.get(session_id, NOTHING)

    def _stored_states(self) -> Iterator[StoredState]:
        return (held.stored for held in list(self._sessions.values()) if held.stored is not None)

    def _read_clock(self) -> int:
        return int(self._clock() * 1000)

    def _append_step(self, step: StepAppend) -> Appended:
        appended = None if self._threads is None else self._threads.append_now(step)
        if appended is None:
            raise not_hot_error(step.thread_id)
        return appended


def _copy_state(stored: StoredState) -> StoredState:
    """A state that nobody else holds: it came from a caller and goes to callers."""
    return StoredState(stored.state.model_copy(deep=True), stored.body)
