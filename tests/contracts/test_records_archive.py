"""Old records in the archive, over every store of rows and every blob store."""

from pathlib import Path

import pytest

from helix_temporal.blobs.directory import DirectoryBlobs
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.blobs.s3 import S3Blobs
from helix_temporal.errors import InvalidConfigError, StoreCorruptError
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.records import WantedRecords
from helix_temporal.stores.records import RecordUpkeep, RowRecords
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.sqlite import SqliteBackend
from helix_temporal.testing.contracts._records_archive import old_record
from helix_temporal.testing.contracts._records_base import NEW, putting
from helix_temporal.testing.contracts.records import OpenArchive, RecordArchiveContract
from helix_temporal.testing.faults import FaultyBlobs
from tests.contracts.test_blobs import ScopedBlobs

pytestmark = pytest.mark.slow


class TestMemoryArchive(RecordArchiveContract):
    @pytest.fixture
    async def archive(self) -> OpenArchive:
        """Two dicts."""
        return OpenArchive.over(MemorySessions(), FaultyBlobs(MemoryBlobs()))


class TestSqliteArchive(RecordArchiveContract):
    @pytest.fixture
    async def archive(self, sqlite: SqliteBackend, tmp_path: Path) -> OpenArchive:
        """A file, and a directory beside it."""
        return OpenArchive.over(sqlite.sessions, FaultyBlobs(DirectoryBlobs(tmp_path)))


class TestRedisArchive(RecordArchiveContract):
    @pytest.fixture
    async def archive(self, redis: RedisBackend, bucket: S3Blobs, s3_prefix: str) -> OpenArchive:
        """An empty prefix of a real server, and a folder of a real bucket."""
        return OpenArchive.over(redis.sessions, FaultyBlobs(ScopedBlobs(bucket, s3_prefix)))


class TestPostgresArchive(RecordArchiveContract):
    @pytest.fixture
    async def archive(self, postgres: PostgresBackend, tmp_path: Path) -> OpenArchive:
        """Empty tables of a real server, and a directory."""
        return OpenArchive.over(postgres.sessions, FaultyBlobs(DirectoryBlobs(tmp_path)))


class TestPostgresArchiveInS3(RecordArchiveContract):
    @pytest.fixture
    async def archive(self, postgres: PostgresBackend, bucket: S3Blobs, s3_prefix: str) -> OpenArchive:
        """Empty tables of a real server, and a folder of a real bucket."""
        return OpenArchive.over(postgres.sessions, FaultyBlobs(ScopedBlobs(bucket, s3_prefix)))


class TestWithoutAnArchive:
    async def test_nothing_can_be_archived(self) -> None:
        """And the error says which settings there are."""
        sessions = RowSessions(MemorySessions())
        await RowRecords(sessions).write("s", putting(old_record(1)), create=NEW)
        with pytest.raises(InvalidConfigError, match="HELIX_S3_BUCKET"):
            await RowRecords(sessions).archive("s", "k", "g")
        with pytest.raises(InvalidConfigError, match="HELIX_S3_BUCKET"):
            RecordUpkeep(sessions, after=0)

    async def test_archived_records_are_not_taken_for_missing(self) -> None:
        """A process without the archive's settings must not see a session without its past."""
        rows = MemorySessions()
        archive = OpenArchive.over(rows, FaultyBlobs(MemoryBlobs()))
        await archive.records.write("s", putting(old_record(1)), create=NEW)
        await archive.records.archive("s", "k", "g")
        with pytest.raises(StoreCorruptError, match="no archive"):
            await RowRecords(RowSessions(rows)).read("s", WantedRecords(groups=(("k", "g"),)))


async def test_a_bug_in_the_upkeep_of_one_session_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it raises; the log has where."""
    archive = OpenArchive.over(MemorySessions(), FaultyBlobs(MemoryBlobs()))
    for session_id in ("a", "b", "c"):
        await archive.records.write(session_id, putting(old_record(1)), create=NEW)
    upkeep = archive.make_upkeep()
    archive_session = upkeep.archive_session

    async def archive_or_fail(session_id: str, written_before: int) -> int:
        if session_id == "b":
            raise RuntimeError("a bug")
        return await archive_session(session_id, written_before)

    monkeypatch.setattr(upkeep, "archive_session", archive_or_fail)
    kept = await upkeep.run()
    assert (kept.archived, kept.failed) == (2, ("b",))
    assert "archive_or_fail" in caplog.text
