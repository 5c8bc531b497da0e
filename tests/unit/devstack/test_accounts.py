"""What another account can reach: PostgreSQL refuses to run as root."""

from pathlib import Path

from helix_temporal.devstack.processes import Account, blocking_directory, unreadable_file

SOMEBODY = Account(uid=54321, gid=54321, name="somebody")


def test_a_directory_that_cannot_be_searched_is_found(open_directory: Path) -> None:
    """A virtual environment below a home of mode 0700 hides its programs from other accounts."""
    closed = open_directory / "home"
    (closed / "project" / "bin").mkdir(parents=True)
    closed.chmod(0o700)
    assert blocking_directory(closed / "project" / "bin", SOMEBODY) == closed


def test_an_open_directory_blocks_nobody(open_directory: Path) -> None:
    """No copy is made where none is needed."""
    (open_directory / "bin").mkdir(mode=0o755)
    assert blocking_directory(open_directory / "bin", SOMEBODY) is None


def test_a_file_that_cannot_be_read_is_found(open_directory: Path) -> None:
    """A strict umask at installation hides single files."""
    hidden = open_directory / "postgres"
    hidden.touch()
    hidden.chmod(0o700)
    assert unreadable_file(open_directory, SOMEBODY) == hidden
