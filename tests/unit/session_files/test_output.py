"""Files on the disk: whole, or not there."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from helix_temporal.errors import InvalidRequestError, SessionNotFoundError
from helix_temporal.session_files import check_output, export_session, open_output
from tests.unit.session_files._scenes import export_bytes, make_session, open_memory


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    """Whoever sees the name may take the file."""
    path = tmp_path / "s.jsonl"
    with open_output(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"half"
    assert list(tmp_path.iterdir()) == [path]


def list_files(directory: Path) -> list[Path]:
    """What is in a directory."""
    return list(directory.iterdir())


def write_half(path: Path, failure: BaseException) -> None:
    """Write a part of a file, and fail."""
    with open_output(path) as file:
        file.write(b"half")
        raise failure


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    """A half backup is worse than none: nobody looks for another."""
    with pytest.raises(ValueError, match="away"):
        write_half(tmp_path / "s.jsonl", ValueError("the store went away"))
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_the_file_of_before(tmp_path: Path) -> None:
    """Yesterday's backup is replaced by a whole one, or by none."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"yesterday")
    with pytest.raises(KeyboardInterrupt):
        write_half(path, KeyboardInterrupt())
    assert path.read_bytes() == b"yesterday"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It holds what people said."""
    path = tmp_path / "s.jsonl"
    with open_output(path) as file:
        file.write(b"hello")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_long_name_has_room_beside_it(tmp_path: Path) -> None:
    """The name under which it is written must not be too long where its own is not."""
    path = tmp_path / ("s" * 255)
    with open_output(path) as file:
        file.write(b"hello")
    assert path.read_bytes() == b"hello"


async def test_a_session_that_is_not_there_makes_no_file(tmp_path: Path) -> None:
    """An empty file would be taken for an empty session."""
    async with open_memory() as stores:
        with pytest.raises(SessionNotFoundError):
            await export_session(stores, "nobody", tmp_path / "s.jsonl")
    assert list_files(tmp_path) == []


async def test_a_file_has_what_a_stream_is_given(tmp_path: Path) -> None:
    """Where it goes changes nothing of it."""
    async with open_memory() as stores:
        await make_session(stores)
        exported = await export_session(stores, "s", tmp_path / "s.jsonl")
        data = (tmp_path / "s.jsonl").read_bytes()
        assert data == await export_bytes(stores)
        assert exported.bytes == len(data)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in directories")
async def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """A file in its place would leave its reader waiting; in that of /dev/null it breaks the machine."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    async with open_memory() as stores:
        await make_session(stores)
        read = asyncio.create_task(asyncio.to_thread(path.read_bytes))
        await export_session(stores, "s", path)
        assert await read == await export_bytes(stores)
    assert list_files(tmp_path) == [path]
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.skipif(os.name == "nt", reason="Links need rights there")
def test_what_a_link_names_is_written(tmp_path: Path) -> None:
    """Of root, with output that went to a file, an export to /dev/stdout replaced that link by a file."""
    named, link = tmp_path / "named" / "s.jsonl", tmp_path / "link"
    named.parent.mkdir()
    link.symlink_to(named)
    check_output(link)
    with open_output(link) as file:
        file.write(b"x")
    assert link.is_symlink()
    assert named.read_bytes() == b"x"
    assert list_files(named.parent) == [named]


def test_where_nothing_can_be_written_is_said_first(tmp_path: Path) -> None:
    """Not after an hour of reading."""
    with pytest.raises(InvalidRequestError, match="create it"):
        check_output(tmp_path / "none" / "s.jsonl")
    with pytest.raises(InvalidRequestError, match="a directory"):
        check_output(tmp_path)
    check_output(tmp_path / "s.jsonl")
