"""Four processes on one store: the lock excludes, tokens grow, an entry is recorded once."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests import _postgres
from tests.contracts._lock_child import BACKENDS, SHARED_ENTRIES

ROOT: Final = Path(__file__).parents[2]
PREFIX: Final = _postgres.own_prefix("processes")
PROCESSES: Final = 4
ROUNDS: Final = 12

Places = dict[str, tuple[list[str], str]]
"""The arguments of each backend, and the file whose number is counted up under its lock."""


@pytest.fixture
async def places(
    tmp_path: Path, redis_url: str, redis_prefix: str, postgres_dsn: str
) -> AsyncIterator[Places]:
    """A directory, a server and a database, empty; numbers at 0."""
    where = {
        "sqlite": [str(tmp_path / "helix.db")],
        "redis": [redis_url, redis_prefix],
        "postgres": [postgres_dsn, PREFIX],
    }
    for name in where:
        (tmp_path / name).write_text("0")
    async with _postgres.emptied(postgres_dsn, PREFIX):
        yield {name: (arguments, str(tmp_path / name)) for name, arguments in where.items()}


async def child(places: Places) -> dict[str, Any]:
    """What one process saw."""
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.contracts._lock_child", json.dumps(places), str(ROUNDS)),
        cwd=ROOT,
        stdout=PIPE,
    )
    output, _ = await started.communicate()
    assert started.returncode == 0
    reports: dict[str, Any] = json.loads(output)
    return reports


async def test_processes_exclude_each_other_and_record_once(places: Places, tmp_path: Path) -> None:
    """No update of theirs is lost, no two hold one token, no entry is paid for twice."""
    reports = await asyncio.gather(*(child(places) for _ in range(PROCESSES)))
    for name, (arguments, _) in places.items():
        backend = BACKENDS[name](*arguments)
        after = await backend.locks.acquire("counter")
        entries = await backend.usage.get_entries("shared")
        await backend.close()
        tokens = [report[name]["tokens"] for report in reports]
        every = {token for each in tokens for token in each}
        assert int((tmp_path / name).read_text()) == len(every) == PROCESSES * ROUNDS, name
        assert all(each == sorted(each) for each in tokens), name
        assert after.fencing_token > max(every), name
        assert len(entries) == sum(report[name]["first"] for report in reports) == SHARED_ENTRIES, name
