"""Stores that two event loops use, as a worker's and a web handler's in another thread."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.streams import TextChunk
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sessions import RowSessions

Backend: TypeAlias = RedisBackend | PostgresBackend
Make: TypeAlias = Callable[[], Backend]


@pytest.fixture(params=["redis", "postgres"])
async def make(request: pytest.FixtureRequest, unique: str) -> AsyncIterator[Make]:
    """Makes stores on one server."""
    if request.param == "redis":
        url: str = request.getfixturevalue("redis_url")
        yield lambda: RedisBackend(url, prefix=f"{unique}:")
        return
    dsn: str = request.getfixturevalue("postgres_dsn")
    migrating = PostgresBackend(dsn, table_prefix=f"{unique}_")
    await migrating.migrations.run()
    yield lambda: PostgresBackend(dsn, table_prefix=f"{unique}_")
    tables = [*migrating.migrations.tables, f"{unique}_migrations"]
    await migrating.database.execute(f"DROP TABLE {', '.join(tables)}")
    await migrating.close()


async def on_another_loop(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run it on a loop of its own, in another thread, while this one goes on."""
    return await asyncio.to_thread(lambda: asyncio.run(work()))


def open_files() -> int:
    return len([*Path("/dev/fd").iterdir()])


USES: dict[str, Callable[[Backend], Coroutine[Any, Any, Any]]] = {
    "sessions": lambda backend: RowSessions(backend.sessions).load_state("s"),
    "threads": lambda backend: backend.threads.read_header("s"),
    "payloads": lambda backend: backend.payloads.get_payload("s", "k"),
    "usage": lambda backend: backend.usage.exists("s"),
    "locks": lambda backend: backend.locks.is_locked("s"),
    "streams": lambda backend: backend.streams.create_reader("s"),
    "check": lambda backend: backend.check(),
    "close": lambda backend: backend.close(),
}


@pytest.mark.parametrize("use", USES)
async def test_a_second_loop_is_told_what_to_do(make: Make, use: str) -> None:
    """And the first one is not harmed, while it works."""
    backend = make()
    sessions = RowSessions(backend.sessions)
    await sessions.create_session("s")

    async def work() -> None:
        for _ in range(20):
            await sessions.increment_step_count("s")

    async def refused() -> None:
        for _ in range(20):
            with pytest.raises(InvalidConfigError, match=r"another event loop.*Backends\(settings\)"):
                await USES[use](backend)

    await asyncio.gather(work(), work(), on_another_loop(refused))
    state = await sessions.load_state("s")
    assert state is not None
    assert state.step_count == 40
    await backend.close()


async def test_writers_of_one_session_on_two_loops_do_not_meet_in_a_queue(make: Make) -> None:
    """A lock of one loop must not be waited for on another: nobody would wake who waits there."""
    backend = make()
    sessions = RowSessions(backend.sessions)
    await sessions.create_session("s")
    turn = sessions.loop.lock_session("s")

    async def refused() -> None:
        with pytest.raises(InvalidConfigError, match="another event loop"):
            await sessions.increment_step_count("s")

    async with turn:
        await asyncio.wait_for(on_another_loop(refused), 10)
    await sessions.increment_step_count("s")
    await backend.close()


async def test_a_reader_goes_on_when_another_loop_tries_to_close(make: Make) -> None:
    """What waits for news on the first loop is its own."""
    backend = make()
    writer = await backend.streams.create_writer("s", agent_id="a")
    reader = await backend.streams.create_reader("s")
    assert reader is not None

    async def read() -> object:
        return await anext(aiter(reader))

    waiting = asyncio.create_task(read())
    await asyncio.sleep(0.1)

    async def refused() -> None:
        with pytest.raises(InvalidConfigError, match="another event loop"):
            await backend.close()

    await on_another_loop(refused)
    await writer.write(TextChunk(delta="hello"))
    await writer.close()
    assert isinstance(await asyncio.wait_for(waiting, 10), TextChunk)
    await backend.close()


async def test_stores_of_ones_own_are_what_helps(make: Make) -> None:
    """What the error tells to do."""
    first, second = make(), make()
    await RowSessions(first.sessions).create_session("s")

    async def work() -> object:
        try:
            return await RowSessions(second.sessions).load_state("s")
        finally:
            await second.close()

    assert await on_another_loop(work) is not None
    await first.close()


async def test_a_closed_store_serves_the_next_loop(make: Make) -> None:
    """A program that checks its servers first and then starts another loop."""
    backend = make()
    await backend.check()
    await backend.close()

    async def work() -> None:
        await backend.check()
        await backend.close()

    await on_another_loop(work)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_ended_leaves_its_stores_to_the_next(make: Make) -> None:
    """Without a close, of which drivers warn: no call fails for it, and its connections go with it."""
    backend = make()

    async def use() -> int:
        await asyncio.gather(*(backend.threads.read_header(f"t{n}") for n in range(5)))
        gc.collect()
        return open_files()

    async def end() -> int:
        opened = await use()
        await backend.close()
        return opened

    counts = [asyncio.run(use()) for _ in range(4)] + [asyncio.run(end())]
    gc.collect()
    assert counts[-1] <= counts[0]
