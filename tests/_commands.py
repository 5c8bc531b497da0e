"""Commands of ``helix-temporal`` as processes that have nothing but their variables."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs._pages import ROOT

RUN = (
    # A background job, as CI may be, inherits that Ctrl-C is ignored.
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from helix_temporal.cli import main; main()"
)
ALL_FINISHED = ("Stopped: no activity was running", "Stopped: what was running has finished")


def environment(variables: dict[str, str]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("HELIX_")}
    return {**own, **variables, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}


def start(directory: Path, variables: dict[str, str], *arguments: str) -> "subprocess.Popen[str]":
    """Start a command; all that it prints comes through its standard output."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        cwd=directory,
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until(process: "subprocess.Popen[str]", *texts: str) -> str:
    """What a command prints until each of the texts was in a line, in whichever order."""
    assert process.stdout is not None
    read = ""
    while not all(each in read for each in texts):
        line = process.stdout.readline()
        assert line, read
        read += line
    return read


@contextmanager
def running(
    directory: Path, variables: dict[str, str], *arguments: str, until: str
) -> Iterator["subprocess.Popen[str]"]:
    """A command, once it has printed a line; it must then stop by itself when told to."""
    process = start(directory, variables, *arguments)
    try:
        read_until(process, until)
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
    assert output.splitlines()[-1].startswith(ALL_FINISHED)
