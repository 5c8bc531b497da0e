"""A supervisor and a directory, for as long as servers are needed."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from helix_temporal.devstack._accounts import blocking_directory, unprivileged_account
from helix_temporal.devstack._errors import ServerStartError
from helix_temporal.devstack._processes import Supervisor
from helix_temporal.devstack._server import Place


@contextmanager
def open_place(directory: Path | None, environment: Mapping[str, str] | None) -> Iterator[Place]:
    """Where to start servers; they are stopped at the end, and a temporary directory is removed."""
    given = environment if environment is not None else {"PATH": os.defpath}
    if directory is None:
        temporary = Path(tempfile.mkdtemp(prefix="helix-", dir=_temporary_root()))
        # A server that runs under another account must get through to its own directory.
        temporary.chmod(0o711)
        with Supervisor(temporary) as supervisor:
            yield Place(supervisor, temporary, environment=given)
    else:
        directory.mkdir(parents=True, exist_ok=True)
        with _only_user(directory), Supervisor() as supervisor:
            yield Place(supervisor, directory.resolve(), keeps_data=True, environment=given)


def _temporary_root() -> Path:
    """Where temporary directories go: the usual place, unless PostgreSQL could not get there."""
    usual = Path(tempfile.gettempdir())
    account = unprivileged_account()
    return Path("/tmp") if account and blocking_directory(usual, account) else usual  # noqa: S108 — mkdtemp


@contextmanager
def _only_user(directory: Path) -> Iterator[None]:
    """Two stacks on the same data would destroy them."""
    with (directory / ".in-use").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ServerStartError(
                f"{str(directory)!r} is used by another stack; stop that one or give another directory"
            ) from None
        yield
