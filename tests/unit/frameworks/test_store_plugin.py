"""One plugin of a framework for several workers of a process, and what it opens for them."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from helix_temporal import Settings
from helix_temporal.errors import InvalidConfigError
from helix_temporal.frameworks.store_plugin import StorePlugin, read_reference_keys, with_heartbeats

SETTINGS = Settings()


class Watched(StorePlugin):
    """Notes when its stores are closed."""

    def __init__(self, **given: Any) -> None:
        self.seen: list[str] = []
        super().__init__("watched", SETTINGS, **given)

    def forget_stores(self) -> None:
        """Note it."""
        self.seen.append("forgotten")


async def test_stores_stay_open_until_the_last_worker_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of one client share its plugins, and the first to begin is often the first to end."""
    plugin = Watched()
    assert plugin.run_context is not None
    first, second = plugin.run_context(), plugin.run_context()
    await first.__aenter__()
    await second.__aenter__()
    backends = plugin.backends
    closed: list[str] = []

    async def close() -> None:
        closed.append("closed")

    monkeypatch.setattr(backends, "close", close)
    await first.__aexit__(None, None, None)
    assert plugin.backends is backends
    assert (plugin.seen, closed) == ([], [])
    await second.__aexit__(None, None, None)
    assert (plugin.seen, closed) == (["forgotten"], ["closed"])


async def test_a_worker_that_comes_after_the_last_one_has_stores_of_its_own() -> None:
    plugin = Watched()
    assert plugin.run_context is not None
    opened = []
    for _ in range(2):
        async with plugin.run_context():
            opened.append(plugin.backends)
    assert opened[0] is not opened[1]
    assert plugin.seen == ["forgotten"] * 2


async def test_stores_from_elsewhere_are_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncExitStack() as stack:
        given = Watched().backends
        stack.push_async_callback(given.close)

        async def close() -> None:
            pytest.fail("they are somebody else's")

        plugin = Watched(backends=given)
        assert plugin.run_context is not None
        with monkeypatch.context() as patched:
            patched.setattr(given, "close", close)
            async with plugin.run_context():
                assert plugin.backends is given


async def test_an_activity_that_takes_long_heartbeats() -> None:
    """So that Temporal notices a worker that dies in it."""
    environment, beats = ActivityEnvironment(), asyncio.Event()
    environment.on_heartbeat = lambda *_: beats.set()

    @with_heartbeats(0.01)
    async def wait() -> str:
        await beats.wait()
        return "done"

    assert await environment.run(wait) == "done"


def test_references_need_a_key() -> None:
    with pytest.raises(InvalidConfigError, match="HELIX_REFERENCE_KEY"):
        read_reference_keys(SETTINGS)
