"""A local server: a program, where it runs, and the question whether it is up."""

import contextlib
import fcntl
import hashlib
import hmac
import http.client
import os
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from helix_temporal.devstack.errors import ServerStartError
from helix_temporal.devstack.processes import (
    Account,
    Program,
    ServerSupervisor,
    blocking_directory,
    last_lines,
    unprivileged_account,
)

_PAUSE: Final = 0.01
_TIMEOUT: Final = 5.0
_POSTGRES_PROTOCOL: Final = 196608


def wait_until_ready(
    supervisor: ServerSupervisor, program: Program, is_ready: Callable[[], bool], *, seconds: float = 60.0
) -> None:
    """Wait for a started program to answer.

    Raises:
        ServerStartError: It ended, or did not answer in time.
    """
    deadline = time.monotonic() + seconds
    while not is_ready():
        code = supervisor.exit_code(program)
        if code is not None:
            raise ServerStartError(
                f"{program.name} ended with code {code} at its start:\n{last_lines(program.log)}", exit=code
            )
        if time.monotonic() > deadline:
            raise ServerStartError(
                f"{program.name} runs but did not answer within {seconds:g} s:\n{last_lines(program.log)}"
            )
        time.sleep(_PAUSE)


def http_answers(port: int, path: str) -> bool:
    """Whether a GET is answered with 200."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        finally:
            connection.close()
    return False


def postgres_answers(host: str, port: int, user: str) -> bool:
    """Whether a session can be opened: the port answers earlier, with "is starting up"."""
    parameters = f"user\0{user}\0database\0postgres\0\0".encode()
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT) as connection:
            connection.sendall(struct.pack("!ii", len(parameters) + 8, _POSTGRES_PROTOCOL) + parameters)
            answered = connection.recv(1) == b"R"
            if answered:
                connection.sendall(b"X\x00\x00\x00\x04")
            return answered
    except OSError:
        return False


def tcp_answers(host: str, port: int) -> bool:
    """Whether anybody listens there."""
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT):
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class RequestSigner:
    """Signs requests without a query (AWS Signature Version 4)."""

    region: str
    access_key: str
    secret_key: str

    def sign_request(self, method: str, host: str, path: str, body: bytes = b"") -> dict[str, str]:
        """The headers of one request, good for the next minutes."""
        now = datetime.now(UTC)
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        content = hashlib.sha256(body).hexdigest()
        headers = {"host": host, "x-amz-content-sha256": content, "x-amz-date": stamp}
        names = ";".join(headers)
        request = "\n".join([method, path, "", *(f"{k}:{v}" for k, v in headers.items()), "", names, content])
        scope = f"{day}/{self.region}/s3/aws4_request"
        digest = hashlib.sha256(request.encode()).hexdigest()
        signature = self._sign_text(f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}", scope)
        credential = f"Credential={self.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {**headers, "authorization": f"AWS4-HMAC-SHA256 {credential}"}

    def _sign_text(self, text: str, scope: str) -> str:
        key = f"AWS4{self.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.digest(key, text.encode(), "sha256").hex()


def bucket_answers(endpoint: str, bucket: str, signer: RequestSigner) -> bool:
    """Whether the bucket takes a signed PUT of some bytes and a signed DELETE.

    An endpoint that answers at all is not ready yet: right after it the bucket can still be missing.  And an
    empty object needs no space: SeaweedFS takes it on a disk that has less than 1 % left, and nothing else.
    """
    host = urlsplit(endpoint).netloc
    try:
        for method, body, expected in (("PUT", b"ready", 200), ("DELETE", b"", 204)):
            connection = http.client.HTTPConnection(host, timeout=_TIMEOUT)
            try:
                path = f"/{bucket}/.ready"
                headers = signer.sign_request(method, host, path, body)
                connection.request(method, path, body=body or None, headers=headers)
                if connection.getresponse().status != expected:
                    return False
            finally:
                connection.close()
    except (OSError, http.client.HTTPException):
        return False
    return True


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Where servers are started.

    Attributes:
        directory: Each server gets a directory of its own in it.
        keeps_data: The directory was given and outlives the servers; else speed wins over durability.
        environment: May name programs (``HELIX_VALKEY_BINARY``) and holds ``PATH``.
    """

    supervisor: ServerSupervisor
    directory: Path
    keeps_data: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def close_signal(self) -> str:
        """Temporary data need no orderly end: SeaweedFS takes seconds for it."""
        return "SIGTERM" if self.keeps_data else "SIGKILL"

    def make_directory(self, name: str, account: Account | None = None) -> Path:
        """The directory of one server."""
        directory = self.directory / name
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if account:
            os.chown(directory, account.uid, account.gid)
        return directory


class LocalServer:
    """A server that can be stopped, killed and started again at the same port with the same data."""

    def __init__(self, supervisor: ServerSupervisor, program: Program, is_ready: Callable[[], bool]) -> None:
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

    def read_log_end(self) -> str:
        """The last lines that it wrote."""
        return last_lines(self._program.log)

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


@contextmanager
def open_place(directory: Path | None, environment: Mapping[str, str] | None) -> Iterator[ServerPlace]:
    """Where to start servers; they are stopped at the end, and a temporary directory is removed."""
    given = environment if environment is not None else {"PATH": os.defpath}
    if directory is None:
        temporary = Path(tempfile.mkdtemp(prefix="helix-", dir=_temporary_root()))
        # A server that runs under another account must get through to its own directory.
        temporary.chmod(0o711)
        with ServerSupervisor(temporary) as supervisor:
            yield ServerPlace(supervisor, temporary, environment=given)
    else:
        directory.mkdir(parents=True, exist_ok=True)
        with _only_user(directory), ServerSupervisor() as supervisor:
            yield ServerPlace(supervisor, directory.resolve(), keeps_data=True, environment=given)


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
