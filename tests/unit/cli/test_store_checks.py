"""Commands whose stores are only half there: refused, rather than done in this process's memory."""

import re
from pathlib import Path
from typing import Final

import pytest

from helix_temporal.backends import Backends
from helix_temporal.cli._store_checks import StoreUse, check_session_store, check_stores
from helix_temporal.errors import InvalidConfigError
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import FlushThread, OpenThread
from tests.unit.cli._stores import add_session, call, conversation, fill, json_of, variables_of


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A session in a file."""
    source = variables_of(tmp_path / "source")
    fill(source, lambda backends: add_session(backends, "s", *conversation(2), user_id="anna"))
    path = str(tmp_path / "s.jsonl")
    assert call(source, "session", "export", "s", "--output", path).exit_code == 0
    return path


@pytest.fixture
def archive_alone(tmp_path: Path) -> dict[str, str]:
    """Variables that name an archive, and neither a hot store nor one of sessions."""
    (tmp_path / "archive").mkdir()
    return {"HELIX_COLD_DIRECTORY": str(tmp_path / "archive")}


def test_an_import_into_an_archive_alone_is_refused(
    file: str, archive_alone: dict[str, str], tmp_path: Path
) -> None:
    """It said ``imported``, and state, runs and usage were lost with the process that said so."""
    found = call(archive_alone, "session", "import", file)
    assert (found.exit_code, found.stdout) == (2, "")
    assert "HELIX_POSTGRES_DSN" in found.stderr
    assert list((tmp_path / "archive").rglob("*.blob")) == []


READS: Final = [["list"], ["list", "--all"], ["calls"], ["usage", "s"], ["checkpoints", "s"]]


@pytest.mark.parametrize("arguments", READS, ids=[each[0] + str(len(each)) for each in READS])
def test_what_is_in_no_archive_is_not_shown_as_nothing(
    archive_alone: dict[str, str], arguments: list[str]
) -> None:
    """An empty list, or no costs, of a memory that began a second ago reads as if there were none."""
    found = call(archive_alone, "session", *arguments)
    assert (found.exit_code, found.stdout) == (2, "")
    assert "HELIX_POSTGRES_DSN" in found.stderr


def test_what_an_archive_alone_does_not_tell_is_not_made_up(
    archive_alone: dict[str, str], tmp_path: Path
) -> None:
    """Without a session store a thread tells what was said, and not when it began or whether it ended."""

    async def write(backends: Backends) -> None:
        await backends.threads.open(OpenThread("cold", 1, "owner"))
        await backends.threads.flush(FlushThread("cold", 1))

    fill({**variables_of(tmp_path / "data"), **archive_alone}, write)
    shown = call(archive_alone, "session", "show", "cold").stdout
    unknown = re.findall(r"^(status|created|changed) +(.*)$", shown, re.MULTILINE)
    assert unknown == [("status", "not known"), ("created", "–"), ("changed", "–")]


def test_a_sweep_of_no_hot_store_is_refused(archive_alone: dict[str, str]) -> None:
    """It said that it had seen nothing, and nothing had failed."""
    found = call(archive_alone, "sweep")
    assert (found.exit_code, found.stdout) == (2, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["session", "export", "s"],
        ["session", "show", "s"],
        ["thread", "show", "s"],
        ["thread", "verify", "--all"],
        ["sweep"],
        ["cleanup", "--without-temporal", "--expired"],
        ["inspect", "--port", "0"],
    ],
    ids=" ".join,
)
def test_no_command_that_reads_makes_a_database(arguments: list[str], tmp_path: Path) -> None:
    """A misspelt directory must not read as a session that is not there, and must not be made."""
    found = call(variables_of(tmp_path / "misspelt"), *arguments)
    assert (found.exit_code, found.stdout) == (2, "")
    assert "there is no database at" in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_another_deployment_that_is_not_there_is_told_with_its_name(
    file: str, tmp_path: Path
) -> None:
    """The directory is right, and the name is not: whoever looks at that alone finds nothing wrong."""
    place = variables_of(tmp_path / "data")
    assert call(place, "session", "import", file).exit_code == 0
    found = call({**place, "HELIX_NAME": "other"}, "session", "list")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "see HELIX_DATA_DIRECTORY and HELIX_NAME" in found.stderr


def test_a_cursor_that_is_none_says_what_to_pass(file: str, tmp_path: Path) -> None:
    """A cursor is typed off, or cut by a terminal: the list can be begun again."""
    place = variables_of(tmp_path / "data")
    assert call(place, "session", "import", file).exit_code == 0
    found = call(place, "session", "list", "--cursor", "7")
    assert found.exit_code == 2
    assert "pass next_cursor of the page before, unchanged and with the same filter" in found.stderr


def test_an_import_says_that_it_makes_a_database(file: str, tmp_path: Path) -> None:
    """To restore into a new place is right; to misspell the old one shall be seen."""
    place = variables_of(tmp_path / "new")
    first = call(place, "session", "import", file, "--json")
    assert json_of(first)["outcome"] == "imported"
    assert f"there is no database at {tmp_path / 'new' / 'helix.db'} yet" in first.stderr
    assert call(place, "session", "import", file).stderr == ""


def test_a_dry_run_makes_no_database(file: str, tmp_path: Path) -> None:
    """It changes nothing; where nothing is, the file can be imported."""
    found = call(variables_of(tmp_path / "new"), "session", "import", file, "--dry-run", "--json")
    assert json_of(found)["outcome"] == "sound"
    assert not (tmp_path / "new").exists()


def test_a_database_that_is_not_used_need_not_be_there(tmp_path: Path) -> None:
    """HELIX_DATA_DIRECTORY may stand beside servers that have everything."""
    settings = Settings(
        redis_url="redis://127.0.0.1:1", data_directory=tmp_path / "none", allow_plaintext=True
    )
    check_stores(settings, StoreUse.SESSIONS)
    check_session_store(settings)


@pytest.mark.parametrize("use", list(StoreUse))
def test_memory_is_no_store_of_a_command(use: StoreUse) -> None:
    """Whatever it does there is gone when it ends."""
    with pytest.raises(InvalidConfigError, match="HELIX_REDIS_URL"):
        check_stores(Settings(), use)
