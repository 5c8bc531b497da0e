"""A worker whose metrics are fetched as Prometheus fetches them, and a day of its sessions."""

import asyncio
import contextlib
import re
import urllib.request
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from temporalio import activity
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from helix_temporal.agents import ModelRequest
from helix_temporal.client import workflow_id
from helix_temporal.devstack.programs import free_port
from helix_temporal.models.maintenance import CleanupInput, KeepInput, SweepInput
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.waiting import WakeInput
from helix_temporal.telemetry import metrics
from helix_temporal.telemetry.metrics import INSTRUMENTS, Counter, Duration, Gauge
from helix_temporal.testing.serving import Served, session_worker
from helix_temporal.workflows import CleanupWorkflow, KeepWorkflow, SweepWorkflow, WakeWorkflow
from tests.workflows._caller import CallActivity
from tests.workflows._desk import Desk, Gate, calls, first_tools_then

_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

RARE: Final = frozenset(
    {
        "helix_context_repairs",
        "helix_context_summary_failures",
        "helix_maintenance_failures",
        "helix_messages_lost",
        "helix_store_unavailable",
        "helix_stream_dropped",
    }
)
"""Needs a fault; other tests see that it is recorded.  How it comes out is seen here."""


class Sample(NamedTuple):
    """One line of what Prometheus fetches."""

    name: str
    labels: dict[str, str]
    value: float


def fetch(address: str) -> list[Sample]:
    """What a worker gives out now."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return parse(answer.read().decode())


def parse(text: str) -> list[Sample]:
    """The samples of a page in Prometheus' text format."""
    found = (_SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#"))
    return [Sample(m[1], dict(_LABEL.findall(m[2] or "")), float(m[3])) for m in found if m]


@activity.defn(name="tests.record_rare")
async def record_rare(_: None) -> None:
    """Record what no session of the day does."""
    for name in RARE:
        instrument = INSTRUMENTS[name]
        labels: Any = dict.fromkeys(instrument.labels, "main")
        match instrument:
            case Counter():
                instrument.add(**labels)
            case Duration():
                instrument.record(1.0, **labels)
            case Gauge():
                instrument.set(1.0, **labels)


@dataclass(frozen=True)
class Metered:
    """The worker, and where its metrics are."""

    served: Served
    desk: Desk
    address: str

    def samples(self, name: str, **labels: str) -> list[Sample]:
        """The samples with this name, and with these labels among others."""
        return [
            each
            for each in fetch(self.address)
            if each.name == name and labels.items() <= each.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float:
        """Their sum."""
        return sum(each.value for each in self.samples(name, **labels))

    def sid(self) -> str:
        """A session of its own."""
        return f"s-{uuid.uuid4().hex[:8]}"

    async def run(self, workflow: Any, given: Any = None) -> Any:
        """Run a workflow to its end, and give back its result."""
        queue = self.served.plugin.settings.task_queue
        return await self.served.client.execute_workflow(
            workflow, given, id=f"metered-{uuid.uuid4().hex}", task_queue=queue
        )

    async def call(self, name: str, argument: Any) -> Any:
        """Call an activity as another program's workflow would."""
        queue = self.served.plugin.settings.task_queue
        return await self.served.client.execute_workflow(
            CallActivity.run, args=[name, argument], id=f"metered-{uuid.uuid4().hex}", task_queue=queue
        )

    async def terminate(self, sid: str) -> None:
        """Terminate a session: no ``finally`` runs."""
        await self.served.client.get_workflow_handle(workflow_id(sid)).terminate()

    async def ask(self, sid: str, text: str = "hello", agent: str = "main", **how: Any) -> Any:
        """Ask."""
        return await self.served.sessions.ask(sid, text, agent=agent, timeout=30, **how)


@contextlib.asynccontextmanager
async def metered_worker(settings: Any) -> AsyncIterator[Metered]:
    """A worker that gives out its metrics.

    Args:
        settings: Of it, but for where the metrics are.
    """
    desk, address = Desk(), f"127.0.0.1:{free_port()}"
    # Other tests of this process have named more agents than have a label of their own.
    metrics._values.clear()
    async with session_worker(
        settings.model_copy(update={"metrics_prometheus": address}),
        desk.agents(),
        options=SessionOptions(idle_timeout=60),
        workflows=[CallActivity],
        activities=[record_rare],
        drain=1.0,
    ) as served:
        yield Metered(served, desk, address)


async def live_a_day(metered: Metered) -> None:
    """Sessions do what sessions do, and maintenance what it does."""
    await _turns_that_end(metered)
    await _turns_that_are_cut(metered)
    await _fights(metered)
    waiting, alive = metered.sid(), metered.sid()
    await metered.ask(alive)
    metered.desk.scripts[waiting] = first_tools_then("done", "me", name="locate")
    assert (await metered.ask(waiting, agent="people")).status is AskStatus.SUSPENDED
    await metered.run(SweepWorkflow.run, SweepInput())
    await metered.run(SweepWorkflow.run, SweepInput(evict=True))
    await metered.ask(alive, "it is cold now")
    await metered.run(KeepWorkflow.run, KeepInput(parts=(0, 1), records=True))
    await metered.run(CleanupWorkflow.run, CleanupInput())
    await metered.run(WakeWorkflow.run, WakeInput())
    await metered.terminate(waiting)
    await metered.call("tests.record_rare", None)


def fails_for_good(_: ModelRequest) -> str:
    """What a provider says of a wrong key."""
    raise ApplicationError("the key is wrong", type="AuthenticationError", non_retryable=True)


async def _turns_that_end(metered: Metered) -> None:
    plain = metered.sid()
    await metered.ask(plain)
    metered.desk.scripts[plain] = first_tools_then("done", "this")
    await metered.ask(plain)
    await metered.served.sessions.session(plain).close()
    await metered.served.sessions.session(plain).result()
    await metered.ask(plain)  # it has to be made hot again
    limited = metered.sid()
    metered.desk.scripts[limited] = lambda _: calls("again")
    await metered.ask(limited, agent="two-steps")


async def _turns_that_are_cut(metered: Metered) -> None:
    failed = metered.sid()
    metered.desk.scripts[failed] = fails_for_good
    assert (await metered.ask(failed)).status is AskStatus.FAILED
    for abort in (False, True):
        stopped = metered.sid()
        metered.desk.scripts[stopped] = first_tools_then("done", "me", name="locate")
        await metered.ask(stopped, agent="people")
        assert await metered.served.sessions.session(stopped).stop(abort=abort)
        metered.desk.scripts[stopped] = lambda _: "next"
        await metered.ask(stopped, "next", agent="people")
    await _goes_on(metered)
    left, gate = metered.sid(), Gate()
    metered.desk.scripts[left] = gate.then()
    asked = asyncio.create_task(metered.ask(left))
    await gate.reached.wait()
    await metered.terminate(left)
    metered.desk.scripts[left] = lambda _: "again"
    await metered.ask(left, "again")
    gate.opened.set()
    await asyncio.gather(asked, return_exceptions=True)


async def _goes_on(metered: Metered) -> None:
    """A message comes in place of the answer that a turn waits for."""
    client, waiting = metered.served.create_client(SessionOptions(while_suspended="supersede")), metered.sid()
    metered.desk.scripts[waiting] = first_tools_then("done", "me", name="locate")
    assert (await client.ask(waiting, "hello", agent="people")).status is AskStatus.SUSPENDED
    metered.desk.scripts[waiting] = lambda _: "never mind"
    assert (await client.ask(waiting, "never mind", agent="people")).status is AskStatus.ANSWERED


async def _fights(metered: Metered) -> None:
    thread_id = metered.sid()
    opened = await metered.call("helix.threads.open", {"thread_id": thread_id})
    epoch, head = opened["epoch"], opened["head"]
    message = {"id": "m", "role": "user", "content": "hello"}
    given = {"thread_id": thread_id, "epoch": epoch, "head": head, "messages": [message]}
    await metered.call("helix.threads.append", given)  # the sweep will archive it
    for wrong in ({"epoch": epoch - 1}, {"head": {"position": 7, "last_id": "gone"}}):
        with contextlib.suppress(WorkflowFailureError):
            await metered.call("helix.threads.append", given | wrong)
