"""Starting and stopping servers through a supervisor, as another account where root is refused."""

import json
import os
import pwd
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from helix_temporal.devstack import supervisor
from helix_temporal.devstack.errors import ServerStartError

_CLOSE_SECONDS: Final = 30.0
_LOG_LINES: Final = 15
_ENDED: Final = "the supervisor of the local servers has ended; start the stack again"


@dataclass(frozen=True, slots=True)
class Account:
    """An account that a server runs as."""

    uid: int
    gid: int
    name: str


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run.

    Attributes:
        name: Unique within a supervisor.
        stop_signal: What ends it with its data in order.
        close_signal: What ends it together with its supervisor; SIGKILL where the data go as well.
        grace: Seconds until SIGKILL follows.
        leftovers: Patterns of files that it makes elsewhere and leaves behind.
    """

    name: str
    argv: Sequence[str]
    directory: Path
    stop_signal: str = "SIGTERM"
    close_signal: str = "SIGTERM"
    grace: float = 10.0
    account: Account | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    leftovers: Sequence[str] = ()

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.directory / f"{self.name}.log"


class ServerSupervisor:
    """Owns servers; all end with it, with this process, or on `close`.

    Safe to use from several threads, one command at a time.

    Args:
        directory: Removed after the servers have ended, also when this process was killed.
    """

    def __init__(self, directory: Path | None = None) -> None:
        argv = [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid())]
        self._process = subprocess.Popen(
            [*argv, *([str(directory)] if directory else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def spawn(self, program: Program) -> int:
        """Start a program and return its process id.

        Raises:
            ServerStartError: It can't be executed.
        """
        home = str(program.directory)
        account = program.account
        reply = self._send_command(
            do="spawn",
            name=program.name,
            argv=[str(part) for part in program.argv],
            cwd=home,
            # A user's own configuration of these tools must not change what is tested.
            env={"PATH": os.defpath, "HOME": home, "TMPDIR": home, "LC_ALL": "C", **program.environment},
            log=str(program.log),
            uid=account.uid if account else None,
            gid=account.gid if account else None,
            close_signal=program.close_signal,
            grace=program.grace,
            leftovers=list(program.leftovers),
        )
        return int(reply["pid"])

    def exit_code(self, program: Program) -> int | None:
        """How a program ended; None while it runs."""
        code = self._send_command(do="status", name=program.name)["exit"]
        return None if code is None else int(code)

    def stop(self, program: Program, *, kill: bool = False) -> None:
        """Stop a program and wait until it has ended."""
        self._send_command(do="stop", name=program.name, signal="SIGKILL" if kill else program.stop_signal)

    def close(self) -> None:
        """Stop all programs and wait for the end; may be repeated."""
        with self._lock:
            assert self._process.stdin is not None  # for the type checker
            assert self._process.stdout is not None  # for the type checker
            self._process.stdin.close()
            try:
                self._process.wait(_CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.terminate()
                self._process.wait(_CLOSE_SECONDS)
            self._process.stdout.close()

    def _send_command(self, **command: object) -> dict[str, Any]:
        assert self._process.stdin is not None  # for the type checker
        assert self._process.stdout is not None  # for the type checker
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(command).encode() + b"\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except (OSError, ValueError) as error:
                raise ServerStartError(f"{_ENDED} ({error})") from error
        if not line:
            raise ServerStartError(_ENDED)
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise ServerStartError(f"{command['do']} {command['name']}: {reply['error']}")
        return reply


def last_lines(log: Path) -> str:
    """The end of a log, for an error message."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return "(it wrote nothing)"
    return "\n".join(f"  | {line[:300]}" for line in lines[-_LOG_LINES:]) or "(it wrote nothing)"


def unprivileged_account() -> Account | None:
    """Who a server that refuses root should run as: None, this very user, unless that is root."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        # Any id without files of its own does.
        return Account(65534, 65534, "nobody")
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name)


def blocking_directory(path: Path, account: Account) -> Path | None:
    """The topmost directory on the way to ``path`` that the account can't search, or None."""
    for directory in [*reversed(path.resolve().parents), path.resolve()]:
        if directory.is_dir() and not _has_permission(directory.stat(), account, stat.S_IXOTH):
            return directory
    return None


def unreadable_file(root: Path, account: Account) -> Path | None:
    """A file or directory below ``root`` that the account can't read, or None."""
    for directory, _, names in os.walk(root):
        for path in (Path(directory), *(Path(directory, name) for name in names)):
            if not _has_permission(path.stat(), account, stat.S_IROTH):
                return path
    return None


def _has_permission(found: os.stat_result, account: Account, other: int) -> bool:
    if found.st_uid == account.uid:
        return bool(found.st_mode & (other << 6))
    if found.st_gid == account.gid:
        return bool(found.st_mode & (other << 3))
    return bool(found.st_mode & other)
