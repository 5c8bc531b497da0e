"""Sessions in Redis or Valkey: a hash and a sorted set a session, in its thread's slot, and one index."""

import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    InvalidIdError,
    InvalidRequestError,
    StoreUnavailableError,
)
from helix_temporal.models.store_calls import DueSession, ExpiredSession, SessionPage, SessionQuery
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.protocols.session_rows import (
    STATE_ALONE,
    RowKind,
    RowPage,
    RowsCommitted,
    SessionCommit,
    SessionRow,
    SessionView,
    WantedRows,
)
from helix_temporal.stores.redis import session_index, threads
from helix_temporal.stores.redis.connection import RedisConnection, Value, check_server
from helix_temporal.stores.redis.scripts import Script, assemble_script
from helix_temporal.stores.redis.session_index import IndexUpdate, SessionIndex, encode_index_document
from helix_temporal.stores.redis.threads import append_args, read_appended
from helix_temporal.stores.threads.operations import not_hot_error

_VIEW: Final = assemble_script("session_view", "_thread", "_session")
_COMMIT: Final = assemble_script("session_commit", "_thread", "_session", append_step="append")
_PAGE: Final = assemble_script("session_page", "_thread", "_session")
_GROUPS: Final = assemble_script("session_groups", "_thread", "_session")
_KNOWN: Final = assemble_script("session_known", "_thread", "_session")

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 1_000
"""Operations removed in one script, so that nobody waits long."""


class RedisSessions:
    """`SessionRows` on Redis or Valkey, standalone or cluster.  Made by `RedisBackend`.

    A session that a commit changed is in the lists when the call returns.  If the writer dies between the
    two, readers find the session's mark and mend the lists by the session itself, a moment later.

    Args:
        session_ttl: Seconds after its last commit that a session is kept, revision and fence included;
            None keeps it.  A session that waits for a person longer than that is lost.

    Raises:
        InvalidConfigError: ``session_ttl`` is not above 0.
    """

    keeps_threads: bool = True

    def __init__(self, connection: RedisConnection, *, session_ttl: float | None = None) -> None:
        if session_ttl is not None and session_ttl <= 0:
            raise InvalidConfigError(f"session_ttl {session_ttl}: seconds above 0 expected, or None")
        self._connection = connection
        self._lives = None if session_ttl is None else max(int(session_ttl * 1000), 1)
        self._index = SessionIndex(connection, self._read_index_update)
        self.durable: bool = False

    # -- one session

    async def view(self, session_id: str, wanted: WantedRows = STATE_ALONE) -> SessionView:
        """See `SessionRows.view`."""
        answer = await self._run_script(_VIEW, session_id, *session_index.view_args(wanted))
        assert isinstance(answer, list)
        return session_index.read_view(session_id, answer, self._place_of_session(session_id))

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """See `SessionRows.commit`.

        Raises:
            InvalidRequestError: ``append`` is a step of another thread, or one without messages.
        """
        step, end = _step_of(change)
        indexed = _is_indexed(change)
        mark = self._index.new_mark(change.session_id) if indexed else b""
        # A single server leaves the mark in the commit's own script.
        apart = indexed and self._connection.cluster
        told = b"" if change.state is None else encode_index_document(change.state)
        args = session_index.commit_args(
            change,
            indexed=indexed,
            lives=self._lives,
            limit=await self._index.announce_commit(mark) if apart else None,
            document=told,
            mark=mark,
            step=step,
        )
        marks = () if self._connection.cluster else (self._index.marks,)
        answer = await self._run_script(_COMMIT, change.session_id, *args, keys=marks)
        if not isinstance(answer, list):
            if apart:
                await self._index.withdraw_mark(mark)
            _check_refusal(change, answer, end, self._place_of_session(change.session_id))
            return None
        numbers, operation, kept, appended = answer
        entry = session_index.read_index_entry(numbers, operation, told or kept)
        if indexed:
            await self._index.update_after_commit(change.session_id, entry, mark)
        if change.append is None:
            return RowsCommitted(entry.revision)
        reply = threads.read_reply(appended, change.session_id, self._place_of_session(change.session_id))
        return RowsCommitted(entry.revision, read_appended(reply, change.append, end))

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
        page = await self._read_page(session_id, session_index.page_args(kind, limit, after, descending))
        return page if count else RowPage(page.rows, None)

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
        args = session_index.group_page_args(kind, group, limit, after, descending)
        return (await self._read_page(session_id, args)).rows

    async def list_groups(
        self, session_id: str, kind: RowKind, *, first: str, stop: str, limit: int
    ) -> tuple[str, ...]:
        """See `SessionRows.list_groups`."""
        args = session_index.groups_args(kind, first, stop, limit)
        answer = await self._run_script(_GROUPS, session_id, *args)
        assert isinstance(answer, list)
        return tuple(place[2:].decode() for place in answer)

    # -- all sessions

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """See `SessionRows.list_sessions`."""
        return await self._index.list_sessions(query)

    async def list_expired(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[ExpiredSession, ...]:
        """See `SessionRows.list_expired`."""
        return await self._index.list_expired(before, limit=limit, after=after)

    async def list_due(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[DueSession, ...]:
        """See `SessionRows.list_due`."""
        return await self._index.list_due(before, limit=limit, after=after)

    async def list_cleanup_pending(self, *, limit: int, after: str | None = None) -> tuple[str, ...]:
        """See `SessionRows.list_cleanup_pending`."""
        return await self._index.list_cleanup_pending(limit=limit, after=after)

    async def scan(self) -> AsyncIterator[str]:
        """See `SessionRows.scan`; asks every server, not the index.  An id may come twice."""
        async for keys in self._connection.scan(f"{self._connection.prefix}{{*}}:session"):
            stored = await self._connection.send_pipeline([("HGET", key, "i") for key in keys])
            there = await self._connection.send_pipeline([("HEXISTS", key, "s") for key in keys])
            ids = map(
                partial(self._connection.id_in, suffix=":session"), keys, (each or b"" for each in stored)
            )
            for session_id, has_state in zip(ids, there, strict=True):
                if session_id is not None and has_state:
                    yield session_id

    async def purge_operations(self, before: int, *, limit: int) -> int:
        """See `SessionRows.purge_operations`."""
        await self._index.mend_rows()
        gone, last = 0, b""
        while gone < limit and (found := await self._index.with_operations(before, after=last)):
            last = found[-1][0]
            for _, session_id in found:
                gone += await self._purge_one(session_id, before, limit - gone)
        return gone

    async def rebuild_index(self) -> int:
        """Make the lists anew from the sessions themselves; how many there are.

        Needed only where an entry of a list is lost, or a server of a cluster lost acknowledged writes and
        others did not.  Lists mend a damaged line themselves.  Sessions may be read and written meanwhile;
        the call may be repeated.

        Raises:
            StoreCorruptError: A session itself is damaged: it is named.  Restore or delete it, and repeat.
        """
        await self._index.remake_rows()
        count = 0
        async for session_id in self.scan():
            await self._index.update_row(session_id, await self._read_index_update(session_id))
            count += 1
        return count

    async def now(self) -> int:
        """See `SessionRows.now`."""
        seconds, micros = await self._connection.send_to_owner(self._index.marks, "TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def check(self) -> None:
        """See `SessionRows.check`; finds out whether acknowledged commits are ``durable``.

        Raises:
            UnsafeRedisPolicyError: The server may evict sessions; with ``session_ttl``: any keys at all.
        """
        self.durable = await check_server(self._connection, expiring=self._lives is not None)

    async def close(self) -> None:
        """See `SessionRows.close`."""
        await self._connection.close()

    # -- inside

    async def _read_page(self, session_id: str, args: tuple[Value, ...]) -> RowPage:
        answer = await self._run_script(_PAGE, session_id, *args)
        assert isinstance(answer, list)
        return RowPage(
            tuple(session_index.read_rows(answer[1:], session_id, self._place_of_session(session_id))),
            int(answer[0]),
        )

    def _place_of_session(self, session_id: str) -> str:
        return self._connection.place_of(f"{self._connection.key_of(session_id)}:session")

    async def _read_index_update(self, session_id: str) -> IndexUpdate | None:
        return (await self._ask_session(session_id, b"(", 0))[0]

    async def _purge_one(self, session_id: str, before: int, limit: int) -> int:
        """How many went; a damaged session is named in the log, and keeps its own and nobody else's."""
        gone, removed = 0, _AT_ONCE
        try:
            while removed == _AT_ONCE and gone < limit:
                removed = await self._purge_batch(session_id, before, min(_AT_ONCE, limit - gone))
                gone += removed
        except StoreUnavailableError:
            raise
        except HelixError as error:
            logger.warning("session %r keeps its old operations: %s", session_id, error)
        return gone

    async def _purge_batch(self, session_id: str, before: int, limit: int) -> int:
        entry, removed = await self._ask_session(
            session_id, b"(oo" + session_index.order_bytes(before), limit
        )
        await self._index.update_row(session_id, entry)
        return removed

    async def _ask_session(self, session_id: str, place: bytes, limit: int) -> tuple[IndexUpdate | None, int]:
        answer = await self._run_script(_KNOWN, session_id, place, limit)
        if not isinstance(answer, list):
            return None, 0
        numbers, operation, told, removed = answer
        return session_index.read_index_entry(numbers, operation, told), int(removed)

    async def _run_script(
        self, script: Script, session_id: str, *args: Value, keys: tuple[str, ...] = ()
    ) -> bytes | list[bytes] | None:
        thread = self._connection.key_of(session_id)
        names = [f"{thread}:session", f"{thread}:session-order", thread, *keys]
        answer = await self._connection.run_script(script, names, session_id, *args)
        if answer == b"I":
            raise InvalidIdError(
                f"session {session_id!r}: its keys hold the rows of another id with the same hashed form; "
                "use another id"
            )
        return answer


def _step_of(change: SessionCommit) -> tuple[tuple[Value, ...], Head]:
    step = change.append
    if step is None:
        return (), EMPTY
    if step.thread_id != change.session_id:
        raise InvalidRequestError(
            f"session {change.session_id!r}: a step of thread {step.thread_id!r} can't be committed with it"
        )
    return append_args(step)


def _is_indexed(change: SessionCommit) -> bool:
    """Whether lists may look different after the change."""
    return (
        change.state is not None
        or change.deletes
        or any(each.kind is RowKind.OPERATION for each in change.puts)
        or any(each.kind is RowKind.OPERATION for each in change.removes)
    )


def _check_refusal(change: SessionCommit, answer: bytes | None, end: Head, where: str) -> None:
    """Raise why nothing was written, unless it is that the revision moved."""
    if answer == b"N":
        return
    if answer == b"L":
        raise StoreUnavailableError(
            f"session {change.session_id!r}: the commit came too late to be sure of its lists; repeat it "
            "(if that does not help, the clocks of the cluster's servers differ by more than 30 s)"
        )
    if answer == b"C" or change.append is None or answer is None:
        raise not_hot_error(change.session_id)
    read_appended(threads.read_reply(answer[1:], change.session_id, where), change.append, end)
    raise AssertionError("a refused step was read as one that stands")
