"""Whatever ends the program that started servers: none is left, nor its files."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psutil
import pytest

from helix_temporal.devstack import start_stack

COUNTING: Final = """
import signal, time
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
print("counting", flush=True)
while not seen:
    time.sleep(0.05)
time.sleep(1)
print("signals:", len(seen), flush=True)
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PATIENCE_SECONDS: Final = 30.0

PARENT: Final = """
import os, signal, time
from helix_temporal.devstack import start_stack
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits that it is ignored
with start_stack({services}) as stack:
    print(stack.directory, flush=True)
    {after}
    time.sleep(300)
"""


def test_nothing_is_left_after_a_stop() -> None:
    """The ordinary end."""
    with start_stack() as stack:
        directory = stack.directory
        port = urlsplit(stack.s3.endpoint).port
        assert len(_processes_of(directory)) >= 4
    assert not _processes_of(directory)
    assert not directory.exists()
    assert not list(Path("/tmp").glob(f"seaweedfs-*-{port}.sock"))


def test_nothing_is_left_after_a_failure_inside() -> None:
    """A failing test must not leave its servers to the next."""
    failing = start_stack(["redis"])
    directory = failing.__enter__().directory
    failure = ZeroDivisionError()
    assert not failing.__exit__(ZeroDivisionError, failure, None)
    assert not _processes_of(directory)
    assert not directory.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_parent_ends_by_a_signal(number: signal.Signals) -> None:
    """Machines of CI kill jobs; people press Ctrl-C."""
    with _a_parent() as (parent, directory):
        parent.send_signal(number)
        parent.wait()
        _wait_for_nothing(directory)


def test_nothing_is_left_when_a_child_of_the_killed_parent_lives_on() -> None:
    """A forked child keeps the parent's pipes open, so their end is no sign one can rely on."""
    with _a_parent(after="os.fork() or time.sleep(60)") as (parent, directory):
        child = psutil.Process(parent.pid).children()
        parent.kill()
        parent.wait()
        try:
            _wait_for_nothing(directory)
        finally:
            for process in child:
                process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends children of a killed process")
def test_no_process_is_left_when_the_supervisor_is_killed() -> None:
    """The out-of-memory killer takes whom it likes."""
    # Without S3: nobody is left then to remove SeaweedFS's sockets in /tmp.
    with _a_parent(services="['temporal', 'redis', 'postgres']") as (parent, directory):
        supervisor = next(
            process
            for process in psutil.Process(parent.pid).children()
            if "devstack/supervisor.py" in str(process.cmdline())
        )
        supervisor.kill()
        _wait_until(lambda: not _processes_of(directory), "servers live on")
        parent.kill()


def test_the_command_stops_cleanly_at_ctrl_c() -> None:
    """``helix-temporal dev`` prints what to copy, stays, and goes without a traceback."""
    command = [sys.executable, "-c", "from helix_temporal.cli import main; main()", "dev"]
    environment = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as dev:
        assert dev.stdout
        assert dev.stderr
        said = ""
        while "Ctrl-C stops everything" not in said:
            line = dev.stdout.readline()
            assert line, dev.stderr.read()
            said += line
        dev.send_signal(signal.SIGINT)
        rest, errors = dev.communicate(timeout=PATIENCE_SECONDS)
    assert dev.returncode == 0
    assert "Stopped." in rest
    assert not errors
    assert "Temporal's UI: http://127.0.0.1:" in said
    assert "export HELIX_TEMPORAL_ADDRESS=127.0.0.1:" in said
    assert "export HELIX_S3_BUCKET=helix" in said
    directory = Path(said.split("data and logs in ")[1].split()[0])
    assert not _processes_of(directory)
    assert not directory.exists()


def test_a_command_runs_on_a_stack_of_its_own() -> None:
    """One command for an example: servers up, the program with their addresses, servers gone, its status."""
    dev = "from helix_temporal.cli import main; main()"
    program = "import os, sys; print('at', os.environ['HELIX_REDIS_URL']); sys.exit(7)"
    ran = subprocess.run(
        [sys.executable, "-c", dev, "dev", "redis", "--run", f'{sys.executable} -c "{program}"'],
        env={"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert ran.returncode == 7, ran.stderr
    assert "at redis://127.0.0.1:" in ran.stdout
    assert not ran.stderr


def test_ctrl_c_on_a_terminal_reaches_the_command_once() -> None:
    """The terminal gives it to the whole group: a worker takes a second one for "end at once"."""
    dev = "from helix_temporal.cli import main; main()"
    pid, terminal = pty.fork()
    if pid == 0:  # the child, which becomes the command
        os.environ["PYTHONUNBUFFERED"] = "1"
        command = [sys.executable, "-c", dev, "dev", "redis", "--run", f"{sys.executable} -c '{COUNTING}'"]
        os.execv(sys.executable, command)
    said = _read_terminal(terminal, until="counting")
    os.write(terminal, b"\x03")
    said += _read_terminal(terminal, until="Stopped.")
    os.waitpid(pid, 0)
    os.close(terminal)
    assert "signals: 1" in said


def _read_terminal(terminal: int, *, until: str) -> str:
    said, deadline = "", time.monotonic() + PATIENCE_SECONDS
    while until not in said:
        assert time.monotonic() < deadline, said
        ready, _, _ = select.select([terminal], [], [], 1)
        if ready:
            said += os.read(terminal, 4096).decode()
    return said


@contextmanager
def _a_parent(after: str = "pass", services: str = "") -> Iterator[tuple[subprocess.Popen[str], Path]]:
    code = PARENT.format(after=after, services=services)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout
        directory = Path(parent.stdout.readline().strip())
        assert _processes_of(directory)
        try:
            yield parent, directory
        finally:
            parent.kill()
    # The supervisor of a killed parent takes its directory with it; one that was killed cannot.
    subprocess.run(["rm", "-rf", str(directory)], check=True)


def _processes_of(directory: Path) -> list[psutil.Process]:
    """The servers and their supervisor: each has the directory among its arguments or as its home."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "environ", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and str(directory) in f"{process.info['cmdline']} {(process.info['environ'] or {}).get('HOME')}"
    ]


def _wait_for_nothing(directory: Path) -> None:
    _wait_until(lambda: not _processes_of(directory), "processes are left")
    _wait_until(lambda: not directory.exists(), "files are left")


def _wait_until(holds: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, problem
        time.sleep(0.05)
