"""Pages of the lists of sessions, out of the index."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from helix_temporal.errors import HelixError, StoreCorruptError, StoreUnavailableError
from helix_temporal.models.queries import SessionPage, SessionQuery
from helix_temporal.stores._cursors import decode_cursor, encode_cursor
from helix_temporal.stores.redis._connection import Connection
from helix_temporal.stores.redis._lane import Value
from helix_temporal.stores.redis._scripts import Script, assembled
from helix_temporal.stores.redis._session_rows import (
    Plan,
    Row,
    Span,
    id_of,
    place_of,
    read_row,
    shown,
    time_at,
)
from helix_temporal.stores.redis._session_wire import time_bytes

_PAGE: Final = assembled("index_page", "_index")
_SIFT: Final = assembled("index_sift", "_index")

_SIFTED: Final = 1_000
"""Entries looked at in one script, so that nobody else waits long."""


logger = logging.getLogger(__name__)

Remake = Callable[[bytes, bytes], Awaitable[None]]
"""Makes the row of a session anew, unless it is another one than this by now."""


class SessionLists:
    """Reads the index.  Made by `SessionIndex`.

    Args:
        remake: How a damaged row is made anew.
    """

    def __init__(self, connection: Connection, rows: str, entries: str, remake: Remake) -> None:
        self._connection, self._rows, self._entries = connection, rows, entries
        self._remake = remake

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """See `SessionRecords.list_sessions`."""
        scope = f"sessions.{query.order_by.field}.{query.order_by.direction}"
        after = None
        if query.cursor is not None:
            time, session_id = decode_cursor(scope, query.cursor)
            after = time_bytes(time) + session_id.encode()
        skip = query.offset if after is None else 0
        plan = Plan.of(query)
        total, places = await (self._direct if plan.direct else self._sifted)(plan, after, skip)
        rows = await self.read_rows([id_of(each) for each in places[: query.limit]])
        more = len(places) > query.limit
        last = places[query.limit - 1] if more else b""
        return SessionPage(
            sessions=tuple(row.summary for row in rows),
            total=total,
            offset=query.offset,
            limit=query.limit,
            has_more=more,
            next_cursor=encode_cursor(scope, time_at(last), id_of(last).decode()) if more else None,
        )

    async def read_rows(self, ids: Sequence[bytes]) -> list[Row]:
        """The sessions of these ids that are there.

        A damaged row is made anew from its session.  If the session is damaged as well, it is left out and
        named in the log: one must not keep all others from the lists.
        """
        if not ids:
            return []
        held = await self._connection.command("HMGET", self._rows, *ids)
        found = [await self._read(*each) for each in zip(ids, held, strict=True)]
        return [row for row in found if row is not None]

    # -- inside

    async def _read(self, session_id: bytes, held: bytes | None) -> Row | None:
        if held is None:
            return None
        where = self._connection.place_of(self._rows)
        try:
            return read_row(held, where)
        except StoreCorruptError as error:
            logger.warning("session %r: its row is made anew (%s)", session_id.decode(), error)
        try:
            await self._remake(session_id, held)
            again = await self._connection.command("HGET", self._rows, session_id)
            return None if again is None else read_row(again, where)
        except StoreUnavailableError:
            raise
        except HelixError as error:
            logger.warning("session %r is left out of a list: %s", session_id.decode(), error)
            return None

    async def _direct(self, plan: Plan, after: bytes | None, skip: int) -> tuple[int, Sequence[bytes]]:
        """Read only what is shown: each facet's own entries are in the order asked for."""
        [facets] = plan.groups
        alone, most = len(facets) == 1, plan.query.limit + 1
        ranges: list[Value] = []
        for facet in facets:
            whole = plan.span(facet)
            part = whole if after is None else plan.beyond(facet, after)
            ranges += (whole.lowest, whole.highest, part.lowest, part.highest)
        answer = await self._run(
            _PAGE,
            [self._entries],
            int(plan.descending),
            skip if alone else 0,
            most if alone else skip + most,
            *ranges,
        )
        return int(answer[0]), shown(plan, map(place_of, answer[1:]), None, 0 if alone else skip)

    async def _sifted(self, plan: Plan, after: bytes | None, skip: int) -> tuple[int, Sequence[bytes]]:
        """Read the smallest group, some at a time so that nobody waits long, and keep what matches all."""
        counts = await self._connection.pipeline(
            [
                ("ZLEXCOUNT", self._entries, plan.span(facet).lowest, plan.span(facet).highest)
                for group in plan.groups
                for facet in group
            ]
        )
        size = dict(zip((facet for group in plan.groups for facet in group), counts, strict=True))
        smallest = min(plan.groups, key=lambda group: sum(size[facet] for facet in group))
        others = [b"".join(group) for group in plan.groups if group != smallest]
        total, found = 0, list[bytes]()
        for facet in smallest:
            for span, most in plan.parts(facet, after, skip):
                count, places = await self._sift(plan, span, most, others)
                total += count
                found += places
        # Read in another order than asked for, all that match are here, else only those beyond.
        return total, shown(plan, found, None if plan.in_order else after, skip)

    async def _sift(
        self, plan: Plan, span: Span, most: int, groups: Sequence[bytes]
    ) -> tuple[int, Sequence[bytes]]:
        """How many of a span match, and the first ``most`` of them."""
        total, found, last = 0, list[bytes](), b""
        while True:
            rest = span if not last else plan.after(span, last)
            last, count, *places = await self._run(
                _SIFT,
                [self._rows, self._entries],
                rest.lowest,
                rest.highest,
                int(plan.descending),
                _SIFTED,
                most - len(found),
                b"" if plan.in_order else plan.ordered,
                *groups,
            )
            total += int(count)
            found += places
            if not last:
                return total, found

    async def _run(self, script: Script, keys: Sequence[str], *args: Value) -> list[bytes]:
        answer = await self._connection.run(script, keys, *args)
        assert isinstance(answer, list)
        return answer
