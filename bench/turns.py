"""Turns per second of sessions, against bare workflows on the same servers."""

import asyncio
import contextlib
import os
import statistics
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from bench._bare_workflow import BareInput, BareWorkflow, Said
from bench._lab import Lab, in_turns
from bench._report import Row, compared
from bench._workers import processor_ms, worker
from helix_temporal.client import SessionClient
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings

_WARM_UP = 2
_PAIRS = (("flush at exit", "empty activity", 0.85), ("flush each step", "two EVALSHA, one PUT", 0.9))


class Contestant(Protocol):
    """Something that has sessions."""

    async def ask(self, session_id: str, text: str) -> None:
        """One turn, to its answer."""

    async def begin(self, session_id: str) -> None:
        """Start a session."""

    async def end(self, session_id: str) -> None:
        """End a session."""


class Sessions:
    """Ours."""

    def __init__(self, client: Client, settings: Settings) -> None:
        options = SessionOptions(idle_timeout=3600)
        self.client = SessionClient(client, task_queue=settings.task_queue, options=options)

    async def ask(self, session_id: str, text: str) -> None:
        """One turn."""
        result = await self.client.ask(session_id, text, agent="plain")
        assert result.status is AskStatus.ANSWERED, result

    async def begin(self, session_id: str) -> None:
        """Sessions begin with their first ask."""

    async def end(self, session_id: str) -> None:
        """Close, and wait until it is archived."""
        await self.client.session(session_id).close()
        await self.client.session(session_id).result()


class BareSessions:
    """Bare workflows."""

    def __init__(self, client: Client, settings: Settings, activity: str) -> None:
        self._client, self._settings, self._activity = client, settings, activity

    async def ask(self, session_id: str, text: str) -> None:
        """One turn."""
        handle = self._client.get_workflow_handle(session_id)
        said = Said(id=uuid.uuid4().hex, text=text)
        answer: Said = await handle.execute_update("ask", said, result_type=Said)
        assert answer.text

    async def begin(self, session_id: str) -> None:
        """Start it."""
        start = BareInput(session_id=session_id, activity=self._activity)
        queue = self._settings.task_queue
        await self._client.start_workflow(BareWorkflow.run, start, id=session_id, task_queue=queue)

    async def end(self, session_id: str) -> None:
        """End it."""
        handle = self._client.get_workflow_handle(session_id)
        await handle.signal("close")
        await handle.result()


@dataclass(slots=True)
class Field:
    """All contestants, each with a worker process of its own."""

    lab: Lab
    contestants: dict[str, Contestant]
    workers: dict[str, int]
    cpu: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    async def run(self, name: str, sessions: int, turns: int) -> float:
        """Turns per second of so many sessions side by side; notes what the processes used."""
        contestant = self.contestants[name]
        ids = [f"bench-{uuid.uuid4().hex}" for _ in range(sessions)]
        texts = [self.lab.words.text(1024) for _ in range(turns)]
        await asyncio.gather(*(self._begin(contestant, each) for each in ids))
        processes = {**self.lab.processes, "worker": self.workers[name], "client": os.getpid()}
        before, started = processor_ms(processes), time.perf_counter()
        await asyncio.gather(*(self._talk(contestant, each, texts) for each in ids))
        spent, after = time.perf_counter() - started, processor_ms(processes)
        await asyncio.gather(*(contestant.end(each) for each in ids))
        used = {each: (after[each] - before[each]) / (sessions * turns) for each in processes}
        self.cpu.setdefault(f"{name}/{sessions}", []).append(used)
        return sessions * turns / spent

    async def _begin(self, contestant: Contestant, session_id: str) -> None:
        await contestant.begin(session_id)
        await self._talk(contestant, session_id, ["hello"] * _WARM_UP)

    @staticmethod
    async def _talk(contestant: Contestant, session_id: str, texts: list[str]) -> None:
        for text in texts:
            await contestant.ask(session_id, text)


@contextlib.asynccontextmanager
async def contestants(lab: Lab) -> AsyncIterator[Field]:
    """Four workers: ours with both flush policies, and for each the bare one."""
    settings: dict[str, Settings] = {
        "flush at exit": lab.own(flush="exit"),
        "empty activity": lab.own(),
        "flush each step": lab.own(flush="step"),
        "two EVALSHA, one PUT": lab.own(),
    }
    address = lab.settings.temporal_address
    async with contextlib.AsyncExitStack() as stack:
        workers = {}
        for name, each in settings.items():
            role: Any = "helix" if name.startswith("flush") else "bare"
            workers[name] = (await stack.enter_async_context(worker(role, each))).pid
        ours = await Client.connect(address, plugins=[HelixPlugin()])
        bare = await Client.connect(address, data_converter=pydantic_data_converter)
        found: dict[str, Contestant] = {
            "flush at exit": Sessions(ours, settings["flush at exit"]),
            "empty activity": BareSessions(bare, settings["empty activity"], "bench.empty"),
            "flush each step": Sessions(ours, settings["flush each step"]),
            "two EVALSHA, one PUT": BareSessions(bare, settings["two EVALSHA, one PUT"], "bench.stores"),
        }
        yield Field(lab, found, workers)


async def turns(lab: Lab) -> list[Row]:
    """Turns per second at one and at many sessions, and the processor time of a turn by process."""
    rows: list[Row] = []
    async with contestants(lab) as field:
        for sessions, count in zip(lab.sizes.sessions, lab.sizes.turns, strict=True):
            rows += await _rows(lab, field, sessions, count)
    return rows


async def _rows(lab: Lab, field: Field, sessions: int, count: int) -> list[Row]:
    runs = {name: partial(field.run, name, sessions, count) for name in field.contestants}
    found = await in_turns(lab, f"turns, {sessions} session(s)", runs)
    rows = []
    for ours, bare, least in _PAIRS:
        name = f"turns a second, {sessions} session(s), {ours}"
        rows.append(
            compared(name, "turns/s", found[ours], found[bare], at_least=least, note=f"floor: {bare}")
        )
        rows += cpu_rows(field, ours, bare, sessions)
    return rows


def cpu_rows(field: Field, ours: str, bare: str, sessions: int) -> list[Row]:
    """Processor time that a turn takes in each process."""
    # The first of them is the warm-up.
    mine, floors = field.cpu[f"{ours}/{sessions}"][1:], field.cpu[f"{bare}/{sessions}"][1:]
    rows = []
    for process in mine[0]:
        floor = statistics.median(each[process] for each in floors)
        values = [each[process] for each in mine]
        value = statistics.median(values)
        name = f"  CPU a turn, {sessions} session(s), {ours}: {process}"
        ratio = value / floor if floor else None
        rows.append(Row(name, value, "ms", floor, ratio, spread=(min(values), max(values))))
    return rows
