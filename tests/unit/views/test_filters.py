"""Filters: which sessions match both of two, and rights by a filter, which are those of lists."""

import pytest

from helix_temporal.errors import InvalidConfigError, InvalidRequestError, SessionNotFoundError
from helix_temporal.models.states import CreateSession, SessionStatus
from helix_temporal.views.filters import SessionFilter, admits_by, combine_filters, plan_search
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._scene import Scene

SESSIONS = {
    "s1": CreateSession(agent_type="clerk", user_id="ann", tags=("a", "b"), metadata={"tenant": "1"}),
    "s2": CreateSession(agent_type="cook", user_id="bob", tags=("b",), metadata={"tenant": 1}),
    "s3": CreateSession(agent_type="cook", user_id="ann", status=SessionStatus.FAILED),
    "s4": CreateSession(agent_type="cook", parent_session_id="s1", metadata={"tenant": True}),
    "s5": CreateSession(agent_type="clerk", user_id="ann", metadata={"tenant": None, "flag": "true"}),
}
RIGHTS = [
    (SessionFilter(), "s1 s2 s3 s4 s5"),
    (SessionFilter(user_id="ann"), "s1 s3 s5"),
    (SessionFilter(agent="cook"), "s2 s3 s4"),
    (SessionFilter(tags=("b", "a")), "s1"),
    (SessionFilter(metadata={"tenant": "1"}), "s1"),
    (SessionFilter(metadata={"tenant": "True"}), ""),
    (SessionFilter(metadata={"tenant": "None"}), ""),
    (SessionFilter(metadata={"flag": "true"}), "s5"),
    (SessionFilter(status=(SessionStatus.FAILED,)), "s3"),
    (SessionFilter(roots=True), "s1 s2 s3 s5"),
    (SessionFilter(parent_session_id="s1"), "s4"),
    (SessionFilter(until=1), ""),
    (SessionFilter(since=1, user_id="bob"), "s2"),
]


async def list_by_id(views: SessionViews) -> list[str]:
    """The sessions that are there for somebody who knows all ids."""
    found = []
    for session_id in SESSIONS:
        try:
            found.append((await views.get_session(session_id)).overview.session_id)
        except SessionNotFoundError:
            continue
    return found


@pytest.mark.parametrize(("reads", "expected"), RIGHTS)
async def test_by_its_id_a_session_is_there_just_where_lists_have_it(
    scene: Scene, reads: SessionFilter, expected: str
) -> None:
    """A tenant "1" that opens sessions of a tenant 1 by their ids, which its lists do not have, is a leak."""
    for session_id, options in SESSIONS.items():
        await scene.sessions.create_session(session_id, options)
    views = SessionViews(scene.stores, admits=reads)
    asked = await scene.views.list_sessions(reads)
    listed = await views.list_sessions()
    assert sorted(each.session_id for each in asked.sessions) == expected.split()
    assert sorted(each.session_id for each in listed.sessions) == expected.split()
    assert sorted([each.session_id async for each in views.iterate_sessions()]) == expected.split()
    assert await list_by_id(views) == expected.split()


async def test_a_filter_within_rights_that_exclude_it_finds_nothing(scene: Scene) -> None:
    """Who sees sub-agents only, and asks for roots, made no mistake."""
    await scene.sessions.create_session("s1", SESSIONS["s1"])
    await scene.sessions.create_session("s4", SESSIONS["s4"])
    views = SessionViews(scene.stores, admits=SessionFilter(parent_session_id="s1"))
    assert (await views.list_sessions(SessionFilter(roots=True))).sessions == ()
    with pytest.raises(InvalidRequestError, match="roots"):
        await views.list_sessions(SessionFilter(roots=True, parent_session_id="s1"))


ACTIVE, FAILED = SessionStatus.ACTIVE, SessionStatus.FAILED
BOTH = [
    (SessionFilter(), SessionFilter(user_id="jo"), SessionFilter(user_id="jo")),
    (
        SessionFilter(user_id="jo"),
        SessionFilter(user_id="jo", tags=("a",)),
        SessionFilter(user_id="jo", tags=("a",)),
    ),
    (SessionFilter(tags=("a",)), SessionFilter(tags=("b", "a")), SessionFilter(tags=("a", "b"))),
    (SessionFilter(user_id="ann"), SessionFilter(user_id="jo"), None),
    (SessionFilter(agent="a"), SessionFilter(agent="b"), None),
    (SessionFilter(parent_session_id="a"), SessionFilter(parent_session_id="b"), None),
    (SessionFilter(metadata={"t": "x"}), SessionFilter(metadata={"t": "y"}), None),
    (
        SessionFilter(metadata={"t": "x"}),
        SessionFilter(metadata={"u": "y"}),
        SessionFilter(metadata={"t": "x", "u": "y"}),
    ),
    (SessionFilter(status=(ACTIVE,)), SessionFilter(status=(FAILED,)), None),
    (SessionFilter(), SessionFilter(status=(FAILED,)), SessionFilter(status=(FAILED,))),
    (SessionFilter(status=(FAILED,)), SessionFilter(), SessionFilter(status=(FAILED,))),
    (
        SessionFilter(status=(FAILED, ACTIVE)),
        SessionFilter(status=(FAILED,)),
        SessionFilter(status=(FAILED,)),
    ),
    (SessionFilter(since=5, until=9), SessionFilter(since=7, until=20), SessionFilter(since=7, until=9)),
    (SessionFilter(need="failed"), SessionFilter(roots=True), SessionFilter(need="failed", roots=True)),
    (SessionFilter(roots=True), SessionFilter(parent_session_id="p"), None),
]


@pytest.mark.parametrize(("wanted", "reads", "both"), BOTH)
def test_stores_are_asked_for_what_matches_both_filters(
    wanted: SessionFilter, reads: SessionFilter, both: SessionFilter | None
) -> None:
    """A viewer of one user among a million sessions must not wait until all were looked at."""
    assert combine_filters(wanted, reads) == both


def test_a_search_among_a_viewers_sessions_asks_for_these_alone() -> None:
    """Not for all of the list, to leave most of it out afterwards."""
    query = plan_search(SessionFilter(tags=("a",)), SessionFilter(user_id="jo")).query
    assert query is not None
    assert (query.user_id, query.tags) == ("jo", ("a",))


def test_rights_by_what_a_session_waits_for_are_refused() -> None:
    """They would come and go while somebody looks."""
    with pytest.raises(InvalidConfigError, match="need"):
        admits_by(SessionFilter(need="waiting"))


def test_rights_that_contradict_themselves_are_refused() -> None:
    """Whoever wrote them learns it, and not a viewer who sees nothing."""
    with pytest.raises(InvalidConfigError, match="exclude each other"):
        admits_by(SessionFilter(roots=True, parent_session_id="p"))
