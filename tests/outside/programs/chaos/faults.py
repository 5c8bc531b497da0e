"""Faults from a seed, several at once."""

import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from chaos.clients import People, Session
from chaos.s3_proxy import S3Proxy, Trouble
from chaos.stack import HotStore, Workers, restart_postgres
from helix_temporal.client import workflow_id
from helix_temporal.devstack import Stack
from helix_temporal.errors import HelixError

_RESETTABLE: Final = {
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
}

_FIRST_WORDS: Final = ("charge slow", "charge helper", "pay charge", "charge where")

_CATCH_UP_NS: Final = 15 * 10**9
"""So long after S3 is back a session may still be behind with its archive."""

Fault = Callable[[], Awaitable[None]]


class Faults:
    """All that goes wrong in one run.

    Attributes:
        counts: How often which fault struck.
        log: When (monotonic ns) which one struck what, for whoever reads a violation.
        frozen: Of each frozen process: its id, when it was frozen, when it went on.
        lost_hot: When Redis was wiped or rolled back.
        s3_away: From when until when S3 was in trouble.
    """

    def __init__(
        self,
        *,
        seed: int,
        client: Client,
        people: People,
        workers: Workers,
        hot: HotStore,
        s3: S3Proxy,
        stack: Stack,
        freeze_seconds: float,
    ) -> None:
        self._random = random.Random(f"faults {seed}")
        self._client, self._people, self._workers = client, people, workers
        self._hot, self._s3, self._stack = hot, s3, stack
        self._freeze_seconds = freeze_seconds
        self.counts: Counter[str] = Counter()
        self.log: list[tuple[int, str]] = []
        self.frozen: list[tuple[int, int, int]] = []
        self.lost_hot: list[int] = []
        self.s3_away: list[tuple[int, int]] = []
        self._begun: list[asyncio.Task[None]] = []
        self._menu: list[tuple[str, int, Fault]] = [
            ("kill", 5, self._kill),
            ("freeze", 2, self._freeze),
            ("wipe", 3, self._wipe),
            ("roll back", 2, self._roll_back),
            ("s3", 5, self._s3_trouble),
            ("postgres", 1, self._postgres),
            ("cancel twice", 2, self._cancel),
            ("terminate", 2, self._terminate),
            ("reset", 5, self._reset),
            ("rewind", 2, self._rewind),
            ("close", 2, self._close),
            ("flood", 2, self._flood),
            ("begin", 2, self._begin),
        ]

    def unarchived_losses(self) -> list[int]:
        """When Redis lost what S3 may not have had, by a documented limit."""
        return [lost for lost in self.lost_hot if any(a < lost < b + _CATCH_UP_NS for a, b in self.s3_away)]

    async def strike(self, seconds: float, only: frozenset[str] = frozenset()) -> None:
        """Strike for so long; what lasts is ended by `settle`."""
        menu = [each for each in self._menu if not only or each[0] in only]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(self._random.uniform(0.2, 2.5))
            name, _, fault = self._random.choices(menu, [weight for _, weight, _ in menu])[0]
            self.counts[name] += 1
            self._note(name)
            self._begun.append(asyncio.create_task(self._do(name, fault)))

    async def settle(self) -> None:
        """Wait until all faults have ended; a mistake in one is an error of the run."""
        await asyncio.gather(*self._begun)
        self._s3.trouble = Trouble()

    async def _do(self, name: str, fault: Fault) -> None:
        try:
            await fault()
        except (HelixError, TimeoutError, RPCError) as error:
            self.counts[f"{name}: {type(error).__name__}"] += 1

    def _note(self, what: str) -> None:
        self.log.append((time.monotonic_ns(), what))

    def _session(self) -> Session:
        return self._random.choice(self._people.sessions)

    async def _kill(self) -> None:
        if self._workers.running:
            self._workers.kill(self._random.choice(self._workers.running))
        await asyncio.sleep(self._random.uniform(0, 1))
        self._workers.start()

    async def _freeze(self) -> None:
        worker = self._workers.start()
        # One that has begun to serve; the other goes on.
        await asyncio.sleep(self._random.uniform(3, 5))
        began = time.monotonic_ns()
        await self._workers.freeze(worker, self._freeze_seconds)
        self.frozen.append((worker.pid, began, time.monotonic_ns()))
        await asyncio.sleep(self._random.uniform(0, 3))
        if worker in self._workers.running and len(self._workers.running) > 2:
            self._workers.kill(worker)

    async def _wipe(self) -> None:
        await self._hot.wipe()
        self.lost_hot.append(time.monotonic_ns())

    async def _roll_back(self) -> None:
        await self._hot.remember()
        await asyncio.sleep(self._random.uniform(0.5, 5))
        await self._hot.roll_back()
        self.lost_hot.append(time.monotonic_ns())

    async def _s3_trouble(self) -> None:
        kind = self._random.choice(["late", "twice", "refused", "busy", "lost"])
        seconds = self._random.choice([0.3, 1.0, 3.0])
        chance = 1.0 if kind == "refused" else self._random.choice([0.1, 0.3, 1.0])
        self._note(f"s3 {kind} {chance} {seconds} s")
        self._s3.trouble, began = Trouble(seconds=seconds, **{kind: chance}), time.monotonic_ns()
        await asyncio.sleep(self._random.uniform(1, 5))
        self._s3.trouble = Trouble()
        self.s3_away.append((began, time.monotonic_ns()))

    async def _postgres(self) -> None:
        await asyncio.to_thread(restart_postgres, self._stack, self._random.uniform(0, 2))

    async def _cancel(self) -> None:
        session = self._session()
        session.stops.append(time.monotonic_ns())
        handle = self._client.get_workflow_handle(workflow_id(session.id))
        await handle.cancel()
        await asyncio.sleep(self._random.uniform(0, 0.5))
        await handle.cancel()

    async def _terminate(self) -> None:
        session = self._session()
        session.stops.append(time.monotonic_ns())
        await self._client.get_workflow_handle(workflow_id(session.id)).terminate("chaos")

    async def _close(self) -> None:
        await self._people.client.session(self._session().id).close()

    async def _flood(self) -> None:
        await self._people.flood(self._session(), 30)

    async def _rewind(self) -> None:
        await self._people.rewind(self._session(), self._random.randint(1, 3))

    async def _begin(self) -> None:
        """A new session, which is reset to its very beginning within its first turn."""
        session = Session(f"{self._people.sessions[0].id.partition('-')[0]}new-{self.counts['begin']}")
        asking = asyncio.create_task(self._people.begin(session, self._random.choice(_FIRST_WORDS)))
        await asyncio.sleep(self._random.uniform(0.5, 4))
        try:
            await self._reset_run(session, workflow_id(session.id), None, first=True)
        finally:
            await asking

    async def _reset(self) -> None:
        session = self._session()
        found = workflow_id(session.id)
        if self._random.random() < 0.2:
            found = await self._sub_agent_of(found) or found
        runs = [
            each.run_id async for each in self._client.list_workflows(f"WorkflowId = '{found}'", page_size=20)
        ]
        if not runs:
            return
        # Mostly the newest execution; now and then one that was followed by others.
        run = runs[0] if self._random.random() < 0.8 else self._random.choice(runs)
        await self._reset_run(session, found, run, first=self._random.random() < 0.2)
        if self._random.random() < 0.2:
            await asyncio.sleep(0.5)
            session.stops.append(time.monotonic_ns())
            await self._client.get_workflow_handle(workflow_id(session.id)).cancel()

    async def _sub_agent_of(self, found: str) -> str | None:
        """The newest of its sub-agents' sessions."""
        below = self._client.list_workflows(f"WorkflowId STARTS_WITH '{found}>'", limit=1)
        async for each in below:
            return str(each.id)
        return None

    async def _reset_run(self, session: Session, found: str, run: str | None, *, first: bool) -> None:
        history = await self._client.get_workflow_handle(found, run_id=run).fetch_history()
        events = [each.event_id for each in history.events if each.event_type in _RESETTABLE]
        if not events:
            return
        event = events[0] if first else self._random.choice(events)
        session.resets.append(time.monotonic_ns())
        current = await self._client.get_workflow_handle(found).describe()
        if run not in {None, current.run_id}:
            # The server ends the execution that followed the one that is reset, within its turn.
            session.stops.append(time.monotonic_ns())
        self._note(f"reset {found} run {run} to event {event} of {len(history.events)}")
        await self._client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=self._client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=found, run_id=run or ""),
                reason="chaos",
                workflow_task_finish_event_id=event,
                request_id=uuid.uuid4().hex,
            )
        )
