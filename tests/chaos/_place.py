"""A worker in this process, people who ask, and books: what most campaigns run in."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client

from helix_temporal.backends import Backends
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker, connect
from tests.chaos._agent import chaos_agent
from tests.chaos._backends import BookedHot, WrappedBackends, use_backends
from tests.chaos._ledger import Ledger
from tests.chaos._oracle import Findings, check_books, check_thread
from tests.chaos._people import People, read_thread


@dataclass(frozen=True, slots=True)
class Place:
    """Where a campaign happens.

    Attributes:
        backends: For looking at: not the worker's own.
    """

    settings: Settings
    client: Client
    plugin: HelixPlugin
    people: People
    ledger: Ledger
    backends: Backends

    async def judge(self, names: Sequence[str]) -> Findings:
        """All sessions' finished turns, as any reader sees them, and all books."""
        whole = {name: await read_thread(self.backends, name) for name in names}
        return check_books(self.ledger.read(), whole) + await self.judge_asks(names)

    async def judge_asks(self, names: Sequence[str]) -> Findings:
        """All sessions' finished turns against the books of those who asked."""
        findings = Findings()
        for name in names:
            finished = await read_thread(self.backends, name, committed_only=True)
            asks = [ask for ask in self.people.asks if ask.session == name]
            findings += check_thread(name, asks, finished)
        return findings

    def model_calls(self) -> int:
        """How often the model was called."""
        return sum(event.kind == "model" for event in self.ledger.read())

    def repeated_calls(self) -> list[str]:
        """Steps for which the model was called more than once, and how far apart."""
        calls: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for event in self.ledger.read():
            if event.kind == "model":
                calls[event.facts["step"], *event.facts["inputs"]].append(event.at)
        return [
            f"{step} again after {[round((at - times[0]) / 1e9, 3) for at in times[1:]]} s"
            for step, times in calls.items()
            if len(times) > 1
        ]


@contextlib.asynccontextmanager
async def open_place(
    settings: Settings,
    directory: Path,
    name: str,
    *,
    options: SessionOptions | None = None,
    seed: int = 0,
    model_seconds: float = 0.01,
    ask_timeout: float = 90.0,
    looking: Settings | None = None,
) -> AsyncIterator[Place]:
    """A running worker over these settings; everything is closed at the end.

    ``looking`` are the settings of those who look, where the worker's ones lead through broken lines.
    """
    ledger = Ledger(directory / f"{name}.jsonl")
    agent = chaos_agent(ledger, model_seconds=model_seconds, tool_seconds=model_seconds)
    client, plugin = await connect(settings, [agent])
    use_backends(plugin, WrappedBackends(settings, hot=lambda hot: BookedHot(hot, ledger)))
    backends = Backends(looking or settings)
    people = People(client, settings, options=options, seed=seed, ask_timeout=ask_timeout)
    try:
        async with HelixWorker(client, plugin):
            yield Place(settings, client, plugin, people, ledger, backends)
    finally:
        await backends.close()
        ledger.close()


@contextlib.asynccontextmanager
async def busy(people: People, names: Sequence[str], *, askers: int = 1) -> AsyncIterator[Callable[[], None]]:
    """People who ask in all these sessions for as long as the block lasts; then everyone gets an answer."""
    going = True

    def stop() -> None:
        nonlocal going
        going = False

    asking = [
        asyncio.create_task(people.keep_asking(name, asker, lambda: going))
        for name in names
        for asker in range(askers)
    ]
    try:
        yield stop
        stop()
        await asyncio.gather(*asking)
    finally:
        stop()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
