"""An export only looks: it repairs nothing, makes no lost row again, and leaves no damaged part out."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from helix_temporal.errors import SessionExistsError, StoreCorruptError
from helix_temporal.session_files import FORMATS
from helix_temporal.stores.protocols.threads import FlushThread
from tests.unit.session_files._scenes import export_bytes, import_bytes, make_session, make_turn, open_sqlite


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    """A session whose first turn alone is archived."""
    (tmp_path / "archive").mkdir()
    async with open_sqlite(tmp_path / "data", cold_directory=tmp_path / "archive") as stores:
        await make_session(stores, turns=1)
        facts = await stores.threads.read_facts("s")
        await stores.threads.flush(FlushThread("s", facts.epoch))
        await make_turn(stores, "s", 2)
    return tmp_path


def find_database(directory: Path) -> Path:
    """The file that has everything but the archive."""
    return next((directory / "data").rglob("*.db"))


def dump(directory: Path) -> list[str]:
    """All rows."""
    with contextlib.closing(sqlite3.connect(find_database(directory))) as connection:
        return list(connection.iterdump())


def change(directory: Path, statement: str) -> None:
    """Change rows behind the store's back."""
    with contextlib.closing(sqlite3.connect(find_database(directory))) as connection, connection:
        connection.execute(statement)


async def export(directory: Path, name: str = "jsonl") -> bytes:
    """The file of the session."""
    async with open_sqlite(directory / "data", cold_directory=directory / "archive") as stores:
        return await export_bytes(stores, file_format=FORMATS[name])


async def test_an_export_changes_no_row(directory: Path) -> None:
    """It runs beside the session, from another machine, by somebody who may only read."""
    before = dump(directory)
    await export(directory)
    assert dump(directory) == before


@pytest.mark.parametrize("name", sorted(FORMATS))
async def test_a_damaged_hot_thread_is_no_shorter_session(directory: Path, name: str) -> None:
    """It was dropped, and the file had one turn of two, with status 0: a backup that is none."""
    change(directory, "UPDATE messages SET body = X'00' WHERE thread_id = 's'")
    before = dump(directory)
    with pytest.raises(StoreCorruptError):
        await export(directory, name)
    assert dump(directory) == before


async def test_a_lost_row_is_read_from_the_outline(directory: Path) -> None:
    """The file has the session's title and state; the row is its workers' to make again."""
    change(directory, "DELETE FROM sessions")
    before = dump(directory)
    file = await export(directory)
    assert b'"title":"Where is my order?"' in file
    assert dump(directory) == before


async def test_a_dry_run_of_an_import_makes_no_row_again(directory: Path) -> None:
    """It says what would become of the file, and changes nothing on the way."""
    file = await export(directory)
    change(directory, "DELETE FROM sessions")
    before = dump(directory)
    async with open_sqlite(directory / "data", cold_directory=directory / "archive") as stores:
        with pytest.raises(SessionExistsError):
            await import_bytes(stores, file, dry_run=True)
    assert dump(directory) == before
