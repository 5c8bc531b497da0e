"""What records cost does not grow with what there is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from helix_temporal.stores.postgres import PostgresSessions
from helix_temporal.stores.protocols.records import RecordChange, RecordName, Records, WantedRecords
from helix_temporal.stores.protocols.session_rows import RowKind
from helix_temporal.stores.records import RowRecords
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.testing.contracts._records_base import NEW, a_record, putting
from helix_temporal.testing.proxy import FaultProxy
from tests import _postgres
from tests._sessions import postgres_place, redis_place

FEW, MANY = 100, 10_000


@dataclass
class Metered:
    """Records, and what goes over the network to them."""

    records: Records
    proxy: FaultProxy

    @asynccontextmanager
    async def at_most(self, *, replies: int, size: int) -> AsyncIterator[None]:
        """Fails if there were more answers, or more bytes in them."""
        before = self.proxy.replies, self.proxy.bytes_down
        yield
        assert self.proxy.replies - before[0] <= replies
        assert self.proxy.bytes_down - before[1] <= size


@pytest.fixture(params=["redis", "postgres"])
async def metered(request: pytest.FixtureRequest, redis_prefix: str) -> AsyncIterator[Metered]:
    """An empty store behind a proxy."""
    if request.param == "redis":
        url = urlsplit(request.getfixturevalue("redis_url"))
        async with (
            FaultProxy.start(f"{url.hostname}:{url.port}") as proxy,
            redis_place(f"redis://{proxy.address}", redis_prefix) as place,
        ):
            yield Metered(RowRecords(RowSessions(place.rows)), proxy)
        return
    dsn, prefix = urlsplit(request.getfixturevalue("postgres_dsn")), _postgres.own_prefix("records")
    async with (
        _postgres.emptied(dsn.geturl(), prefix),
        FaultProxy.start(f"{dsn.hostname}:{dsn.port}") as proxy,
    ):
        through = dsn._replace(netloc=f"{dsn.username}@{proxy.address}").geturl()
        async with postgres_place(through, prefix) as place:
            yield Metered(RowRecords(RowSessions(place.rows)), proxy)


async def fill(records: Records, session_id: str, count: int) -> None:
    """So many records in one group."""
    for first in range(0, count, 2_500):
        puts = [a_record(f"{n:06}", "g", body=b"x" * 100) for n in range(first, min(first + 2_500, count))]
        await records.write(session_id, putting(*puts), create=NEW)


async def test_a_write_is_one_look_and_one_commit(metered: Metered) -> None:
    """Whatever there is already."""
    await fill(metered.records, "s", MANY)
    await metered.records.write("s", putting(a_record("warm")))
    async with metered.at_most(replies=2, size=2_000):
        await metered.records.write("s", putting(a_record("a"), a_record("b", "h")))


async def test_the_newest_is_read_without_the_others(metered: Metered) -> None:
    """One answer, with one record in it."""
    await fill(metered.records, "s", MANY)
    wanted = WantedRecords(newest=(("k", "g"),))
    await metered.records.read("s", wanted)
    async with metered.at_most(replies=1, size=2_000):
        view = await metered.records.read("s", wanted)
    assert [each.key for each in view.records] == [f"{MANY - 1:06}"]
    await metered.records.read_page("s", "k", "g", limit=1)
    async with metered.at_most(replies=1, size=2_000):
        assert len(await metered.records.read_page("s", "k", "g", limit=1, after="005000")) == 1


async def test_groups_are_listed_without_their_records(metered: Metered) -> None:
    """Of a group of thousands its name is sent."""
    await fill(metered.records, "s", MANY)
    await metered.records.write("s", RecordChange(puts=(a_record("a", "h"), a_record("a", "i"))))
    await metered.records.list_groups("s", "k")
    async with metered.at_most(replies=2, size=2_000):
        assert await metered.records.list_groups("s", "k") == ("g", "h", "i")


async def test_the_database_looks_at_one_row_for_the_newest(postgres_dsn: str) -> None:
    """PostgreSQL counts the rows that it looks at: as many for 10,000 records as for 100."""
    prefix = _postgres.own_prefix("newest")
    async with _postgres.emptied(postgres_dsn, prefix) as backend:
        records = RowRecords(RowSessions(backend.sessions))
        looked: list[list[float]] = []
        for session_id, count in (("few", FEW), ("many", MANY)):
            await fill(records, session_id, count)
            looked.append(await _rows_looked_at(backend.sessions, session_id))
        assert looked[0] == looked[1] == [1, 1]
        view = await records.read("many", WantedRecords((RecordName("k", "000001", "g"),)))
        assert len(view.records) == 1


async def _rows_looked_at(sessions: PostgresSessions, session_id: str) -> list[float]:
    """Of the table of rows, by a view and by a page of the newest record: what their plans say they did."""
    kind, group = RowKind.RECORD.value, "k/g"
    names: list[list[str]] = [[] for _ in range(6)]
    return [
        await _explain(sessions, "session_view", session_id, *names, [kind], [group]),
        await _explain(sessions, "session_group_page_desc", session_id, kind, group, 1, None),
    ]


async def _explain(sessions: PostgresSessions, name: str, *values: object) -> float:
    query = f"EXPLAIN (ANALYZE, FORMAT TEXT) {sessions._queries[name]}"
    lines = [row[0] for row in await sessions._database.fetch(query, *values)]
    done = [each for each in lines if "session_rows" in each and "actual time=" in each]
    assert all("Index" in each for each in done)
    return sum(float(each.rpartition("rows=")[2].split()[0].rstrip(")")) for each in done)
