"""From settings to stores: what is picked, and what a setting changes."""

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest

from helix_temporal.backends import Backends
from helix_temporal.blobs.directory import DirectoryBlobs
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.blobs.s3 import S3Blobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import InvalidConfigError, SchemaVersionError, StoreUnavailableError
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.stores.memory import MemoryPayloads, MemoryThreads
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.builders import a_message, an_answer
from tests import _postgres
from tests.unit.coldtier import _v1_files

_BOTH: Final = {"postgres_dsn": "postgresql://db", "redis_url": "redis://localhost"}


@pytest.fixture
def cold_directory(tmp_path: Path) -> Path:
    """Where threads are archived."""
    root = tmp_path / "cold"
    root.mkdir()
    return root


def test_without_servers_threads_are_in_memory() -> None:
    """The README's first snippet needs no Redis."""
    backends = Backends(Settings())
    assert isinstance(backends.threads, HotThreads)
    assert backends.tiered is None


async def test_a_data_directory_keeps_threads_and_payloads_without_a_server(tmp_path: Path) -> None:
    """What one process was told, the next one knows."""
    settings = Settings(data_directory=tmp_path / "data")
    first, second = Backends(settings), Backends(settings)
    opened = await first.threads.open(OpenThread("t", 10, "owner"))
    await first.threads.append(StepAppend("t", 10, opened.header.head, (a_message("hi"),)))
    ref = await first.payloads.put("t", 0, "call", "a large result")
    await first.check()
    await first.close()
    page = await second.threads.read(ReadPage("t", committed_only=False))
    assert [message.body for message in page.messages] == [b"hi"]
    assert await second.payloads.get("t", ref) == "a large result"
    await second.close()


async def test_threads_that_another_store_has_taken_over_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A Redis that is added to a data directory starts empty: whoever adds it must hear of it at once."""
    before = Backends(Settings(data_directory=tmp_path))
    await before.threads.open(OpenThread("t", 10, "owner"))
    await before.check()
    await before.close()
    assert "not seen" not in caplog.text
    after = Backends(Settings(data_directory=tmp_path, thread_store="memory"))
    await after.check()
    await after.close()
    assert "the store of HELIX_DATA_DIRECTORY holds threads, which are not seen" in caplog.text


async def test_a_damaged_database_that_is_not_used_stops_no_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is looked at for threads that nobody sees; what is in use is sound."""
    (tmp_path / "helix.db").write_bytes(b"no database" * 1000)
    backends = Backends(
        Settings(
            data_directory=tmp_path, thread_store="memory", session_store="memory", stream_store="memory"
        )
    )
    await backends.check()
    await backends.close()
    assert "whether the store of HELIX_DATA_DIRECTORY holds threads cannot be told" in caplog.text


async def test_a_database_keeps_threads_and_payloads_without_redis(postgres_dsn: str) -> None:
    """PostgreSQL alone is a deployment: messages, payloads, and nothing else to run."""
    async with _postgres.emptied(postgres_dsn, _postgres.own_prefix("backends")) as tables:
        settings = Settings(postgres_dsn=postgres_dsn, table_prefix=tables.table_prefix)
        backends = Backends(settings)
        await backends.check()
        opened = await backends.threads.open(OpenThread("t", 10, "owner"))
        await backends.threads.append(StepAppend("t", 10, opened.header.head, (a_message("hi"),)))
        ref = await backends.payloads.put("t", 0, "call", "a large result")
        await backends.close()
        page = await HotThreads(tables.threads).read(ReadPage("t", committed_only=False))
        assert [message.body for message in page.messages] == [b"hi"]
        assert await tables.payloads.get_payload("t", ref) is not None


async def test_a_database_without_tables_is_refused_at_the_start(
    postgres_dsn: str, table_prefix: str
) -> None:
    """The message says which command makes them; a failing first turn would say it too late."""
    backends = Backends(Settings(postgres_dsn=postgres_dsn, table_prefix=table_prefix))
    with pytest.raises(SchemaVersionError, match="helix-temporal migrate"):
        await backends.check()
    await backends.close()


@pytest.mark.parametrize(
    ("given", "store"),
    [
        ({}, "memory"),
        ({"data_directory": "d"}, "sqlite"),
        ({"data_directory": "d", "postgres_dsn": "postgresql://db"}, "postgres"),
        (_BOTH, "redis"),
        (
            {"postgres_dsn": "postgresql://db", "redis_url": "redis://localhost", "thread_store": "postgres"},
            "postgres",
        ),
        ({"redis_url": "redis://localhost", "thread_store": "memory"}, "memory"),
    ],
)
def test_hot_threads_are_where_settings_say(given: dict[str, Any], store: str) -> None:
    """Redis and PostgreSQL together are the usual pair: messages in the one, state in the other."""
    assert Settings(**given).threads_in == store


@pytest.mark.parametrize("store", ["redis", "postgres", "sqlite"])
def test_a_thread_store_without_an_address_is_refused(store: str) -> None:
    """Threads would land in memory and be lost, with nobody told."""
    with pytest.raises(InvalidConfigError, match=f"thread_store is '{store}' but"):
        Settings.model_validate({"thread_store": store})


def test_a_directory_is_a_cold_tier(cold_directory: Path) -> None:
    """One machine needs no S3."""
    backends = Backends(Settings(cold_directory=cold_directory))
    assert isinstance(backends.threads, TieredThreads)


def test_stores_from_elsewhere_are_used() -> None:
    """A new backend needs no change in this package."""
    hot, blobs = MemoryThreads(), MemoryBlobs()
    backends = Backends(Settings(), hot=(hot, MemoryPayloads()), blobs=blobs)
    assert (backends.hot, backends.blobs) == (hot, blobs)
    assert HelixPlugin(backends=backends).backends is backends


def test_a_store_from_elsewhere_is_used_though_it_is_empty() -> None:
    """One that counts its objects is false to Python before the first."""

    class Counted(MemoryBlobs):
        def __len__(self) -> int:
            return 0

    blobs = Counted()
    assert Backends(Settings(), blobs=blobs).blobs is blobs


async def test_ended_threads_expire_only_if_that_was_agreed() -> None:
    """Without a cold tier the hot thread is all there is."""
    kept, agreed = Backends(Settings()), Backends(Settings(expire_unarchived_after=timedelta(hours=1)))
    outcomes = []
    for backends in (kept, agreed):
        opened = await backends.threads.open(OpenThread("t", 10, "owner"))
        step = StepAppend("t", 10, opened.header.head, (a_message("hi"),), an_answer("hello"), commits=True)
        await backends.threads.append(step)
        outcomes.append(str(await backends.threads.evict("t", 10)))
    assert outcomes == ["no_cold_tier", "kept_warm"]


async def test_version_1_archives_are_read_once_they_are_switched_on(cold_directory: Path) -> None:
    """Moving from zeitlich is a setting."""
    rows = [_v1_files.anthropic(number) for number in range(4)]
    await DirectoryBlobs(cold_directory).put(_v1_files.KEY, _v1_files.snapshot(rows))
    backends = Backends(Settings(cold_directory=cold_directory, read_v1=True))
    opened = await backends.threads.open(OpenThread("t", 10, "owner"))
    page = await backends.threads.read(ReadPage("t"))
    assert opened.header.head.position == 4
    assert [message.id for message in page.messages] == ["m-0", "m-1", "m-2", "m-3"]


NOWHERE: Final[dict[str, dict[str, Any]]] = {
    "redis_url": {"redis_url": "redis://:hush@127.0.0.1:1/0"},
    "postgres_dsn": {"postgres_dsn": "postgresql://user:hush@127.0.0.1:1/x"},
    "s3_endpoint": {
        "s3_endpoint": "http://127.0.0.1:1",
        "s3_bucket": "bucket",
        "s3_access_key": "a",
        "s3_secret_key": "hush",
    },
}


@pytest.mark.parametrize("setting", NOWHERE)
async def test_a_server_that_does_not_answer_is_named_with_its_setting(setting: str) -> None:
    """Whoever starts the worker knows where to look, and no password is in it."""
    backends = Backends(Settings(**NOWHERE[setting]))
    try:
        with pytest.raises(StoreUnavailableError, match=f"see HELIX_{setting.upper()}$") as raised:
            await backends.check()
    finally:
        await backends.close()
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, (5, 60)),
        ({"HELIX_TIMEOUT_S3_READ": "20s"}, (20, 60)),
        ({"HELIX_TIMEOUT_FLUSH_ATTEMPT": "8s"}, (8, 60)),
        ({"HELIX_TIMEOUT_S3_READ": "90s"}, (90, 90)),
    ],
)
def test_s3_may_be_silent_for_as_long_as_settings_say(
    variables: dict[str, str], seconds: tuple[float, float]
) -> None:
    """A thread whose PUT takes longer would never be archived; a step waits for its own time at least."""
    blobs = Backends(Settings.from_env({"HELIX_S3_BUCKET": "bucket", **variables})).blobs
    assert isinstance(blobs, S3Blobs)
    assert (blobs._config.read_timeout, blobs._config.total_timeout) == seconds


async def test_a_probe_names_the_database_that_was_given() -> None:
    """With a pool of the program's own, and nothing in the settings, it said that memory was away."""
    async with asyncpg.create_pool("postgres://127.0.0.1:1/none", min_size=0) as pool:
        backends = Backends(Settings(), postgres=pool)
        assert set(await backends.find_unanswered(2.0)) == {"threads in postgres", "state in postgres"}
        await backends.close()


async def test_a_probe_says_that_a_store_was_given() -> None:
    """One that the program made itself has no name here."""

    class Away(MemoryThreads):
        async def read_header(self, thread_id: str) -> Any:
            raise StoreUnavailableError(thread_id)

    backends = Backends(Settings(), hot=(Away(), MemoryPayloads()))
    assert set(await backends.find_unanswered(2.0)) == {"threads in the store that the program gave"}
    await backends.close()


def test_an_address_in_place_of_settings_is_refused_with_what_is_expected() -> None:
    """It was an AttributeError of something within; the address may have a password."""
    with pytest.raises(InvalidConfigError, match=r"settings: Settings expected, got str$"):
        Backends("redis://user:hunter2@localhost")  # type: ignore[arg-type]
