"""Sessions in this process: the reference implementation of the port; gone with the process."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Final

from helix_temporal.errors import ThreadNotFoundError
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import ExpiredSession, SessionPage, SessionQuery
from helix_temporal.stores.memory.threads import MemoryThreads
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.session_records import (
    RecordKind,
    RecordPage,
    RecordsCommitted,
    SessionCommit,
    SessionRow,
    SessionView,
    WantedRecords,
)
from helix_temporal.stores.sessions import operations as ops
from helix_temporal.stores.sessions.operations import NOTHING, HeldSession

_STATE_ONLY: Final = WantedRecords()


class MemorySessions:
    """`SessionRecords` in a dict.  No method awaits, so each is atomic on its event loop.

    Args:
        threads: The hot threads that lie with the sessions, so that a step and a state commit together.
        clock: Seconds since 1970.
    """

    durable: bool = False

    def __init__(
        self, threads: MemoryThreads | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._threads, self._clock = threads, clock
        self._sessions: dict[str, HeldSession] = {}
        self.keeps_threads: bool = threads is not None

    # -- for tests

    def clear(self) -> None:
        """Forget all sessions, and what was remembered of deleted ones; threads stay."""
        self._sessions.clear()

    def get_all_session_ids(self) -> list[str]:
        """Ids of all sessions, in the order of their creation."""
        return [row.state.session_id for row in self._session_rows()]

    def get_sync(self, session_id: str) -> SessionState | None:
        """A copy of a state; None if there is no such session."""
        row = self._held_session(session_id).row
        return None if row is None else row.state.model_copy(deep=True)

    # -- the port

    async def view(self, session_id: str, wanted: WantedRecords = _STATE_ONLY) -> SessionView:
        """See `SessionRecords.view`."""
        held = self._held_session(session_id)
        return SessionView(
            revision=held.revision,
            max_epoch=held.max_epoch,
            now=self._read_clock(),
            state=held.row.body if held.row else None,
            records=ops.select_records(held, wanted),
            thread=self._threads.header_now(session_id) if wanted.thread and self._threads else None,
        )

    async def commit(self, change: SessionCommit) -> RecordsCommitted | None:
        """See `SessionRecords.commit`."""
        after = ops.apply_commit(self._held_session(change.session_id), change)
        if after is None:
            return None
        appended = None if change.append is None else self._append_step(change.append)
        if after.row is not None:
            after = replace(after, row=_copy_row(after.row))
        self._sessions[change.session_id] = after
        return RecordsCommitted(after.revision, appended)

    async def read_page(
        self,
        session_id: str,
        kind: RecordKind,
        *,
        limit: int,
        after: tuple[int, str] | None = None,
        descending: bool = False,
    ) -> RecordPage:
        """See `SessionRecords.read_page`."""
        return ops.page_records(
            self._held_session(session_id), kind, limit=limit, after=after, descending=descending
        )

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """See `SessionRecords.list_sessions`; memory has no index and needs none."""
        return ops.list_sessions((row.state for row in self._session_rows()), query)

    async def scan(self) -> AsyncIterator[str]:
        """See `SessionRecords.scan`."""
        for session_id in self.get_all_session_ids():
            if self._held_session(session_id).row is not None:
                yield session_id

    async def list_expired(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[ExpiredSession, ...]:
        """See `SessionRecords.list_expired`."""
        return ops.list_expired((row.state for row in self._session_rows()), before, limit=limit, after=after)

    async def list_due(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[tuple[int, str], ...]:
        """See `SessionRecords.list_due`."""
        return ops.list_due(self._session_rows(), before, limit=limit, after=after)

    async def list_cleanup_pending(self, *, limit: int, after: str | None = None) -> tuple[str, ...]:
        """See `SessionRecords.list_cleanup_pending`."""
        pending = sorted(row.state.session_id for row in self._session_rows() if row.state.cleanup_pending)
        return tuple([each for each in pending if after is None or each > after][:limit])

    async def purge_operations(self, before: int, *, limit: int) -> int:
        """See `SessionRecords.purge_operations`."""
        gone = 0
        for session_id, held in list(self._sessions.items()):
            self._sessions[session_id], removed = ops.without_old_operations(held, before, limit - gone)
            gone += removed
        return gone

    async def now(self) -> int:
        """See `SessionRecords.now`."""
        return self._read_clock()

    async def check(self) -> None:
        """Nothing to refuse."""

    async def close(self) -> None:
        """Nothing to give back."""

    # -- inside

    def _held_session(self, session_id: str) -> HeldSession:
        return self._sessions.get(session_id, NOTHING)

    def _session_rows(self) -> Iterator[SessionRow]:
        return (held.row for held in list(self._sessions.values()) if held.row is not None)

    def _read_clock(self) -> int:
        return int(self._clock() * 1000)

    def _append_step(self, step: StepAppend) -> Appended:
        appended = None if self._threads is None else self._threads.append_now(step)
        if appended is None:
            raise ThreadNotFoundError(f"thread {step.thread_id!r} is not hot here; make it hot first")
        return appended


def _copy_row(row: SessionRow) -> SessionRow:
    """A row of which nobody else holds the state: it came from a caller and goes to callers."""
    return SessionRow(row.state.model_copy(deep=True), row.body)
