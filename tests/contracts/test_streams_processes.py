"""Two processes write one stream, and another reads it."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests import _postgres
from tests.contracts._stream_child import BACKENDS, CHUNKS, STREAM, WRITERS

ROOT: Final = Path(__file__).parents[2]
PREFIX: Final = _postgres.own_prefix("streams")
PROCESSES: Final = 2

Places = dict[str, list[str]]


@pytest.fixture
async def places(
    data_directory: Path, redis_url: str, redis_prefix: str, postgres_dsn: str
) -> AsyncIterator[Places]:
    """A file, a server and a database, each with an empty stream."""
    where = {
        "sqlite": [str(data_directory / "helix.db")],
        "redis": [redis_url, redis_prefix],
        "postgres": [postgres_dsn, PREFIX],
    }
    async with _postgres.emptied(postgres_dsn, PREFIX):
        for name, arguments in where.items():
            backend = BACKENDS[name](*arguments)
            await backend.streams.create_writer(STREAM, agent_id="first")
            await backend.close()
        yield where


async def child(what: str, name: str, places: Places) -> dict[str, Any]:
    """What one process saw."""
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.contracts._stream_child", what, name, json.dumps(places)),
        cwd=ROOT,
        stdout=PIPE,
    )
    output, _ = await started.communicate()
    assert started.returncode == 0
    reports: dict[str, Any] = json.loads(output)
    return reports


async def test_processes_share_a_stream(places: Places) -> None:
    """Each chunk has a place of its own, and a reader elsewhere sees all of them, in order, once."""
    reading = asyncio.create_task(child("read", "r", places))
    written = await asyncio.gather(*(child("write", f"w{n}", places) for n in range(PROCESSES)))
    for name, arguments in places.items():
        backend = BACKENDS[name](*arguments)
        await backend.streams.end_stream(STREAM, status="completed")
        await backend.close()
    total = PROCESSES * WRITERS * CHUNKS
    for name, found in (await reading).items():
        assert [sequence for sequence, _ in found] == [*range(1, total + 1)], name
        by_writer: dict[str, list[int]] = {}
        for sequence, run_id in found:
            by_writer.setdefault(run_id, []).append(sequence)
        assert by_writer == {run: at for report in written for run, at in report[name].items()}, name
