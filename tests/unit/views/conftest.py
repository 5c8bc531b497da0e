"""Stores in memory and in a file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.stores.sqlite import SqliteBackend
from tests._sessions import Place, memory_place
from tests.unit.views._scene import Scene, scene_over


@pytest.fixture(params=["memory", "sqlite"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    """Empty stores."""
    if request.param == "memory":
        async with memory_place()() as place:
            yield scene_over(place, MemoryUsage())
        return
    backend = SqliteBackend(tmp_path / "helix.db", timeout=60)
    yield scene_over(Place(backend.sessions, backend.threads), backend.usage)
    await backend.close()


@pytest.fixture
async def memory_scene() -> AsyncIterator[Scene]:
    """Empty stores in memory, for what is large."""
    async with memory_place()() as place:
        yield scene_over(place, MemoryUsage())
