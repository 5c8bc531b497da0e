"""The process that owns the servers: ``python supervisor.py <parent pid> [<directory to remove>]``.

It starts and stops servers on command (one JSON object a line) and stops them all, and removes the
temporary directory, when told to or when the parent is gone, however that ended: the pipe closes and the
parent's id changes even after SIGKILL.  Should this process be killed itself, the kernel ends the servers
(Linux).  Standard library only: it starts in some 30 ms.
"""

import contextlib
import ctypes
import glob
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

PARENT_POLL_SECONDS = 0.5
PR_SET_PDEATHSIG = 1

Command = dict[str, Any]


class Server:
    """A started process, the group it leads and how it is stopped."""

    def __init__(self, command: Command) -> None:
        self.close_signal = signal.Signals[command["close_signal"]]
        self.grace = float(command["grace"])
        self.leftovers: list[str] = command["leftovers"]
        with open(command["log"], "ab") as log:  # noqa: PTH123 — pathlib starts slowly
            self.process = subprocess.Popen(
                command["argv"],
                cwd=command["cwd"],
                env=command["env"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=command["uid"],
                group=command["gid"],
                extra_groups=None if command["uid"] is None else [],
                # Runs after the change of user, which would clear the signal.  This process has one thread.
                preexec_fn=_die_with_parent(self.close_signal),  # noqa: PLW1509
            )

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the process, or with SIGKILL its whole group; nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    def wait_for_end(self, deadline: float) -> int:
        """Wait until it has ended, by force after the deadline, and clear up after it."""
        try:
            return self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
            return self.process.wait()
        finally:
            for pattern in self.leftovers:
                for path in glob.glob(pattern):  # noqa: PTH207 — pathlib starts slowly
                    with contextlib.suppress(OSError):
                        os.unlink(path)  # noqa: PTH108 — pathlib starts slowly


def _die_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    supervisor = os.getpid()

    def arm() -> None:
        prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(1)

    return arm


class Supervisor:
    """Servers by name, and the commands on them."""

    def __init__(self, parent: int, directory: str | None) -> None:
        self.parent = parent
        self.directory = directory
        self.servers: dict[str, Server] = {}

    def spawn_server(self, command: Command) -> Command:
        """Start a program; the reply has its process id."""
        server = self.servers[command["name"]] = Server(command)
        return {"pid": server.process.pid}

    def report_exit(self, command: Command) -> Command:
        """How a program ended; None while it runs."""
        return {"exit": self.servers[command["name"]].process.poll()}

    def stop_server(self, command: Command) -> Command:
        """Stop a program and wait for its end."""
        server = self.servers.pop(command["name"])
        server.send_signal(signal.Signals[command["signal"]])
        return {"exit": server.wait_for_end(time.monotonic() + server.grace)}

    def stop_all(self) -> None:
        """Stop all programs at once, wait for their end, and remove the temporary directory."""
        for server in self.servers.values():
            server.send_signal(server.close_signal)
        started = time.monotonic()
        for server in self.servers.values():
            server.wait_for_end(started + server.grace)
        self.servers.clear()
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def serve_commands(self) -> None:
        """Answer commands until ``close``, the end of the pipe, or the death of the parent."""
        waiting = b""
        while os.getppid() == self.parent:
            if not select.select([0], [], [], PARENT_POLL_SECONDS)[0]:
                continue
            received = os.read(0, 65536)
            if not received:
                return
            *lines, waiting = (waiting + received).split(b"\n")
            for line in lines:
                command = json.loads(line)
                if command["do"] == "close":
                    return
                self.answer_command(command)

    def answer_command(self, command: Command) -> None:
        """Carry a command out, and write its reply or its error as one line."""
        commands = {"spawn": self.spawn_server, "status": self.report_exit, "stop": self.stop_server}
        try:
            reply = commands[command["do"]](command)
        except (OSError, subprocess.SubprocessError, KeyError) as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        os.write(1, json.dumps(reply).encode() + b"\n")


def _exit_on_signal(_number: int, _frame: object) -> NoReturn:
    sys.exit(1)


def main() -> None:
    """Serve, and leave nothing behind."""
    # A Ctrl-C is for the parent, which then tells us; we are in a session of our own anyway.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    signal.signal(signal.SIGHUP, _exit_on_signal)
    supervisor = Supervisor(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
    try:
        supervisor.serve_commands()
    finally:
        supervisor.stop_all()


if __name__ == "__main__":
    main()
