"""Sessions whose row the store has lost, and whose archived thread says what they were."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal import Backends
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import SessionNotFoundError, StoreUnavailableError
from helix_temporal.stores.protocols.threads import FlushThread
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._backends import create, open_stores, run_turn


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Backends]:
    """A session that no workflow runs: all that is left of it is its archived thread."""
    archive = tmp_path / "archive"
    archive.mkdir()
    async with open_stores("sqlite", tmp_path, cold_directory=archive) as made:
        await create(
            made, "s", user_id="ann", title="My order", metadata={"tenant": "a"}, custom_state={"n": 1}
        )
        await run_turn(made, "s", "r1", "hi", "hello")
        facts = await made.threads.read_facts("s")
        await made.threads.flush(FlushThread("s", facts.epoch))
    for database in (tmp_path / "data").rglob("helix.db*"):
        database.unlink()
    async with open_stores("sqlite", tmp_path, cold_directory=archive) as lost:
        yield lost


async def refuse_to_ask(threads: object, thread_id: str) -> None:
    """An archive that is away."""
    raise StoreUnavailableError("s3: no answer")


def count_rows(directory: Path) -> int:
    """How many sessions there are in the database."""
    database = next((directory / "data").rglob("*.db"))
    with contextlib.closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT count(*) FROM sessions").fetchone()
    return int(found[0])


async def test_a_session_without_its_row_is_shown_as_what_it_was(stores: Backends, tmp_path: Path) -> None:
    """It was shown without title, user and metadata, created in 1970, and nothing said why."""
    view = await SessionViews(stores).get_session("s")
    seen = view.overview
    assert (seen.title, seen.user_id, seen.metadata) == ("My order", "ann", {"tenant": "a"})
    assert seen.created_at > 0
    assert count_rows(tmp_path) == 0


@pytest.mark.parametrize("user", ["ann", "bob"])
async def test_a_viewer_of_some_sessions_sees_it_once_its_row_is_there_again(
    stores: Backends, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is not asked for them: by its time an unknown id would be told from a hidden one.

    The first message that the session gets makes the row again.
    """
    views = SessionViews(stores, admits=lambda each: each.user_id == user)
    with monkeypatch.context() as patch:
        patch.setattr(TieredThreads, "read_facts", refuse_to_ask)
        with pytest.raises(SessionNotFoundError):
            await views.get_session("s")
    await stores.sessions.load_state("s")
    found = SessionViews(stores, admits=lambda each: each.user_id == "ann")
    assert (await found.get_session("s")).overview.session_id == "s"


async def test_its_own_store_makes_the_row_again(stores: Backends, tmp_path: Path) -> None:
    """What a view shows is what the session goes on with."""
    shown = await SessionViews(stores).get_session("s")
    values = (await SessionViews(stores).get_state("s")).values
    state = await stores.sessions.load_state("s")
    assert state is not None
    assert state.custom_state == values == {"n": 1}
    assert (state.title, state.created_at) == (shown.overview.title, shown.overview.created_at)
    assert count_rows(tmp_path) == 1
