"""A supervisor and a directory, for as long as servers are needed."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from helix_temporal.devstack._processes import Supervisor
from helix_temporal.devstack._server import Place


@contextmanager
def open_place(directory: Path | None, environment: Mapping[str, str] | None) -> Iterator[Place]:
    """Where to start servers; they are stopped at the end, and a temporary directory is removed."""
    given = environment if environment is not None else {"PATH": os.defpath}
    if directory is None:
        temporary = Path(tempfile.mkdtemp(prefix="helix-"))
        # A server that runs under another account must get through to its own directory.
        temporary.chmod(0o711)
        with Supervisor(temporary) as supervisor:
            yield Place(supervisor, temporary, environment=given)
    else:
        directory.mkdir(parents=True, exist_ok=True)
        with Supervisor() as supervisor:
            yield Place(supervisor, directory.resolve(), keeps_data=True, environment=given)
