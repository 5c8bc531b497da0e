"""Damage in the hot tier: what the archive holds is taken from there, and nothing else is thrown away."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import StoreCorruptError
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.hot import scan_threads
from helix_temporal.stores.protocols.threads import ReadPage
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.testing.contracts._threads_base import Author, pages
from helix_temporal.testing.tables import own_tables
from tests.unit.stores._damage import DAMAGES
from tests.unit.stores._redis import backend_on

HEADER = tuple("enbcvzyfguxdrkolpaqih")
"""Fields of a hot thread's header; 's' is the slice, numbers are messages."""


@dataclass
class Hurt:
    """A thread of two archived turns in Redis, and what anybody should see of it."""

    backend: RedisBackend
    author: Author
    texts: list[str]

    @property
    def key(self) -> str:
        """Of the record."""
        return self.backend._connection.key_of("t")

    async def damage(self, field: str, how: str = "last bit") -> None:
        """Change a field beneath everything."""
        connection = self.backend._connection
        value = await connection.send_command("HGET", self.key, field)
        await connection.send_command("HSET", self.key, field, DAMAGES[how](value or b"?"))

    def elsewhere(self) -> Author:
        """The same execution on a worker that remembers nothing."""
        tier = self.author.threads
        assert isinstance(tier, TieredThreads)
        return replace(self.author, threads=TieredThreads(self.backend.threads, tier.blobs))


async def paged(author: Author) -> list[str]:
    """All messages, however many pages they come in."""
    found = await pages(author.threads, ReadPage("t", limit=3))
    return [record.body.decode() for page in found for record in page]


@pytest.fixture
async def hurt(redis_url: str, redis_prefix: str) -> AsyncIterator[Hurt]:
    """Nothing is damaged yet."""
    async with backend_on(redis_url, redis_prefix) as backend:
        author = Author(TieredThreads(backend.threads, MemoryBlobs()), "t")
        await author.open()
        await author.turn("one", "1")
        await author.turn("two" * 2000, "2")
        await author.threads.save_slice("t", author.epoch, b'{"n": 1}', 0)
        await author.flush()
        yield Hurt(backend, author, ["one", "1", "two" * 2000, "2"])


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("field", [*HEADER, "s", "0", "2", "2b"])
async def test_a_damaged_thread_comes_back_from_the_archive(hurt: Hurt, field: str, how: str) -> None:
    """Whichever byte it was: the next step goes on, and everybody reads what was written."""
    await hurt.damage(field, how)
    author = hurt.elsewhere()
    read = await paged(author)
    await author.turn("three", "3")
    facts = await author.facts()
    await author.flush()
    assert (read, await author.texts()) == (hurt.texts, [*hurt.texts, "three", "3"])
    assert (facts.slice, facts.head.position, facts.committed) == (b'{"n": 1}', 6, 6)


@pytest.mark.parametrize("field", ["e", "s", "2b"])
async def test_the_next_open_finds_the_thread(hurt: Hurt, field: str) -> None:
    """Another execution takes over a thread that is damaged in the hot tier."""
    await hurt.damage(field)
    later = hurt.elsewhere().later(owner="run-2")
    opened = await later.open()
    assert opened.header.head.position == 4
    assert await later.texts() == hurt.texts


@pytest.mark.parametrize("field", ["0", "2", "2b"])
async def test_what_is_not_archived_is_archived_before(hurt: Hurt, field: str) -> None:
    """Good messages behind a damaged one are not thrown away with it."""
    await hurt.author.turn("three", "3")
    await hurt.damage(field, "first bit")
    author = hurt.elsewhere()
    assert await paged(author) == [*hurt.texts, "three", "3"]
    await author.turn("four", "4")
    assert await author.texts() == [*hurt.texts, "three", "3", "four", "4"]


@pytest.mark.parametrize("field", ["n", "c", "s", "4"])
async def test_what_only_the_thread_has_is_left_as_it_is(hurt: Hurt, field: str) -> None:
    """The archive lacks a turn, and the hot thread cannot be trusted: a person must decide."""
    await hurt.author.turn("three", "3")
    await hurt.author.threads.save_slice("t", hurt.author.epoch, b'{"n": 2}', 1)
    await hurt.damage(field)
    before = await hurt.backend._connection.send_command("HGETALL", hurt.key)
    author = hurt.elsewhere()
    with pytest.raises(StoreCorruptError, match=hurt.key):
        await author.texts()
    with pytest.raises(StoreCorruptError, match=hurt.key):
        await author.later().open()
    assert await hurt.backend._connection.send_command("HGETALL", hurt.key) == before


async def test_the_scan_names_a_thread_whose_thread_does_not(hurt: Hurt) -> None:
    """The maintenance worker comes by, and it is mended there."""
    await hurt.damage("i")
    assert [each.thread_id async for each in scan_threads(hurt.backend.threads)] == ["t"]


# -- PostgreSQL


@pytest.fixture
async def tables(postgres_dsn: str) -> AsyncIterator[PostgresBackend]:
    """The server makes a header's checksum with each change; here it does not, so that a change is damage."""
    async with own_tables(postgres_dsn) as backend:
        table = f'"{backend.table_prefix}threads"'
        author = Author(TieredThreads(backend.threads, MemoryBlobs()), "t")
        await author.open()
        await author.turn("one", "1")
        await author.flush()
        backend.author = author  # type: ignore[attr-defined]
        await backend.database.execute(f"ALTER TABLE {table} ALTER COLUMN checksum DROP EXPRESSION")
        yield backend


COLUMNS = {
    **dict.fromkeys(
        ("epoch", "head", "committed", "base", "slice_version", "size", "archived", "cut"), "{} + 1"
    ),
    **dict.fromkeys(("owner", "last_id", "base_id", "adapter", "origin"), "{} || 'x'"),
    **dict.fromkeys(("closed", "deleted"), "NOT {}"),
}


@pytest.mark.parametrize("column", COLUMNS)
async def test_a_damaged_header_row_comes_back_from_the_archive(tables: PostgresBackend, column: str) -> None:
    """As in Redis."""
    await tables.database.execute(
        f'UPDATE "{tables.table_prefix}threads" SET {column} = {COLUMNS[column].format(column)}'
    )
    with pytest.raises(StoreCorruptError, match="header"):
        await tables.threads.read_header("t")
    assert await tables.author.texts() == ["one", "1"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", DAMAGES)
async def test_a_damaged_message_row_comes_back_from_the_archive(tables: PostgresBackend, how: str) -> None:
    """As in Redis; the position is in the error."""
    name = f'"{tables.table_prefix}messages"'
    body = await tables.database.fetchval(f"SELECT body FROM {name} WHERE position = 1")
    await tables.database.execute(f"UPDATE {name} SET body = $1 WHERE position = 1", DAMAGES[how](body))
    with pytest.raises(StoreCorruptError, match="position 1"):
        await tables.threads.read_snapshot("t", 0)
    assert await tables.author.texts() == ["one", "1"]  # type: ignore[attr-defined]
