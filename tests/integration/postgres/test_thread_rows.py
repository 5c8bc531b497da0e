"""What threads leave in the tables, and what becomes of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.postgres import PostgresBackend, PostgresThreads
from helix_temporal.stores.protocols.hot import Rebase, scan_threads
from helix_temporal.testing.builders import EPOCH, a_header, a_step, all_of, messages
from helix_temporal.testing.contracts._rows_base import a_change
from tests import _postgres

LOG = messages(10)
THREAD = "t"


@pytest.fixture
async def backend(postgres_dsn: str) -> AsyncIterator[PostgresBackend]:
    """Empty tables."""
    async with _postgres.emptied(postgres_dsn, _postgres.own_prefix("rows")) as backend:
        yield backend


async def positions(backend: PostgresBackend) -> list[int]:
    rows = await backend.database.fetch(f'SELECT position FROM "{backend.table_prefix}messages" ORDER BY 1')
    return [row["position"] for row in rows]


def _at(position: int) -> Head:
    return Head(position=position, last_id=LOG[position - 1].id if position else "")


OPERATIONS: dict[str, tuple[Callable[[PostgresThreads], Awaitable[Any]], list[int]]] = {
    "append": (lambda hot: hot.append(a_step(THREAD, _at(10))), list(range(12))),
    "cut": (
        lambda hot: hot.rebase(Rebase((EPOCH, _at(10)), a_header(THREAD, LOG[:4]), keep=4)),
        [0, 1, 2, 3],
    ),
    "trim": (lambda hot: hot.trim(THREAD, EPOCH, _at(8), 6), [6, 7, 8, 9]),
    "install": (
        lambda hot: hot.install(
            replace(a_header(THREAD, LOG[7:], base=_at(7)), epoch=EPOCH + 1), LOG[7:], replace=True
        ),
        [7, 8, 9],
    ),
    "evict": (lambda hot: hot.evict(THREAD, EPOCH, all_of(a_header(THREAD, LOG))), []),
    "drop": (lambda hot: hot.drop(THREAD, EPOCH), []),
}


@pytest.mark.parametrize("name", OPERATIONS)
async def test_no_message_lies_outside_its_thread(backend: PostgresBackend, name: str) -> None:
    """One beyond the head would be in the way of the next append; one below the base would stay for ever."""
    operation, left = OPERATIONS[name]
    await backend.threads.install(a_header(THREAD, LOG), LOG, replace=False)
    await operation(backend.threads)
    assert await positions(backend) == left


async def test_what_has_expired_is_removed_by_a_scan(backend: PostgresBackend) -> None:
    """The maintenance worker's: without it the tables would grow with every session."""
    header = await backend.threads.install(a_header(THREAD, LOG), LOG, replace=False)
    await backend.threads.evict(THREAD, EPOCH, all_of(header), warm_ttl=0.001)
    await backend.threads.install(a_header("other", LOG), LOG, replace=False)
    await asyncio.sleep(0.005)
    assert await backend.threads.read_header(THREAD) is None
    assert len(await positions(backend)) == 20
    assert [each.thread_id async for each in scan_threads(backend.threads)] == ["other"]
    assert len(await positions(backend)) == 10


async def test_what_has_expired_takes_no_writes(backend: PostgresBackend) -> None:
    """Its messages may be removed at any moment; the caller hydrates and comes again."""
    header = await backend.threads.install(a_header(THREAD, LOG), LOG, replace=False)
    await backend.threads.evict(THREAD, EPOCH, all_of(header), warm_ttl=0.001)
    await asyncio.sleep(0.005)
    assert await backend.threads.append(a_step(THREAD, _at(10))) is None
    assert await backend.threads.save_slice(THREAD, EPOCH, b"x", 0) is None
    assert await backend.threads.trim(THREAD, EPOCH, _at(8), 6) is None
    assert await backend.threads.evict(THREAD, EPOCH, all_of(header)) == "absent"
    assert len(await positions(backend)) == 10


async def test_what_has_expired_makes_room(backend: PostgresBackend) -> None:
    """An archive is hydrated over the remains of a copy that was kept warm."""
    header = await backend.threads.install(a_header(THREAD, LOG), LOG, replace=False)
    await backend.threads.evict(THREAD, EPOCH, all_of(header), warm_ttl=0.001)
    await asyncio.sleep(0.005)
    await backend.threads.install(a_header(THREAD, LOG[:3]), LOG[:3], replace=False)
    assert await positions(backend) == [0, 1, 2]
    assert await backend.threads.read_header(THREAD) is not None


async def test_a_window_is_read_by_the_index(backend: PostgresBackend) -> None:
    """A step on a long thread costs what it costs on a short one."""
    many = messages(3_000)
    await backend.threads.install(a_header(THREAD, many), many, replace=False)
    await backend.database.execute(f'ANALYZE "{backend.table_prefix}messages"')
    query = backend.threads._queries["thread_step_view"]
    numbers = ("3000", "2", "50", "1000000", "100")
    arguments = ["'t'", *numbers]
    for number in range(len(arguments), 0, -1):
        query = query.replace(f"${number}", arguments[number - 1])
    plan = await backend.database.fetch(f"EXPLAIN ANALYZE {query}")
    text = "\n".join(row[0] for row in plan)
    assert f"Seq Scan on {backend.table_prefix}messages" not in text
    read = [
        int(float(line.split("actual time=")[1].split("rows=")[1].split()[0]))
        for line in text.splitlines()
        if "Scan" in line and "_messages" in line and "actual" in line
    ]
    assert max(read) <= 100


async def test_a_commit_that_lost_is_one_statement(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever lost has only to look again: of several writers, all but one do each time."""
    await backend.threads.install(a_header(THREAD, LOG), LOG, replace=False)
    assert await backend.sessions.commit(a_change(THREAD)) is not None
    monkeypatch.setattr(backend.database, "transaction", None)
    done = await backend.sessions.commit(a_change(THREAD, 1, append=a_step(THREAD, _at(10))))
    assert done is not None
    assert await backend.sessions.commit(a_change(THREAD, 1, append=a_step(THREAD, _at(10)))) is None
