"""The door to everything on one Redis."""

from typing import Final

from helix_temporal.models.streams import DEFAULT_LIMITS, StreamLimits
from helix_temporal.stores.protocols.server_facts import RedisFacts
from helix_temporal.stores.redis.connection import RedisConnection
from helix_temporal.stores.redis.facts import read_facts
from helix_temporal.stores.redis.locks import RedisLocks
from helix_temporal.stores.redis.payloads import RedisPayloads
from helix_temporal.stores.redis.sessions import RedisSessions
from helix_temporal.stores.redis.streams import RedisStreams
from helix_temporal.stores.redis.threads import RedisThreads
from helix_temporal.stores.redis.usage import RedisUsage
from helix_temporal.stores.streams.reader import LONGEST_WAIT

_MOST_READ: Final = 1024
"""Streams that one process reads at a time; readers of more of them wait."""


class RedisBackend:
    """One Redis or Valkey, standalone or cluster: all stores on it over one client.

    Nothing is connected until the first use, on the loop that runs then.

    Args:
        url: ``redis://``, ``rediss://``, ``unix://``, or of sentinels: ``redis+sentinel://host:port[,host:port…]/service``.
        prefix: What all keys start with; ``[A-Za-z0-9_.:-]``, at most 64 characters.
        cluster: The address is one node of a Redis Cluster.
        timeout: Seconds for one operation.
        max_connections: At most so many operations at a time; more wait.
        session_ttl: Seconds that a session is kept after its last commit; see `RedisSessions`.
        stream_limits: What is kept of streams.

    Raises:
        InvalidConfigError: The prefix or the URL is not acceptable.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "helix:",
        cluster: bool = False,
        timeout: float = 5.0,
        max_connections: int = 64,
        session_ttl: float | None = None,
        stream_limits: StreamLimits = DEFAULT_LIMITS,
    ) -> None:
        self._connection = RedisConnection(
            url, prefix=prefix, cluster=cluster, timeout=timeout, max_connections=max_connections
        )
        self.threads = RedisThreads(self._connection)
        self.payloads = RedisPayloads(self._connection)
        self.sessions = RedisSessions(self._connection, session_ttl=session_ttl)
        self.locks = RedisLocks(self._connection)
        self.usage = RedisUsage(self._connection)
        # Reads that wait take a connection each, for as long as they wait.
        blocking = RedisConnection(
            url, prefix=prefix, cluster=cluster, timeout=timeout + LONGEST_WAIT, max_connections=_MOST_READ
        )
        self.streams = RedisStreams(self._connection, blocking, stream_limits)

    async def check(self) -> None:
        """Refuse a server that would lose data; see `HotTier.check` and `SessionRows.check`."""
        await self.sessions.check()

    async def read_facts(self) -> RedisFacts:
        """What the server says of itself; changes nothing."""
        return await read_facts(self._connection)

    async def close(self) -> None:
        """Close all connections."""
        await self.streams.close()
        await self._connection.close()
