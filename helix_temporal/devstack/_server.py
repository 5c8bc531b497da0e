"""A local server: a program, where it runs, and the question whether it is up."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helix_temporal.devstack._processes import Account, Program, Supervisor
from helix_temporal.devstack._ready import wait_until_ready


@dataclass(frozen=True, slots=True)
class Place:
    """Where servers are started.

    Attributes:
        directory: Each server gets a directory of its own in it.
        keeps_data: The directory was given and outlives the servers; else speed wins over durability.
        environment: May name programs (``HELIX_VALKEY_BINARY``) and holds ``PATH``.
    """

    supervisor: Supervisor
    directory: Path
    keeps_data: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def close_signal(self) -> str:
        """Temporary data need no orderly end: SeaweedFS takes seconds for it."""
        return "SIGTERM" if self.keeps_data else "SIGKILL"

    def make(self, name: str, account: Account | None = None) -> Path:
        """The directory of one server."""
        directory = self.directory / name
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if account:
            os.chown(directory, account.uid, account.gid)
        return directory


class LocalServer:
    """A server that can be stopped, killed and started again at the same port with the same data."""

    def __init__(self, supervisor: Supervisor, program: Program, is_ready: Callable[[], bool]) -> None:
        self._supervisor = supervisor
        self._program = program
        self._is_ready = is_ready
        self._pid: int | None = None

    @property
    def name(self) -> str:
        """Its name in messages and of its log."""
        return self._program.name

    @property
    def directory(self) -> Path:
        """Where its data and its log are."""
        return self._program.directory

    @property
    def has_ended(self) -> bool:
        """Whether it was started and has ended by itself."""
        return self._pid is not None and self._supervisor.exit_code(self._program) is not None

    @property
    def pid(self) -> int | None:
        """Its process id while it is started."""
        return self._pid

    def start(self) -> None:
        """Start it and wait until it is ready; does nothing when it is started.

        Raises:
            ServerStartError: It ended at once or did not become ready; it is stopped then.
        """
        if self._pid is not None:
            return
        self._pid = self._supervisor.spawn(self._program)
        try:
            wait_until_ready(self._supervisor, self._program, self._is_ready)
        except BaseException:
            self.stop(kill=True)
            raise

    def stop(self, *, kill: bool = False) -> None:
        """Stop it, or kill it as a crash would, and wait for its end; does nothing when it is stopped."""
        if self._pid is not None:
            self._pid = None
            self._supervisor.stop(self._program, kill=kill)

    def restart(self, *, kill: bool = False) -> None:
        """Stop or kill it and start it again."""
        self.stop(kill=kill)
        self.start()
