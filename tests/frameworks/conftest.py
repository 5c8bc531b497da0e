"""The frameworks' own packages run here, each in an environment of its own: see `.ci/frameworks`."""

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from helix_temporal import Backends, Settings
from helix_temporal.stores.protocols.sessions import SessionStore
from tests import _postgres, _services
from tests._production import Production

PLACES = ("memory", "sqlite", "redis", "redis and s3", "postgres")
CHOSEN = os.environ.get("FRAMEWORK_STORES", ",".join(PLACES)).split(",")
"""An older version of a framework is tried on some of them: what differs there is the framework."""

BackendsOpener = Callable[[], AbstractAsyncContextManager[Backends]]
"""Opens the same stores again, as another process does; those in memory once."""
StoreOpener = Callable[[], AbstractAsyncContextManager[SessionStore]]
"""As `BackendsOpener`, for the session store alone."""


@pytest.fixture(params=CHOSEN)
async def variables(
    request: pytest.FixtureRequest, unique: str, data_directory: Path
) -> AsyncIterator[dict[str, str]]:
    """Settings of empty stores of one kind, as another process is given them."""
    variables = {"HELIX_ALLOW_PLAINTEXT": "true", "HELIX_REFERENCE_KEY": "a secret of the workers"}
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "sqlite":
            variables["HELIX_DATA_DIRECTORY"] = str(data_directory)
        elif request.param == "postgres":
            dsn, prefix = request.getfixturevalue("postgres_dsn"), _postgres.own_prefix()
            await stack.enter_async_context(_postgres.emptied(dsn, prefix))
            variables |= {"HELIX_POSTGRES_DSN": dsn, "HELIX_TABLE_PREFIX": prefix}
        elif request.param != "memory":
            variables |= {
                "HELIX_REDIS_URL": request.getfixturevalue("redis_url"),
                "HELIX_REDIS_PREFIX": f"{unique}:",
            }
        if request.param == "redis and s3":
            variables |= {**_services.service("s3"), "HELIX_S3_PREFIX": unique}
        yield variables


@pytest.fixture
def settings(variables: dict[str, str]) -> Settings:
    """Where empty stores of one kind are."""
    return Settings.from_env(variables)


@pytest.fixture
def open_backends(settings: Settings) -> BackendsOpener:
    """These stores."""
    shared = Backends(settings) if settings.state_in == "memory" else None

    @asynccontextmanager
    async def opened() -> AsyncIterator[Backends]:
        backends = shared or Backends(settings)
        try:
            yield backends
        finally:
            if shared is None:
                await backends.close()

    return opened


@pytest.fixture
def open_store(open_backends: BackendsOpener) -> StoreOpener:
    """The session store of these stores."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[SessionStore]:
        async with open_backends() as backends:
            yield backends.sessions

    return opened


@pytest.fixture
async def store(open_store: StoreOpener) -> AsyncIterator[SessionStore]:
    """The session store of these stores."""
    async with open_store() as opened:
        yield opened


@pytest.fixture
async def apart(
    redis_url: str, redis_prefix: str, s3_prefix: str, postgres_dsn: str
) -> AsyncIterator[Production]:
    """States in PostgreSQL, threads in Redis with an archive: a wipe loses entries, and no state."""
    prefix = _postgres.own_prefix("apart")
    async with (
        _postgres.emptied(postgres_dsn, prefix),
        Production.opened(redis_url, redis_prefix, s3_prefix) as made,
    ):
        changes = {"postgres_dsn": postgres_dsn, "table_prefix": prefix}
        made.settings = made.settings.model_copy(update=changes)
        yield made
