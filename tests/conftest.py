"""Fixtures for all tests: real servers, and names of one's own on them.

Servers are shared by the whole run, so take names from `redis_prefix`, `s3_prefix`, `table_prefix` and
`task_queue`; a test that wipes or kills a server starts its own (`own_valkey`, `helix_temporal.devstack`).
"""

import asyncio
import gc
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import hypothesis
import pytest

from helix_temporal.devstack import S3Endpoint, Valkey, start_valkey
from helix_temporal.settings import Settings
from tests import _services, _waiting

# Without this a failing contract prints a bare AssertionError.
pytest.register_assert_rewrite("helix_temporal.testing.contracts")

# No test asserts a wall-clock time: a busy machine is not a defect.
hypothesis.settings.register_profile("helix", deadline=None)
hypothesis.settings.load_profile("helix")

_BROKER = pytest.StashKey[_services.Broker]()


def pytest_configure(config: pytest.Config) -> None:
    """The first process serves all others."""
    if not hasattr(config, "workerinput"):
        config.stash[_BROKER] = _services.Broker()


_SLOW_SECONDS = 300
"""In which a slow test must have ended, unless it says otherwise."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that a loop runs say where they hang; others would be given a loop by that."""
    # What takes long begins first, so that no process is left alone with it at the end.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            # On a busy machine they take three times as long, and have not hung.
            item.add_marker(pytest.mark.timeout(_SLOW_SECONDS))
        if isinstance(item, pytest.Function) and _waiting.is_coroutine_test(item):
            item.fixturenames.append(_waiting.FIXTURE)


def pytest_collection_finish() -> None:
    """What is there now stays: a collector that walks it again and again holds workflows up for seconds."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Nothing is left running."""
    if _BROKER in config.stash:
        config.stash[_BROKER].close()


@pytest.fixture
async def told_where_it_hangs(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Shortly before the time limit of pytest, the test is given up in a way that lets it clean up."""
    loop, limit = asyncio.get_running_loop(), _waiting.limit_of(request.node)
    timer = loop.call_later(0.9 * limit, _waiting.give_up, loop, request.node) if limit else None
    yield
    if timer is not None:
        timer.cancel()


@pytest.fixture(scope="session")
def temporal_address() -> str:
    """A Temporal server, tuned for tests; time skipping per workflow is allowed."""
    return _services.service("temporal")["HELIX_TEMPORAL_ADDRESS"]


@pytest.fixture(scope="session")
def redis_url() -> str:
    """A Redis (Valkey) server."""
    return _services.service("redis")["HELIX_REDIS_URL"]


@pytest.fixture(scope="session")
def redis_cluster() -> str:
    """A node of a Redis Cluster of three primaries."""
    return _services.service("redis-cluster")["HELIX_REDIS_URL"]


@pytest.fixture(scope="session")
def postgres_dsn() -> str:
    """A PostgreSQL database."""
    return _services.service("postgres")["HELIX_POSTGRES_DSN"]


@pytest.fixture(scope="session")
def s3() -> S3Endpoint:
    """An S3 server with a bucket: ``endpoint``, ``bucket``, ``region``, ``access_key``, ``secret_key``."""
    found = _services.service("s3")
    return S3Endpoint(
        found["HELIX_S3_ENDPOINT"],
        found["HELIX_S3_BUCKET"],
        found["HELIX_S3_REGION"],
        found.get("HELIX_S3_ACCESS_KEY"),
        found.get("HELIX_S3_SECRET_KEY"),
    )


@pytest.fixture
def s3_variables(s3: S3Endpoint, unique: str) -> dict[str, str]:
    """The variables of an archive in it, below a prefix of the test's own."""
    return {
        "HELIX_S3_ENDPOINT": s3.endpoint,
        "HELIX_S3_BUCKET": s3.bucket,
        "HELIX_S3_REGION": s3.region,
        "HELIX_S3_PREFIX": unique,
        "HELIX_S3_ACCESS_KEY": s3.access_key or "",
        "HELIX_S3_SECRET_KEY": s3.secret_key or "",
        "HELIX_ALLOW_PLAINTEXT": "true",
    }


@pytest.fixture
def own_valkey() -> Iterator[Valkey]:
    """A Redis server of the test's own, to wipe, kill and restart; acknowledged writes survive a crash."""
    with start_valkey(persistent=True) as server:
        yield server


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other accounts can get to, which pytest's own ones are closed to."""
    with tempfile.TemporaryDirectory(prefix="helix-test-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def data_directory() -> Iterator[Path]:
    """A directory that is not there yet; in memory where that can be had, as syncing costs nothing there."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="helix-test-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name, "data")


@pytest.fixture
def unique() -> str:
    """A short name that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def redis_prefix(unique: str) -> str:
    """A key prefix of the test's own."""
    return f"{unique}:"


@pytest.fixture
def s3_prefix(unique: str) -> str:
    """An object prefix of the test's own."""
    return unique


@pytest.fixture
def table_prefix(unique: str) -> str:
    """A table prefix of the test's own."""
    return f"{unique}_"


@pytest.fixture
def task_queue(unique: str) -> str:
    """A task queue of the test's own."""
    return unique


@pytest.fixture
def settings(temporal_address: str, redis_url: str, s3: S3Endpoint, unique: str) -> Settings:
    """Temporal, Redis and S3, with prefixes and a task queue of the test's own."""
    variables = {
        **_services.service("s3"),
        "HELIX_TEMPORAL_ADDRESS": temporal_address,
        "HELIX_REDIS_URL": redis_url,
        "HELIX_REDIS_PREFIX": f"{unique}:",
        "HELIX_S3_PREFIX": unique,
        "HELIX_TASK_QUEUE": unique,
    }
    return Settings.from_env({**variables, "HELIX_ALLOW_PLAINTEXT": "true"})
