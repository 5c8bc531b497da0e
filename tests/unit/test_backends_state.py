"""Where locks and usage are, by settings."""

from datetime import timedelta
from typing import Any

import pytest

from helix_temporal.backends import Backends
from helix_temporal.errors import InvalidConfigError
from helix_temporal.settings import Settings
from helix_temporal.stores.memory import MemoryLocks, MemoryUsage

REDIS: dict[str, Any] = {"redis_url": "redis://localhost"}
POSTGRES: dict[str, Any] = {"postgres_dsn": "postgresql://localhost/db"}
DIRECTORY: dict[str, Any] = {"data_directory": "d"}


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, "Memory"),
        (DIRECTORY, "Sqlite"),
        (REDIS | DIRECTORY, "Redis"),
        (POSTGRES, "Postgres"),
        (POSTGRES | REDIS | DIRECTORY, "Postgres"),
    ],
)
def test_locks_and_usage_are_in_the_most_durable_store(given: dict[str, Any], place: str) -> None:
    """Messages in Redis and state in PostgreSQL is the usual pair."""
    backends = Backends(Settings(**given))
    assert type(backends.locks).__name__ == f"{place}Locks"
    assert type(backends.usage).__name__ == f"{place}Usage"


def test_a_server_of_threads_and_state_is_opened_once() -> None:
    """One pool of connections, not two."""
    backends = Backends(Settings(**POSTGRES))
    assert len(backends._places) == 1


def test_sessions_in_redis_live_as_long_as_settings_say() -> None:
    """``HELIX_SESSION_TTL`` reaches the store."""
    mortal, kept = Settings(**REDIS, session_ttl=timedelta(hours=1)), Settings(**REDIS)
    lives = [Backends(each)._places["redis"].sessions._lives for each in (mortal, kept)]
    assert lives == [3_600_000, None]


class Disks:
    """A provider of workspaces."""

    async def list_snapshots(self, session_id: str) -> list[str]:
        """None."""
        return []

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Nothing to do."""


disks = Disks()


def test_providers_of_workspaces_are_imported_beside_those_given() -> None:
    """One that is there already, or one that is made; what code gives counts first."""
    named = {"a": f"{__name__}:disks", "b": f"{__name__}:Disks", "c": f"{__name__}:Disks"}
    mine = Disks()
    found = Backends(Settings(workspaces=named), workspaces={"c": mine}).workspaces
    assert (found["a"], found["c"], sorted(found)) == (disks, mine, ["a", "b", "c"])
    assert isinstance(found["b"], Disks)


@pytest.mark.parametrize("path", ["no.such.module:x", f"{__name__}:nothing", f"{__name__}:REDIS"])
def test_a_provider_that_is_not_there_is_told_at_the_start(path: str) -> None:
    """Snapshots that nobody can delete are found out before there are any."""
    with pytest.raises(InvalidConfigError, match=path):
        Backends(Settings(workspaces={"disk": path}))


def test_locks_and_usage_from_elsewhere_are_used() -> None:
    """A new backend needs no change in this package."""
    locks, usage = MemoryLocks(), MemoryUsage()
    backends = Backends(Settings(), locks=locks, usage=usage)
    assert (backends.locks, backends.usage) == (locks, usage)


def test_their_activities_are_registered() -> None:
    """A worker serves them without being told."""
    names = {
        method.__temporal_activity_definition.name for method in Backends(Settings()).make_activities([])
    }
    assert names >= {"helix.locks.acquire", "helix.locks.release", "helix.usage.record", "helix.usage.query"}
