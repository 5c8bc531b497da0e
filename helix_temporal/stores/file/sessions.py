"""Sessions on the local disk: one document a session, its thread included, replaced as a whole."""

import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from helix_temporal.errors import (
    HelixError,
    InvalidIdError,
    InvalidRequestError,
    StoreCorruptError,
    ThreadNotFoundError,
    UnsupportedFormatError,
)
from helix_temporal.models.store_calls import ExpiredSession, SessionPage, SessionQuery
from helix_temporal.stores.file._documents import Change, Documents, Listed
from helix_temporal.stores.file._format import Part, Parts
from helix_temporal.stores.file._session_part import SESSION, ListedRow, listed_row, session_in, session_part
from helix_temporal.stores.file._thread_part import THREAD, thread_in, thread_part
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.session_records import (
    Committed,
    RecordKind,
    RecordPage,
    SessionCommit,
    SessionView,
    Wanted,
)
from helix_temporal.stores.sessions import operations as ops
from helix_temporal.stores.threads import operations

_STATE_ONLY: Final = Wanted()
_ITS_OWN: Final = (StoreCorruptError, UnsupportedFormatError, InvalidIdError)
"""What is wrong with one document, not with the directory."""
_log = logging.getLogger(__name__)


class FileSessions:
    """`SessionRecords` over the part ``session`` of one document a session.  Made by `FileBackend`.

    A commit writes the whole document, state, records and thread, and is on the disk when it returns.
    Lists read the first lines of every document: for development, single machines and some thousand
    sessions.  A damaged document is left out of lists, with a warning; `scan` names it.

    Args:
        documents: Shared with the hot threads of the same ids.
        clock: Seconds since 1970.

    Raises (every method): what `Documents` raises.
    """

    keeps_threads: bool = True
    durable: bool = True

    def __init__(self, documents: Documents, *, clock: Callable[[], float] = time.time) -> None:
        self._documents, self._clock = documents, clock

    async def view(self, session_id: str, wanted: Wanted = _STATE_ONLY) -> SessionView:
        """See `SessionRecords.view`."""
        parts = await self._documents.read(session_id)
        held = session_in(parts, session_id)
        thread = thread_in(parts, self._clock()) if wanted.thread else None
        return SessionView(
            revision=held.revision,
            max_epoch=held.max_epoch,
            now=self._now(),
            state=held.row.body if held.row else None,
            records=ops.found(held, wanted),
            thread=thread.header if thread else None,
        )

    async def commit(self, change: SessionCommit) -> Committed | None:
        """See `SessionRecords.commit`."""
        if change.append is not None and change.append.thread_id != change.session_id:
            raise InvalidRequestError(
                f"session {change.session_id!r}: a commit takes a step of the session's own thread, "
                f"got one of {change.append.thread_id!r}"
            )

        def decide(parts: Parts) -> Change[Committed | None]:
            after = ops.commit(session_in(parts, change.session_id), change)
            if after is None:
                return Change(None)
            changed = {**parts, SESSION: session_part(after)}
            if change.append is None:
                return Change(Committed(after.revision), changed)
            appended, changed[THREAD] = self._append(parts, change.append)
            return Change(Committed(after.revision, appended), changed)

        return await self._documents.change(change.session_id, decide)

    async def page(
        self,
        session_id: str,
        kind: RecordKind,
        *,
        limit: int,
        after: tuple[int, str] | None = None,
        descending: bool = False,
    ) -> RecordPage:
        """See `SessionRecords.page`."""
        held = session_in(await self._documents.read(session_id), session_id)
        return ops.page(held, kind, limit=limit, after=after, descending=descending)

    # -- lists

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """See `SessionRecords.list_sessions`; the index is the first lines of all documents."""
        return ops.list_sessions([row.state for row in await self._rows()], query)

    async def scan(self) -> AsyncIterator[str]:
        """See `SessionRecords.scan`; a damaged document is named as well, as far as its name tells."""
        async for listed in self._documents.entries():
            if listed.problem is not None or (SESSION in listed.headers and _known(listed) is not None):
                yield listed.id

    async def list_expired(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[ExpiredSession, ...]:
        """See `SessionRecords.list_expired`."""
        states = [row.state for row in await self._rows()]
        return ops.list_expired(states, before, limit=limit, after=after)

    async def list_due(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[tuple[int, str], ...]:
        """See `SessionRecords.list_due`."""
        return ops.list_due(await self._rows(), before, limit=limit, after=after)

    async def list_cleanup_pending(self, *, limit: int, after: str | None = None) -> tuple[str, ...]:
        """See `SessionRecords.list_cleanup_pending`."""
        pending = sorted(row.state.session_id for row in await self._rows() if row.state.cleanup_pending)
        return tuple([each for each in pending if after is None or each > after][:limit])

    # -- upkeep

    async def purge_operations(self, before: int, *, limit: int) -> int:
        """See `SessionRecords.purge_operations`."""
        gone = 0
        async for listed in self._documents.entries():
            if listed.problem is not None:
                _keeps_operations(listed.id, listed.problem)
                continue
            oldest = listed.headers.get(SESSION, {}).get("oldest_operation")
            if oldest is None or oldest >= before:
                continue
            try:
                gone += await self._purge(listed.id, before, limit - gone)
            except _ITS_OWN as error:
                _keeps_operations(listed.id, error)
            if gone >= limit:
                break
        return gone

    async def now(self) -> int:
        """See `SessionRecords.now`: the clock of this machine."""
        return self._now()

    async def check(self) -> None:
        """Prove that the directory takes writes and locks; see `Documents.check`."""
        await self._documents.check()

    async def close(self) -> None:
        """Nothing is held between calls."""

    # -- inside

    def _append(self, parts: Parts, step: StepAppend) -> tuple[Appended, Part]:
        now = self._clock()
        held = thread_in(parts, now)
        appended, thread = operations.append(held, step, now)
        if appended is None or thread is None:
            raise ThreadNotFoundError(f"thread {step.thread_id!r} is not hot here; make it hot first")
        return appended, parts[THREAD] if thread is held else thread_part(thread)

    async def _purge(self, session_id: str, before: int, limit: int) -> int:
        def decide(parts: Parts) -> Change[int]:
            after, gone = ops.purged(session_in(parts, session_id), before, limit)
            return Change(gone, {**parts, SESSION: session_part(after)} if gone else None)

        return await self._documents.change(session_id, decide)

    async def _rows(self) -> list[ListedRow]:
        found = [_known(listed) async for listed in self._documents.entries()]
        return [row for row in found if row is not None]

    def _now(self) -> int:
        return int(self._clock() * 1000)


def _known(listed: Listed) -> ListedRow | None:
    """What a list shows of a document, if it holds a session; a damaged one is told to the log."""
    try:
        if listed.problem is not None:
            raise listed.problem
        facts = listed.headers.get(SESSION)
        return None if facts is None else listed_row(facts, listed.id)
    except HelixError as error:
        _log.warning("session %r is left out of a list: %s", listed.id, error)
        return None


def _keeps_operations(session_id: str, error: HelixError) -> None:
    """Name a damaged document; it keeps its operations, and nobody else does."""
    _log.warning("session %r keeps its old operations: %s", session_id, error)
