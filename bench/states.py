"""The session store on PostgreSQL: appends, lists, and several writers of one session."""

import asyncio
import time
import uuid
from typing import Final

from bench._bare_postgres import BarePostgres
from bench._counting import CountingDatabase
from bench._lab import Lab, in_turns, migrated, own_tables, per
from bench._report import Row, compared, told
from bench.append import append_all, open_thread
from bench.commits import Place, ours_and_bare
from helix_temporal.models.messages import Message
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.stores.postgres import AsyncpgDatabase, PostgresBackend
from helix_temporal.stores.postgres.sessions import PostgresSessions
from helix_temporal.stores.sessions import RowSessions

_WRITERS: Final = 8


async def append(lab: Lab) -> list[Row]:
    """PostgresThreads.append of two messages, against one bare insert of them."""
    steps = lab.words.steps(lab.sizes.commits)
    async with ours_and_bare(lab) as (backend, bare):

        async def ours() -> float:
            thread_id = f"bench-{uuid.uuid4().hex}"
            await open_thread(backend.threads, thread_id)
            started = time.perf_counter()
            await append_all(backend.threads, thread_id, steps)
            return (time.perf_counter() - started) / len(steps)

        async def floor() -> float:
            thread_id = f"bench-{uuid.uuid4().hex}"
            started = time.perf_counter()
            for number, step in enumerate(steps):
                await bare.append(thread_id, 2 * number, step)
            return (time.perf_counter() - started) / len(steps)

        found = await in_turns(lab, "append to PostgreSQL", {"ours": ours, "floor": floor})
    note = "floor: one bare INSERT of two rows, with neither head, epoch nor size"
    return [
        compared(
            "PostgreSQL: append of 2 × 1 KB",
            "ms",
            per(found["ours"], 1e3),
            per(found["floor"], 1e3),
            at_most=1.6,
            note=note,
        )
    ]


async def listed(lab: Lab) -> list[Row]:
    """A page of 50 sessions among very many; the plans of its statements have no sequential scan."""
    rows = []
    queries = {"newest": SessionQuery(), "newest of a user": SessionQuery(user_id="user-7")}
    database = CountingDatabase(AsyncpgDatabase.from_dsn(lab.postgres))
    prefix = own_tables()
    await migrated(lab.postgres, prefix)
    bare = await BarePostgres.connect(lab.postgres, prefix)
    sessions = PostgresSessions(database, table_prefix=prefix)
    try:
        lab.say(f"list: {lab.sizes.listed:,} sessions")
        await bare.fill(lab.sizes.listed)
        for name, query in queries.items():
            seconds = [await _listed(sessions, query) for _ in range(lab.sizes.list_calls)]
            database.reset()
            await _listed(sessions, query)
            plans = [await bare.explain(*each) for each in database.statements]
            scans = sum("Seq Scan" in plan for plan in plans)
            what = f"PostgreSQL: list of 50 {name} among {lab.sizes.listed:,}"
            rows += [
                told(what, "ms", per(seconds, 1e3)),
                told(f"{what}: sequential scans", "scans", [scans], at_most=0),
            ]
    finally:
        await asyncio.gather(database.close(), bare.close())
    return rows


async def _listed(sessions: PostgresSessions, query: SessionQuery) -> float:
    started = time.perf_counter()
    page = await sessions.list_sessions(query)
    assert page.sessions
    return time.perf_counter() - started


async def writers(lab: Lab) -> list[Row]:
    """Eight writers of one session, each with connections of its own: what is lost or doubled."""
    prefix, session_id, count = own_tables(), f"bench-{uuid.uuid4().hex}", lab.sizes.written
    await migrated(lab.postgres, prefix)
    backends = [
        PostgresBackend(lab.postgres, table_prefix=prefix, max_connections=2) for _ in range(_WRITERS)
    ]
    stores = [Place.of(each).store for each in backends]

    async def write(number: int) -> list[str]:
        ids = [f"{number}-{at}" for at in range(count)]
        for each in ids:
            message = Message(id=each, role="user", content=lab.words.text(1024))
            await stores[number].append_messages(session_id, [message], operation_id=f"write-{each}")
        return ids

    try:
        lab.say(f"writers: {_WRITERS} × {count}")
        await stores[0].create_session(session_id)
        started = time.perf_counter()
        sent = [each for ids in await asyncio.gather(*map(write, range(_WRITERS))) for each in ids]
        spent = time.perf_counter() - started
        stored = await _ids(stores[0], session_id)
    finally:
        await asyncio.gather(*(each.close() for each in backends))
    name = f"PostgreSQL: {_WRITERS} writers on one session"
    return [
        told(f"{name}: lost", "messages", [len(set(sent) - set(stored))], at_most=0),
        told(f"{name}: doubled", "messages", [len(stored) - len(set(stored))], at_most=0),
        told(f"{name}: appends", "messages/s", [len(sent) / spent]),
    ]


async def _ids(store: RowSessions, session_id: str) -> list[str]:
    found: list[str] = []
    while True:
        page = await store.get_messages(session_id, offset=len(found), limit=200)
        found += [message.id for message in page.messages]
        if not page.has_more:
            return found
