"""Lists of sessions, and who may see what."""

import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helix_temporal.client import SessionStores
from helix_temporal.errors import InvalidCursorError, InvalidRequestError, SessionNotFoundError
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import CreateSession, SessionStatus, SubSessionRef
from helix_temporal.models.store_calls import MAX_LIMIT, SessionPage, SessionQuery, SessionSummary
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.stores.paging import encode_cursor
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.models import SessionOverview
from helix_temporal.views.queries import iterate_sessions, list_sessions
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._scene import Scene, Writer, answer, call, result, user

SESSIONS: dict[str, CreateSession] = {
    "s1": CreateSession(agent_type="clerk", user_id="ann", tags=("a", "b"), metadata={"t": "x"}),
    "s2": CreateSession(agent_type="cook", user_id="bob", tags=("b",), status=SessionStatus.PAUSED),
    "s3": CreateSession(agent_type="cook", user_id="ann", status=SessionStatus.FAILED),
    "s4": CreateSession(agent_type="cook", parent_session_id="s1"),
}

FILTERS: dict[str, tuple[SessionFilter, str]] = {
    "nothing": (SessionFilter(), "s1 s2 s3 s4"),
    "user": (SessionFilter(user_id="ann"), "s1 s3"),
    "agent": (SessionFilter(agent="cook"), "s2 s3 s4"),
    "status": (SessionFilter(status=(SessionStatus.PAUSED, SessionStatus.FAILED)), "s2 s3"),
    "tags": (SessionFilter(tags=("b", "a")), "s1"),
    "metadata": (SessionFilter(metadata={"t": "x"}), "s1"),
    "roots": (SessionFilter(roots=True), "s1 s2 s3"),
    "children": (SessionFilter(parent_session_id="s1"), "s4"),
    "who waits": (SessionFilter(need="waiting"), "s2"),
    "who failed": (SessionFilter(need="failed"), "s3"),
    "who failed and is active": (SessionFilter(need="failed", status=(SessionStatus.ACTIVE,)), ""),
    "who is behind, without an archive": (SessionFilter(need="behind"), ""),
    "long ago": (SessionFilter(until=1), ""),
    "since then": (SessionFilter(since=1, user_id="bob"), "s2"),
}


@pytest.fixture
async def four(scene: Scene) -> Scene:
    """Four sessions, each another."""
    for session_id, options in SESSIONS.items():
        await scene.sessions.create_session(session_id, options)
    return scene


def only_users(*names: str | None) -> Any:
    """Admits sessions of these users."""
    return lambda overview: overview.user_id in names


async def walk(views: SessionViews, wanted: SessionFilter, limit: int = 1) -> list[str]:
    """Ids on all pages."""
    page = await views.list_sessions(wanted, limit=limit)
    found = [each.session_id for each in page.sessions]
    while page.next_cursor is not None:
        page = await views.list_sessions(wanted, limit=limit, cursor=page.next_cursor)
        found += [each.session_id for each in page.sessions]
    return found


@pytest.mark.parametrize("name", FILTERS)
async def test_filters_find_what_matches(four: Scene, name: str) -> None:
    """On one page, on many, and when all are read one after the other."""
    wanted, expected = FILTERS[name]
    page = await four.views.list_sessions(wanted)
    assert {each.session_id for each in page.sessions} == set(expected.split())
    newest_first = [each.session_id for each in page.sessions]
    assert await walk(four.views, wanted) == newest_first
    assert [each.session_id async for each in four.views.iterate_sessions(wanted)] == newest_first


async def test_an_overview_has_what_the_application_set(four: Scene) -> None:
    """The list is enough to recognise a conversation."""
    (found,) = (await four.views.list_sessions(SessionFilter(tags=("a",)))).sessions
    assert (found.agent, found.user_id, found.tags, found.metadata) == (
        "clerk",
        "ann",
        ("a", "b"),
        {"t": "x"},
    )
    assert found.created_at > 0


async def test_a_list_holds_only_what_may_be_seen(four: Scene) -> None:
    """By pages as well: what is hidden leaves no gap, and no cursor tells of it."""
    views = SessionViews(four.stores, admits=only_users("ann"))
    assert sorted(await walk(views, SessionFilter())) == ["s1", "s3"]
    assert (await views.list_sessions(limit=2)).next_cursor is None
    nobody = SessionViews(four.stores, admits=only_users("nobody"))
    page = await nobody.list_sessions()
    assert (page.sessions, page.next_cursor) == ((), None)
    assert [each async for each in nobody.iterate_sessions()] == []


READS: dict[str, Any] = {
    "session": lambda views, name: views.get_session(name),
    "state": lambda views, name: views.load_state(name),
    "usage": lambda views, name: views.get_usage(name),
    "turns": lambda views, name: views.read_turns(name),
    "turn": lambda views, name: views.read_turn(name, 1),
    "place of a turn": lambda views, name: views.find_turn(name, 1),
    "message": lambda views, name: views.read_message(name, 0),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("name", ["s2", "nowhere", "", "../x", "a\n", "x" * 5_000])
async def test_who_may_not_see_a_session_is_told_as_if_it_were_not_there(
    four: Scene, read: str, name: str
) -> None:
    """Nobody learns by its id that it is there; an id that none can have is as one that is not there."""
    views = SessionViews(four.stores, admits=only_users("ann"))
    with pytest.raises(SessionNotFoundError) as hidden:
        await READS[read](views, name)
    with pytest.raises(SessionNotFoundError) as missing:
        await READS[read](SessionViews(four.stores, admits=lambda _: True), "missing")
    assert str(hidden.value).replace(repr(name), "'missing'") == str(missing.value)


async def test_children_that_may_not_be_seen_are_not_named(scene: Scene) -> None:
    """A filter by user excludes a sub-agent of a session that the viewer may see."""
    await scene.begin("s1", user_id="ann")
    for name, user_id in (("c1", "ann"), ("c2", "bob")):
        await scene.sessions.create_session(name, CreateSession(user_id=user_id, parent_session_id="s1"))
        ref = SubSessionRef(sub_session_id=name, agent_type="helper", parent_tool_call_id="call_0")
        await scene.sessions.add_sub_session_refs("s1", [ref])
    assert (await scene.views.get_session("s1")).children == ("c1", "c2")
    views = SessionViews(scene.stores, admits=only_users("ann"))
    assert (await views.get_session("s1")).children == ("c1",)


async def test_no_view_names_another_session_that_may_not_be_seen(scene: Scene) -> None:
    """A sub-agent's session may be seen, and those around it not: it stands alone then."""
    await scene.begin("s1", user_id="ann")
    origin = {"session_id": "s1", "at": 1}
    writer = await scene.begin(
        "c1", user_id="bob", parent_session_id="s1", root_session_id="s1", forked_from=origin
    )
    await scene.sessions.create_session("g1", CreateSession(user_id="ann", parent_session_id="c1"))
    ref = SubSessionRef(sub_session_id="g1", agent_type="helper", parent_tool_call_id="call_0")
    await scene.sessions.add_sub_session_refs("c1", [ref])
    await writer.turn(user("u1"), answer("a1", "", call()), result("a1"), answer("b1"))
    whole = await look_around(scene.views)
    assert whole == ("s1", "s1", "s1", "s1", "s1", "g1", "g1", "g1")
    views = SessionViews(scene.stores, admits=only_users("bob"))
    assert set(await look_around(views)) == {None}
    assert (await views.list_sessions(SessionFilter(parent_session_id="s1"))).sessions == ()
    assert [each async for each in views.iterate_sessions(SessionFilter(parent_session_id="s1"))] == []


async def look_around(views: SessionViews) -> tuple[str | None, ...]:
    """The ids of other sessions that views of ``c1`` tell."""
    found = await views.get_session("c1")
    listed = {each.session_id: each.parent_session_id for each in (await views.list_sessions()).sessions}
    (turn,) = (await views.read_turns("c1")).turns
    (whole,) = (await views.read_turn("c1", 1)).turns
    message = (await views.read_message("c1", 1)).message
    return (
        found.overview.parent_session_id,
        found.root_session_id,
        found.forked_from,
        listed["c1"],
        (await views.get_tree("c1")).overview.parent_session_id,
        turn.messages[1].calls[0].sub_session_id,
        whole.messages[1].calls[0].sub_session_id,
        message.calls[0].sub_session_id,
    )


async def test_a_session_that_has_only_a_thread_is_read(scene: Scene) -> None:
    """Workers without a session store have sessions as well; a filter that cannot see whose hides them."""
    writer = await scene.begin()
    await writer.append(user("u1"), answer("a1"))
    alone = SessionStores(threads=scene.threads, usage=scene.stores.usage)
    views = SessionViews(alone)
    found = await views.get_session("s1")
    assert (found.messages, found.thread_id, found.problem) == (2, "s1", None)
    (turn,) = (await views.read_turns("s1")).turns
    assert turn.number == 1
    with pytest.raises(InvalidRequestError, match="HELIX_SESSION_STORE"):
        await views.list_sessions()
    with pytest.raises(SessionNotFoundError):
        await SessionViews(alone, admits=only_users("ann")).get_session("s1")


async def test_a_thread_without_its_session_is_read(scene: Scene) -> None:
    """Its state was never written, or is lost: the conversation is there all the same."""
    writer = Writer(scene, "t1")
    await writer.open()
    await writer.append(user("u1"), answer("a1"), user("u2"), answer("a2"))
    views = scene.views
    found = await views.get_session("t1")
    assert (found.messages, found.children, found.waiting, found.problem) == (4, (), (), None)
    assert [turn.number for turn in (await views.read_turns("t1")).turns] == [1, 2]
    assert await views.find_turn("t1", 2) == 2
    assert (await views.read_message("t1", 3)).turn is None
    assert (await views.get_usage("t1")).model_calls == 0
    assert (await views.get_tree("t1")).children == ()
    assert (await views.list_runs("t1")).runs == ()
    assert (await views.list_checkpoints("t1")).checkpoints == ()
    assert (await views.get_place("t1")).messages == 4
    assert (await views.get_state("t1")).values == {}


@pytest.mark.parametrize("limit", [0, MAX_LIMIT + 1])
async def test_a_page_out_of_range_is_refused(scene: Scene, limit: int) -> None:
    """Not clamped."""
    with pytest.raises(InvalidRequestError):
        await scene.views.list_sessions(limit=limit)


async def test_a_cursor_of_another_list_is_refused(four: Scene) -> None:
    """A page address that somebody has changed."""
    with pytest.raises(InvalidCursorError):
        await four.views.list_sessions(cursor="nothing")
    with pytest.raises(InvalidRequestError, match="exclude each other"):
        await four.views.list_sessions(SessionFilter(roots=True, parent_session_id="s1"))


async def test_a_session_shows_where_it_stands(scene: Scene) -> None:
    """Its turns, the run under way, its thread."""
    writer = await scene.begin(agent_type="clerk")
    await writer.turn(user("u1"), answer("a1"))
    run = await writer.start()
    await writer.append(user("u2"), commits=False)
    found = await scene.views.get_session("s1")
    assert (found.turns, found.messages, found.overview.agent) == (2, 3, "clerk")
    assert found.live_run is not None
    assert (found.live_run.run_id, found.live_run.status) == (run.run_id, RunStatus.RUNNING)
    assert found.place is not None
    assert (found.place.unfinished, found.place.hot, found.place.archived) == (1, True, None)
    await writer.end()
    assert (await scene.views.get_session("s1")).live_run is None


class ManySessions:
    """Lists a million sessions without having them."""

    def __init__(self, count: int) -> None:
        self.count, self.pages, self.counted = count, 0, 0

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """A page, by a cursor that is a number."""
        self.pages += 1
        self.counted += query.count
        first = 0 if query.cursor is None else self.count - int(query.cursor)
        stop = min(first + query.limit, self.count)
        found = tuple(
            SessionSummary(
                session_id=f"s{at}",
                agent_type="clerk",
                status=SessionStatus.ACTIVE,
                version=1,
                step_count=0,
                created_at=1,
                updated_at=self.count - at,
                metadata={"at": "x" * 100},
            )
            for at in range(first, stop)
        )
        more = stop < self.count
        return SessionPage(
            sessions=found,
            total=None,
            offset=0,
            limit=query.limit,
            has_more=more,
            next_cursor=str(self.count - stop) if more else None,
        )


def view_many(sessions: ManySessions, admits: Any = lambda _: True) -> ViewedSessions:
    """Over stores that have nothing but these sessions."""
    found: Any = sessions
    threads = HotThreads(MemoryThreads())
    return ViewedSessions(SessionStores(threads=threads, usage=MemoryUsage(), sessions=found), admits)


async def count(sessions: AsyncIterator[SessionOverview]) -> int:
    """How many there are."""
    found = 0
    async for _ in sessions:
        found += 1
    return found


async def test_memory_stays_flat_however_many_sessions_are_read() -> None:
    """A list of a million for a file: one page of it is in memory at a time, and nothing is counted."""
    many = ManySessions(20_000)
    viewed = view_many(many)
    found = iterate_sessions(viewed, SessionFilter())
    tracemalloc.start()
    try:
        early = [await anext(found) for _ in range(1_000)]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        later = await count(found)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(early) + later == 20_000
    assert peak - before < 2_000_000
    assert many.counted == 0


async def test_a_page_of_few_that_match_ends_and_goes_on() -> None:
    """A filter that hides nearly all: a page looks at some thousands, then it is short and has a cursor."""
    many = ManySessions(10_000)
    viewed = view_many(many, lambda overview: overview.session_id == "s9999")
    page = await list_sessions(viewed, SessionFilter(), 50, None)
    assert page.sessions == ()
    assert page.next_cursor is not None
    assert many.pages <= 11


async def test_the_cursor_of_a_list_is_the_stores_own(four: Scene) -> None:
    """A page that ends in the middle of one of the store's goes on right behind its last session."""
    views = SessionViews(four.stores, admits=lambda overview: overview.session_id != "s4")
    first = await views.list_sessions(limit=1)
    (shown,) = first.sessions
    scope = SessionQuery().order_by.cursor_scope
    assert first.next_cursor == encode_cursor(scope, shown.updated_at, shown.session_id)
