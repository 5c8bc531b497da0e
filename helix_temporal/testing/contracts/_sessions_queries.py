"""Lists of sessions: filters, order, pages, and what has expired."""

from typing import Any

import pytest
from pydantic import ValidationError

from helix_temporal.errors import InvalidCursorError, InvalidRequestError, TooLargeError
from helix_temporal.models.states import CreateSession, MergeChanges, SessionState, SessionStatus
from helix_temporal.models.store_calls import OrderBy, SessionQuery, SessionSummary
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import SessionFixtures, loaded

SESSIONS: dict[str, CreateSession] = {
    "s1": CreateSession(agent_type="clerk", user_id="ann", tags=("a", "b"), metadata={"t": "x", "n": 1}),
    "s2": CreateSession(agent_type="clerk", user_id="bob", tags=("b",), metadata={"t": "y"}),
    "s3": CreateSession(agent_type="cook", user_id="ann", tags=("b", "c"), metadata={"t": "x", "u": "z"}),
    "s4": CreateSession(agent_type="cook", parent_session_id="s1", metadata={"t": ["x"]}),
    "s5": CreateSession(agent_type="clerk", parent_session_id="s1", status=SessionStatus.PAUSED, user_id=""),
    "s6": CreateSession(status=SessionStatus.COMPLETED, tags=("a:b", "ü*?[]"), metadata={"t:u": "x:y"}),
}

FILTERS: dict[str, tuple[SessionQuery, str]] = {
    "nothing": (SessionQuery(), "s1 s2 s3 s4 s5 s6"),
    "user": (SessionQuery(user_id="ann"), "s1 s3"),
    "an empty user": (SessionQuery(user_id=""), "s5"),
    "nobody": (SessionQuery(user_id="nobody"), ""),
    "agent": (SessionQuery(agent_type="clerk"), "s1 s2 s5"),
    "one status": (SessionQuery(status=(SessionStatus.PAUSED,)), "s5"),
    "statuses": (SessionQuery(status=(SessionStatus.PAUSED, SessionStatus.COMPLETED)), "s5 s6"),
    "parent": (SessionQuery(parent_session_id="s1"), "s4 s5"),
    "roots": (SessionQuery(parent_session_id=None), "s1 s2 s3 s6"),
    "a tag": (SessionQuery(tags=("b",)), "s1 s2 s3"),
    "all tags": (SessionQuery(tags=("b", "c")), "s3"),
    "odd tags": (SessionQuery(tags=("a:b", "ü*?[]")), "s6"),
    "part of a tag": (SessionQuery(tags=("a:",)), ""),
    "metadata": (SessionQuery(metadata={"t": "x"}), "s1 s3"),
    "all metadata": (SessionQuery(metadata={"t": "x", "u": "z"}), "s3"),
    "metadata that is no text": (SessionQuery(metadata={"n": "1"}), ""),
    "odd metadata": (SessionQuery(metadata={"t:u": "x:y"}), "s6"),
    "metadata taken apart elsewhere": (SessionQuery(metadata={"t": "u:x:y"}), ""),
    "user and agent": (SessionQuery(user_id="ann", agent_type="cook"), "s3"),
    "everything": (
        SessionQuery(
            user_id="ann",
            agent_type="clerk",
            status=(SessionStatus.ACTIVE,),
            parent_session_id=None,
            tags=("a",),
            metadata={"t": "x"},
            date_from=1,
        ),
        "s1",
    ),
    "contradictions": (SessionQuery(user_id="bob", tags=("a",)), ""),
}


async def walk(store: SessionStore, query: SessionQuery) -> list[str]:
    """Ids of all pages, by cursor."""
    found: list[str] = []
    while True:
        page = await store.list_sessions(query)
        found += [each.session_id for each in page.sessions]
        assert page.has_more == (page.next_cursor is not None)
        if page.next_cursor is None:
            return found
        query = query.model_copy(update={"cursor": page.next_cursor})


class QueryContract(SessionFixtures):
    """Sessions are found by what they are."""

    @pytest.fixture
    async def six(self, store: SessionStore) -> None:
        """Six sessions, each another."""
        for session_id, options in SESSIONS.items():
            await store.create_session(session_id, options)

    @pytest.mark.parametrize("name", FILTERS)
    async def test_all_filters_must_match(self, store: SessionStore, six: None, name: str) -> None:
        """Alone and together; what only looks alike does not match (case 105)."""
        query, expected = FILTERS[name]
        page = await store.list_sessions(query)
        assert {each.session_id for each in page.sessions} == set(expected.split())
        assert page.total == len(expected.split())

    async def test_a_list_tells_what_sessions_are(self, store: SessionStore, six: None) -> None:
        """All that a summary has is as it is stored (case 105)."""
        await store.increment_step_count("s1")
        page = await store.list_sessions()
        assert {each.session_id for each in page.sessions} == set(SESSIONS)
        for each in page.sessions:
            assert each == SessionSummary.of(await loaded(store, each.session_id))

    async def test_a_list_shows_titles_and_metadata(self, store: SessionStore, six: None) -> None:
        """A front end's list of conversations costs one call, not one more for each row."""
        metadata = {"model": "ü", "n": 1, "deep": {"a": [1.5, None, True]}, "none": None}
        await store.create_session("s7", CreateSession(title="Where is it? 🙂", metadata=metadata))
        found = {each.session_id: each for each in (await store.list_sessions()).sessions}
        assert (found["s7"].title, found["s7"].metadata) == ("Where is it? 🙂", metadata)
        assert (found["s1"].title, found["s1"].metadata) == ("", SESSIONS["s1"].metadata)
        state = await loaded(store, "s7")
        await store.save_state("s7", state.model_copy(update={"title": "Found", "metadata": {"n": 2}}))
        found = {each.session_id: each for each in (await store.list_sessions()).sessions}
        assert (found["s7"].title, found["s7"].metadata) == ("Found", {"n": 2})

    async def test_a_list_has_custom_states_only_if_they_are_asked_for(
        self, store: SessionStore, six: None
    ) -> None:
        """They may be large; all of them come with the list, in its order and on its pages."""
        for name in SESSIONS:
            await store.merge_custom_state(name, MergeChanges(values={"name": name, "text": "x" * 20_000}))
        plain = await store.list_sessions()
        assert [each.custom_state for each in plain.sessions if each.custom_state is not None] == []
        query = SessionQuery(include=("custom_state",), limit=4)
        first = await store.list_sessions(query)
        rest = await store.list_sessions(query.model_copy(update={"cursor": first.next_cursor}))
        for each in (*first.sessions, *rest.sessions):
            assert each == SessionSummary.of(await loaded(store, each.session_id), query.include)
            assert each.custom_state is not None
            assert each.custom_state["name"] == each.session_id
        shown = [each.session_id for each in (*first.sessions, *rest.sessions)]
        assert shown == [each.session_id for each in plain.sessions]
        assert (first.total, rest.total) == (6, 6)
        query = query.model_copy(update={"user_id": "ann"})
        assert {each.session_id for each in (await store.list_sessions(query)).sessions} == {"s1", "s3"}
        await store.delete_session("s1")
        assert [each.session_id for each in (await store.list_sessions(query)).sessions] == ["s3"]

    async def test_what_a_list_shows_is_the_callers_own(self, store: SessionStore) -> None:
        """Who changes it changes no session."""
        options = CreateSession(metadata={"a": {"b": 1}}, custom_state={"c": [1]})
        await store.create_session("s", options)
        query = SessionQuery(include=("custom_state",))
        shown: list[Any] = [each.model_dump() for each in (await store.list_sessions(query)).sessions]
        for each in (await store.list_sessions(query)).sessions:
            vars(each)["metadata"]["a"]["b"] = 2
            vars(each)["custom_state"]["c"].append(2)
        assert [each.model_dump() for each in (await store.list_sessions(query)).sessions] == shown
        assert (await loaded(store, "s")).custom_state == {"c": [1]}

    async def test_a_title_has_three_hundred_characters_at_most(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Characters, not bytes; one more is refused and changes nothing."""
        await store.save_state(session_id, state.model_copy(update={"title": "🙂" * 300}))
        with pytest.raises(InvalidRequestError):
            await store.save_state(
                session_id, state.model_copy(update={"title": "x" * 301}), expected_version=2
            )
        assert (await loaded(store, session_id)).title == "🙂" * 300

    async def test_metadata_that_no_list_could_show_are_refused(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """At most 64 KiB as JSON; larger things belong into the custom state."""
        with pytest.raises(TooLargeError):
            await store.create_session("other", CreateSession(metadata={"a": "x" * 65_536}))
        assert await store.load_state("other") is None
        with pytest.raises(TooLargeError):
            await store.save_state(session_id, state.model_copy(update={"metadata": {"a": "x" * 65_536}}))
        assert await loaded(store, session_id) == state
        await store.save_state(session_id, state.model_copy(update={"metadata": {"a": "x" * 65_528}}))

    async def test_a_filter_follows_every_change(self, store: SessionStore, six: None) -> None:
        """No index keeps what a session was before (case 105)."""
        state = await loaded(store, "s1")
        update = {
            "agent_type": "cook",
            "user_id": None,
            "tags": ("new",),
            "metadata": {"t": "new"},
            "parent_session_id": "s2",
            "status": SessionStatus.FAILED,
        }
        await store.save_state("s1", state.model_copy(update=update))
        gone = [
            SessionQuery(agent_type="clerk"),
            SessionQuery(user_id="ann"),
            SessionQuery(tags=("a",)),
            SessionQuery(metadata={"t": "x"}),
            SessionQuery(parent_session_id=None),
            SessionQuery(status=(SessionStatus.ACTIVE,)),
        ]
        pages = [await store.list_sessions(each) for each in gone]
        assert "s1" not in {each.session_id for page in pages for each in page.sessions}
        query = SessionQuery(agent_type="cook", tags=("new",), metadata={"t": "new"}, parent_session_id="s2")
        assert await walk(store, query) == ["s1"]

    async def test_a_deleted_session_is_in_no_list(self, store: SessionStore, six: None) -> None:
        """Nor is it counted (case 105)."""
        await store.delete_session("s1")
        page = await store.list_sessions(SessionQuery(user_id="ann"))
        assert ([each.session_id for each in page.sessions], page.total) == (["s3"], 1)

    async def test_dates_are_from_inclusive_to_exclusive(self, store: SessionStore, six: None) -> None:
        """So that neighbouring ranges neither overlap nor leave a gap (case 105)."""
        states = [await loaded(store, each) for each in SESSIONS]
        last = max(each.created_at for each in states)
        newest = {each.session_id for each in states if each.created_at == last}
        page = await store.list_sessions(SessionQuery(date_from=last))
        assert {each.session_id for each in page.sessions} == newest
        page = await store.list_sessions(SessionQuery(date_to=last))
        assert {each.session_id for each in page.sessions} == set(SESSIONS) - newest
        page = await store.list_sessions(SessionQuery(date_from=last, date_to=last + 1))
        assert {each.session_id for each in page.sessions} == newest

    async def test_dates_may_be_those_of_the_last_change(self, store: SessionStore, six: None) -> None:
        """What nobody has touched for long is found by it (case 105)."""
        before = max([(await loaded(store, each)).updated_at for each in SESSIONS])
        while await store.now() <= before:
            pass
        await store.increment_step_count("s2")
        touched = (await loaded(store, "s2")).updated_at
        page = await store.list_sessions(SessionQuery(date_field="updated_at", date_from=touched))
        assert [each.session_id for each in page.sessions] == ["s2"]

    @pytest.mark.parametrize("limit", [2, 3, 200])
    @pytest.mark.parametrize("direction", ["asc", "desc"])
    @pytest.mark.parametrize("field", ["created_at", "updated_at"])
    async def test_lists_are_ordered_and_their_pages_complete(
        self, store: SessionStore, six: None, field: str, direction: str, limit: int
    ) -> None:
        """Equal times go by id; pages by number and by cursor are the same (case 106)."""
        await store.increment_step_count("s3")
        order = OrderBy.model_validate({"field": field, "direction": direction})
        states = [await loaded(store, each) for each in SESSIONS]
        expected = [
            each.session_id
            for each in sorted(states, key=lambda each: (getattr(each, field), each.session_id))
        ]
        if direction == "desc":
            expected.reverse()
        query = SessionQuery(order_by=order, limit=limit)
        assert await walk(store, query) == expected
        numbered = []
        for offset in range(0, 6, limit):
            page = await store.list_sessions(query.model_copy(update={"offset": offset}))
            numbered += [each.session_id for each in page.sessions]
            assert (page.total, page.offset, page.limit) == (6, offset, limit)
            assert page.has_more == (offset + limit < 6)
        assert numbered == expected

    @pytest.mark.parametrize("name", FILTERS)
    async def test_a_list_that_counts_nothing_has_the_same_sessions(
        self, store: SessionStore, six: None, name: str
    ) -> None:
        """Of a million, the first page comes at once; to count them takes a database seconds."""
        query, _ = FILTERS[name]
        counted = query.model_copy(update={"limit": 1})
        uncounted = counted.model_copy(update={"count": False})
        assert await walk(store, uncounted) == await walk(store, counted)
        page = await store.list_sessions(uncounted)
        assert page == (await store.list_sessions(counted)).model_copy(update={"total": None})

    async def test_a_list_has_fifty_sessions_unless_asked(self, store: SessionStore) -> None:
        """The default and the largest page are bounded (case 106)."""
        for n in range(55):
            await store.create_session(f"s{n:02}")
        page = await store.list_sessions()
        assert (len(page.sessions), page.limit, page.total, page.has_more) == (50, 50, 55, True)

    @pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 201}, {"offset": -1}])
    async def test_a_page_out_of_range_cannot_be_asked_for(
        self, store: SessionStore, wrong: dict[str, int]
    ) -> None:
        """Not clamped (case 106)."""
        with pytest.raises(ValidationError):
            SessionQuery.model_validate(wrong)

    async def test_a_foreign_cursor_is_refused(self, store: SessionStore, six: None) -> None:
        """One of another order would skip and repeat (case 106)."""
        page = await store.list_sessions(SessionQuery(limit=2))
        with pytest.raises(InvalidCursorError):
            await store.list_sessions(SessionQuery(cursor="nonsense"))
        other = OrderBy(field="created_at", direction="asc")
        with pytest.raises(InvalidCursorError):
            await store.list_sessions(SessionQuery(cursor=page.next_cursor, order_by=other))

    async def test_pages_stay_complete_while_sessions_change(self, store: SessionStore, six: None) -> None:
        """A sweep that changes what it finds skips nothing (case 107)."""
        oldest_first = OrderBy(field="updated_at", direction="asc")
        found: list[str] = []
        cursor = None
        for _ in range(6):
            query = SessionQuery(order_by=oldest_first, limit=1, cursor=cursor)
            page = await store.list_sessions(query)
            found += [each.session_id for each in page.sessions]
            before = await store.now()
            while await store.now() == before:
                pass
            await store.increment_step_count(found[-1])
            cursor = page.next_cursor
        assert found == list(SESSIONS)

    async def test_all_ids_are_iterated(self, store: SessionStore, six: None) -> None:
        """Each once (case 106)."""
        assert sorted([each async for each in store.iter_session_ids()]) == sorted(SESSIONS)


class ExpiryContract(SessionFixtures):
    """What is past its time is found, oldest first."""

    async def test_sessions_past_their_time_are_listed(self, store: SessionStore) -> None:
        """By number, not by text: 900 is before 10,000 (case 115)."""
        times = {"a": 900, "b": 10_000, "c": 10_000, "d": 2**52, "e": None, "f": 0}
        for session_id, expires_at in times.items():
            await store.create_session(session_id, CreateSession(expires_at=expires_at))
        page = await store.list_expired()
        assert [each.session_id for each in page.items] == ["f", "a", "b", "c"]
        assert [each.expires_at for each in page.items] == [0, 900, 10_000, 10_000]
        assert [each.session_id for each in (await store.list_expired(9_999)).items] == ["f", "a"]
        at_the_time = await store.list_expired(10_000)
        assert [each.session_id for each in at_the_time.items] == ["f", "a", "b", "c"]
        first = await store.list_expired(limit=3)
        assert [each.session_id for each in first.items] == ["f", "a", "b"]
        rest = await store.list_expired(limit=3, cursor=first.next_cursor)
        assert [each.session_id for each in rest.items] == ["c"]
        assert rest.next_cursor is None

    async def test_a_session_that_was_prolonged_is_not_listed(self, store: SessionStore) -> None:
        """The time that counts is the one that is stored (case 118)."""
        await store.create_session("a", CreateSession(expires_at=900))
        await store.create_session("b", CreateSession(expires_at=900))
        await store.create_session("c", CreateSession(expires_at=900))
        active = [SessionStatus.ACTIVE]
        await store.compare_and_set_status("a", active, SessionStatus.ACTIVE, expires_at=2**52)
        await store.compare_and_set_status("b", active, SessionStatus.ACTIVE, expires_at=None)
        await store.delete_session("c")
        assert (await store.list_expired()).items == ()

    async def test_clean_ups_that_are_not_finished_are_listed(self, store: SessionStore) -> None:
        """Until they are (case 119)."""
        for session_id in ("b", "a", "c"):
            await store.create_session(session_id)
            await store.compare_and_set_status(
                session_id, [SessionStatus.ACTIVE], SessionStatus.FAILED, cleanup_pending=True
            )
        await store.create_session("d")
        await store.finish_cleanup("c")
        page = await store.list_cleanup_pending(limit=1)
        assert [each.session_id for each in page.items] == ["a"]
        rest = await store.list_cleanup_pending(limit=1, cursor=page.next_cursor)
        assert [(each.session_id, each.cleanup_pending) for each in rest.items] == [("b", True)]
        assert [each.session_id for each in (await store.list_cleanup_pending()).items] == ["a", "b"]

    @pytest.mark.parametrize("limit", [0, -1])
    async def test_a_page_of_nothing_is_refused(self, store: SessionStore, limit: int) -> None:
        """A sweep would never end (case 28)."""
        with pytest.raises(InvalidRequestError):
            await store.list_expired(limit=limit)
        with pytest.raises(InvalidRequestError):
            await store.list_cleanup_pending(limit=limit)
