"""Runs an example as its README says."""

import asyncio
import os
import subprocess
import sys

from tests.docs._pages import ROOT, blocks


def check_example(name: str) -> None:
    """It runs alone, without settings, and prints what its README shows."""
    directory = ROOT / "examples" / name
    own = {name: value for name, value in os.environ.items() if not name.startswith("HELIX_")}
    done = subprocess.run(
        [sys.executable, str(directory / f"{name}.py")],
        env=own, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in blocks(directory / "README.md", "")


async def check_example_on_temporal(folder: str, program: str, variables: dict[str, str]) -> None:
    """Its worker is killed, the turn is stored once, and it prints what its README shows."""
    directory = ROOT / "examples" / folder
    own = {name: value for name, value in os.environ.items() if not name.startswith("HELIX_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(directory / program),
        stdout=asyncio.subprocess.PIPE,
        env={**own, **variables},
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 200)
    assert process.returncode == 0
    text = printed.decode()
    lines = text.splitlines()
    assert lines[1:4] == [
        "  attempt 1: the agent answered",
        "  the worker ended with -9",
        "  attempt 2: the session has the answer",
    ]
    held = lines[lines.index("The session holds:") + 1 :]
    assert held == [
        "  user: Where is NL-20417?",
        f"  assistant: {lines[4].strip()}",
        "  user: And when does it arrive?",
        f"  assistant: {lines[7].strip()}",
    ]
    assert text in blocks(directory / "README.md", "")
