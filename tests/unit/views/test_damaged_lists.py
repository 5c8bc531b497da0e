"""Lists from which damaged sessions are left out: who is told of them."""

from pathlib import Path

import pytest

from helix_temporal import Backends
from helix_temporal.errors import StoreCorruptError, UnsupportedFormatError
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import SessionPage
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.sessions.reading import ReadSessions
from helix_temporal.views.calls import SearchProblems
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._backends import create, open_stores


@pytest.fixture
def one_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page of the store leaves one session out."""
    list_sessions = RowSessions.list_sessions

    async def leave_one_out(store: RowSessions, *query: object) -> SessionPage:
        page: SessionPage = await list_sessions(store, *query)  # type: ignore[arg-type]
        return page.model_copy(update={"damaged": 1})

    monkeypatch.setattr(RowSessions, "list_sessions", leave_one_out)


async def problem_of(stores: Backends, **rights: object) -> str | None:
    """What a viewer's list tells."""
    return (await SessionViews(stores, **rights).list_sessions()).problem  # type: ignore[arg-type]


@pytest.mark.usefixtures("one_damaged")
async def test_a_count_of_damaged_sessions_is_for_those_who_may_see_them(tmp_path: Path) -> None:
    """A function's rights are asked of what was read: of a damaged one nobody knows whose it is."""
    async with open_stores("memory", tmp_path) as stores:
        await create(stores, "s", user_id="ann")
        assert "1 session is left out of the list" in (await problem_of(stores) or "")
        assert "1 session is left out" in (
            await problem_of(stores, admits=SessionFilter(user_id="ann")) or ""
        )
        assert await problem_of(stores, admits=lambda overview: overview.user_id == "ann") is None


@pytest.mark.usefixtures("one_damaged")
async def test_a_search_for_calls_tells_of_damaged_sessions(tmp_path: Path) -> None:
    """It said that there was no such call."""
    problems = SearchProblems()
    async with open_stores("memory", tmp_path) as stores:
        await create(stores, "s", user_id="ann")
        assert [each async for each in SessionViews(stores).find_calls(problems=problems)] == []
    assert "1 session is left out of the list" in (problems.describe() or "")


@pytest.mark.parametrize(
    "error", [StoreCorruptError("x"), UnsupportedFormatError("x")], ids=["damaged", "newer"]
)
async def test_a_session_is_listed_whose_parent_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Nobody can tell who may see the parent: its id is left out, and not the whole list."""
    load_state = RowSessions.load_state

    async def refuse_parent(store: RowSessions, session_id: str) -> SessionState | None:
        if session_id == "p":
            raise error
        return await load_state(store, session_id)

    monkeypatch.setattr(RowSessions, "load_state", refuse_parent)
    monkeypatch.setattr(ReadSessions, "load_state", refuse_parent)
    async with open_stores("memory", tmp_path) as stores:
        await create(stores, "p", user_id="ann")
        await create(stores, "c", user_id="ann", parent_session_id="p")
        views = SessionViews(stores, admits=lambda overview: overview.session_id == "c")
        (found,) = (await views.list_sessions()).sessions
    assert (found.session_id, found.parent_session_id) == ("c", None)
