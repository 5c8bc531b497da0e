"""One set of real servers for a whole test run, however many processes it has.

The first pytest process owns a `Stack` and listens on a socket; fixtures, also those of pytest-xdist's
workers, ask it for a service, which is started then.  Addresses in ``HELIX_TEST_REDIS_URL`` and so on are
used instead.
"""

import os
import secrets
import tempfile
import threading
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Final

import pytest

from helix_temporal.devstack import DevStackError, Stack, start_stack

SOCKET_VARIABLE: Final = "HELIX_TEST_SERVICES_SOCKET"
KEY_VARIABLE: Final = "HELIX_TEST_SERVICES_KEY"


class Broker:
    """Starts services when they are first asked for, and stops them all at the end."""

    def __init__(self) -> None:
        self._exit = ExitStack()
        self._lock = threading.Lock()
        self._stack: Stack | None = None
        directory = Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="helix-test-")))
        key = secrets.token_bytes(16)
        os.environ[SOCKET_VARIABLE] = str(directory / "services.sock")
        os.environ[KEY_VARIABLE] = key.hex()
        self._listener = Listener(os.environ[SOCKET_VARIABLE], "AF_UNIX", authkey=key)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop all that was started."""
        self._listener.close()
        self._exit.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection:
            service = connection.recv()
            try:
                connection.send((self._ensure(service), None))
            except DevStackError as error:
                connection.send((None, str(error)))
            except Exception:  # noqa: BLE001 — whatever it is, the test that waits must fail by it
                connection.send((None, f"starting {service} failed:\n{traceback.format_exc()}"))

    def _ensure(self, service: str) -> dict[str, str]:
        with self._lock:
            if self._stack is None:
                environment = stack_environment(os.environ)
                self._stack = self._exit.enter_context(start_stack((), environment=environment))
        self._stack.start_services([service])
        return self._stack.get_environment(service)


def stack_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the stack may see: ``HELIX_TEST_X`` as ``HELIX_X``, programs, ``PATH``; never a user's servers."""
    given = {
        f"HELIX_{name.removeprefix('HELIX_TEST_')}": value
        for name, value in environment.items()
        if name.startswith("HELIX_TEST_")
    }
    programs = {
        name: value for name, value in environment.items() if name.endswith("_BINARY") or name == "PATH"
    }
    return programs | given


def service(name: str) -> dict[str, str]:
    """The variables of a running service.

    Fails the test, or skips it, saying why and how to get the server, when there is none.
    """
    with Client(
        os.environ[SOCKET_VARIABLE], "AF_UNIX", bytes.fromhex(os.environ[KEY_VARIABLE])
    ) as connection:
        connection.send(name)
        variables, problem = connection.recv()
    if problem is None:
        found: dict[str, str] = variables
        return found
    if os.environ.get("HELIX_REQUIRE_SERVICES") == "1":
        pytest.fail(problem, pytrace=False)
    pytest.skip(problem)
