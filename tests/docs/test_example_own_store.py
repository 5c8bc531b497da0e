"""A store of one's own passes the shipped contract, and its example runs as its page says."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from helix_temporal.errors import StoreCorruptError, StoreUnavailableError
from helix_temporal.models.facade import StoredSession
from helix_temporal.testing.contracts.session_storage import SessionStorageContract
from tests.docs._pages import ROOT
from tests.docs.test_examples import run

EXAMPLE = ROOT / "examples" / "own_store"
SqliteSessionStorage: Any = runpy.run_path(str(EXAMPLE / "sqlite_storage.py"))["SqliteSessionStorage"]


class TestSqliteStorage(SessionStorageContract):
    @pytest.fixture
    async def storage(self, tmp_path: Path) -> Any:
        """A file that is not there yet."""
        return SqliteSessionStorage(tmp_path / "sessions.db")

    async def test_a_damaged_row_is_told_without_its_content(self, storage: Any, tmp_path: Path) -> None:
        """Logs must not show what people said."""
        await storage.save(StoredSession(id="s"))
        storage._connected(lambda db: db.execute("UPDATE sessions SET state = 'secret'"))
        with pytest.raises(StoreCorruptError) as told:
            await storage.load("s")
        assert "secret" not in str(told.value)

    async def test_a_database_that_cannot_be_opened_is_passing(self, tmp_path: Path) -> None:
        """A disk may come back: the caller is told to try again."""
        with pytest.raises(StoreUnavailableError):
            await SqliteSessionStorage(tmp_path / "nowhere" / "sessions.db").list()


def test_the_example_runs() -> None:
    """Two turns, a resume and a fork; the second turn knows the first."""
    ran = run(["examples/own_store/own_store.py"], {})
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "trip: 'in May' -> 'You have said 2: Lisbon, in May'" in ran.stdout
    assert "trip-2: 'or Porto?' -> 'You have said 3: Lisbon, in May, or Porto?'" in ran.stdout
    assert ran.stdout.count("characters of state") == 2
