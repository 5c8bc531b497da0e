"""Every store keeps records alike."""

import pytest

from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.records import RecordChange, Records
from helix_temporal.stores.protocols.session_rows import SessionRows
from helix_temporal.stores.records import RowRecords
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.sqlite import SqliteBackend
from helix_temporal.testing.contracts._records_base import NEW, a_record, putting
from helix_temporal.testing.contracts.records import OpenRecords, RecordsContract


def open_records(rows: SessionRows) -> OpenRecords:
    """Records and sessions over a backend's rows, as `Backends` makes them."""
    sessions = RowSessions(rows, recalls=rows.durable)
    return OpenRecords(RowRecords(sessions), sessions)


class TestMemoryRecords(RecordsContract):
    @pytest.fixture
    async def rows(self) -> MemorySessions:
        """An empty dict."""
        return MemorySessions()

    @pytest.fixture
    async def opened(self, rows: MemorySessions) -> OpenRecords:
        """Over it."""
        return open_records(rows)

    @pytest.fixture
    async def another(self, rows: MemorySessions) -> Records:
        """With a queue of its own."""
        return open_records(rows).records


class TestSqliteRecords(RecordsContract):
    @pytest.fixture
    async def opened(self, sqlite: SqliteBackend) -> OpenRecords:
        """A file that is not there yet."""
        return open_records(sqlite.sessions)

    @pytest.fixture
    async def another(self, another_sqlite: SqliteBackend) -> Records:
        """The same file, opened again."""
        return open_records(another_sqlite.sessions).records


class TestRedisRecords(RecordsContract):
    @pytest.fixture
    async def opened(self, redis: RedisBackend) -> OpenRecords:
        """An empty prefix of a real server."""
        return open_records(redis.sessions)

    @pytest.fixture
    async def another(self, another_redis: RedisBackend) -> Records:
        """Other connections to it."""
        return open_records(another_redis.sessions).records


class TestRedisClusterRecords(RecordsContract):
    @pytest.fixture
    async def opened(self, cluster: RedisBackend) -> OpenRecords:
        """An empty prefix of a cluster of three primaries."""
        return open_records(cluster.sessions)

    @pytest.fixture
    async def another(self, another_cluster: RedisBackend) -> Records:
        """Other connections to it."""
        return open_records(another_cluster.sessions).records


class TestPostgresRecords(RecordsContract):
    @pytest.fixture
    async def opened(self, postgres: PostgresBackend) -> OpenRecords:
        """Empty tables of a real server."""
        return open_records(postgres.sessions)

    @pytest.fixture
    async def another(self, another_postgres: PostgresBackend) -> Records:
        """Other connections to them."""
        return open_records(another_postgres.sessions).records


class TestUse:
    async def test_a_session_whose_records_are_written_is_in_use(self) -> None:
        """A clean-up by age looks at the state's time; not every write stores the state for that."""
        now = 1_000_000.0
        records, sessions = open_records(MemorySessions(clock=lambda: now))
        await records.write("s", putting(a_record("a")), create=NEW)
        made = await sessions.load_state("s")
        assert made is not None
        now += 59
        await records.write("s", putting(a_record("b")))
        assert await sessions.load_state("s") == made
        now += 2
        await records.write("s", RecordChange())
        assert await sessions.load_state("s") == made
        await records.write("s", putting(a_record("c")))
        state = await sessions.load_state("s")
        assert state == made.model_copy(update={"updated_at": int(now * 1000)})
