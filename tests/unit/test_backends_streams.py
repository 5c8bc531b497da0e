"""Where streams are, by settings."""

from datetime import timedelta
from typing import Any

import pytest

from helix_temporal.backends import Backends
from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.streams import StreamLimits
from helix_temporal.settings import Settings
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.redis.streams import RedisStreams

REDIS: dict[str, Any] = {"redis_url": "redis://localhost"}
POSTGRES: dict[str, Any] = {"postgres_dsn": "postgresql://localhost/db"}
DIRECTORY: dict[str, Any] = {"data_directory": "d"}


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, "Memory"),
        (DIRECTORY, "Sqlite"),
        (POSTGRES | DIRECTORY, "Postgres"),
        (POSTGRES | REDIS | DIRECTORY, "Redis"),
        (POSTGRES | REDIS | {"stream_store": "postgres"}, "Postgres"),
        (POSTGRES | REDIS | {"stream_store": "memory"}, "Memory"),
    ],
)
def test_streams_are_in_the_quickest_store(given: dict[str, Any], place: str) -> None:
    """A person watches each chunk; none of them must last."""
    assert type(Backends(Settings(**given)).streams).__name__ == f"{place}Streams"


def test_there_may_be_no_streams() -> None:
    """Who watches nobody pays for nothing."""
    assert Backends(Settings(stream_store="none", **REDIS)).streams is None


def test_a_store_needs_its_address() -> None:
    """Said at the start, not by the first session."""
    with pytest.raises(InvalidConfigError, match="stream_store is 'redis' but redis_url is not set"):
        Settings(stream_store="redis")


def test_streams_from_elsewhere_are_used() -> None:
    """A new backend needs no change in this package."""
    streams = MemoryStreams()
    assert Backends(Settings(), streams=streams).streams is streams


def test_limits_come_from_settings() -> None:
    """One place for them all."""
    limits = {"stream_ttl": timedelta(hours=1), "stream_max_chunks": 0, "stream_max_chunk_bytes": 4096}
    made = Backends(Settings(**REDIS, **limits, stream_abandoned_after=timedelta(seconds=30))).streams
    assert isinstance(made, RedisStreams)
    assert made.limits == StreamLimits(3600.0, 0, 4096, 30.0)


@pytest.mark.parametrize(
    "wrong",
    [{"stream_store": "s3"}, {"stream_ttl": 0}, {"stream_max_chunks": -1}, {"stream_max_chunk_bytes": 10}],
)
def test_wrong_limits_are_refused(wrong: dict[str, Any]) -> None:
    """With the name of the setting."""
    with pytest.raises(InvalidConfigError, match=next(iter(wrong))):
        Settings(**wrong)


def test_limits_count_in_memory_as_well() -> None:
    """A program is tried out in memory under the limits that it will meet."""
    limits = StreamLimits(max_chunks=3)
    assert MemoryBackend(stream_limits=limits).streams.limits == limits
