"""Stores for the commands that work on them."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helix_temporal.backends import Backends
from helix_temporal.cli.commands import app
from helix_temporal.settings import Settings
from tests._collector import Collector


@pytest.fixture(params=["postgres", "redis", "sqlite"])
def empty_store(
    request: pytest.FixtureRequest,
    postgres_dsn: str,
    redis_url: str,
    table_prefix: str,
    redis_prefix: str,
    tmp_path: Path,
) -> dict[str, str]:
    """The variables of an empty store of the test's own, one that processes share: with its tables."""
    places = {
        "postgres": {"HELIX_POSTGRES_DSN": postgres_dsn, "HELIX_TABLE_PREFIX": table_prefix},
        "redis": {"HELIX_REDIS_URL": redis_url, "HELIX_REDIS_PREFIX": redis_prefix},
        "sqlite": {"HELIX_DATA_DIRECTORY": str(tmp_path)},
    }
    chosen: dict[str, str] = places[request.param]
    if request.param == "postgres":
        assert CliRunner().invoke(app, ["migrate"], env=chosen).exit_code == 0
    if request.param == "sqlite":
        asyncio.run(_make_database(Settings.from_env(chosen)))
    return chosen


async def _make_database(settings: Settings) -> None:
    backends = Backends(settings)
    await backends.sessions.session_exists("s")
    await backends.close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()
