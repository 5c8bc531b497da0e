"""One client for one Redis or Valkey, standalone or cluster, and what all stores on it share."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from redis import exceptions as driver
from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, SentinelConnectionPool
from redis.backoff import NoBackoff

from helix_temporal._setting_rules import SentinelAddress, is_sentinel, sentinel_address
from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.ids import decode_id, encode_id
from helix_temporal.stores._checksums import damaged
from helix_temporal.stores._home_loop import HomeLoop
from helix_temporal.stores.redis._deadlines import Deadlines
from helix_temporal.stores.redis._errors import has_moved, is_damage, translate
from helix_temporal.stores.redis._lane import Answer, Lane, Value, packed, packed_command
from helix_temporal.stores.redis._scripts import Script
from helix_temporal.stores.redis._sentinel import close_sentinels, sentinel_pool
from helix_temporal.stores.redis._tls import find_mismatch

logger = logging.getLogger(__name__)

Server = Redis | ClusterNode
"""One server that holds keys."""

T = TypeVar("T")

_OURS: Final = frozenset(
    {"decode_responses", "max_connections", "protocol", "socket_connect_timeout", "socket_timeout"}
)
"""Of a URL's options the driver would take these over what it is given here, and answers would be others."""

_LOOK_EVERY: Final = 1.0

_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:-]{0,64}")


class Connection:
    """A client that connects when it is first used, on the loop that runs then; see `HomeLoop`.

    Each operation has one deadline, from waiting for a connection to the last byte of the answer.  An
    operation that is cancelled or too late closes its connection, so an answer that nobody read never
    meets another question.  The driver repeats nothing: whoever calls knows what a repeat means.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``; options in it that say how to read and wait for
            answers, such as ``protocol``, have no effect.  Or that of sentinels,
            ``redis+sentinel://host:port[,host:port…]/service[/db]``: then each new connection goes to whoever
            is the service's primary.
        prefix: What all keys start with; ``[A-Za-z0-9_.:-]``, at most 64 characters.
        cluster: The address is one node of a Redis Cluster.
        timeout: Seconds for one operation.
        max_connections: At most so many operations at a time (in a cluster: for each node); more wait.

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
    ) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise InvalidConfigError("redis_prefix: [A-Za-z0-9_.:-] expected, at most 64 characters")
        self._sentinel = _sentinel(url, cluster=cluster)
        self.prefix = prefix
        self.cluster = cluster
        self.where = str(self._sentinel) if self._sentinel else _where(url)
        self._url = _without_ours(url)
        self._deadlines = Deadlines(timeout)
        self._max_connections = max_connections
        self._slots = asyncio.Semaphore(max_connections)
        self._home = HomeLoop(f"Redis at {self.where}")
        self._client: Redis | RedisCluster | None = None
        self._lane: Lane | None = None
        self._next_look = 0.0

    def key(self, thread_id: str) -> str:
        """The key of a thread's record; its braces are the cluster's hash tag."""
        return f"{self.prefix}{{{_encoded(thread_id)}}}"

    @property
    def follows_failovers(self) -> bool:
        """Sentinels say who the primary is."""
        return self._sentinel is not None

    async def find_tls_mismatch(self) -> str:
        """What to do, if the server speaks TLS and the URL does not say so, or the reverse; else empty."""
        parts = urlsplit(self._url)
        if self._sentinel or parts.hostname is None:
            return ""
        return await find_mismatch(parts.hostname, parts.port or 6379, tls=parts.scheme == "rediss")

    def place_of(self, key: str) -> str:
        """A key and the server that has it, for errors."""
        return f"key {key!r} in Redis at {self.where}"

    async def run(self, script: Script, keys: Sequence[str], *args: Value) -> Answer:
        """Run a script by its hash, or by its text where the server does not know it yet."""

        async def call(client: Redis | RedisCluster) -> Answer:
            try:
                if self._lane is not None:
                    reply: Answer = await self._lane.send(packed(script, keys, args))
                    return reply
                return await _answer(client, "EVALSHA", script.sha, len(keys), *keys, *args)
            except driver.NoScriptError:
                return await _answer(client, "EVAL", script.text, len(keys), *keys, *args)

        async def checked(client: Redis | RedisCluster) -> Answer:
            try:
                return await call(client)
            except driver.ResponseError as error:
                if (what := is_damage(error)) is None:
                    raise
                raise damaged(self.place_of(keys[0]), what, script=script.name) from error

        return await self.within_deadline(checked)

    async def block(self, key: str, *args: Value) -> Any:
        """Send one command on a key that waits on the server, for less than the deadline.

        Returns:
            The answer; in a cluster as the driver makes it, otherwise as the server gave it.
        """

        async def call(client: Redis | RedisCluster) -> Any:
            if self._lane is not None:
                return await self._lane.send(packed_command(args))
            # Named, since the driver would ask the server each time where the key is in the command.
            cluster: Any = client
            return await cluster.execute_command(*args, target_nodes=[cluster.get_node_from_key(key)])

        return await self.within_deadline(call)

    async def command(self, *args: Value, at: Server | None = None) -> Any:
        """Send one command, to the server of its key or to a given one."""

        async def call(client: Redis | RedisCluster) -> Any:
            return await (at or client).execute_command(*args)

        return await self.within_deadline(call)

    async def pipeline(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Send many commands on keys of one slot (any keys, standalone) and read all their answers."""

        async def call(client: Redis | RedisCluster) -> list[Any]:
            async with client.pipeline(transaction=False) as pipe:
                for args in commands:
                    pipe.execute_command(*args)
                return list(await pipe.execute())

        return await self.within_deadline(call)

    async def within_deadline(self, call: Callable[[Redis | RedisCluster], Coroutine[Any, Any, T]]) -> T:
        """Run ``call`` with the client, bounded in time and number.

        Raises:
            StoreUnavailableError: No answer in time, or one that says "not now".
            InvalidConfigError: Wrong rights, a cluster that was not announced, foreign keys; another loop
                uses the connection.
            UnsupportedServerError: The server refused a command for good.
        """
        if self._home.claim():
            self._begin_anew()
        try:
            with self._deadlines.one():
                async with self._slots:
                    client = self._client = self._client or self._made()
                    if isinstance(client, RedisCluster):
                        # Before it knows the slots the driver sends commands to any node, and closes all
                        # connections, also those in use, after five that were moved.
                        await client.initialize()
                    elif self._sentinel:
                        await self._follow(client.connection_pool)
                    return await call(client)
        except (driver.RedisError, driver.RedisClusterException, OSError) as error:
            if has_moved(error) or (self._sentinel and not isinstance(error, driver.ResponseError)):
                await self._let_go()
            raise translate(error, self.where) from error

    async def scan(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Batches of the keys of hashes that match, from every primary; a key may come twice."""
        for server in await self.primaries():
            cursor = 0
            while True:
                cursor, keys = await self.command(
                    "SCAN", cursor, "MATCH", pattern, "COUNT", 500, "TYPE", "hash", at=server
                )
                if keys:
                    yield keys
                if cursor == 0:
                    break

    def id_in(self, key: bytes, stored: bytes, suffix: str = "") -> str | None:
        """The id that has a key; where the record that should tell is damaged, what the key tells."""
        name, found = key.decode(), stored.decode("utf-8", "replace")
        if self.key(found) + suffix == name:
            return found
        told = decode_id(name[len(self.prefix) + 1 : -1 - len(suffix)])
        logger.error("Redis at %s: key %r does not say whose it is; it is damaged", self.where, name)
        return told

    async def primaries(self) -> list[Server]:
        """Every server that holds keys, for `command`."""

        async def call(client: Redis | RedisCluster) -> list[Server]:
            return [client] if isinstance(client, Redis) else [*client.get_primaries()]

        return await self.within_deadline(call)

    async def close(self) -> None:
        """Close all connections; the next use opens new ones."""
        if self._home.claim():
            self._begin_anew()
        client, self._client, self._lane = self._client, None, None
        self._home.leave()
        if client is not None:
            await client.aclose()
        if isinstance(client, Redis) and isinstance(client.connection_pool, SentinelConnectionPool):
            await close_sentinels(client.connection_pool)

    def _begin_anew(self) -> None:
        """Leave to the collector what an ended loop opened: only that loop could close it."""
        self._client = self._lane = None
        self._slots = asyncio.Semaphore(self._max_connections)
        self._next_look = 0.0

    async def _follow(self, pool: ConnectionPool) -> None:
        """Ask every second who the primary is, and leave a server that is not.

        One that was frozen, or was demoted to a replica, still answers reads, from an old copy.
        """
        now = asyncio.get_running_loop().time()
        if now < self._next_look or not isinstance(pool, SentinelConnectionPool):
            return
        self._next_look = now + _LOOK_EVERY
        try:
            finder: Any = pool  # the driver has no types for it
            await finder.get_master_address()  # the lane compares with what the pool knows
        except MasterNotFoundError:
            return  # the sentinels may be away while the primary is not

    async def _let_go(self) -> None:
        """Close the connections that nobody uses: the server is not the primary any more, or is gone."""
        if self._lane is not None and isinstance(self._client, Redis):
            pool = self._client.connection_pool
            await self._lane.let_go()
            await pool.disconnect(inuse_connections=False)

    def _made(self) -> Redis | RedisCluster:
        # The deadline is ours: one timer an operation instead of a task for each write.
        quiet: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": None, "protocol": 2}
        if self.cluster:
            return RedisCluster.from_url(
                self._url,
                max_connections=self._max_connections,
                retry=Retry(NoBackoff(), 0),
                reinitialize_steps=0,
                **quiet,
            )
        # Twice: those that wait in the lane count as in use.
        quiet |= {"max_connections": 2 * self._max_connections, "retry": Retry(NoBackoff(), 0)}
        pool: ConnectionPool
        if self._sentinel:
            pool = sentinel_pool(self._sentinel, **quiet)
        else:
            pool = ConnectionPool.from_url(self._url, **quiet)
        self._lane = Lane(pool)
        return Redis.from_pool(pool)


def _sentinel(url: str, *, cluster: bool) -> SentinelAddress | None:
    if not is_sentinel(url):
        return None
    if cluster:
        raise InvalidConfigError("redis_cluster: sentinels watch no cluster; unset it, or name a node")
    try:
        return sentinel_address(url)
    except ValueError as error:
        raise InvalidConfigError(f"redis_url: {error}") from None


def _where(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"redis", "rediss", "unix"}:
        raise InvalidConfigError("redis_url: redis://, rediss://, unix:// or redis+sentinel:// expected")
    return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"


def _without_ours(url: str) -> str:
    start, mark, query = url.partition("?")
    return start + mark + "&".join(each for each in query.split("&") if each.partition("=")[0] not in _OURS)


_encoded = lru_cache(4096)(encode_id)


async def _answer(client: Redis | RedisCluster, *args: Value) -> Answer:
    reply: Answer = await client.execute_command(*args)
    return reply


__all__ = ["Answer", "Connection", "Server", "Value"]
