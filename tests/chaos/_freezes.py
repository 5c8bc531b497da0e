"""SIGSTOP: workers that hang and go on, or die, while sessions run into their timers and are queried."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowUpdateWithStartInput,
    WorkflowQueryFailedError,
    WorkflowUpdateHandle,
)
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.client import workflow_id
from helix_temporal.models.messages import Message
from helix_temporal.settings import Settings
from helix_temporal.workflows.runners import TASK_NOT_DONE
from tests.chaos._kills import KillCampaign
from tests.chaos._ledger import Ledger
from tests.chaos._oracle import Findings
from tests.chaos._people import People
from tests.chaos._report import Progress, Report
from tests.chaos._workers import WorkerProcess

TASK_TIMEOUT = timedelta(seconds=2)
"""The server gives a workflow task of a worker that hangs to another one after so long; by default 10 s."""

IDLE_SECONDS = 1.5
"""Timers of sessions fire between messages, often while the worker that has the task is away."""

LOST = (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.UNAVAILABLE)
NO_QUERY = (*LOST, RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION)
"""How the server refuses a query of a session that did not begin, or whose worker hangs."""


class ShortTasks(Interceptor):
    """Starts workflows with `TASK_TIMEOUT`."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 (the SDK's name)
        """Of each client."""
        return _ShortTasks(next)


class _ShortTasks(OutboundInterceptor):
    async def start_update_with_start_workflow(
        self,
        input: StartWorkflowUpdateWithStartInput,  # noqa: A002 (the SDK's name)
    ) -> WorkflowUpdateHandle[Any]:
        input.start_workflow_input.task_timeout = TASK_TIMEOUT
        return await super().start_update_with_start_workflow(input)


class FreezeCampaign(KillCampaign):
    """Several workers at a time; one after the other is killed, or hangs for some seconds and goes on.

    Queries come all the time: a worker that has a session's history from the server runs events of
    workflow tasks that another worker has under way.
    """

    name = "freezes"
    _manner: Mapping[str, Any] = MappingProxyType(
        {"texts": ("hello", "hello", "tools=1"), "pause": 2 * IDLE_SECONDS}
    )

    def __init__(
        self, settings: Settings, directory: Path, *, seed: int, sessions: int = 12, workers: int = 3
    ) -> None:
        super().__init__(settings, directory, seed=seed, sessions=sessions, askers=3, turns_per_run=20)
        self._options = self._options.model_copy(update={"idle_timeout": IDLE_SECONDS})
        self._beside = [self._worker() for _ in range(workers - 1)]
        self._frozen = dict[WorkerProcess, asyncio.Task[None]]()
        self._hung = set[int]()
        self._queries = self._refused = 0

    async def run(self, kills: int, progress: Progress) -> Report:
        """Kill or freeze so many workers, then let everything finish, and look."""
        try:
            return await super().run(kills, progress)
        finally:
            for thaw in self._frozen.values():
                thaw.cancel()
            for worker in self._beside:
                worker.stop()

    async def _connect(self) -> Client:
        config = (await super()._connect()).config()
        config["interceptors"] = [*config["interceptors"], ShortTasks()]
        return Client(**config)

    def _along(self, client: Client, people: People) -> list[Coroutine[Any, Any, None]]:
        return [self._keep_querying(client, name) for name in self.session_ids]

    async def _keep_querying(self, client: Client, name: str) -> None:
        handle = client.get_workflow_handle(workflow_id(name))
        while self._going:
            await asyncio.sleep(self._random.uniform(0, 0.6))
            try:
                await handle.query("status", rpc_timeout=timedelta(seconds=5))
                self._queries += 1
            except WorkflowQueryFailedError as error:
                if error.message != TASK_NOT_DONE:
                    self._stuck.append(f"{name}: a query was told {error.message}")
                self._refused += 1
            except RPCError as error:
                if error.status not in NO_QUERY:
                    self._stuck.append(f"{name}: a query was told {error}")

    async def _instant(self, people: People) -> bool:
        """Timers matter as much as answers."""
        await asyncio.sleep(self._random.uniform(0.5, 4))
        return True

    async def _kill(self, worker: WorkerProcess, people: People) -> WorkerProcess:
        """Kill the worker, awake or not, or let one beside it hang for some seconds."""
        awake = [each for each in self._beside if each not in self._frozen]
        if awake and self._random.random() < 0.55:
            victim = self._random.choice(awake)
            victim.freeze()
            self._hung.add(victim.pid)
            self._frozen[victim] = asyncio.create_task(self._thaw(victim, self._random.uniform(1, 8)))
            await self._instant(people)
            return worker
        if (thaw := self._frozen.pop(worker, None)) is not None:
            thaw.cancel()
        self._beside.append(await super()._kill(worker, people))
        return self._beside.pop(0)

    async def _thaw(self, worker: WorkerProcess, seconds: float) -> None:
        await asyncio.sleep(seconds)
        del self._frozen[worker]
        worker.thaw()

    def _excused(self, findings: Findings, threads: Mapping[str, Sequence[Message]]) -> Findings:
        """A worker that hung in front of its model pays when it goes on, after another one has answered."""
        late = {
            event.facts["token"]
            for event in Ledger(self.books).read()
            if event.kind == "model" and event.pid in self._hung
        }
        findings.paid_twice = [
            each for each in findings.paid_twice if each.split(", ")[-1].split()[0] not in late
        ]
        return findings

    def _counts(self) -> dict[str, Any]:
        return {"freezes": len(self._hung), "queries": self._queries, "queries_refused": self._refused}
