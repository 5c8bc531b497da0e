"""What stands in a thread's hash: nothing that nobody asks for."""

from dataclasses import replace

import pytest

from helix_temporal.models.stored_messages import Kind, StoredMessage
from helix_temporal.stores.protocols.hot import Rebase
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.redis.threads import LARGE
from helix_temporal.testing.builders import EPOCH, a_header, a_message, grown
from helix_temporal.testing.contracts._hot_base import at
from tests.unit.stores._redis import backend_on

LOG = tuple(a_message(b"x" * (LARGE if n % 2 else 9), kind=Kind.USER, message_id=f"m{n}") for n in range(12))


async def fields(backend: RedisBackend) -> set[str]:
    """Names of the fields that hold messages."""
    connection = backend.threads._connection
    names = await connection.send_command("HKEYS", connection.key_of("t"))
    return {name.decode() for name in names if name[:1].isdigit()}


async def values(backend: RedisBackend, *names: str) -> list[bytes]:
    """What these fields hold."""
    connection = backend.threads._connection
    found: list[bytes] = await connection.send_command("HMGET", connection.key_of("t"), *names)
    return found


async def test_large_bodies_have_fields_of_their_own(redis_url: str, redis_prefix: str) -> None:
    """Looking for 200 ids would otherwise copy 200 MB inside the server, while nobody else is served."""
    async with backend_on(redis_url, redis_prefix) as backend:
        await grown(backend.threads, "t", LOG[:3])
        assert await fields(backend) == {"0", "1b"}
        together, body = await values(backend, "0", "1b")
        assert (len(together) < 110, body[:-4]) == (True, LOG[1].body)


async def test_a_long_id_alone_makes_no_message_large(redis_url: str, redis_prefix: str) -> None:
    """There would be nothing to put aside."""
    async with backend_on(redis_url, redis_prefix) as backend:
        log = (
            StoredMessage(Kind.USER, "i" * 2 * LARGE, b""),
            StoredMessage(Kind.USER, "j" * 2 * LARGE, b"x"),
        )
        await grown(backend.threads, "t", log)
        snapshot = await backend.threads.read_snapshot("t", 0)
        assert snapshot is not None
        assert snapshot.messages == log
        assert await fields(backend) == {"0", "1b"}


@pytest.mark.parametrize(
    ("keep_from", "left"), [(1, {"1", "1b", "3b"}), (2, {"2", "3b"}), (3, {"3", "3b"}), (4, set())]
)
async def test_what_is_forgotten_leaves_nothing_behind(
    redis_url: str, redis_prefix: str, keep_from: int, left: set[str]
) -> None:
    """Bodies that no message names would stay for as long as the thread does."""
    async with backend_on(redis_url, redis_prefix) as backend:
        await grown(backend.threads, "t", LOG[:4], LOG[4:8])
        await backend.threads.trim("t", EPOCH, at(LOG, 8), keep_from)
        assert await fields(backend) == {*left, "4", "5b", "7b"}


@pytest.mark.parametrize(
    ("keep", "left"), [(4, set()), (5, {"4"}), (6, {"4", "5b"}), (7, {"4", "5b"}), (8, {"4", "5b", "7b"})]
)
async def test_what_is_cut_leaves_nothing_behind(
    redis_url: str, redis_prefix: str, keep: int, left: set[str]
) -> None:
    """Nor may the body of a cut message be taken for that of the one that follows in its place."""
    async with backend_on(redis_url, redis_prefix) as backend:
        before = await grown(backend.threads, "t", LOG[:4], LOG[4:8], LOG[8:12])
        header = replace(a_header("t", LOG[:keep]), epoch=EPOCH + 1)
        assert await backend.threads.rebase(Rebase((EPOCH, before.head), header, keep)) is not None
        assert await fields(backend) == {"0", "1b", "3b", *left}
