"""Starts other processes on a directory."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

ROOT = Path(__file__).parents[3]


async def start(what: str, directory: Path, *arguments: str) -> Process:
    """A child that does one of the things in `_file_child`."""
    module = "tests.unit.stores._file_child"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, what, str(directory), *arguments, cwd=ROOT, stdin=PIPE, stdout=PIPE
    )


async def output(*children: Process) -> list[str]:
    """What each of them wrote, once all have ended well."""
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    written = [out.decode() for out, _ in await asyncio.gather(*(child.communicate() for child in children))]
    assert [child.returncode for child in children] == [0] * len(children)
    return written
