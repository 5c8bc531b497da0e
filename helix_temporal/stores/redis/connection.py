"""One client for one Redis or Valkey: standalone, cluster or Sentinel; start-up checks, and errors."""

import asyncio
import contextlib
import logging
import re
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from redis import exceptions as driver
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from helix_temporal._setting_rules import SentinelAddress, is_sentinel, sentinel_address
from helix_temporal._tls_failures import TlsSettings, find_tls_failure, list_causes
from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    StoreUnavailableError,
    UnsafeRedisPolicyError,
    UnsupportedServerError,
)
from helix_temporal.models.ids import decode_id, encode_id
from helix_temporal.stores._home_loop import HomeLoop
from helix_temporal.stores.checksums import damaged_error
from helix_temporal.stores.redis.cluster import Cluster
from helix_temporal.stores.redis.scripts import Script

logger = logging.getLogger(__name__)

Server = Redis | ClusterNode
"""One server that holds keys."""

Value = str | bytes | int
"""What can be sent as an argument."""

Answer = bytes | list[bytes] | None
"""What a script answers."""

T = TypeVar("T")

_PASSING: Final = frozenset(
    {
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "NOREPLICAS",
        "OOM",
        "READONLY",
        "TRYAGAIN",
        "UNKILLABLE",
    }
)
"""Codes of states that end by themselves: a failover, a restart, memory that is given back."""

_STRIPPED: Final = {
    "AskError": "ASK",
    "BusyLoadingError": "LOADING",
    "ClusterCrossSlotError": "CROSSSLOT",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "MovedError": "MOVED",
    "NoPermissionError": "NOPERM",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "TryAgainError": "TRYAGAIN",
}
"""Codes that older drivers tell by the class alone."""

_RIGHTS: Final = frozenset({"NOAUTH", "NOPERM", "WRONGPASS"})
_NOT_PRIMARY: Final = frozenset({"LOADING", "MASTERDOWN", "READONLY"})
_CLUSTER: Final = frozenset({"ASK", "CROSSSLOT", "MOVED"})
_KNOWN: Final = _PASSING | _RIGHTS | _CLUSTER | {"WRONGTYPE"}
_LACKS: Final = re.compile("ACL failure in script|The user executing the script can't")
"""What servers say of rights within a script, without a code of its own."""
_COMMAND: Final = re.compile(r"the '([a-z0-9_|.-]+)' command")
_UNKNOWN: Final = re.compile(
    r"\bunknown (?:redis )?command(?: called from script| ['`]([A-Za-z0-9_.|-]{1,40})['`])", re.IGNORECASE
)
"""What servers say of a command that they lack, or that was taken away by ``rename-command``."""
_KEY: Final = re.compile(r"\b(access|permissions?)\b.*\bkeys?\b")
_IN_SCRIPT: Final = re.compile(r"user_script: ?\d+: -?([A-Z]+)?")


def translate_error(error: Exception, where: str) -> HelixError:
    """Our error for one of the driver's; texts of the server, which may quote arguments, stay out of it.

    Args:
        error: What the driver raised, or a time-out of our own.
        where: The server's address, without credentials.
    """
    name, code = type(error).__name__, _error_code(error)
    if code == "NOPERM":
        return InvalidConfigError(f"Redis at {where} refuses the user {_describe_missing_right(str(error))}")
    if code in _RIGHTS or isinstance(error, driver.AuthenticationError | driver.AuthorizationError):
        return InvalidConfigError(f"Redis at {where} refused the user or the password ({name})")
    if code in _PASSING:
        return StoreUnavailableError(f"Redis at {where} cannot answer now ({code}); repeat the call later")
    if (amiss := _find_wrong_setting(error, code)) is not None:
        return InvalidConfigError(f"Redis at {where} {amiss}")
    if not isinstance(error, driver.ResponseError | driver.DataError):
        return _no_answer_error(error, where)
    if unknown := _UNKNOWN.search(str(error)):
        return _unknown_command_error(where, unknown[1])
    return UnsupportedServerError(f"Redis at {where} refused a command ({code or name})")


_PROTECTED: Final = (
    "is in protected mode and takes only clients of its own machine; set a password in the server and in"
    " redis_url, or switch protected-mode off"
)


def _find_wrong_setting(error: Exception, code: str) -> str | None:
    """What a setting has wrong, by an error that says so."""
    if code in _CLUSTER:
        return "is a node of a cluster; set redis_cluster"
    if code == "WRONGTYPE":
        return "holds something else under a key of ours; give each application its own prefix"
    if isinstance(error, driver.RedisClusterException) and "not enabled" in str(error):
        return "is no cluster; unset redis_cluster"
    if code == "DENIED":
        return _PROTECTED
    if "DB index" in str(error):
        return "has no such database; correct the number in redis_url"
    return None


def _unknown_command_error(where: str, command: str | None) -> HelixError:
    if command is None:
        return UnsupportedServerError(
            f"Redis at {where} does not know a command of a script; the check at a worker's start names it"
        )
    if command.upper() == "SENTINEL":
        return InvalidConfigError(
            f"Redis at {where}: what redis_url names is a server and no sentinel; name the sentinels,"
            " or write redis://host:port"
        )
    return commands_disabled(where, [command.upper()])


def commands_disabled(where: str, names: Sequence[str]) -> UnsupportedServerError:
    """The server lacks commands that stores use."""
    return UnsupportedServerError(
        f"Redis at {where} does not know {', '.join(names)}; remove rename-command for it from the server's"
        " configuration, or use a server that has it",
        commands=" ".join(names),
    )


_TLS: Final = TlsSettings(
    files="ssl_ca_certs, ssl_certfile and ssl_keyfile in redis_url",
    trust="add ssl_ca_certs=<file> to redis_url",
    identify="add ssl_certfile=<file>&ssl_keyfile=<file> to redis_url",
)


def _no_answer_error(error: Exception, where: str) -> HelixError:
    for each in list_causes(error):
        if isinstance(each, MasterNotFoundError):
            return _no_primary_error(str(each), where)
    # A socket of Unix that is not there may come later.
    failure = None if where.startswith("/") else find_tls_failure(error, _TLS)
    if failure is not None:
        kind = StoreUnavailableError if failure.passes else InvalidConfigError
        return kind(f"Redis at {where} {failure.told}")
    if "cannot be connected" in str(error):
        return StoreUnavailableError(
            f"Redis at {where} did not answer, nor did any other known node; repeat the call later, or name "
            "another node of the cluster in redis_url"
        )
    return StoreUnavailableError(
        f"Redis at {where} did not answer ({type(error).__name__}); repeat the call later"
    )


def _no_primary_error(text: str, where: str) -> StoreUnavailableError:
    if "AuthenticationError" in text:
        return StoreUnavailableError(
            f"Redis at {where}: a sentinel asks for a password of its own, which is not supported; take"
            " requirepass from the sentinels, or name the primary by redis://"
        )
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return StoreUnavailableError(
            f"Redis at {where}: a sentinel shows a certificate that is not trusted here; add its CA to those"
            " of this machine (SSL_CERT_FILE)"
        )
    return StoreUnavailableError(
        f"Redis at {where}: no sentinel that answers knows a primary of this service; check the"
        " service's name and the sentinels' addresses in redis_url, or repeat the call later"
    )


def has_moved(error: Exception) -> bool:
    """Whether the server says that it is not the primary, or not yet ready to be one.

    A new connection to the same address may then lead to another server.
    """
    return _error_code(error) in _NOT_PRIMARY


def is_damage(error: driver.ResponseError) -> str | None:
    """What a script found damaged; None if it did not end by that.

    A script that stumbles over a value that is no number, or shorter than it should be, found damage, too.
    """
    text = str(error)
    if not _IN_SCRIPT.search(text) or _error_code(error) in _KNOWN or _UNKNOWN.search(text):
        return None
    if torn := re.search(r"TORN at position (\d+)", text):
        return f"it lacks the message at position {torn[1]}"
    if found := re.search(r"DAMAGED (\w+)", text):
        return f"the checksum of its {found[1]} is wrong"
    return "a value is not what a script expects there"


def _describe_missing_right(text: str) -> str:
    """What a right is missing for, and how to grant it."""
    if command := _COMMAND.search(text):
        return f"{command[1].upper()}; grant: ACL SETUSER <user> +{command[1]}"
    if _KEY.search(text):
        return "a key; grant all that begin with the prefix: ACL SETUSER <user> ~<redis_prefix>*"
    return "a command of a script; the check at a worker's start names it"


def _error_code(error: Exception) -> str:
    """The code that the server's error began with; the driver strips those that it knows.

    Of an error within a script, Redis 6 tells the code of the command behind the place in the script.
    """
    stripped: object = getattr(error, "status_code", None)
    if isinstance(stripped, str) and stripped != "ERR":
        return stripped
    text = str(error)
    if _LACKS.search(text):
        return "NOPERM"
    for within in _IN_SCRIPT.findall(text):
        if within in _KNOWN:
            return str(within)
    return _STRIPPED.get(type(error).__name__) or text.split(" ", 1)[0]


_SENTINEL_SECONDS: Final = 1.0
"""For one sentinel; then the next one is asked, within the deadline of the operation."""


class _Pool(ConnectionPool):
    """A pool that hands out no connection which was reset while nobody used it.

    The driver looks for what is unread and for the end alone.
    """

    async def ensure_connection(self, connection: Any) -> None:
        reader: Any = getattr(connection, "_reader", None)
        if reader is not None and reader.exception() is not None:
            await connection.disconnect(nowait=True)
        await super().ensure_connection(connection)

    async def close_idle(self) -> None:
        """Close what nobody uses; not waiting for the server, which may be gone."""
        for connection in [*self._available_connections]:
            await connection.disconnect(nowait=True)


class _SentinelPool(_Pool, SentinelConnectionPool):
    """A pool that asks the sentinels for the primary whenever it connects.

    From then on it hands out no connection to the old one: two servers at once would each know of some of
    the writes alone.
    """

    master_address: tuple[str, int] | None

    async def ensure_connection(self, connection: Any) -> None:
        if self.master_address not in {None, (connection.host, connection.port)}:
            await connection.disconnect(nowait=True)
        await super().ensure_connection(connection)


class _Sentinels(Sentinel):
    """Sentinels that are asked by one task at a time.

    The driver moves the one that answered to the front of its list while others walk through it: of several
    tasks some put one sentinel there twice and lose another, unclosed, until too few are left to be asked.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]
        self._asking = asyncio.Lock()

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        async with self._asking:
            found: tuple[str, int] = await super().discover_master(service_name)
            return found


def sentinel_pool(address: SentinelAddress, **options: Any) -> SentinelConnectionPool:
    """A pool that asks the sentinels for the primary whenever it connects.

    Args:
        address: What a URL says of sentinels, service and user.
        options: Of the connections to the primary.
    """
    sentinel = _Sentinels(
        address.hosts,
        sentinel_kwargs={
            "socket_timeout": _SENTINEL_SECONDS,
            "socket_connect_timeout": _SENTINEL_SECONDS,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "ssl": address.tls,
        },
    )
    make: Any = _SentinelPool  # the driver has no types for it
    pool: SentinelConnectionPool = make(
        address.service,
        sentinel,
        ssl=address.tls,
        db=address.db,
        username=address.username,
        password=address.password,
        **options,
    )
    return pool


async def close_sentinels(pool: SentinelConnectionPool) -> None:
    """Close the connections to the sentinels; the pool's own are closed with the pool."""
    for sentinel in pool.sentinel_manager.sentinels:
        await sentinel.aclose()


_SECONDS: Final = 2.0
_FIRST_BYTES: Final = (b"+", b"-")
"""Of any answer to PING, also to a user who may not."""


async def find_mismatch(host: str, port: int, *, tls: bool) -> str:
    """What is wrong with the URL, and what to do; empty if that is not it.

    Args:
        host: Of the server.
        port: Of the server.
        tls: The URL says that it speaks TLS.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            if tls and await _speaks_plainly(host, port):
                return (
                    "speaks without TLS, and redis_url says rediss://; name its TLS port, or write redis://"
                )
            if not tls and await _is_protected(host, port):
                return _PROTECTED
            if not tls and await _speaks_tls(host, port):
                return "speaks TLS, and redis_url says redis://; write rediss://, or name its plain port"
    except (OSError, TimeoutError):
        # Neither is told of a server that is not there.
        return ""
    return ""


async def _speaks_plainly(host: str, port: int) -> bool:
    async with _open_connection(host, port, None) as (reader, writer):
        writer.write(b"PING\r\n")
        return await reader.read(1) in _FIRST_BYTES


async def _is_protected(host: str, port: int) -> bool:
    """Whether it says so and closes, which the driver takes for a connection that was lost."""
    async with _open_connection(host, port, None) as (reader, writer):
        writer.write(b"PING\r\n")
        try:
            async with asyncio.timeout(_SECONDS / 4):
                return (await reader.read(7)).startswith(b"-DENIED")
        except (OSError, TimeoutError):
            return False  # what speaks TLS waits, or closes


async def _speaks_tls(host: str, port: int) -> bool:
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent: whose certificate it is does not matter.
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    async with _open_connection(host, port, unchecked):
        return True


@contextlib.asynccontextmanager
async def _open_connection(
    host: str, port: int, context: ssl.SSLContext | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


_OURS: Final = frozenset(
    {"decode_responses", "max_connections", "protocol", "socket_connect_timeout", "socket_timeout"}
)
"""Of a URL's options the driver would take these over what it is given here, and answers would be others."""

_LOOK_EVERY: Final = 1.0

_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:-]{0,64}")


class RedisConnection:
    """A client that connects when it is first used, on the loop that runs then; see `HomeLoop`.

    Each operation has one deadline, from waiting for a connection to the last byte of the answer.  An
    operation that is cancelled or too late closes its connection (the driver does), so an answer that nobody
    read never meets another question.  The driver repeats nothing: whoever calls knows what a repeat means.

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
        self._sentinel = _parse_sentinel_url(url, cluster=cluster)
        self.prefix = prefix
        self.cluster = cluster
        self.where = str(self._sentinel) if self._sentinel else _server_address(url, cluster=cluster)
        self._url = _without_ours(url)
        self._timeout = timeout
        self._max_connections = max_connections
        self._slots = asyncio.Semaphore(max_connections)
        self._home = HomeLoop(f"Redis at {self.where}")
        self._client: Redis | Cluster | None = None
        self._next_look = 0.0

    def key_of(self, thread_id: str) -> str:
        """The key of a hot thread; its braces are the cluster's hash tag."""
        return f"{self.prefix}{{{_encoded(thread_id)}}}"

    @property
    def follows_failovers(self) -> bool:
        """Sentinels, or the nodes of a cluster, say who the primary is."""
        return self.cluster or self._sentinel is not None

    async def find_mismatch(self) -> str:
        """What is wrong with the URL, or with the server's mode, and what to do; empty if that is not it."""
        parts = urlsplit(self._url)
        if self._sentinel or parts.hostname is None:
            return ""
        return await find_mismatch(parts.hostname, parts.port or 6379, tls=parts.scheme == "rediss")

    def place_of(self, key: str) -> str:
        """A key and the server that has it, for errors."""
        return f"key {key!r} in Redis at {self.where}"

    async def run_script(self, script: Script, keys: Sequence[str], *args: Value) -> Answer:
        """Run a script by its hash, or by its text where the server does not know it yet."""

        async def call(client: Redis | Cluster) -> Answer:
            try:
                return await _evaluate_script(client, script, keys, args)
            except driver.ResponseError as error:
                if (what := is_damage(error)) is None:
                    raise
                raise damaged_error(self.place_of(keys[0]), what, script=script.name) from error

        return await self.within_deadline(call)

    async def send_to_owner(self, key: str, *args: Value) -> Any:
        """Send one command to the server that has a key; it may wait there, for less than the deadline."""

        async def call(client: Redis | Cluster) -> Any:
            sender: Any = client
            # Named, since the driver would ask the server each time where the key is in the command, if any.
            node = {"target_nodes": [sender.get_node_from_key(key)]} if self.cluster else {}
            return await sender.execute_command(*args, **node)

        return await self.within_deadline(call)

    async def send_command(self, *args: Value, at: Server | None = None) -> Any:
        """Send one command, to the server of its key or to a given one."""

        async def call(client: Redis | Cluster) -> Any:
            return await (at or client).execute_command(*args)

        return await self.within_deadline(call)

    async def send_pipeline(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Send many commands on keys of one slot (any keys, standalone) and read all their answers."""

        async def call(client: Redis | Cluster) -> list[Any]:
            async with client.pipeline(transaction=False) as pipe:
                for args in commands:
                    pipe.execute_command(*args)
                return list(await pipe.execute())

        return await self.within_deadline(call)

    async def within_deadline(self, call: Callable[[Redis | Cluster], Coroutine[Any, Any, T]]) -> T:
        """Run ``call`` with the client, bounded in time and number.

        Raises:
            StoreUnavailableError: No answer in time, or one that says "not now".
            InvalidConfigError: Wrong rights, a cluster that was not announced, foreign keys; another loop
                uses the connection.
            UnsupportedServerError: The server refused a command for good.
        """
        if self._home.claim_loop():
            self._begin_anew()
        try:
            async with asyncio.timeout(self._timeout), self._slots:
                client = self._client = self._client or self._make_client()
                if isinstance(client, Cluster):
                    await client.follow_layout()
                elif self._sentinel:
                    await self._follow_primary(client.connection_pool)
                return await call(client)
        except (driver.RedisError, driver.RedisClusterException, OSError) as error:
            if has_moved(error) or (self._sentinel and not isinstance(error, driver.ResponseError)):
                await self._close_idle()
            ours = translate_error(error, self.where)
            if isinstance(self._client, Cluster) and isinstance(ours, StoreUnavailableError):
                self._client.doubt_layout()
            raise ours from error

    async def scan(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Batches of the keys of hashes that match, from every primary; a key may come twice."""
        cursor: str | None = None
        while True:
            keys, cursor = await self.scan_page(pattern, cursor, 500)
            if keys:
                yield keys
            if cursor is None:
                break

    async def scan_page(self, pattern: str, cursor: str | None, count: int) -> tuple[list[bytes], str | None]:
        """Some of these keys, and the cursor of the next ones: the number of a primary, and that one's own.

        Where primaries come or go meanwhile keys may be missed.
        """
        number, at = (int(each) for each in (cursor or "0 0").split())
        servers = await self.list_primaries()
        if number >= len(servers):
            return [], None
        following, keys = await self.send_command(
            "SCAN", at, "MATCH", pattern, "COUNT", count, "TYPE", "hash", at=servers[number]
        )
        number += not int(following)
        return keys, None if number == len(servers) else f"{number} {int(following)}"

    def id_in(self, key: bytes, stored: bytes, suffix: str = "") -> str | None:
        """The id that has a key; where the hot thread that should tell is damaged, what the key tells."""
        name, found = key.decode(), stored.decode("utf-8", "replace")
        if self.key_of(found) + suffix == name:
            return found
        told = decode_id(name[len(self.prefix) + 1 : -1 - len(suffix)])
        logger.error("Redis at %s: key %r does not say whose it is; it is damaged", self.where, name)
        return told

    async def list_primaries(self) -> list[Server]:
        """Every server that holds keys at this moment, for `send_command`."""

        async def call(client: Redis | Cluster) -> list[Server]:
            if isinstance(client, Redis):
                return [client]
            client.doubt_layout(at_once=True)
            await client.follow_layout()
            nodes = {node.name: node for node in client.get_primaries()}
            return [nodes[name] for name in sorted(nodes)]

        return await self.within_deadline(call)

    async def close(self) -> None:
        """Close all connections; the next use opens new ones."""
        if self._home.claim_loop():
            self._begin_anew()
        client, self._client = self._client, None
        self._home.release_loop()
        if client is not None:
            await client.aclose()
        if isinstance(client, Redis) and isinstance(client.connection_pool, SentinelConnectionPool):
            await close_sentinels(client.connection_pool)

    def _begin_anew(self) -> None:
        """Leave to the collector what an ended loop opened: only that loop could close it."""
        self._client = None
        self._slots = asyncio.Semaphore(self._max_connections)
        self._next_look = 0.0

    async def _follow_primary(self, pool: ConnectionPool) -> None:
        """Ask every second who the primary is, and leave a server that is not.

        One that was frozen, or was demoted to a replica, still answers reads, from an old copy.
        """
        now = asyncio.get_running_loop().time()
        if now < self._next_look or not isinstance(pool, SentinelConnectionPool):
            return
        self._next_look = now + _LOOK_EVERY
        try:
            finder: Any = pool  # the driver has no types for it
            await finder.get_master_address()  # the pool keeps it, and leaves connections to others
        except MasterNotFoundError:
            return  # the sentinels may be away while the primary is not

    async def _close_idle(self) -> None:
        """Close the connections that nobody uses: the server is not the primary any more, or is gone."""
        if isinstance(self._client, Redis) and isinstance(self._client.connection_pool, _Pool):
            await self._client.connection_pool.close_idle()

    def _make_client(self) -> Redis | Cluster:
        options: dict[str, Any] = {
            "max_connections": self._max_connections,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            # The deadline is ours: one timer an operation instead of a task for each write.
            "socket_connect_timeout": None,
            "socket_timeout": None,
        }
        if self.cluster:
            made: Any = Cluster.from_url(self._url, reinitialize_steps=0, **options)
            assert isinstance(made, Cluster)
            return made
        if self._sentinel:
            return Redis.from_pool(sentinel_pool(self._sentinel, **options))
        return Redis.from_pool(_Pool.from_url(self._url, **options))


def _parse_sentinel_url(url: str, *, cluster: bool) -> SentinelAddress | None:
    if not is_sentinel(url):
        return None
    if cluster:
        raise InvalidConfigError("redis_cluster: sentinels watch no cluster; unset it, or name a node")
    try:
        return sentinel_address(url)
    except ValueError as error:
        raise InvalidConfigError(f"redis_url: {error}") from None


def _server_address(url: str, *, cluster: bool) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"redis", "rediss", "unix"}:
        raise InvalidConfigError("redis_url: redis://, rediss://, unix:// or redis+sentinel:// expected")
    address = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"
    # The node that does not answer may be another one.
    return f"{address} (cluster)" if cluster else address


def _without_ours(url: str) -> str:
    start, mark, query = url.partition("?")
    return start + mark + "&".join(each for each in query.split("&") if each.partition("=")[0] not in _OURS)


_encoded = lru_cache(4096)(encode_id)


async def _evaluate_script(
    client: Redis | Cluster, script: Script, keys: Sequence[str], args: Sequence[Value]
) -> Answer:
    answer: Answer
    try:
        answer = await client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
    except driver.NoScriptError:
        # The server then knows its hash, too.
        answer = await client.execute_command("EVAL", script.text, len(keys), *keys, *args)
    return answer


NEEDED: Final = (
    "EXISTS KEY",
    "HDEL KEY f",
    "HEXISTS KEY f",
    "HGET KEY f",
    "HKEYS KEY",
    "HLEN KEY",
    "HMGET KEY f",
    "HSCAN KEY 0",
    "HSET KEY f v f",
    "HSETNX KEY f v",
    "HVALS KEY",
    "PERSIST KEY",
    "PEXPIRE KEY 1000",
    "PEXPIREAT KEY 1",
    "PTTL KEY",
    "RENAME KEY KEY",
    "SCAN 0 COUNT 1",
    "TIME",
    "UNLINK KEY",
    "XADD KEY - f v",
    "XRANGE KEY - + COUNT 1",
    "XREAD COUNT 1 STREAMS KEY 0",
    "XTRIM KEY MAXLEN 1",
    "ZADD KEY - m",
    "ZCARD KEY",
    "ZLEXCOUNT KEY - +",
    "ZRANGEBYLEX KEY - +",
    "ZRANGEBYSCORE KEY 0 1",
    "ZREM KEY m",
    "ZREVRANGEBYLEX KEY + -",
    "ZSCAN KEY 0",
    "ZSCORE KEY m",
)
"""A harmless call of each command that stores use, beside EVAL, EVALSHA and INFO.

The server looks at rights before it looks at values: some of these fail, so that they write nothing.  What
the others write is gone at the end.
"""

_TRY: Final = Script(
    "rights",
    """local refused, unknown = {}, {}
local function says(told, signs)
  for _, sign in ipairs(signs) do
    if string.find(told, sign, 1, true) then return true end
  end
  return false
end
for _, call in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(call, '%S+') do words[#words + 1] = word == 'KEY' and KEYS[1] or word end
  local reply = redis.pcall(unpack(words))
  local told = type(reply) == 'table' and reply.err or ''
  if says(told, {'NOPERM', 'ACL failure', 'The user executing the script'}) then
    refused[#refused + 1] = words[1]
  elseif says(string.lower(told), {'unknown redis command', 'unknown command'}) then
    unknown[#unknown + 1] = words[1]
  end
end
return {refused, unknown}
""",
)


async def check_rights(connection: RedisConnection) -> None:
    """Try every command that the stores use, as the scripts run them, on a key that nothing else uses.

    It works for a user who may not ask what it may do.

    Raises:
        InvalidConfigError: The user lacks some; it names them, and what to grant.
        UnsupportedServerError: The server lacks some, perhaps by ``rename-command``; it names them.
    """
    # No id's form has a colon.
    key = f"{connection.prefix}{{:check}}:rights"
    # By its text first, so that the server then knows its hash.
    refused, unknown = await connection.send_command("EVAL", _TRY.text, 1, key, *NEEDED)
    await connection.run_script(_TRY, [key], "TIME")
    if unknown:
        raise commands_disabled(connection.where, [each.decode() for each in unknown])
    if refused:
        names = [each.decode() for each in refused]
        raise InvalidConfigError(
            f"Redis at {connection.where} refuses the user {', '.join(names)}; grant:"
            f" ACL SETUSER <user> {' '.join(f'+{each.lower()}' for each in names)}",
            commands=" ".join(names),
        )


_OLDEST: Final = (6, 0)
_SAFE: Final = frozenset({"noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"})


async def check_server(connection: RedisConnection, *, expiring: bool = False) -> bool:
    """Ask every primary; whether all of them keep an append-only file, so that what they acknowledge lasts.

    Args:
        connection: To all of it.
        expiring: Records of several keys have a time to live, so that no key at all may be evicted.

    Raises:
        UnsafeRedisPolicyError: It may evict keys without a time to live, or does not tell; with
            ``expiring``: it may evict any.
        UnsupportedServerError: It is older than Redis 6, a replica, or lacks Lua's ``struct`` or a command.
        InvalidConfigError: It is a node of a cluster that was not announced as one, or a sentinel, or the
            reverse; or the user lacks rights; or it speaks TLS and the URL does not say so, or the reverse;
            or it is in protected mode.
        StoreUnavailableError: It does not answer.
    """
    try:
        return await _check_primaries(connection, expiring=expiring)
    except StoreUnavailableError as error:
        wrong = await connection.find_mismatch()
        if not wrong:
            raise
        raise InvalidConfigError(f"Redis at {connection.where} {wrong}") from error


async def _check_primaries(connection: RedisConnection, *, expiring: bool) -> bool:
    durable = True
    for server in await connection.list_primaries():
        info = await connection.send_command("INFO", at=server)
        if not isinstance(info, dict):
            raise UnsupportedServerError(f"Redis at {connection.where}: INFO is not what it should be")
        if "sentinel" in {info.get("redis_mode"), info.get("server_mode")}:
            raise InvalidConfigError(
                f"Redis at {connection.where} is a sentinel; write"
                " redis+sentinel://<its address>/<name of the service>"
            )
        _check_version(connection, info)
        if info.get("cluster_enabled") and not connection.cluster:
            raise InvalidConfigError(f"Redis at {connection.where} is a node of a cluster; set redis_cluster")
        policy = info.get("maxmemory_policy") or await _configured_policy(connection, server)
        refuse_unsafe_policy(connection.where, str(policy))
        if expiring and policy != "noeviction":
            raise UnsafeRedisPolicyError(
                f"Redis at {connection.where}: maxmemory-policy {policy!r} may evict a part of a session "
                "that has a time to live; set it to noeviction, or unset the time to live of sessions",
                policy=str(policy),
            )
        durable = durable and str(info.get("aof_enabled")) == "1"
    await check_rights(connection)
    await _check_scripts(connection)
    return durable


def refuse_unsafe_policy(where: str, policy: str) -> None:
    """Refuse every eviction policy that is not known to spare keys without a time to live.

    Raises:
        UnsafeRedisPolicyError: It names the policy and the ones to choose from.
    """
    if policy not in _SAFE:
        raise UnsafeRedisPolicyError(
            f"Redis at {where}: maxmemory-policy {policy!r} may evict unarchived threads; "
            "set it to noeviction or one of volatile-*",
            policy=policy,
        )


def _check_version(connection: RedisConnection, info: dict[str, Any]) -> None:
    where = connection.where
    version = str(info.get("redis_version", ""))
    found = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if found < _OLDEST:
        raise UnsupportedServerError(f"Redis at {where}: version {version or 'unknown'}, at least 6.0 needed")
    if info.get("role") == "slave":
        if connection.follows_failovers:
            raise StoreUnavailableError(
                f"Redis at {where} is a replica since a moment; repeat the call later"
            )
        raise UnsupportedServerError(f"Redis at {where} is a replica and takes no writes; name the primary")


async def _configured_policy(connection: RedisConnection, server: Server) -> object:
    try:
        found = await connection.send_command("CONFIG GET", "maxmemory-policy", at=server)
    except HelixError as error:
        raise UnsafeRedisPolicyError(
            f"Redis at {connection.where} tells its maxmemory-policy neither by INFO nor by CONFIG"
        ) from error
    return found.get("maxmemory-policy", "unknown") if isinstance(found, dict) else "unknown"


async def _check_scripts(connection: RedisConnection) -> None:
    key = connection.key_of("check")
    answer = await connection.send_command("EVAL", "return struct.pack('>I4', 1)", 1, key)
    if answer != b"\0\0\0\1":
        raise UnsupportedServerError(f"Redis at {connection.where}: Lua's struct library is missing")
