"""Pages of lists of sessions: by number, and by cursors that outlast changes."""

from typing import Any

import pytest

from helix_temporal.errors import InvalidCursorError
from helix_temporal.models.store_calls import OrderBy, SessionQuery
from helix_temporal.stores.protocols.session_rows import SessionRows
from helix_temporal.testing.contracts._rows_base import (
    BY_CREATION,
    WAYS,
    ListFixtures,
    a_removal,
    all_pages,
    committed,
    ids,
    saved,
)


class ListPageContract(ListFixtures):
    """Every session on one page."""

    @pytest.mark.parametrize("filters", WAYS)
    async def test_numbered_pages_hold_every_session_once(
        self, listed: SessionRows, filters: dict[str, Any]
    ) -> None:
        """While nothing changes."""
        expected = ids(await listed.list_sessions(SessionQuery(**filters)))
        found: list[str] = []
        for offset in range(0, 8, 2):
            page = await listed.list_sessions(SessionQuery(limit=2, offset=offset, **filters))
            found += ids(page)
            assert (page.total, page.offset, page.limit) == (len(expected), offset, 2)
            assert page.has_more == (offset + 2 < len(expected))
        assert found == expected

    @pytest.mark.parametrize("filters", WAYS)
    @pytest.mark.parametrize("direction", ["asc", "desc"])
    async def test_cursors_lead_through_every_session_once(
        self, listed: SessionRows, filters: dict[str, Any], direction: Any
    ) -> None:
        """The last page has none."""
        query = SessionQuery(order_by=OrderBy(direction=direction), **filters)
        expected = ids(await listed.list_sessions(query))
        assert await all_pages(listed, query.model_copy(update={"limit": 2})) == expected

    @pytest.mark.parametrize("filters", [{}, {"parent_session_id": None, "status": ("active",)}])
    async def test_cursor_pages_by_creation_are_complete_while_rows_are_updated(
        self, store: SessionRows, filters: dict[str, Any]
    ) -> None:
        """A sweep that changes what it finds misses none and meets none twice."""
        for n in range(10):
            await saved(store, f"s{n}", created_at=100 + n, updated_at=100 + n)
        query = SessionQuery(order_by=BY_CREATION, limit=3, **filters)
        found: list[str] = []
        while True:
            page = await store.list_sessions(query)
            found += ids(page)
            for n in (0, int(found[-1][1:]), 9):
                await saved(store, f"s{n}", created_at=100 + n, updated_at=500 + len(found))
            if page.next_cursor is None:
                break
            query = query.model_copy(update={"cursor": page.next_cursor})
        assert found == [f"s{n}" for n in range(10)]

    async def test_cursor_pages_by_update_keep_those_that_were_not_updated(self, store: SessionRows) -> None:
        """Numbered pages would show one twice for every row that moves to the front."""
        for n in range(10):
            await saved(store, f"s{n}", updated_at=100 + n)
        first = await store.list_sessions(SessionQuery(limit=4))
        await saved(store, "s0", updated_at=500)
        await saved(store, "s8", updated_at=501)
        rest = await store.list_sessions(SessionQuery(cursor=first.next_cursor))
        assert ids(first) + ids(rest) == [f"s{n}" for n in range(9, 0, -1)]
        assert rest.total == 10

    async def test_a_cursor_may_name_what_is_gone(self, listed: SessionRows) -> None:
        """It is a place in the order, not a session."""
        query = SessionQuery(order_by=BY_CREATION, limit=2)
        first = await listed.list_sessions(query)
        await committed(listed, a_removal("b", 1))
        page = await listed.list_sessions(query.model_copy(update={"cursor": first.next_cursor}))
        assert ids(page) == ["c", "d"]

    @pytest.mark.parametrize("cursor", ["", "x", "????", "eyJ9", "\u00e9", "A" * 10_000])
    async def test_what_is_no_cursor_is_refused(self, listed: SessionRows, cursor: str) -> None:
        """Starting anew in silence would loop for ever."""
        with pytest.raises(InvalidCursorError):
            await listed.list_sessions(SessionQuery(cursor=cursor))

    async def test_a_cursor_of_another_order_is_refused(self, listed: SessionRows) -> None:
        """It names no place in this one."""
        page = await listed.list_sessions(SessionQuery(limit=1))
        with pytest.raises(InvalidCursorError):
            await listed.list_sessions(SessionQuery(order_by=BY_CREATION, cursor=page.next_cursor))
