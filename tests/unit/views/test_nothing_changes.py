"""Looking at sessions changes nothing: not a byte, and no time at which something expires."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal import Backends
from helix_temporal.errors import HelixError
from helix_temporal.models.streams import RunStarted, TextChunk
from helix_temporal.stores.protocols.threads import FlushThread
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._backends import add_child, create, open_stores, run_turn, use_tokens


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Path]:
    """Stores in files: a session with turns, a child, usage, a stream, and an archive."""
    (tmp_path / "archive").mkdir()
    async with open_stores("sqlite", tmp_path, cold_directory=tmp_path / "archive") as stores:
        await create(stores, "s", user_id="ann", custom_state={"a": 1})
        await run_turn(stores, "s", "r1", "hi", "hello", merge={"a": 2})
        await run_turn(stores, "s", "r2", "more", "done", merge={"a": 3})
        await add_child(stores, "s", "child")
        await use_tokens(stores, "s", "r1", 5, at=1_000)
        facts = await stores.threads.read_facts("s")
        await stores.threads.flush(FlushThread("s", facts.epoch))
        assert stores.streams is not None
        writer = await stores.streams.create_writer("s", agent_id="r2")
        await writer.write_many([RunStarted(turn=2), TextChunk(delta="done")])
        yield tmp_path


def dump(directory: Path) -> dict[str, object]:
    """All rows of the database, and all files of the archive."""
    database = next((directory / "data").rglob("*.db"))
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = list(connection.iterdump())
    files = {str(each): each.read_bytes() for each in (directory / "archive").rglob("*") if each.is_file()}
    return {"rows": rows, **files}


async def look_at_everything(stores: Backends) -> list[str]:
    """Every view of the session; the errors that some of them told."""
    views = SessionViews(stores)
    reads = [
        views.list_sessions(),
        views.list_sessions(SessionFilter(need="behind")),
        views.get_session("s"),
        views.get_usage("s", descendants=True),
        views.read_turns("s"),
        views.read_turn("s", 1),
        views.find_turn("s", 2),
        views.read_message("s", 1),
        views.get_context("s", 1),
        views.get_state("s"),
        views.list_checkpoints("s"),
        views.list_runs("s"),
        views.get_tree("s"),
        views.get_place("s"),
        views.verify_thread("s"),
        views.find_live_place("s"),
        anext(views.follow_session("s", 0)),
    ]
    found = [await _told(read) for read in reads]
    checkpoints = (await views.list_checkpoints("s")).checkpoints
    await views.compare_states("s", checkpoints[-1].checkpoint_id)
    found += [str(each.session_id) async for each in views.iterate_sessions() if each.session_id == "?"]
    found += [each.session_id async for each in views.find_calls()]
    return [each for each in found if each]


async def _told(read: object) -> str:
    try:
        await read  # type: ignore[misc]
    except HelixError as error:
        return f"{type(error).__name__}: {error}"
    return ""


async def test_no_view_changes_a_byte(directory: Path) -> None:
    """Another process looks, as ``inspect`` does; whatever it wrote would be in the way of the sessions."""
    before = dump(directory)
    async with open_stores("sqlite", directory, cold_directory=directory / "archive") as stores:
        assert await look_at_everything(stores) == []
        await asyncio.sleep(0)
    assert dump(directory) == before


async def test_no_view_repairs_what_is_damaged(directory: Path) -> None:
    """Whoever looks at a damaged thread wants to see the damage, and leaves it to those who seek its cause.

    The session itself drops such a hot thread, and takes it from the archive.
    """
    database = next((directory / "data").rglob("*.db"))
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE messages SET body = X'00' WHERE thread_id = 's'")
    before = dump(directory)
    async with open_stores("sqlite", directory, cold_directory=directory / "archive") as stores:
        found = await look_at_everything(stores)
        page = await SessionViews(stores).read_turns("s")
    assert dump(directory) == before
    assert found != [] or page.problem or any(each.damage for turn in page.turns for each in turn.messages)
    async with open_stores("sqlite", directory, cold_directory=directory / "archive") as stores:
        assert (await stores.sessions.get_messages("s")).total == 4
    assert dump(directory) != before
