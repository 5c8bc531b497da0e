"""Redis whose primary is another one from now on: sentinels, and an address behind which it changes."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis
from redis.asyncio.sentinel import MasterNotFoundError

from helix_temporal._setting_rules import sentinel_address
from helix_temporal.devstack import Valkey, start_valkey
from helix_temporal.errors import InvalidConfigError, StoreUnavailableError
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.redis.connection import sentinel_pool, translate_error
from helix_temporal.testing.builders import grown, messages
from tests._sentinel import SERVICE, Watched, watched
from tests.unit.stores._redis import backend_on, pool_of

LOG = messages(4)


@pytest.fixture(scope="module")
def servers() -> Iterator[Watched]:
    """A primary, a replica and three sentinels."""
    with watched() as servers:
        yield servers


async def patiently(backend: RedisBackend, thread_id: str) -> list[str]:
    """Read as an activity does: again, while the error says that it may help."""
    async with asyncio.timeout(30):
        while True:
            try:
                snapshot = await backend.threads.read_snapshot(thread_id, 0)
            except StoreUnavailableError:
                await asyncio.sleep(0.05)
                continue
            assert snapshot is not None
            return [message.id for message in snapshot.messages]


@pytest.mark.parametrize("how", ["kill", "freeze", "ask"])
async def test_after_a_failover_the_new_primary_is_used(servers: Watched, how: str) -> None:
    """All stores of a backend find it, with no other address than before."""
    async with backend_on(servers.url, f"{how}:", timeout=2.0) as backend:
        await backend.check()
        await grown(backend.threads, "t", LOG)
        await asyncio.gather(*(backend.threads.read_header("t") for _ in range(20)))
        await asyncio.to_thread(servers.wait_until_level)
        before = servers.primary
        with stopped(servers, before, how):
            await asyncio.to_thread(servers.wait_for_another, before)
            assert await patiently(backend, "t") == [message.id for message in LOG]
            lock = await backend.locks.acquire("l")
        assert lock is not None
        await asyncio.to_thread(wait_until_replica, before)
        # The old one is a replica now: who still has connections to it must not stay there.
        assert await patiently(backend, "t") == [message.id for message in LOG]


async def test_from_the_first_that_hears_of_it_nobody_uses_the_old_primary(servers: Watched) -> None:
    """Two servers at once would each have some of the writes alone."""
    async with backend_on(servers.url, "two:", timeout=2.0) as backend:
        await grown(backend.threads, "t", LOG)
        await asyncio.gather(*(backend.threads.read_header("t") for _ in range(20)))
        await asyncio.to_thread(servers.wait_until_level)
        before = servers.primary
        servers.ask("SENTINEL", "FAILOVER", SERVICE)
        await asyncio.to_thread(servers.wait_until_all_name_another, before)
        backend._connection._next_look = float("inf")  # nobody asks but who connects
        pool = pool_of(backend)
        assert {each.port for each in pool._available_connections} == {before.port}
        # One that is in use just now: the driver closes only those that are not.
        used = await pool.get_connection()
        await pool._available_connections[-1].disconnect()
        await backend._connection.send_command("PING")  # over a new connection
        await pool.release(used)
        await asyncio.gather(*(backend.threads.read_header("t") for _ in range(20)))
        connected = [each for each in pool._available_connections if each.is_connected]
        assert {each.port for each in connected} == {servers.primary.port}
        await asyncio.to_thread(wait_until_replica, before)


class Told:
    """A sentinel as the driver asks it: away, or knowing the primary."""

    def __init__(self, *, away: bool) -> None:
        self._away = away

    async def sentinel_masters(self) -> dict[str, dict[str, object]]:
        """What `SENTINEL MASTERS` answers, after a while."""
        await asyncio.sleep(0)
        if self._away:
            raise redis.ConnectionError
        primary = {"is_master": True, "is_sdown": False, "is_odown": False, "num-other-sentinels": 2}
        return {"helix": {**primary, "ip": "10.0.0.1", "port": 6379}}


async def test_no_sentinel_is_forgotten_by_those_who_ask_at_once() -> None:
    """After a failover every connection asks; the driver alone lost those that did not answer."""
    pool: Any = sentinel_pool(sentinel_address("redis+sentinel://a,b,c/helix/0"))
    told = pool.sentinel_manager.sentinels = [Told(away=True), Told(away=False), Told(away=False)]
    before = set(told)
    found = await asyncio.gather(*(pool.get_master_address() for _ in range(8)))
    assert set(found) == {("10.0.0.1", 6379)}
    assert set(pool.sentinel_manager.sentinels) == before


@contextlib.contextmanager
def stopped(servers: Watched, server: Valkey, how: str) -> Iterator[None]:
    """Take the primary away, and give it back at the end."""
    if how == "kill":
        server.stop(kill=True)
        try:
            yield
        finally:
            server.start()
    elif how == "freeze":
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(server.pid, signal.SIGCONT)
    else:
        servers.ask("SENTINEL", "FAILOVER", SERVICE)
        yield


def wait_until_replica(server: Valkey) -> None:
    """Wait until the sentinels have made it follow the new primary."""
    end = time.monotonic() + 60
    while not _is_replica(server):
        assert time.monotonic() < end, "the old primary stays one"
        time.sleep(0.1)


def _is_replica(server: Valkey) -> bool:
    try:
        return "role:slave" in str(server.ask("INFO", "replication"))
    except redis.ConnectionError:
        return False  # the very moment in which it becomes one: it closes its connections


class Door:
    """An address behind which there is another server from some moment on, as a load balancer's."""

    def __init__(self, target: Valkey) -> None:
        self.target, self.port = target, 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", self.target.port)
        for source, sink in ((reader, to), (there, writer)):
            task = asyncio.create_task(_pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            sink.write(data)
    sink.close()


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    """It leads to a server that becomes a replica of another one."""
    with start_valkey() as first:
        door = Door(first)
        listening = await asyncio.start_server(door._accept, "127.0.0.1", 0)
        door.port = listening.sockets[0].getsockname()[1]
        yield door
        listening.close()


async def test_a_fixed_address_leads_to_the_new_primary(door: Door) -> None:
    """Connections to a server that became read-only are not used for ever."""
    with start_valkey() as second:
        async with backend_on(f"redis://127.0.0.1:{door.port}/0") as backend:
            await asyncio.gather(*(grown(backend.threads, f"t{each}", LOG) for each in range(5)))
            await backend._connection.send_pipeline([("SET", "x", 1)])
            door.target.ask("REPLICAOF", "127.0.0.1", second.port)
            door.target = second
            with pytest.raises(StoreUnavailableError, match="READONLY"):
                await grown(backend.threads, "new", LOG)
            await asyncio.gather(*(grown(backend.threads, f"new{each}", LOG) for each in range(5)))
            await backend._connection.send_command("SET", "x", 2)


async def test_a_command_through_the_driver_moves_on_as_well(door: Door) -> None:
    """Not only scripts: payloads and usage take the driver's own way."""
    with start_valkey() as second:
        async with backend_on(f"redis://127.0.0.1:{door.port}/0") as backend:
            await backend.payloads.put_payload("t", "k", b"1", 60)
            door.target.ask("REPLICAOF", "127.0.0.1", second.port)
            door.target = second
            with pytest.raises(StoreUnavailableError, match="READONLY"):
                await backend.payloads.put_payload("t", "k", b"2", 60)
            await backend.payloads.put_payload("t", "k", b"3", 60)
            assert await backend.payloads.get_payload("t", "k") == b"3"


async def test_sentinels_and_a_cluster_exclude_each_other() -> None:
    """Said where it is set."""
    with pytest.raises(InvalidConfigError, match="redis_cluster"):
        RedisBackend("redis+sentinel://localhost/helix", cluster=True)


async def test_a_service_that_nobody_knows_is_told(servers: Watched) -> None:
    """A misspelt name must not look like a dead server alone."""
    async with backend_on(servers.url.replace("/helix", "/other"), timeout=2.0) as backend:
        with pytest.raises(StoreUnavailableError, match=r"other \(sentinels .*the service's name"):
            await backend.check()


async def test_a_sentinel_with_a_password_is_told(servers: Watched) -> None:
    """The URL's password is that of the servers; a sentinel's own is not supported."""
    host, port = sentinel_address(servers.url).hosts[0]
    with redis.Redis(host, port) as sentinel:
        sentinel.execute_command("ACL", "SETUSER", "default", "resetpass", ">secret")
        try:
            async with backend_on(f"redis+sentinel://{host}:{port}/{SERVICE}", timeout=2.0) as backend:
                with pytest.raises(StoreUnavailableError, match=r"password of its own, .* not supported"):
                    await backend.check()
        finally:
            sentinel.execute_command("ACL", "SETUSER", "default", "nopass")


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("ConnectionError('[SSL: CERTIFICATE_VERIFY_FAILED] self-signed secret')", "SSL_CERT_FILE"),
        ("ConnectionError('Error 111 connecting to secret')", "the service's name"),
    ],
)
def test_why_no_sentinel_names_a_primary_is_told(cause: str, told: str) -> None:
    """The driver has its causes in a text alone, with addresses."""
    error = translate_error(MasterNotFoundError(f"No master found for 'helix' : Redis<> - {cause}"), "here")
    assert isinstance(error, StoreUnavailableError)
    assert told in str(error)
    assert "secret" not in str(error)


async def test_a_sentinel_in_the_place_of_a_server_is_told(servers: Watched) -> None:
    """It answers, and knows none of the commands of stores."""
    host, port = sentinel_address(servers.url).hosts[0]
    async with backend_on(f"redis://{host}:{port}") as backend:
        with pytest.raises(InvalidConfigError, match=r"is a sentinel; write redis\+sentinel://"):
            await backend.check()


async def test_a_server_in_the_place_of_a_sentinel_is_told(servers: Watched) -> None:
    """Waiting does not make a sentinel of it."""
    url = f"redis+sentinel://127.0.0.1:{servers.primary.port}/{SERVICE}"
    async with backend_on(url) as backend:
        with pytest.raises(InvalidConfigError, match="a server and no sentinel"):
            await backend.check()
