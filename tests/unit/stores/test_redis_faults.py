"""What real servers do to a hot tier, and what its callers are told."""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as DriverConnectionError

from helix_temporal.devstack import Valkey, start_valkey
from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    InvalidIdError,
    StoreCorruptError,
    StoreUnavailableError,
    UnsupportedServerError,
)
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.stores.protocols.hot import HotHeader, PageRange, Rebase, scan_threads
from helix_temporal.stores.redis import RedisBackend, RedisThreads
from helix_temporal.stores.redis.connection import translate_error
from helix_temporal.stores.redis.scripts import Script
from helix_temporal.testing.builders import EPOCH, a_header, a_step, all_of, grown, messages, opened
from tests.unit.stores._redis import backend_on, pool_of

LOG = messages(6)
Call = Callable[[RedisThreads, HotHeader], Awaitable[object]]

WRITES: dict[str, Call] = {
    "append": lambda hot, known: hot.append(a_step(known.thread_id, known.head)),
    "rebase": lambda hot, known: hot.rebase(
        Rebase((EPOCH, known.head), replace(known, epoch=EPOCH + 1), keep=6)
    ),
    "cut": lambda hot, known: hot.rebase(
        Rebase((EPOCH, known.head), a_header(known.thread_id, LOG[:3]), keep=3)
    ),
    "install": lambda hot, known: hot.install(replace(known, epoch=EPOCH + 1), LOG, replace=True),
    "large install": lambda hot, known: hot.install(
        replace(a_header(known.thread_id, BIG), epoch=EPOCH + 1), BIG, replace=True
    ),
    "warm": lambda hot, known: hot.evict(known.thread_id, EPOCH, all_of(known), warm_ttl=9),
    "trim": lambda hot, known: hot.trim(known.thread_id, EPOCH, known.head, 3),
    "close_epoch": lambda hot, known: hot.close_epoch(known.thread_id, EPOCH),
    "save_slice": lambda hot, known: hot.save_slice(known.thread_id, EPOCH, b"x", 0),
}
DROPS: dict[str, Call] = {
    "evict": lambda hot, known: hot.evict(known.thread_id, EPOCH, all_of(known)),
    "drop": lambda hot, known: hot.drop(known.thread_id, EPOCH),
}
READS: dict[str, Call] = {
    "header": lambda hot, known: hot.read_header(known.thread_id),
    "snapshot": lambda hot, known: hot.read_snapshot(known.thread_id, 0),
    "page": lambda hot, known: hot.read_page(known.thread_id, PageRange(0, 9, 9, 999)),
    "step_view": lambda hot, known: hot.step_view(
        known.thread_id, known.head, after=1, limit=9, max_bytes=999, ids=9
    ),
}
BIG: tuple[StoredMessage, ...] = messages(600, size=1_000, prefix="big")


def each(*groups: dict[str, Call]) -> list[object]:
    """Parameters of calls, named."""
    return [pytest.param(call, id=name) for group in groups for name, call in group.items()]


@asynccontextmanager
async def _reset_by(port: int) -> AsyncIterator[str]:
    """The address of a relay to a server: what the server closes is reset."""
    handlers: set[asyncio.Task[object] | None] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)

        async def there() -> None:
            while piece := await reader.read(65536):
                far_writer.write(piece)
            far_writer.write_eof()

        asking = asyncio.create_task(there())
        while piece := await far_reader.read(65536):
            writer.write(piece)
        asking.cancel()
        await asyncio.wait([asking])
        near = writer.get_extra_info("socket")
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        far_writer.close()
        await far_writer.wait_closed()

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*(each for each in handlers if each))


@pytest.fixture
async def backend(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
    """An empty prefix of a real server."""
    async with backend_on(redis_url, redis_prefix) as made:
        yield made


# -- connections


async def test_a_cancelled_call_never_leaves_its_answer_to_another(backend: RedisBackend) -> None:
    """An answer read by the wrong caller would be another thread's messages."""
    hot, chance = backend.threads, random.Random(1)
    for n in range(8):
        await grown(hot, f"t{n}", messages(20, size=2_000, prefix=f"t{n}-"))

    async def read(n: int) -> None:
        snapshot = await hot.read_snapshot(f"t{n}", 0)
        assert snapshot is not None
        assert {message.id.split("-")[0] for message in snapshot.messages} == {f"t{n}"}

    for _ in range(250):
        tasks = [asyncio.create_task(read(n)) for n in range(8)]
        await asyncio.sleep(chance.random() * 0.002)
        for task in chance.sample(tasks, 4):
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} <= {type(None), asyncio.CancelledError}
    assert not pool_of(backend)._in_use_connections
    await asyncio.gather(*(read(n % 8) for n in range(200)))


@pytest.mark.parametrize("late", [False, True])
async def test_a_call_given_up_while_the_server_works_on_it_leaves_a_usable_pool(
    redis_url: str, redis_prefix: str, late: bool
) -> None:
    """With one connection the next call would read the answer; whether cancelled or past the deadline."""
    timeout = 2.0 if late else 30.0
    backend = RedisBackend(redis_url, prefix=redis_prefix, timeout=timeout, max_connections=1)
    connection = backend._connection
    key = connection.key_of("queue")
    assert await connection.send_command("ECHO", "before") == b"before"
    call = asyncio.create_task(connection.send_command("BLPOP", key, 30))
    if late:
        with pytest.raises(StoreUnavailableError, match="TimeoutError"):
            await call
    else:
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert not pool_of(backend)._in_use_connections
    for turn in range(3):
        # An answer of the call that was given up would come now.
        await connection.send_command("RPUSH", key, "late")
        assert await connection.send_command("ECHO", f"after {turn}") == f"after {turn}".encode()
    assert len(pool_of(backend)._available_connections) == 1
    await backend.close()


async def test_a_deadline_counts_the_wait_for_a_connection(redis_url: str, redis_prefix: str) -> None:
    """A caller behind others that hang must not wait longer than they."""
    backend = RedisBackend(redis_url, prefix=redis_prefix, timeout=2.0, max_connections=1)
    connection = backend._connection
    started = asyncio.get_running_loop().time()
    calls = [connection.send_command("BLPOP", connection.key_of("none"), 30) for _ in range(3)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in outcomes] == [StoreUnavailableError] * 3
    assert asyncio.get_running_loop().time() - started < 4.0  # the time of two, one after the other
    assert await connection.send_command("ECHO", "then") == b"then"
    await backend.close()


async def test_more_callers_than_connections_wait(redis_url: str, redis_prefix: str) -> None:
    """A burst is served late, not refused."""
    backend = RedisBackend(redis_url, prefix=redis_prefix, max_connections=2)
    await asyncio.gather(*(opened(backend.threads, f"t{n}") for n in range(100)))
    assert len([each.thread_id async for each in scan_threads(backend.threads)]) == 100
    await backend.close()


async def test_a_connection_closed_while_idle_costs_nothing(own_valkey: Valkey) -> None:
    """Servers and what stands before them close what is not used for a while."""
    async with backend_on(own_valkey.url) as backend:
        await grown(backend.threads, "t", LOG)
        own_valkey.ask("CLIENT", "KILL", "TYPE", "normal")
        await _until_lost(backend)
        assert await backend.threads.read_header("t") is not None


async def _until_lost(backend: RedisBackend) -> None:
    """Wait until this process has heard that its idle connections are closed."""
    readers = [each._reader for each in pool_of(backend)._available_connections]
    async with asyncio.timeout(20):
        while not all(each is None or each.exception() or each.at_eof() for each in readers):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_connection_reset_while_idle_costs_nothing(own_valkey: Valkey) -> None:
    """What stands between forgets a connection without a word, and answers the next packet with a reset."""
    async with _reset_by(own_valkey.port) as url, backend_on(url) as backend:
        await grown(backend.threads, "t", LOG)
        (idle,) = pool_of(backend)._available_connections
        own_valkey.ask("CLIENT", "KILL", "TYPE", "normal")  # the relay passes it on as a reset
        reader = idle._reader
        await _until_lost(backend)
        assert reader.exception() is not None
        assert await backend.threads.read_header("t") is not None


async def test_a_call_that_is_cancelled_while_it_replaces_a_connection_keeps_none(own_valkey: Valkey) -> None:
    """Each one that stays counted as in use is one less, until the process is started again."""
    async with backend_on(own_valkey.url) as backend:
        await grown(backend.threads, "t", LOG)
        pool = pool_of(backend)
        for turns in range(6):
            await backend.threads.read_header("t")
            own_valkey.ask("CLIENT", "KILL", "TYPE", "normal")
            await _until_lost(backend)
            call = asyncio.create_task(backend.threads.read_header("t"))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            assert not pool._in_use_connections


async def test_what_an_address_says_of_the_protocol_changes_nothing(own_valkey: Valkey) -> None:
    """An address is copied from another application, whose driver reads other answers."""
    async with backend_on(f"{own_valkey.url}?protocol=3&decode_responses=true&max_connections=1") as backend:
        for _ in range(2):  # the first call of a script goes by its text
            assert await backend.threads.read_header("none") is None
        await asyncio.gather(*(grown(backend.threads, f"t{n}", LOG) for n in range(3)))
        assert len([each.thread_id async for each in scan_threads(backend.threads)]) == 3


async def test_what_nobody_asked_for_is_not_taken_for_an_answer(own_valkey: Valkey) -> None:
    """A proxy says why before it closes a connection."""
    async with backend_on(own_valkey.url) as backend:
        await grown(backend.threads, "t", LOG)
        (idle,) = pool_of(backend)._available_connections
        idle._reader.feed_data(b"-ERR idle for too long\r\n")
        assert await backend.threads.read_header("t") is not None


async def test_a_refusal_costs_no_connection(backend: RedisBackend) -> None:
    """A server that is out of memory must not be asked to take all its clients anew as well."""
    connection = backend.threads._connection
    script = Script("refuse", "return redis.error_reply('OOM ' .. ARGV[1])")
    # The first call of a script goes by its text.
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            await connection.run_script(script, [connection.key_of("t")], "command not allowed")
    pool = pool_of(backend)
    assert [each.is_connected for each in pool._available_connections] == [True]
    assert not pool._in_use_connections


async def test_a_server_that_comes_back_is_used_again(own_valkey: Valkey) -> None:
    """Each call is tried once: while it is gone they say so, and afterwards they work."""
    async with backend_on(own_valkey.url, timeout=30) as backend:
        await grown(backend.threads, "t", LOG)
        own_valkey.stop(kill=True)
        with pytest.raises(StoreUnavailableError):
            await backend.threads.read_header("t")
        own_valkey.start()
        header = await backend.threads.read_header("t")
        assert header is not None
        assert header.head.position == 6


async def test_a_server_that_hangs_is_given_up_in_time(redis_url: str, redis_prefix: str) -> None:
    """A worker's slot must not hang with it."""
    async with backend_on(redis_url, redis_prefix, timeout=2.0) as backend:
        with pytest.raises(StoreUnavailableError):
            await backend.threads._connection.send_command(
                "BLPOP", backend.threads._connection.key_of("none"), 30
            )
        assert await backend.threads.read_header("t") is None


async def test_scripts_are_sent_again_after_the_server_forgot_them(own_valkey: Valkey) -> None:
    """A failover or SCRIPT FLUSH forgets them."""
    async with backend_on(own_valkey.url) as backend:
        header = await grown(backend.threads, "t", LOG)
        own_valkey.ask("SCRIPT", "FLUSH")
        assert await backend.threads.append(a_step("t", header.head)) is not None


# -- what the server says


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("BUSY Redis is busy running a script", StoreUnavailableError),
        ("CLUSTERDOWN Hash slot not served", StoreUnavailableError),
        ("LOADING Redis is loading the dataset in memory", StoreUnavailableError),
        ("MASTERDOWN Link with MASTER is down", StoreUnavailableError),
        ("MISCONF Errors writing to the AOF file", StoreUnavailableError),
        ("NOREPLICAS Not enough good replicas to write", StoreUnavailableError),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreUnavailableError),
        ("READONLY You can't write against a read only replica.", StoreUnavailableError),
        ("TRYAGAIN Multiple keys request during rehashing of slot", StoreUnavailableError),
        ("NOAUTH Authentication required.", InvalidConfigError),
        ("NOPERM No permissions to run a command", InvalidConfigError),
        ("MOVED 1234 127.0.0.1:7000", InvalidConfigError),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", InvalidConfigError),
        ("ERR DB index is out of range", InvalidConfigError),
        ("ERR unknown command 'EVALSHA', with args beginning with: 'secret'", UnsupportedServerError),
    ],
)
async def test_each_refusal_has_its_own_error(
    backend: RedisBackend, said: str, error: type[HelixError]
) -> None:
    """What passes is retried, what doesn't is not; and no argument is quoted."""
    connection = backend.threads._connection
    with pytest.raises(error) as caught:
        await connection.send_command(
            "EVAL", "return redis.error_reply(ARGV[1])", 1, connection.key_of("t"), said
        )
    assert "secret" not in str(caught.value)
    assert await backend.threads.read_header("t") is None


def test_an_unreachable_server_is_unavailable() -> None:
    """The message names the address, not the password."""
    error = translate_error(DriverConnectionError("redis://:secret@host refused"), "host:6379")
    assert isinstance(error, StoreUnavailableError)
    assert "secret" not in str(error)


@pytest.mark.parametrize("call", each(WRITES))
async def test_a_server_out_of_memory_changes_nothing(call: Call) -> None:
    """A refused write is refused whole, and may be repeated when there is room."""
    with start_valkey() as server:
        async with backend_on(server.url) as backend:
            header = await grown(backend.threads, "t", LOG[:2], LOG[2:])
            before = await backend.threads.read_snapshot("t", 0)
            server.ask("CONFIG", "SET", "maxmemory", "1mb")
            with pytest.raises(StoreUnavailableError):
                await call(backend.threads, header)
            assert await backend.threads.read_snapshot("t", 0) == before
            server.ask("CONFIG", "SET", "maxmemory", "0")
            await call(backend.threads, header)


@pytest.mark.parametrize("call", each(WRITES, DROPS, READS))
async def test_something_else_under_the_key_is_left_alone(backend: RedisBackend, call: Call) -> None:
    """Another application with the same prefix loses nothing."""
    connection = backend.threads._connection
    await connection.send_command("SET", connection.key_of("t"), "theirs")
    with pytest.raises(InvalidConfigError):
        await call(backend.threads, a_header("t", LOG))
    assert await connection.send_command("GET", connection.key_of("t")) == b"theirs"


@pytest.mark.parametrize("call", each(WRITES, DROPS, READS))
async def test_a_collision_of_hashed_ids_is_refused(backend: RedisBackend, call: Call) -> None:
    """Long ids are hashed in the key: the original is compared before anything is done."""
    hot, connection = backend.threads, backend.threads._connection
    theirs = await grown(hot, "theirs", LOG)
    await connection.send_command("RENAME", connection.key_of("theirs"), connection.key_of("mine"))
    before = await connection.send_command("HGETALL", connection.key_of("mine"))
    with pytest.raises(InvalidIdError):
        await call(hot, replace(theirs, thread_id="mine"))
    assert await connection.send_command("HGETALL", connection.key_of("mine")) == before


async def test_a_thread_that_lacks_messages_is_reported(backend: RedisBackend) -> None:
    """Never a shorter thread in place of a damaged one."""
    await grown(backend.threads, "t", LOG[:3], LOG[3:])
    connection = backend.threads._connection
    await connection.send_command("HDEL", connection.key_of("t"), "3")
    with pytest.raises(StoreCorruptError, match="position 3"):
        await backend.threads.read_snapshot("t", 0)


# -- keys


async def test_messages_put_aside_expire_by_themselves(backend: RedisBackend) -> None:
    """An install that was killed half way leaves nothing for ever, and no thread is seen in it."""
    connection = backend.threads._connection
    staging = await backend.threads._stage_fields(connection.key_of("t"), ["0", b"x"])
    assert 0 < await connection.send_command("PTTL", staging) <= 120_000
    assert [each.thread_id async for each in scan_threads(backend.threads)] == []


async def test_an_install_whose_messages_expired_is_refused(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that stalls between the parts must not make half a thread hot."""
    hot, connection = backend.threads, backend.threads._connection
    stage = hot._stage_fields

    async def stage_and_stall(key: str, made: list[str | bytes]) -> str:
        staging = await stage(key, made)
        await connection.send_command("UNLINK", staging)
        await stage(key, made)
        return staging

    monkeypatch.setattr(hot, "_stage_fields", stage_and_stall)
    with pytest.raises(StoreUnavailableError):
        await hot.install(a_header("t", BIG), BIG, replace=False)
    assert await hot.read_header("t") is None


async def test_an_install_that_comes_second_leaves_nothing_aside(backend: RedisBackend) -> None:
    """Twenty that hydrate at once must not leave nineteen copies for two minutes."""
    connection = backend.threads._connection
    header = a_header("t", BIG)
    await asyncio.gather(*(backend.threads.install(header, BIG, replace=False) for _ in range(5)))
    found = await connection.send_command("KEYS", f"{connection.prefix}*")
    assert found == [connection.key_of("t").encode()]


async def test_all_keys_of_a_thread_share_a_slot(redis_cluster: str, redis_prefix: str) -> None:
    """Whatever characters its id holds: scripts with two keys work in a cluster."""
    backend = RedisBackend(redis_cluster, prefix=redis_prefix, cluster=True)
    connection = backend.threads._connection
    for thread_id in ["{", "}", "{}", "a}b{c", "{a}{b}", "é", "x" * 256]:
        key = connection.key_of(thread_id)
        slots = {
            await connection.send_command("CLUSTER KEYSLOT", name)
            for name in (key, f"{key}:staging:0", f"{key}:payloads")
        }
        assert len(slots) == 1
        assert key.count("{") == key.count("}") == 1
    await backend.close()


@pytest.mark.parametrize("prefix", ["a b", "{x}", "x" * 65, "*", "é"])
def test_a_bad_prefix_is_refused(prefix: str) -> None:
    """It would change what the keys mean."""
    with pytest.raises(InvalidConfigError):
        RedisBackend("redis://127.0.0.1", prefix=prefix)


def test_a_bad_address_is_refused_without_quoting_it() -> None:
    """It may hold a password."""
    with pytest.raises(InvalidConfigError) as caught:
        RedisBackend("http://user:secret@host")
    assert "secret" not in str(caught.value)
