"""The few words of the Redis protocol that starting a server and building a cluster take."""

import socket
from typing import Self

Reply = str | int | list["Reply"] | None


class ReplyError(Exception):
    """The server answered with an error."""


class RespConnection:
    """One blocking connection; use it as a context manager."""

    def __init__(self, host: str, port: int, *, timeout: float = 5.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout)
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def ask(self, *words: str | int) -> Reply:
        """Send one command and return its reply.

        Raises:
            ReplyError: The server refused it.
            OSError: The connection is gone.
        """
        parts = [str(word).encode() for word in words]
        request = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        self._socket.sendall(b"*%d\r\n%s" % (len(parts), request))
        return self._read_reply()

    def _read_reply(self) -> Reply:
        line = self._lines.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the server closed the connection")
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"-":
            raise ReplyError(rest)
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == "-1" else self._lines.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return [self._read_reply() for _ in range(int(rest))]
        return rest
