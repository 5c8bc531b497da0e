"""``python -m bench``: start servers, run the benchmarks, print the table, write the figures."""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench import (
    append,
    beside,
    chats,
    cold,
    commits,
    cost,
    pages,
    passes,
    reads,
    sessions,
    start,
    stateful,
    states,
    streams,
    traces,
    turns,
    waits,
)
from bench._lab import FULL, QUICK, Lab
from bench._report import Row, table, write
from helix_temporal.devstack import Stack, start_stack
from helix_temporal.settings import Settings

BENCHMARKS: Final[Mapping[str, Callable[[Lab], Awaitable[list[Row]]]]] = {
    "append": append.append,
    "memory": append.memory,
    "hydrate": cold.hydrate,
    "flush": cold.flush,
    "tail": cold.tail,
    "reads": reads.reads,
    "history": sessions.history,
    "turns": turns.turns,
    "stateful": stateful.stateful,
    "commit": commits.commit,
    "appended": states.append,
    "list": states.listed,
    "writers": states.writers,
    "beside": beside.beside,
    "streams": streams.streams,
    "chats": chats.chats,
    "long_chat": chats.long_chat,
    "start": start.start,
    "pages": pages.pages,
    "passes": passes.passes,
    "traces": traces.traces,
    "cost": cost.cost,
    "waits": waits.waits,
    "long": sessions.long,
    # The last one: Temporal's server may end under it.
    "full_chat": chats.full_chat,
}
SERVERS: Final = {"temporal": "temporal", "redis": "valkey", "s3": "weed"}


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", default="", help=f"some of {','.join(BENCHMARKS)}, separated by commas")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds")
    parser.add_argument("--threads", type=int, help="the largest number of threads for the row passes")
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"))
    given = parser.parse_args()
    names = [name for name in given.only.split(",") if name] or list(BENCHMARKS)
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(BENCHMARKS)}")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    began = time.monotonic()

    def say(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/dim]  {what}")

    programs = {
        name: value for name, value in os.environ.items() if name.endswith("_BINARY") or name == "PATH"
    }
    with start_stack(SERVERS, environment=programs) as stack, _postgres(programs) as dsn:
        settings = _settings(stack).model_copy(update={"postgres_dsn": dsn})
        sizes = QUICK if given.quick else FULL
        if given.threads:
            sizes = replace(sizes, threads=tuple(_decades(given.threads)))
        lab = Lab(settings, _processes(stack), sizes, say)

        def keep(rows: Sequence[Row]) -> None:
            facts: dict[str, Any] = {"quick": given.quick, "seconds": round(time.monotonic() - began)}
            write(given.out, rows, facts | {"beside": lab.versions})

        rows = asyncio.run(_run(lab, names, keep))
    table(rows, console)
    missed = [row.name for row in rows if row.met is False]
    judged = sum(row.met is not None for row in rows)
    console.print(f"{judged - len(missed)} of {judged} targets met; figures in {given.out}")
    return 0


def _decades(largest: int) -> Iterator[int]:
    """From 1,000 on tenfold up to a size, and it."""
    size = 1_000
    while size < largest:
        yield size
        size *= 10
    yield largest


async def _run(lab: Lab, names: Sequence[str], keep: Callable[[Sequence[Row]], None]) -> list[Row]:
    """One after the other; what was found is kept after each, should a later one be interrupted."""
    rows: list[Row] = []
    for name in names:
        lab.say(f"{name} …")
        rows += await BENCHMARKS[name](lab)
        keep(rows)
    return rows


@contextlib.contextmanager
def _postgres(programs: Mapping[str, str]) -> Iterator[str]:
    """A server that syncs each commit to the disk, as all do that have something to lose."""
    # Not one for tests: those have nothing to lose, and a commit there costs what the processor takes.
    with tempfile.TemporaryDirectory(prefix="helix-bench-", ignore_cleanup_errors=True) as name:
        # The server runs as somebody else where we are root.
        Path(name).chmod(0o755)
        with start_stack(["postgres"], directory=Path(name), environment=programs) as stack:
            yield stack.postgres.dsn


def _settings(stack: Stack) -> Settings:
    return Settings.from_env(stack.get_environment(*SERVERS))


def _processes(stack: Stack) -> dict[str, int]:
    pids = {short: stack.servers[name].pid for name, short in SERVERS.items() if name in stack.servers}
    return {name: pid for name, pid in pids.items() if pid is not None}


if __name__ == "__main__":
    sys.exit(main())
