"""Worker processes: started, awaited, and ended with the benchmark that needs them."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Literal

import psutil

from bench._lab import environment
from helix_temporal.settings import Settings

ROOT = Path(__file__).parent.parent
START_SECONDS = 60.0


@contextlib.asynccontextmanager
async def worker(
    role: Literal["helix", "bare"], settings: Settings, **variables: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker that is ready.

    Raises:
        RuntimeError: It ended before it was; what it wrote is on standard error.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.worker", role),
        cwd=ROOT,
        env={**environment(settings), **variables},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            if not await process.stdout.readline():
                raise RuntimeError(f"the {role} worker ended before it was ready")
        yield process
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(20):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def processor_ms(processes: Mapping[str, int]) -> dict[str, float]:
    """Processor time that each process has used so far."""
    found = {}
    for name, pid in processes.items():
        times = psutil.Process(pid).cpu_times()
        found[name] = 1e3 * (times.user + times.system)
    return found
