"""The tutorial, step by step: what it has readers write and type gives what it says."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs._pages import ROOT, blocks, titled

PAGE: Final = ROOT / "docs" / "tutorial.md"
FILES: Final = dict(titled(PAGE, "python"))
COMMANDS: Final = [(where, text.strip()) for where, text in titled(PAGE, "bash")]
PROGRAMS: Final = {
    "python": [sys.executable],
    "helix-temporal": [sys.executable, "-c", "from helix_temporal.cli import main; main()"],
}
PATIENCE: Final = 120.0


def command(line: str) -> list[str]:
    """A command of the page, run with this Python."""
    program, *arguments = shlex.split(line)
    return [*PROGRAMS[program], *arguments]


@pytest.fixture
def environment(temporal_address: str, unique: str, tmp_path: Path) -> dict[str, str]:
    """What the page has readers export, with a name of the test's own; a dead worker is noticed earlier."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("HELIX_")}
    return {
        **own,
        "HELIX_TEMPORAL_ADDRESS": temporal_address,
        "HELIX_DATA_DIRECTORY": str(tmp_path / "data"),
        "HELIX_NAME": unique,
        "HELIX_TIMEOUT_HEARTBEAT_TIMEOUT": "5s",
        "HELIX_TIMEOUT_HEARTBEAT_EVERY": "500ms",
        "HELIX_TIMEOUT_MAX_HEARTBEAT_THROTTLE_INTERVAL": "500ms",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
    }


class Terminals:
    """Starts the page's commands in the reader's directory, and ends what is left of them."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory, self._environment = directory, environment
        self._started: list[subprocess.Popen[str]] = []

    def start(self, line: str) -> "subprocess.Popen[str]":
        """Run a command beside the others."""
        process = subprocess.Popen(
            command(line),
            cwd=self.directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._started.append(process)
        return process

    def run(self, line: str) -> str:
        """What a command prints."""
        return self.output(self.start(line))

    def output(self, process: "subprocess.Popen[str]") -> str:
        """What a command that was started prints until its end."""
        printed, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        return printed

    def close(self) -> None:
        """End what still runs."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def terminals(tmp_path: Path, environment: dict[str, str]) -> Iterator[Terminals]:
    """Where the page's files are, as the page has them."""
    for name, text in FILES.items():
        # A reader needs twenty seconds to kill the worker meanwhile; a test does not.
        (tmp_path / name).write_text(text.replace("time.sleep(20)", "time.sleep(3)"))
    opened = Terminals(tmp_path, environment)
    try:
        yield opened
    finally:
        opened.close()


def wait_for_line(file: Path, line: str) -> None:
    """Wait until a file has a line."""
    deadline = time.monotonic() + PATIENCE
    while not (file.exists() and line in file.read_text().splitlines()):
        assert time.monotonic() < deadline, f"{file.name} has no line {line!r}"
        time.sleep(0.05)


def test_the_page_has_readers_set_what_the_test_sets(environment: dict[str, str]) -> None:
    """A variable that the page forgets would make the reader's first minute fail, and not the test."""
    exports = dict(COMMANDS)["each further terminal"]
    wanted = [line.split()[1].partition("=")[0] for line in exports.splitlines() if line.startswith("export")]
    assert wanted == ["HELIX_TEMPORAL_ADDRESS", "HELIX_DATA_DIRECTORY"]
    assert set(wanted) <= set(environment)


@pytest.mark.slow
def test_each_step_of_the_tutorial_gives_what_the_page_says(terminals: Terminals) -> None:
    """The conversation goes on over processes, and a killed worker costs time and nothing else."""
    lines = [text for _, text in COMMANDS]
    dev, _, serve, hello, again, order, kill, serve_again, calls, read = lines
    said_hello, said_again, said_order, said_calls, said_read = blocks(PAGE, "text")
    assert dev == "helix-temporal dev temporal"  # the test's own server stands for it

    worker = terminals.start(serve)
    assert worker.stdout is not None
    assert worker.stdout.readline().endswith(f", process {worker.pid}\n")
    assert terminals.run(hello) == said_hello
    assert terminals.run(again) == said_again

    asking = terminals.start(order)
    wait_for_line(terminals.directory / "calls.txt", "tool NL-20417")
    assert kill.startswith("kill -9 ")
    worker.kill()
    terminals.start(serve_again)
    assert terminals.output(asking) == said_order

    assert calls == "cat calls.txt"
    assert (terminals.directory / "calls.txt").read_text() == said_calls
    assert terminals.run(read) == said_read
