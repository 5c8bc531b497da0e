"""Ports of 127.0.0.1 that nobody uses, never the same one twice in this process."""

import errno
import random
import socket
import threading
from dataclasses import dataclass, fields
from typing import Final, Self

from helix_temporal.devstack._errors import PortTakenError

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

    def settled(self, preferred: Self) -> "Ports":
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
