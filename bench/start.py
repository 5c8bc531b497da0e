"""How soon the whole stack is there."""

import os
import subprocess
import sys
import time
from pathlib import Path

from bench._lab import Lab
from bench._report import Row, told


async def start(lab: Lab) -> list[Row]:
    """From the command ``helix-temporal dev`` to the line that says it is ready; new processes each time."""
    found = []
    for number in range(lab.sizes.starts):
        lab.say(f"start: {number + 1} of {lab.sizes.starts}")
        found.append(_one())
    return [
        told("helix-temporal dev: ready", "s", found, at_most=3.0, note="Temporal, PostgreSQL, Valkey, S3")
    ]


def _one() -> float:
    command = [str(Path(sys.executable).with_name("helix-temporal")), "dev"]
    usual = {name: value for name, value in os.environ.items() if not name.startswith("HELIX_")}
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=usual) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("Ready in"):
                    return time.perf_counter() - started
        finally:
            _end(process)
    raise RuntimeError("helix-temporal dev ended before it was ready")


def _end(process: subprocess.Popen[str]) -> None:
    # Not SIGINT: what runs in the background of a script inherits that it is ignored.
    process.terminate()
    try:
        process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
