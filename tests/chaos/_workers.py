"""Worker processes that are killed: each its own process group, forked from a process that is warm."""

import asyncio
import multiprocessing
import os
import signal
import sys
from pathlib import Path

from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker, connect
from tests.chaos._agent import chaos_agent
from tests.chaos._backends import BookedHot, WrappedBackends, use_backends
from tests.chaos._ledger import Ledger

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.chaos._workers"])


class WorkerProcess:
    """One session worker in a process of its own.

    Attributes:
        pid: Its process id, which is also its process group's.
    """

    def __init__(
        self, settings: Settings, books: Path, *, model_seconds: float = 0.03, drain: float = 5.0
    ) -> None:
        arguments = (settings, books, model_seconds, drain)
        self._process = _CONTEXT.Process(target=_run, args=arguments, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.join()

    def terminate(self) -> None:
        """Ask it to drain and end."""
        self._process.terminate()

    async def ended(self) -> int | None:
        """Wait for its end; how it ended."""
        await asyncio.to_thread(self._process.join)
        return self._process.exitcode

    def stop(self) -> None:
        """Leave nothing behind."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._process.close()


def _run(settings: Settings, books: Path, model_seconds: float, drain: float) -> None:
    os.setsid()
    # What a killed worker had to say is no part of the campaign's output.
    log = os.open(books.with_suffix(".log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    asyncio.run(_serve(settings, Ledger(books), model_seconds, drain))


async def _serve(settings: Settings, ledger: Ledger, model_seconds: float, drain: float) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    parent = multiprocessing.parent_process()
    assert parent is not None
    # A worker whose campaign was killed must not live on.
    loop.add_reader(int(parent.sentinel), os._exit, 1)
    client, plugin = await connect(settings, [chaos_agent(ledger, model_seconds=model_seconds)])
    use_backends(plugin, WrappedBackends(settings, hot=lambda hot: BookedHot(hot, ledger)))
    async with HelixWorker(client, plugin, drain=drain):
        ledger.write("serving")
        await stop.wait()
