"""A Redis Cluster whose nodes join, hang, change roles and leave, under a client that stays."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import pytest
import redis

from helix_temporal.devstack import Valkey, start_valkey, start_valkey_cluster
from helix_temporal.devstack.programs import free_port
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.stores.protocols.hot import scan_threads
from helix_temporal.stores.redis import RedisBackend, cluster
from helix_temporal.testing.builders import grown, messages

LOG = messages(2)
THREADS = [f"t{number}" for number in range(12)]

T = TypeVar("T")


class Changing:
    """Three primaries, to which others can be added."""

    def __init__(self, primaries: list[Valkey], stack: ExitStack) -> None:
        self.nodes = [*primaries]
        self._stack = stack
        for node in self.nodes:
            node.ask("CONFIG", "SET", "cluster-node-timeout", 1000)

    def add_node(self) -> Valkey:
        """Join one that has no slots."""
        bus = free_port()
        options = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "1000")
        node = self._stack.enter_context(start_valkey(arguments=options))
        self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        self.nodes.append(node)
        wait_for(lambda: all(self._knows_all(each) for each in self.nodes))
        return node

    def add_replica(self, primary: Valkey) -> Valkey:
        """Join one that has all of a primary's keys."""
        node = self.add_node()
        node.ask("CLUSTER", "REPLICATE", primary.ask("CLUSTER", "MYID"))
        wait_for(lambda: "master_link_status:up" in info_of(node))
        wait_for(lambda: all(f"127.0.0.1:{node.port}@" in self._slaves(each) for each in self.nodes))
        return node

    def move_slot(self, key: str, to: Valkey) -> None:
        """Move a key's slot, in which there is no other key."""
        slot = to.ask("CLUSTER", "KEYSLOT", key)
        source = self.owner_of(key)
        self.begin_to_move(key, to)
        for each in (to, source, *self.nodes):
            each.ask("CLUSTER", "SETSLOT", slot, "NODE", to.ask("CLUSTER", "MYID"))

    def begin_to_move(self, key: str, to: Valkey) -> None:
        """Move a key, while its slot still belongs to the other node."""
        slot = to.ask("CLUSTER", "KEYSLOT", key)
        source = self.owner_of(key)
        to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", to.ask("CLUSTER", "MYID"))
        source.ask("MIGRATE", "127.0.0.1", to.port, key, 0, 5000)

    def owner_of(self, key: str) -> Valkey:
        """The primary that has a key's slot."""
        slot = self.nodes[0].ask("CLUSTER", "KEYSLOT", key)
        for low, high, (_, port, *_), *_ in self.nodes[0].ask("CLUSTER", "SLOTS"):
            if low <= slot <= high:
                return next(node for node in self.nodes if node.port == port)
        raise LookupError(key)

    def _knows_all(self, node: Valkey) -> bool:
        listed = str(node.ask("CLUSTER", "NODES"))
        settled = "handshake" not in listed and "cluster_state:ok" in str(node.ask("CLUSTER", "INFO"))
        return settled and all(f"127.0.0.1:{each.port}@" in listed for each in self.nodes)

    def _slaves(self, node: Valkey) -> str:
        return "\n".join(line for line in str(node.ask("CLUSTER", "NODES")).splitlines() if "slave" in line)


def info_of(node: Valkey) -> str:
    """Its role and its link, empty while it does not answer."""
    try:
        return str(node.ask("INFO", "replication"))
    except redis.RedisError:
        return ""


def wait_for(condition: Callable[[], bool]) -> None:
    """Look at the servers until they have changed."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "the cluster does not change"
        time.sleep(0.05)


@pytest.fixture
def changing() -> Iterator[Changing]:
    """A cluster of the test's own."""
    with start_valkey_cluster() as primaries, ExitStack() as stack:
        yield Changing(primaries, stack)


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[RedisBackend]:
    """A client that names one node."""
    backend = RedisBackend(url, cluster=True, timeout=2.0)
    try:
        yield backend
    finally:
        await backend.close()


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Call as an activity does: again, while the error says that it may help."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await call()
            except StoreUnavailableError:
                await asyncio.sleep(0.1)


async def scanned(backend: RedisBackend) -> set[str]:
    """The threads that a sweep sees."""
    return {each.thread_id async for each in scan_threads(backend.threads)}


async def test_a_scan_sees_the_threads_of_a_primary_that_joined(changing: Changing) -> None:
    """A sweep that runs for weeks archives what a cluster scaled out, too."""
    async with client_of(changing.nodes[0].url) as backend:
        for thread_id in THREADS:
            await grown(backend.threads, thread_id, LOG)
        assert await scanned(backend) == {*THREADS}
        joined = await asyncio.to_thread(changing.add_node)
        for thread_id in THREADS[:4]:
            changing.move_slot(backend._connection.key_of(thread_id), joined)
        assert await scanned(backend) == {*THREADS}


async def test_a_key_that_is_on_its_way_to_a_new_node_is_found(changing: Changing) -> None:
    """While slots move the old owner sends calls to a node that no layout names yet."""
    async with client_of(changing.nodes[0].url) as backend:
        await grown(backend.threads, "t", LOG)
        joined = await asyncio.to_thread(changing.add_node)
        changing.begin_to_move(backend._connection.key_of("t"), joined)
        header = await backend.threads.read_header("t")
        assert header is not None
        assert header.head.position == len(LOG)


@pytest.mark.slow
async def test_a_primary_that_hangs_is_left_for_its_replica(changing: Changing) -> None:
    """A host that dies closes no connection: calls end at our deadline, of which the driver hears nothing."""
    async with client_of(changing.nodes[0].url) as backend:
        for thread_id in THREADS:
            await grown(backend.threads, thread_id, LOG)
        hanging = changing.nodes[1]
        replica = await asyncio.to_thread(changing.add_replica, hanging)
        assert hanging.pid is not None
        os.kill(hanging.pid, signal.SIGSTOP)
        try:
            await asyncio.to_thread(wait_for, lambda: "role:master" in info_of(replica))
            for thread_id in THREADS:
                assert await patiently(partial(backend.threads.read_header, thread_id))
            assert await patiently(lambda: scanned(backend)) == {*THREADS}
        finally:
            os.kill(hanging.pid, signal.SIGCONT)


@pytest.mark.slow
async def test_a_rolling_upgrade_leaves_a_client_that_works(changing: Changing) -> None:
    """Roles change, and the former primary is gone later: checks, lists and clock go on without a restart."""
    async with client_of(changing.nodes[0].url) as backend:
        for thread_id in THREADS:
            await grown(backend.threads, thread_id, LOG)
        await backend.check()
        former = changing.owner_of(backend.sessions._index.marks)
        replica = await asyncio.to_thread(changing.add_replica, former)
        replica.ask("CLUSTER", "FAILOVER")
        await asyncio.to_thread(wait_for, lambda: "role:slave" in info_of(former))
        await patiently(backend.check)
        former.stop(kill=True)
        assert await patiently(backend.sessions.now) > 0
        assert await patiently(lambda: scanned(backend)) == {*THREADS}
        await patiently(backend.check)


@pytest.mark.slow
async def test_a_client_whose_named_node_is_gone_goes_on(changing: Changing) -> None:
    """The address in the settings is needed to begin with, and no more."""
    async with client_of(changing.nodes[1].url) as backend:
        await grown(backend.threads, "t", LOG)
        replica = await asyncio.to_thread(changing.add_replica, changing.nodes[1])
        changing.nodes[1].stop(kill=True)
        await asyncio.to_thread(wait_for, lambda: "role:master" in info_of(replica))
        assert await patiently(lambda: scanned(backend)) == {"t"}
        assert await patiently(lambda: backend.threads.read_header("t"))


async def test_where_no_node_answers_the_error_says_what_to_name() -> None:
    """A worker that does not start while the cluster is well: another of its nodes is to be named."""
    async with client_of(f"redis://127.0.0.1:{free_port()}") as backend:
        with pytest.raises(StoreUnavailableError, match="name another node of the cluster in redis_url"):
            await backend.check()


async def test_a_layout_is_read_once_by_those_who_doubt_it(
    changing: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many calls fail at once when a node goes; the other nodes are not asked by each of them."""
    monkeypatch.setattr(cluster, "_LOOK_EVERY", 3_600.0)  # all of it happens within that time
    async with client_of(changing.nodes[0].url) as backend:
        await grown(backend.threads, "t", LOG)
        client: Any = backend._connection._client
        asked = 0
        ask = client._ask_any_node

        async def count() -> object:
            nonlocal asked
            asked += 1
            return await ask()

        client._ask_any_node = count
        client.doubt_layout(at_once=True)
        await asyncio.gather(*(backend.threads.read_header("t") for _ in range(20)))
        client.doubt_layout()
        await asyncio.gather(*(backend.threads.read_header("t") for _ in range(20)))
    assert asked == 1
