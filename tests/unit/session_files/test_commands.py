"""``helix-temporal session export`` and ``import``."""

import asyncio
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from helix_temporal.cli.commands import app
from helix_temporal.cli.schemas import OUTPUTS
from helix_temporal.cli.statuses import ExitStatus
from helix_temporal.session_files import verify_file
from tests.unit.session_files._scenes import make_session, make_tree, open_sqlite


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """The variables of a file that holds a tree of sessions."""

    async def make() -> None:
        async with open_sqlite(tmp_path / "source") as stores:
            await make_tree(stores)

    asyncio.run(make())
    return {"HELIX_DATA_DIRECTORY": str(tmp_path / "source")}


@pytest.fixture
def empty(tmp_path: Path) -> dict[str, str]:
    """The variables of a file without sessions."""
    return {"HELIX_DATA_DIRECTORY": str(tmp_path / "target")}


def call(variables: dict[str, str], *arguments: str, stdin: bytes | None = None) -> Result:
    """Run ``helix-temporal session``."""
    return CliRunner().invoke(app, ["session", *arguments], env=variables, input=stdin)


def test_a_session_goes_from_one_store_to_another(
    variables: dict[str, str], empty: dict[str, str], tmp_path: Path
) -> None:
    """Export, import, export: the same bytes, by files and by a pipe."""
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    assert call(variables, "export", "s", "--with-children", "--output", str(first)).exit_code == 0
    assert call(empty, "import", str(first)).exit_code == 0
    assert call(empty, "export", "s", "--with-children", "-o", str(second)).exit_code == 0
    assert second.read_bytes() == first.read_bytes()
    piped = call(empty, "export", "s", "--with-children")
    assert piped.stdout_bytes == first.read_bytes()
    assert call(empty, "import", "-", "--as", "copy", stdin=first.read_bytes()).exit_code == 0
    assert json.loads(call(empty, "show", "copy", "--json").stdout)["messages"] == 8


def test_a_pipe_with_a_name_is_read(variables: dict[str, str], empty: dict[str, str]) -> None:
    """``session import /dev/stdin`` and ``<(session export …)``: a pipe cannot be read twice."""
    data = call(variables, "export", "s").stdout_bytes
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(data)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write)
        assert call(empty, "import", f"/dev/fd/{reader}").exit_code == 0
    os.close(reader)


def test_without_a_place_for_temporary_files_an_export_says_what_to_set(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers with a file system that is read alone have none."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    found = call(variables, "export", "s")
    assert (found.exit_code, found.stdout) == (ExitStatus.USAGE, "")
    assert "set TMPDIR" in found.stderr


def test_json_says_what_was_done(variables: dict[str, str], empty: dict[str, str], tmp_path: Path) -> None:
    """Each command has a schema, and programs go by it."""
    file = str(tmp_path / "s.jsonl")
    exported = call(variables, "export", "s", "--output", file, "--json")
    assert OUTPUTS["session export"].model_validate_json(exported.stdout).model_dump()["messages"] == 8
    tried = call(empty, "import", file, "--dry-run", "--json")
    assert OUTPUTS["session import"].model_validate_json(tried.stdout).model_dump()["outcome"] == "sound"
    done = call(empty, "import", file, "--json")
    assert json.loads(done.stdout)["outcome"] == "imported"
    assert json.loads(call(empty, "import", file, "--json").stdout)["outcome"] == "there"


def test_json_without_a_file_is_refused(variables: dict[str, str]) -> None:
    """Two things cannot both be standard output."""
    found = call(variables, "export", "s", "--json")
    assert (found.exit_code, found.stdout) == (ExitStatus.USAGE, "")


def test_nothing_but_the_file_is_on_standard_output(variables: dict[str, str], tmp_path: Path) -> None:
    """It is piped into the next program."""
    found = call(variables, "export", "s")
    file = tmp_path / "s.jsonl"
    file.write_bytes(found.stdout_bytes)
    with file.open("rb") as opened:
        assert verify_file(opened).header.session_id == "s"


def test_statuses_tell_failures_apart(
    variables: dict[str, str], empty: dict[str, str], tmp_path: Path
) -> None:
    """A script that restores a thousand files must know which to look at."""
    file, damaged = tmp_path / "s.jsonl", tmp_path / "damaged.jsonl"
    call(variables, "export", "s", "--output", str(file))
    damaged.write_bytes(file.read_bytes()[:-10])

    async def make_another() -> None:
        async with open_sqlite(tmp_path / "target") as stores:
            await make_session(stores, turns=1)

    asyncio.run(make_another())
    found = call(variables, "export", "nobody")
    assert found.exit_code == ExitStatus.NOT_FOUND
    assert "check its id, and that the stores are those of its workers" in found.stderr
    assert call(variables, "export", "s", "--redact", "(").exit_code == ExitStatus.USAGE
    assert call(variables, "export", "s", "-o", str(tmp_path / "none" / "s")).exit_code == ExitStatus.USAGE
    assert call(empty, "import", str(damaged)).exit_code == ExitStatus.DAMAGED
    assert call(empty, "import", str(file)).exit_code == ExitStatus.REFUSED
    assert call(empty, "import", str(file), "--as", "a>b").exit_code == ExitStatus.USAGE
    assert call(empty, "import", str(tmp_path / "none")).exit_code == ExitStatus.USAGE


def test_a_damaged_file_makes_no_database(variables: dict[str, str], tmp_path: Path) -> None:
    """The servers are looked at before anything is written, and the file before them."""
    file, target = tmp_path / "s.jsonl", tmp_path / "target"
    call(variables, "export", "s", "--output", str(file))
    file.write_bytes(file.read_bytes()[:-10])
    target.mkdir()
    damaged = call({"HELIX_DATA_DIRECTORY": str(target)}, "import", str(file))
    assert damaged.exit_code == ExitStatus.DAMAGED
    assert list(target.iterdir()) == []
    assert "it is made" not in damaged.stderr


@pytest.mark.parametrize("name", ["jsonl", "md", "openai", "af"])
def test_every_format_is_written(name: str, variables: dict[str, str], tmp_path: Path) -> None:
    """With what is to be taken out taken out."""
    file = tmp_path / "s"
    done = call(variables, "export", "s", "--format", name, "--redact", "order", "-o", str(file))
    assert done.exit_code == 0
    assert "[redacted]" in file.read_text(encoding="utf-8")
    assert "Where is order" not in file.read_text(encoding="utf-8")


def test_an_id_that_begins_with_a_dash_can_be_named(tmp_path: Path) -> None:
    """Ids are the application's."""
    place = {"HELIX_DATA_DIRECTORY": str(tmp_path / "source")}

    async def make() -> None:
        async with open_sqlite(tmp_path / "source") as stores:
            await make_session(stores, "-s")

    asyncio.run(make())
    found = call(place, "export", "--", "-s")
    assert (found.exit_code, json.loads(found.stdout.splitlines()[0])["session_id"]) == (0, "-s")
