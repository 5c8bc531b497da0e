"""What the parts of the session store share."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.ids import validate_id
from helix_temporal.models.store_calls import Page
from helix_temporal.stores.paging import decode_cursor, encode_cursor
from helix_temporal.stores.protocols.session_records import (
    KeyedRecord,
    RecordKind,
    SessionRecords,
    WantedRecords,
)
from helix_temporal.stores.protocols.threads import ThreadStore
from helix_temporal.stores.sessions import threads as orders
from helix_temporal.stores.sessions.checks import checked_limit
from helix_temporal.stores.sessions.decisions import Call, Seen
from helix_temporal.stores.sessions.loop import Decide, Loop
from helix_temporal.stores.sessions.threads import Threads

T = TypeVar("T")

STATE: Final = WantedRecords()


class SessionStorePart:
    """The loop, and the threads beside it."""

    def __init__(
        self,
        records: SessionRecords,
        threads: ThreadStore | None = None,
        *,
        together: bool | None = None,
        require_epoch: bool = False,
        recalls: bool = False,
    ) -> None:
        if together and not records.keeps_threads:
            raise InvalidConfigError("together: this backend's threads do not lie with its sessions")
        self._loop = Loop(records, require_epoch=require_epoch, recalls=recalls)
        self._threads = Threads(
            threads, records, together=records.keeps_threads if together is None else together
        )
        self._whole = WantedRecords(keys=orders.KEYS, thread=self._threads.together)

    async def _view_session(self, session_id: str, wanted: WantedRecords = STATE) -> Seen:
        return await self._loop.see(validate_id(session_id, "session id"), wanted)

    async def _make_change(self, call: Call, wanted: WantedRecords, decide: Decide[T], answer: Any) -> T:
        return (await self._loop.change(call, wanted, decide, answer)).answer

    async def _read_page(
        self,
        session_id: str,
        kind: RecordKind,
        read: Callable[[KeyedRecord], T],
        *,
        limit: int,
        cursor: str | None,
        descending: bool,
    ) -> Page[T]:
        """A page of a session's records, in their order, by a cursor."""
        scope = f"{kind}.{'desc' if descending else 'asc'}.{session_id}"
        after = None if cursor is None else decode_cursor(scope, cursor)
        limit = checked_limit(limit)
        page = await self._loop.records.page(
            validate_id(session_id, "session id"), kind, limit=limit + 1, after=after, descending=descending
        )
        shown = page.records[:limit]
        more = len(page.records) > limit
        return Page(
            items=tuple(read(record) for record in shown),
            next_cursor=encode_cursor(scope, shown[-1].order, shown[-1].key) if more else None,
            has_more=more,
            total=page.total,
        )
