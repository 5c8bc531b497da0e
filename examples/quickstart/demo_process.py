"""The demo's hold on its worker process: start, kill, stop, and read what it noted."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WORKER = Path(__file__).resolve().with_name("demo_worker.py")

# A dead worker is noticed within two seconds; the defaults are made for networks, not for watching.
FAST = {
    "HELIX_TIMEOUT_HEARTBEAT_TIMEOUT": "2",
    "HELIX_TIMEOUT_HEARTBEAT_EVERY": "0.4",
    "HELIX_TIMEOUT_MAX_HEARTBEAT_THROTTLE_INTERVAL": "0.4",
    "HELIX_TIMEOUT_STICKY_QUEUE_SCHEDULE_TO_START_TIMEOUT": "1",
}
_PATIENCE = 60.0


class WorkerFailedError(Exception):
    """The worker process ended by itself, or never did what was waited for."""


class Worker:
    """The worker process, and its notes."""

    def __init__(self, conversation: Path, environment: Mapping[str, str], directory: Path) -> None:
        self._notes, self._log, self._hold = (directory / name for name in ("notes", "log", "hold"))
        self._notes.touch()
        self._command = [sys.executable, str(WORKER), str(conversation), str(self._notes), str(self._hold)]
        self._environment = {**environment, **FAST}
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> int:
        """Start a process and wait until it serves; its pid."""
        since = len(self.events())
        self._process = self._started()
        await self.wait_for("ready", since)
        return self._process.pid

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            # Its input is a pipe that nobody writes to: it ends with us, however we end.
            return subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.PIPE, stdout=log, stderr=log
            )

    def hold(self, moment: str) -> None:
        """Have it stop at the next ``model`` or ``tool`` and wait there to be killed."""
        self._hold.write_text(moment)

    def kill(self) -> None:
        """SIGKILL: no handler, no clean-up, no last word."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._hold.unlink(missing_ok=True)

    async def stop(self) -> int:
        """SIGTERM, and its exit status once it has drained."""
        assert self._process is not None
        self._process.terminate()
        return await asyncio.to_thread(self._process.wait, 20)

    def end(self) -> None:
        """Nothing is left running, whatever happened."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def events(self) -> list[Mapping[str, Any]]:
        """All notes so far."""
        return [json.loads(line) for line in self._notes.read_bytes().split(b"\n")[:-1]]

    async def wait_for(self, what: str, since: int) -> Mapping[str, Any]:
        """The first note of this kind after the first ``since`` notes.

        Raises:
            WorkerFailedError: It ended, or a minute has passed.
        """
        assert self._process is not None
        deadline = time.monotonic() + _PATIENCE
        while self._process.poll() is None and time.monotonic() < deadline:
            found = next((event for event in self.events()[since:] if event["what"] == what), None)
            if found is not None:
                return found
            await asyncio.sleep(0.02)
        ended = f"ended with status {self._process.poll()}" if self._process.poll() is not None else "hangs"
        tail = self._log.read_text(errors="replace")[-3000:]
        raise WorkerFailedError(f"the worker {ended} before its note {what!r}; its log:\n{tail}")
