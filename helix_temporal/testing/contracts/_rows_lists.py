"""Listing sessions by what their states say."""

from typing import Any

import pytest

from helix_temporal.models.store_calls import OrderBy, SessionQuery, SessionSummary
from helix_temporal.stores.protocols.session_rows import RowKind, SessionRows
from helix_temporal.testing.contracts._rows_base import (
    BY_CREATION,
    SESSIONS,
    WAYS,
    ListFixtures,
    a_change,
    a_removal,
    a_row,
    a_state,
    all_pages,
    committed,
    ids,
    saved,
)

FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "abcdefg"),
    ({"user_id": "u1"}, "ab"),
    ({"user_id": "u"}, ""),
    ({"agent_type": "x"}, "ac"),
    ({"agent_type": ""}, "defg"),
    ({"status": ("completed",)}, "b"),
    ({"status": ("completed", "failed")}, "bd"),
    ({"status": ("failed", "active", "completed")}, "abcdefg"),
    ({"status": ("paused",)}, ""),
    ({"parent_session_id": "a"}, "ef"),
    ({"parent_session_id": "z"}, ""),
    ({"parent_session_id": None}, "abcd"),
    ({"tags": ("red",)}, "ac"),
    ({"tags": ("big", "red")}, "a"),
    ({"tags": ("r",)}, "d"),
    ({"tags": ("re",)}, ""),
    ({"metadata": {"k": "v"}}, "ef"),
    ({"metadata": {"k": "v", "l": "w"}}, "f"),
    ({"metadata": {"n": "1"}}, ""),
    ({"metadata": {"o": "{}"}}, ""),
    ({"metadata": {"v": "k"}}, ""),
    ({"date_from": 20, "date_to": 50}, "bcd"),
    ({"date_from": 60}, "fg"),
    ({"date_to": 10}, ""),
    ({"date_field": "updated_at", "date_from": 40}, "abdg"),
    ({"date_field": "updated_at", "date_from": 20, "date_to": 30}, "e"),
    ({"user_id": "u2", "agent_type": "x"}, "c"),
    ({"user_id": "u1", "status": ("active", "completed"), "tags": ("red",)}, "a"),
    ({"status": ("active", "failed"), "parent_session_id": None}, "acd"),
    ({"status": ("active", "failed"), "date_field": "updated_at", "date_from": 50}, "adg"),
    ({"user_id": "u2", "agent_type": "x", "parent_session_id": None}, "c"),
    ({"agent_type": "x", "date_from": 20}, "c"),
    ({"parent_session_id": "a", "metadata": {"k": "v"}, "date_field": "updated_at", "date_to": 20}, "f"),
]


class ListContract(ListFixtures):
    """Filters, orders, pages and totals."""

    async def test_a_list_holds_what_matches_all_filters(self, listed: SessionRows) -> None:
        """Each filter alone, and several at once."""
        for filters, expected in FILTERS:
            query = SessionQuery(order_by=BY_CREATION, **filters)
            page = await listed.list_sessions(query)
            found = ("".join(ids(page)), page.total, page.has_more)
            assert found == (expected, len(expected), False), filters
            short = await listed.list_sessions(query.model_copy(update={"limit": 1}))
            assert (ids(short), short.total) == (list(expected[:1]), len(expected)), filters
            assert short.has_more == (len(expected) > 1), filters

    @pytest.mark.parametrize("filters", WAYS)
    @pytest.mark.parametrize(
        ("field", "direction", "order"),
        [
            ("created_at", "asc", "abcdefg"),
            ("created_at", "desc", "gfedcba"),
            ("updated_at", "asc", "fecbadg"),
            ("updated_at", "desc", "gdabcef"),
        ],
    )
    async def test_a_list_is_in_the_order_asked_for(
        self, listed: SessionRows, filters: dict[str, Any], field: Any, direction: Any, order: str
    ) -> None:
        """Whatever it is filtered by."""
        expected = ids(await listed.list_sessions(SessionQuery(order_by=BY_CREATION, **filters)))
        query = SessionQuery(order_by=OrderBy(field=field, direction=direction), **filters)
        assert ids(await listed.list_sessions(query)) == [each for each in order if each in expected]

    async def test_the_last_updated_come_first_unless_told_otherwise(self, listed: SessionRows) -> None:
        """What a person looks for is what they used last."""
        assert "".join(ids(await listed.list_sessions(SessionQuery()))) == "gdabcef"

    @pytest.mark.parametrize("direction", ["asc", "desc"])
    async def test_equal_times_go_by_id(self, store: SessionRows, direction: Any) -> None:
        """In the same direction, so that the order is total and no page loses or repeats one."""
        names = ["B", "a", "a0", "b", "\u00e9", "\U0001f600"]
        for name in names[::-1]:
            await saved(store, name, updated_at=5)
        query = SessionQuery(order_by=OrderBy(direction=direction), limit=1)
        found = await all_pages(store, query)
        assert found == (names if direction == "asc" else names[::-1])

    async def test_a_summary_is_the_states_own(self, store: SessionRows, session_id: str) -> None:
        """A list shows what the state says, whatever its bytes are."""
        row = a_state(
            session_id,
            b"opaque",
            agent_type="x",
            user_id="\u00fc \U0001f600",
            status="interrupted",
            version=9,
            step_count=7,
            title="t\u00fc",
            tags=("b", "a"),
            metadata={"k": {"l": [1, 2.5, None]}},
            custom_state={"large": True},
            parent_session_id="p",
            expires_at=2**53 + 1,
            created_at=2**53 + 3,
            updated_at=2**62 + 1,
        )
        await committed(store, a_change(session_id, state=row))
        page = await store.list_sessions(SessionQuery())
        assert page.sessions == (SessionSummary.of(row.state),)
        assert page.sessions[0].custom_state is None
        assert (page.offset, page.limit, page.next_cursor) == (0, 50, None)

    @pytest.mark.parametrize("filters", WAYS)
    async def test_custom_states_come_with_the_list(
        self, listed: SessionRows, filters: dict[str, Any]
    ) -> None:
        """Only if they are asked for, whichever way the list is read."""
        for name, fields in SESSIONS.items():
            await saved(listed, name, **fields, custom_state={"name": name})
        query = SessionQuery(include=("custom_state",), **filters)
        page = await listed.list_sessions(query)
        plain = await listed.list_sessions(SessionQuery(**filters))
        assert [each.custom_state for each in page.sessions] == [{"name": name} for name in ids(plain)]
        assert (ids(page), page.total) == (ids(plain), plain.total)

    async def test_times_are_compared_exactly(self, store: SessionRows) -> None:
        """They are integers, not doubles."""
        for at in (1, 0, 2):
            await saved(store, f"s{at}", created_at=2**60 + at)
        query = SessionQuery(order_by=BY_CREATION, date_from=2**60 + 1)
        assert ids(await store.list_sessions(query)) == ["s1", "s2"]

    async def test_a_change_of_the_state_moves_it_in_the_lists(self, listed: SessionRows) -> None:
        """From one filter to another, and in the order."""
        await saved(listed, "a", user_id="u2", created_at=10, updated_at=99, tags=("blue",))
        assert ids(await listed.list_sessions(SessionQuery(user_id="u1"))) == ["b"]
        assert ids(await listed.list_sessions(SessionQuery(user_id="u2"))) == ["a", "d", "c"]
        assert ids(await listed.list_sessions(SessionQuery(tags=("red",)))) == ["c"]
        assert ids(await listed.list_sessions(SessionQuery(tags=("blue",)))) == ["a"]
        page = await listed.list_sessions(SessionQuery())
        assert ("".join(ids(page)), page.total) == ("agdbcef", 7)

    async def test_a_commit_without_a_state_leaves_the_lists(self, listed: SessionRows) -> None:
        """So does one that is refused."""
        before = await listed.list_sessions(SessionQuery())
        await committed(listed, a_change("a", 1, state=None))
        put = a_row("o1", RowKind.OPERATION, order=5)
        await committed(listed, a_change("a", 2, state=None, puts=(put,)))
        assert await listed.commit(a_change("b", 0, state=a_state("b", user_id="u9"))) is None
        assert await listed.list_sessions(SessionQuery()) == before

    async def test_a_deleted_session_is_in_no_list(self, listed: SessionRows) -> None:
        """Until it is made anew."""
        await committed(listed, a_removal("a", 1))
        assert ids(await listed.list_sessions(SessionQuery(user_id="u1"))) == ["b"]
        assert (await listed.list_sessions(SessionQuery())).total == 6
        await saved(listed, "a", user_id="u3")
        assert ids(await listed.list_sessions(SessionQuery(user_id="u3"))) == ["a"]

    async def test_text_in_filters_is_only_text(self, store: SessionRows) -> None:
        """Filters come from clients: nothing in one is syntax, and none is too long."""
        texts = ("'; --", "a,b", "{a}", "*", '"\\', "\u00e9", "e\u0301", "x" * 5000, "x" * 4999 + "y", "")
        for n, text in enumerate(texts):
            fields = {"user_id": text, "agent_type": text, "tags": (text,), "metadata": {text: text}}
            await saved(store, f"s{n}", **fields)
        for n, text in enumerate(texts):
            for filters in ({"user_id": text}, {"tags": (text,)}, {"metadata": {text: text}}):
                assert ids(await store.list_sessions(SessionQuery.model_validate(filters))) == [f"s{n}"]
