"""Worker processes: started, awaited, and ended with the benchmark that needs them."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
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
    """A worker of this project's that is ready; raises as `program`."""
    command = (sys.executable, "-m", "bench.worker", role)
    async with program(command, {**environment(settings), **variables}) as process:
        yield process


@contextlib.asynccontextmanager
async def program(
    command: Sequence[str], variables: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program that says when it is ready, and ends with its standard input.

    Raises:
        RuntimeError: It ended before it was ready; what it wrote is on standard error.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=variables,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            if not await process.stdout.readline():
                raise RuntimeError(f"{command[-1]} ended before it was ready")
        yield process
    finally:
        process.stdin.close()
        # Its end is not noticed while there is something in a pipe from it.
        reading = asyncio.create_task(_read_on(process.stdout))
        try:
            async with asyncio.timeout(20):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await reading


async def _read_on(output: asyncio.StreamReader) -> None:
    while await output.read(65_536):
        pass


def processor_ms(processes: Mapping[str, int]) -> dict[str, float]:
    """Processor time that each process has used so far."""
    found = {}
    for name, pid in processes.items():
        times = psutil.Process(pid).cpu_times()
        found[name] = 1e3 * (times.user + times.system)
    return found
