"""The commit of a step broken off anywhere: all or nothing; repeated: the first answer, one effect."""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from helix_temporal.errors import StoreUnavailableError
from helix_temporal.stores.postgres import AsyncpgDatabase, PostgresThreads
from helix_temporal.stores.postgres.sessions import PostgresSessions
from helix_temporal.stores.redis import RedisThreads
from helix_temporal.stores.redis.sessions import RedisSessions
from helix_temporal.testing.contracts.session_store import OpenSessions
from helix_temporal.testing.proxy import CutReply, FaultProxy
from tests import _postgres
from tests._session_stores import store_over
from tests._sessions import LONG, Place, memory_place, postgres_place, redis_place
from tests.contracts._session_crashes import STORIES, AnyStory, Faults, break_everywhere
from tests.contracts._session_faults import BreakingConnection, BreakingDatabase, breaking_rows

SEEDS = range(50 if LONG else 5)
ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.timeout(1_800 if LONG else 120), pytest.mark.slow]


@pytest.fixture
def prefix(postgres_dsn: str) -> str:
    """Of tables that are emptied before each test."""
    return _postgres.own_prefix("crashes")


@pytest.fixture
async def postgres(postgres_dsn: str, prefix: str) -> AsyncIterator[Place]:
    """Empty tables."""
    async with _postgres.emptied(postgres_dsn, prefix) as backend:
        yield Place(backend.sessions, backend.threads)


@pytest.mark.parametrize("story", STORIES)
async def test_in_memory_all_or_nothing_happens(story: AnyStory) -> None:
    """Before and after each call of the port (case 46)."""
    faults = Faults()
    async with memory_place()() as place:
        broken = store_over(Place(breaking_rows(place.rows, faults), place.threads))
        points = [
            await break_everywhere(store_over(place), broken.sessions, faults, seed, story=story)
            for seed in SEEDS
        ]
    assert min(points) >= 4


async def test_in_sqlite_all_or_nothing_happens(data_directory: Path) -> None:
    """The process is killed before and after each statement (case 46)."""
    file, seeds = str(data_directory / "helix.db"), str(len(SEEDS) // 2)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.contracts._session_crash_sqlite", file, seeds,
        cwd=ROOT, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, complaint = await child.communicate()
    assert child.returncode == 0, complaint.decode()


@pytest.mark.parametrize("story", STORIES)
async def test_in_redis_all_or_nothing_happens(redis_url: str, redis_prefix: str, story: AnyStory) -> None:
    """Before and after each command and script (case 46)."""
    connection = BreakingConnection(redis_url, prefix=redis_prefix, timeout=60)
    connection.faults = Faults()
    broken = store_over(Place(RedisSessions(connection), RedisThreads(connection)))
    async with redis_place(redis_url, redis_prefix) as place:
        clean = store_over(place)
        points = [
            await break_everywhere(clean, broken.sessions, connection.faults, seed, story=story)
            for seed in SEEDS
        ]
    await connection.close()
    assert min(points) >= 4


@pytest.mark.parametrize("story", STORIES)
async def test_in_postgres_all_or_nothing_happens(
    postgres_dsn: str, postgres: Place, prefix: str, story: AnyStory
) -> None:
    """Before and after each statement (case 46)."""
    faults = Faults()
    database = BreakingDatabase(AsyncpgDatabase.from_dsn(postgres_dsn, timeout=60), faults)
    broken = Place(
        PostgresSessions(database, table_prefix=prefix), PostgresThreads(database, table_prefix=prefix)
    )
    points = [
        await break_everywhere(store_over(postgres), store_over(broken).sessions, faults, seed, story=story)
        for seed in SEEDS
    ]
    await database.close()
    assert min(points) >= 4


@pytest.mark.parametrize("story", STORIES)
async def test_a_terminated_backend_of_postgres_leaves_all_or_nothing(
    postgres_dsn: str, postgres: Place, prefix: str, story: AnyStory
) -> None:
    """The server ends the connection before or after each statement."""
    name = f"crashing{prefix}"
    killer = AsyncpgDatabase.from_dsn(postgres_dsn, timeout=60)

    async def terminate() -> None:
        await killer.execute(
            # Until it has ended: else the commit after this one may be the one that meets its end.
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = $1",
            name,
        )

    faults = Faults(act=terminate)
    named = urlsplit(postgres_dsn)._replace(query=f"application_name={name}").geturl()
    database = BreakingDatabase(AsyncpgDatabase.from_dsn(named, timeout=60), faults)
    broken = Place(
        PostgresSessions(database, table_prefix=prefix), PostgresThreads(database, table_prefix=prefix)
    )
    for seed in SEEDS:
        await break_everywhere(store_over(postgres), store_over(broken).sessions, faults, seed, story=story)
    await database.close()
    await killer.close()


async def cut_everywhere(clean: OpenSessions, broken: Place, proxy: FaultProxy, story: AnyStory) -> None:
    """Lose the answer of each exchange with the server in turn, after some of its bytes, too."""
    for seed in SEEDS:
        for number in itertools.count():
            attempt = await story(seed, f"c{seed}-{number}").prepare(clean)
            proxy.fail(CutReply(after=seed % 3), skip=number)
            try:
                await attempt.commit(store_over(broken).sessions)
            except StoreUnavailableError:
                await attempt.check_after(clean.sessions)
            else:
                # There were not so many exchanges.
                assert number >= 2
                proxy._script.clear()
                break


@pytest.mark.parametrize("story", STORIES)
async def test_an_answer_of_redis_that_is_lost_makes_no_second_effect(
    redis_url: str, redis_prefix: str, story: AnyStory
) -> None:
    """The connection is cut in each answer in turn."""
    parts = urlsplit(redis_url)
    async with (
        redis_place(redis_url, redis_prefix) as place,
        FaultProxy.start(f"{parts.hostname}:{parts.port}") as proxy,
        redis_place(f"redis://{proxy.address}", redis_prefix) as broken,
    ):
        await cut_everywhere(store_over(place), broken, proxy, story)


@pytest.mark.parametrize("story", STORIES)
async def test_an_answer_of_postgres_that_is_lost_makes_no_second_effect(
    postgres_dsn: str, postgres: Place, prefix: str, story: AnyStory
) -> None:
    """The connection is cut in each answer in turn."""
    parts = urlsplit(postgres_dsn)
    async with FaultProxy.start(f"{parts.hostname}:{parts.port}") as proxy:
        dsn = parts._replace(netloc=f"{parts.username}@{proxy.address}").geturl()
        async with postgres_place(dsn, prefix) as broken:
            await cut_everywhere(store_over(postgres), broken, proxy, story)
