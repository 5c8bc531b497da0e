"""What the operations of the session store work with: rows, threads, streams, and how a change is made."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.ids import validate_id
from helix_temporal.models.store_calls import Page
from helix_temporal.stores.paging import decode_cursor, encode_cursor
from helix_temporal.stores.protocols.session_rows import (
    STATE_ALONE,
    RowKind,
    SessionRow,
    SessionRows,
    WantedRows,
)
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.stores.protocols.threads import ThreadStore
from helix_temporal.stores.record_packs import RecordPacks
from helix_temporal.stores.sessions import threads as orders
from helix_temporal.stores.sessions.checks import checked_limit
from helix_temporal.stores.sessions.decisions import Call, SeenSession
from helix_temporal.stores.sessions.loop import Decide, Loop
from helix_temporal.stores.sessions.outlines import restore_row
from helix_temporal.stores.sessions.threads import Threads

T = TypeVar("T")


class SessionStoreBase:
    """The stores that a session lies in.  Operations are functions of it, in the modules beside this one."""

    def __init__(
        self,
        rows: SessionRows,
        threads: ThreadStore | None = None,
        *,
        together: bool | None = None,
        require_epoch: bool = False,
        recalls: bool = False,
        streams: StreamStore | None = None,
        packs: RecordPacks | None = None,
        archive_required: bool = False,
        check_archive: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        if together and not rows.keeps_threads:
            raise InvalidConfigError("together: this backend's threads do not lie with its sessions")
        restore = None if threads is None or not threads.archives else partial(restore_row, rows, threads)
        self.loop = Loop(
            rows, require_epoch=require_epoch, recalls=recalls, restore=restore, check_first=check_archive
        )
        self.archive_required = archive_required
        self.threads = Threads(threads, rows, together=rows.keeps_threads if together is None else together)
        self.streams, self.packs = streams, packs
        self.with_thread = WantedRows(keys=orders.KEYS, thread=self.threads.in_one_unit)

    async def view_session(self, session_id: str, wanted: WantedRows = STATE_ALONE) -> SeenSession:
        """A session in one instant.

        Raises:
            InvalidIdError: The id is none.
        """
        return await self.loop.view_session(validate_id(session_id, "session id"), wanted)

    async def make_change(self, call: Call, wanted: WantedRows, decide: Decide[T], answer: Any) -> T:
        """Make a change, and return its answer; see `Loop.make_change`."""
        return (await self.loop.make_change(call, wanted, decide, answer)).answer

    async def read_page(
        self,
        session_id: str,
        kind: RowKind,
        read: Callable[[SessionRow], T],
        *,
        limit: int,
        cursor: str | None,
        descending: bool,
        after: tuple[int, str] | None = None,
        count: bool = True,
    ) -> Page[T]:
        """A page of a session's rows, in their order, by a cursor, or beyond ``after`` without one."""
        scope = f"{kind}.{'desc' if descending else 'asc'}.{session_id}"
        after = after if cursor is None else decode_cursor(scope, cursor)
        limit = checked_limit(limit)
        page = await self.loop.rows.read_page(
            validate_id(session_id, "session id"),
            kind,
            limit=limit + 1,
            after=after,
            descending=descending,
            count=count,
        )
        shown = page.rows[:limit]
        more = len(page.rows) > limit
        return Page(
            items=tuple(read(row) for row in shown),
            next_cursor=encode_cursor(scope, shown[-1].order, shown[-1].key) if more else None,
            has_more=more,
            total=page.total,
        )
