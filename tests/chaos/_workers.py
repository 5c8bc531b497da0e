"""Worker processes that are killed: each its own process group, forked from a process that is warm."""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from temporalio import activity

from helix_temporal.agents import Agent
from helix_temporal.settings import Settings
from helix_temporal.telemetry import Telemetry
from helix_temporal.worker import HelixWorker, connect
from tests.chaos._agent import chaos_agent
from tests.chaos._backends import BookedHot, WrappedBackends, use_backends
from tests.chaos._boundaries import Boundaries
from tests.chaos._ledger import Ledger
from tests.chaos._span_file import file_provider

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.chaos._workers"])


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Dies:
    """Where a worker kills itself: at the ``place``-th store call of one activity type, never for 0."""

    activity: str
    place: int
    after: bool = False

    @property
    def name(self) -> str:
        """Part of session ids and of findings."""
        return f"{self.activity}-{self.place}-{'after' if self.after else 'before'}"


class Deadly(Boundaries):
    """Ends the process, as SIGKILL does, at one boundary; notes all of them."""

    def __init__(self, dies: Dies, ledger: Ledger) -> None:
        super().__init__()
        self._dies, self._ledger, self._calls = dies, ledger, 0

    async def around(self, name: str, act: Callable[[], Awaitable[T]]) -> T:
        """One call."""
        kind = activity.info().activity_type if activity.in_activity() else ""
        self._ledger.write("io", activity=kind, call=name)
        if kind != self._dies.activity:
            return await act()
        self._calls += 1
        here = self._calls == self._dies.place
        if here and not self._dies.after:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await act()
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


class WorkerProcess:
    """One session worker in a process of its own.

    Attributes:
        pid: Its process id, which is also its process group's.

    Args:
        cold: It replays each workflow task from the start.
        spans: Where it writes the spans of turns, if it has traces.
    """

    def __init__(
        self,
        settings: Settings,
        books: Path,
        *,
        model_seconds: float = 0.03,
        drain: float = 5.0,
        dies: Dies | None = None,
        aloud: bool = False,
        cold: bool = False,
        spans: Path | None = None,
    ) -> None:
        arguments = (settings, books, model_seconds, drain, dies, aloud, cold, spans)
        self._process = _CONTEXT.Process(target=_run, args=arguments, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self._stopped = False

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.join()

    def freeze(self) -> None:
        """Stop it where it is; the servers take it for alive."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to drain and end."""
        self._process.terminate()

    async def ended(self) -> int | None:
        """Wait for its end; how it ended."""
        await asyncio.to_thread(self._process.join)
        return self._process.exitcode

    def stop(self) -> None:
        """Leave nothing behind; may be repeated."""
        if self._stopped:
            return
        self._stopped = True
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._process.close()


def _run(
    settings: Settings,
    books: Path,
    model_seconds: float,
    drain: float,
    dies: Dies | None,
    aloud: bool,
    cold: bool,
    spans: Path | None,
) -> None:
    os.setsid()
    # What a killed worker had to say is no part of the campaign's output.
    log = os.open(books.with_suffix(".log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    ledger = Ledger(books)
    agent = chaos_agent(ledger, model_seconds=model_seconds, aloud=aloud)
    asyncio.run(_serve(settings, ledger, agent, drain, dies, cold=cold, spans=spans))


async def _serve(
    settings: Settings,
    ledger: Ledger,
    agent: Agent,
    drain: float,
    dies: Dies | None,
    *,
    cold: bool,
    spans: Path | None,
) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    parent = multiprocessing.parent_process()
    assert parent is not None
    # A worker whose campaign was killed must not live on.
    loop.add_reader(int(parent.sentinel), os._exit, 1)
    traces = None if spans is None else Telemetry(tracer_provider=file_provider(spans))
    client, plugin = await connect(settings, [agent], telemetry=traces)
    around = Deadly(dies, ledger) if dies is not None else Boundaries()
    backends = WrappedBackends(
        settings,
        hot=lambda hot: around.around_store(BookedHot(hot, ledger), "hot"),
        blobs=lambda blobs: around.around_store(blobs, "blobs"),
        around=around.around_store,
    )
    use_backends(plugin, backends)
    cached: dict[str, Any] = {"max_cached_workflows": 0} if cold else {}
    async with HelixWorker(client, plugin, drain=drain, **cached):
        ledger.write("serving")
        await stop.wait()
