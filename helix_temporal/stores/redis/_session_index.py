"""The index of sessions: what lists are made of, in a slot of its own, kept up with each commit.

On a cluster no script reaches both a session and the index, so a mark is there while a commit is on its way
to it.  Whoever reads first mends what has a mark for longer than a moment, by what the session itself tells;
so a writer that died in between leaves nothing wrong.  The same way is gone on a single server.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from helix_temporal.errors import HelixError, StoreUnavailableError
from helix_temporal.models.queries import ExpiredSession, SessionPage, SessionQuery
from helix_temporal.stores.redis._connection import Answer, Connection
from helix_temporal.stores.redis._lane import Value
from helix_temporal.stores.redis._scripts import Script, assembled
from helix_temporal.stores.redis._session_lists import SessionLists
from helix_temporal.stores.redis._session_wire import Known, order_bytes, time_bytes

logger = logging.getLogger(__name__)

_UPDATE: Final = assembled("index_update", "_index")
_REMAKE: Final = assembled("index_remake", "_index")
_SETTLE: Final = assembled("index_settle", "_index")
_MARK: Final = assembled("index_mark", "_index")
_STALE: Final = assembled("index_stale", "_index")

_MOMENT: Final = 1_000
"""Milliseconds after which a reader does not wait for a commit to arrive."""

COMMIT_BY: Final = 30_000
"""A commit that comes to its session later than so many milliseconds after its mark is refused."""

_SETTLED: Final = 60_000
"""The commit of an older mark has happened or never will, even if the clocks of two servers differ."""

_MENDED: Final = 100
_PURGED: Final = 100

_ID_AT: Final = {b"f": 26, b"x": 9, b"w": 9, b"k": 1, b"o": 9, b"d": 9}
"""Where in an entry the session's id begins, by the entry's letter."""

Ask = Callable[[str], Awaitable[Known | None]]
"""Asks a session itself what the index must know."""


class SessionIndex:
    """The index of all sessions under one prefix.

    Args:
        ask: How to ask a session.
    """

    def __init__(self, connection: Connection, ask: Ask) -> None:
        self._connection, self._ask = connection, ask
        # No id's form has a colon: this is no session's slot.
        start = f"{connection.prefix}{{:sessions}}:"
        self._rows, self._entries, self.marks = f"{start}rows", f"{start}entries", f"{start}marks"
        self._lists = SessionLists(connection, self._rows, self._entries, self._remake_row)

    # -- writing

    @staticmethod
    def new_mark(session_id: str) -> bytes:
        """A mark that no other commit has."""
        return f"{session_id}\0{secrets.token_hex(8)}".encode()

    async def announce(self, mark: bytes) -> int:
        """Leave a mark; the time until which its commit may come, ms since 1970."""
        answer = await self._connection.run(_MARK, [self.marks], mark)
        assert isinstance(answer, bytes)
        return int(answer) + COMMIT_BY

    async def withdraw(self, mark: bytes) -> None:
        """Take out the mark of a commit that did not happen."""
        await self._connection.command("ZREM", self.marks, mark)

    async def update(self, session_id: str, known: Known | None, mark: bytes = b"") -> None:
        """Let the index know, and take out the mark; with None: forget what has reached its end of life."""
        keys = [self._rows, self._entries, self.marks]
        await self._connection.run(_UPDATE, keys, session_id, mark, *_told(known))

    async def arrive(self, session_id: str, known: Known, mark: bytes) -> None:
        """`update` after a commit that has happened: if it fails, readers mend it."""
        try:
            await self.update(session_id, known, mark)
        except StoreUnavailableError as error:
            logger.warning("session %r: the index is behind until it is next read (%s)", session_id, error)

    async def remake(self) -> None:
        """Make all rows anew from the sessions, whatever is in them, and take out entries of none.

        What commits write meanwhile stays.
        """
        async for name, row in self._scanned("HSCAN", self._rows):
            await self._remake_row(name, row)
        async for entry, _ in self._scanned("ZSCAN", self._entries):
            if (start := _ID_AT.get(entry[:1])) is not None:
                await self._connection.run(_SETTLE, [self._rows, self._entries], entry[start:], entry)

    async def _remake_row(self, name: bytes, row: bytes) -> None:
        known = await self._ask(name.decode())
        await self._connection.run(_REMAKE, [self._rows, self._entries], name, row, *_told(known))

    async def _scanned(self, command: str, key: str) -> AsyncIterator[tuple[bytes, bytes]]:
        cursor = b"0"
        while True:
            cursor, found = await self._connection.command(command, key, cursor, "COUNT", _MENDED)
            for pair in found.items() if isinstance(found, dict) else found:
                yield pair
            if not int(cursor):
                return

    # -- reading

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """See `SessionRecords.list_sessions`."""
        await self.mend()
        return await self._lists.list_sessions(query)

    async def list_expired(
        self, before: int, *, limit: int, after: tuple[int, str] | None
    ) -> tuple[ExpiredSession, ...]:
        """See `SessionRecords.list_expired`."""
        found = await self._timed(b"x", before, limit, after)
        rows = await self._lists.read_rows([session_id.encode() for _, session_id in found])
        pending = {row.summary.session_id for row in rows if row.cleanup_pending}
        return tuple(
            ExpiredSession(session_id=session_id, expires_at=at, cleanup_pending=session_id in pending)
            for at, session_id in found
        )

    async def list_due(
        self, before: int, *, limit: int, after: tuple[int, str] | None
    ) -> tuple[tuple[int, str], ...]:
        """See `SessionRecords.list_due`."""
        return await self._timed(b"w", before, limit, after)

    async def list_cleanup_pending(self, *, limit: int, after: str | None) -> tuple[str, ...]:
        """See `SessionRecords.list_cleanup_pending`."""
        await self.mend()
        lowest = b"[k" if after is None else b"(k" + after.encode()
        found = await self._entries_in(lowest, b"(l", limit)
        return tuple(entry[1:].decode() for entry in found)

    async def with_operations(self, before: int, *, after: bytes) -> list[tuple[bytes, str]]:
        """Some entries, and ids, of sessions that may have operations older than ``before`` (ms)."""
        lowest = b"(" + after if after else b"[o"
        found = await self._entries_in(lowest, b"(o" + order_bytes(before), _PURGED)
        return [(entry, entry[9:].decode()) for entry in found]

    async def mend(self) -> None:
        """Ask the sessions of commits that should have arrived, and those that should have ended."""
        skip_marks = skip_ended = 0
        while True:
            number, *found = await self._run(
                _STALE, [self._entries, self.marks], _MOMENT, _SETTLED, skip_marks, skip_ended, _MENDED
            )
            marks, ended = found[: int(number)], found[int(number) :]
            outcomes = await asyncio.gather(
                *(self._mend(each[1:].rpartition(b"\0")[0].decode(), each) for each in marks),
                *(self._mend(each.decode(), b"") for each in ended),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            skip_marks += sum(each.startswith(b"M") for each in marks)
            skip_ended += sum(outcome is False for outcome in outcomes[len(marks) :])
            if max(len(marks), len(ended)) < _MENDED:
                return

    # -- inside

    async def _mend(self, session_id: str, late: bytes) -> bool:
        """Whether the session could be asked; one that is damaged must not keep all others from lists."""
        mark = late[1:] if late.startswith(b"S") else b""
        try:
            known = await self._ask(session_id)
        except StoreUnavailableError:
            raise
        except HelixError:
            logger.exception("session %r can't be read: lists may be wrong about it", session_id)
            await self.withdraw(mark)
            return False
        await self.update(session_id, known, mark)
        return True

    async def _timed(
        self, letter: bytes, before: int, limit: int, after: tuple[int, str] | None
    ) -> tuple[tuple[int, str], ...]:
        await self.mend()
        lowest = b"[" + letter
        if after is not None:
            lowest = b"(%b%b%b" % (letter, time_bytes(after[0]), after[1].encode())
        found = await self._entries_in(lowest, b"(" + letter + time_bytes(before), limit)
        return tuple((int.from_bytes(entry[1:9], "big"), entry[9:].decode()) for entry in found)

    async def _entries_in(self, lowest: bytes, highest: bytes, limit: int) -> list[bytes]:
        found: list[bytes] = await self._connection.command(
            "ZRANGEBYLEX", self._entries, lowest, highest, "LIMIT", 0, limit
        )
        return found

    async def _run(self, script: Script, keys: Sequence[str], *args: Value) -> list[bytes]:
        answer: Answer = await self._connection.run(script, keys, *args)
        assert isinstance(answer, list)
        return answer


def _told(known: Known | None) -> Sequence[Value]:
    """What scripts are told of a session; empty texts if there is none."""
    if known is None:
        return ("", "", "", "", "")
    ends = b"" if known.ends is None else time_bytes(known.ends)
    return (known.birth, known.revision, known.operation, ends, known.document)
