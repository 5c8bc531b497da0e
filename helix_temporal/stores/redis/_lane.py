"""Scripts sent straight through connections that are kept at hand.

The driver's client and its pool together cost as much as the rest of an append: they count for metrics
that nobody reads and ask twice whether a connection is still there.  Its parser costs more than that.
"""

from collections.abc import Sequence
from typing import Any, Final

from redis import exceptions as driver
from redis.asyncio import ConnectionPool

from helix_temporal.stores.redis._answers import MORE, Answers
from helix_temporal.stores.redis.scripts import Script

Value = str | bytes | int
"""What can be sent as an argument."""

Answer = bytes | list[bytes] | None
"""What a script answers."""

_COPIED: Final = 2048
"""Longer arguments are joined with the others once, rather than copied twice."""

_PIECE: Final = 1024 * 1024
"""Bytes that are taken at a time; as many as there are, since fewer are read ahead."""


class Lane:
    """The connections of one pool that are ready for a script.

    They stay counted as in use by the pool, which closes them with its own.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool: Any = pool
        self.ready: list[Any] = []

    async def send(self, command: bytes) -> Any:
        """Send a command, packed as the protocol wants it, and read its answer as the server gave it."""
        connection = self.ready.pop() if self.ready else None
        if connection is None or not _is_clean(connection) or self._has_moved(connection):
            connection = await self._instead_of(connection)
        try:
            reply = await _answer(connection, command)
        except BaseException:
            # What comes now would be taken for the answer to something else.
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)
            raise
        self.ready.append(connection)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def let_go(self) -> None:
        """Close the connections that are ready."""
        leaving, self.ready = self.ready, []
        for connection in leaving:
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)

    def _has_moved(self, connection: Any) -> bool:
        """Whether sentinels have named another primary since it was opened.

        Any new connection asks them, and from then on none to the old server is used: two servers at once
        would each know of some of the writes alone.
        """
        primary = getattr(self._pool, "master_address", None)
        return primary is not None and primary != (connection.host, connection.port)

    async def _instead_of(self, connection: Any) -> Any:
        if connection is not None:
            # Not waited for: who is cancelled there would leave it counted as in use.
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)
        return await self._pool.get_connection()


def packed(script: Script, keys: Sequence[str], args: Sequence[Value]) -> bytes:
    """EVALSHA as the protocol wants it; the driver's own packer takes three times as long."""
    start = b"*%d\r\n%b$1\r\n%d\r\n" % (3 + len(keys) + len(args), script.command, len(keys))
    return _joined(start, (*keys, *args))


def packed_command(args: Sequence[Value]) -> bytes:
    """Any command as the protocol wants it."""
    return _joined(b"*%d\r\n" % len(args), args)


def _joined(start: bytes, args: Sequence[Value]) -> bytes:
    parts = [start]
    for arg in args:
        data = arg if isinstance(arg, bytes) else str(arg).encode()
        if len(data) > _COPIED:
            parts += (b"$%d\r\n" % len(data), data, b"\r\n")
        else:
            parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


async def _answer(connection: Any, command: bytes) -> Any:
    """Send a command and read the answer; errors of the server's are given back."""
    answers, reader = Answers(connection._parser.parse_error), connection._reader  # noqa: SLF001
    # Not drained: nothing else is sent before the answer is there.
    connection._writer.write(command)  # noqa: SLF001
    while True:
        piece = await reader.read(_PIECE)
        if not piece:
            raise driver.ConnectionError("the server closed the connection")
        answer = answers.take(piece)
        if isinstance(answer, driver.ConnectionError):
            raise answer  # as while it loads: another connection may find it ready
        if answer is not MORE:
            return answer


def _is_clean(connection: Any) -> bool:
    """Whether nobody closed or reset it, or sent what nobody asked for; not if that can't be seen."""
    reader: Any = getattr(connection, "_reader", None)
    unread: Any = getattr(reader, "_buffer", b"?")
    return not (unread or reader.at_eof() or reader.exception())
