"""Another process that locks and records: ``python -m tests.contracts._lock_child <places> <rounds>``.

Each round reads a number from a file and writes the next one, without any protection but the lock.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from helix_temporal.models.usage import CustomUsageEntry
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sqlite import SqliteBackend

SHARED_ENTRIES = 10

BACKENDS: dict[str, Any] = {
    "sqlite": lambda path: SqliteBackend(path, timeout=60),
    "redis": lambda url, prefix: RedisBackend(url, prefix=prefix, timeout=60),
    "postgres": lambda dsn, prefix: PostgresBackend(dsn, table_prefix=prefix, timeout=60),
}


def an_entry(number: int) -> CustomUsageEntry:
    """One that all processes record."""
    return CustomUsageEntry(id=str(number), session_id="shared", timestamp=number, metric="m", key="k")


async def work(backend: Any, counter: Path, rounds: int) -> dict[str, Any]:
    """The tokens under which it counted, and how many entries it was the first to record."""
    tokens: list[int] = []
    first = 0
    for number in range(rounds):
        async with backend.locks.hold("counter", timeout_ms=60_000) as lock:
            before = int(await asyncio.to_thread(counter.read_text))
            await asyncio.to_thread(counter.write_text, str(before + 1))
            tokens.append(lock.fencing_token)
        first += await backend.usage.record_entry(an_entry(number % SHARED_ENTRIES))
    return {"tokens": tokens, "first": first}


async def main(places: str, rounds: str) -> None:
    """Work in all places, one after the other, and report."""
    reports = {}
    for name, (arguments, counter) in json.loads(places).items():
        backend = BACKENDS[name](*arguments)
        try:
            reports[name] = await work(backend, Path(counter), int(rounds))
        finally:
            await backend.close()
    sys.stdout.write(json.dumps(reports))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
