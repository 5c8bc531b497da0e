"""What turns cost where somebody bills for it: actions of Temporal, requests to S3, memory of Redis."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig

from bench._bare_stores import redis_client
from bench._blobs import CountingBlobs
from bench._lab import Lab
from bench._report import Row, told
from bench.worker import ANSWER, Plain
from helix_temporal.agents import Agent, Model, ModelRequest, ModelResponse
from helix_temporal.backends import Backends
from helix_temporal.client import SessionClient
from helix_temporal.models.ids import workflow_id
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker

ACTION_EVENTS: Final = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: "starts",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: "updates",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: "signals",
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: "activities",
    EventType.EVENT_TYPE_TIMER_STARTED: "timers",
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES: "search attributes",
}
"""One action each by the rules of Temporal Cloud ("Actions" in its documentation, as of November 2026).

A sub-agent's start and a signal to another execution are counted there.

Retries of activities and heartbeats that reach the server are actions as well, and no events of their own.
"""


_HEARTBEAT: Final = "RecordActivityTaskHeartbeat"


def count_actions(history: WorkflowHistory) -> dict[str, int]:
    """Actions of one execution by kind, retries of activities among them."""
    found: dict[str, int] = {}
    for event in history.events:
        kind = ACTION_EVENTS.get(event.event_type)
        if kind is not None:
            found[kind] = found.get(kind, 0) + 1
        retries = max(event.activity_task_started_event_attributes.attempt - 1, 0)
        if retries:
            found["retries"] = found.get("retries", 0) + retries
    return found


@dataclass(slots=True)
class Site:
    """One worker whose requests are counted."""

    settings: Settings
    client: Client
    sessions: SessionClient
    blobs: CountingBlobs
    metrics: MetricBuffer

    async def ask(self, session_id: str, text: str) -> None:
        """One turn.

        Raises:
            RuntimeError: It was not answered.
        """
        answer = await self.sessions.ask(session_id, text, agent="plain")
        if answer.status is not AskStatus.ANSWERED:
            raise RuntimeError(f"answered expected, got {answer.status}")

    async def count_actions(self, session_id: str) -> dict[str, int]:
        """Actions of the session's newest execution."""
        return count_actions(await self.client.get_workflow_handle(workflow_id(session_id)).fetch_history())

    def count_heartbeats(self) -> int:
        """Heartbeats that reached the server since this was asked last."""
        updates = self.metrics.retrieve_updates()
        beats = [
            each for each in updates if each.attributes.get("operation") == "RecordActivityTaskHeartbeat"
        ]
        return sum(int(each.value) for each in beats if each.metric.name == "temporal_request")

    async def end(self, session_id: str) -> None:
        """Close, and wait until it is archived and not hot any more."""
        await self.sessions.session(session_id).close()
        await self.sessions.session(session_id).result()


class Slow:
    """A model that takes as long as models take."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def generate(self, request: ModelRequest) -> ModelResponse:  # noqa: ARG002 (always the same)
        """See `helix_temporal.agents.Model`."""
        await asyncio.sleep(self._seconds)
        return ModelResponse(content=ANSWER)


@contextlib.asynccontextmanager
async def site(lab: Lab, model: Model, **changes: Any) -> AsyncIterator[Site]:
    """A worker in this process, with its defaults, state in PostgreSQL."""
    settings = await lab.own_with_state(**changes)
    bucket = Backends(settings).blobs
    assert bucket is not None
    blobs = CountingBlobs(bucket)
    backends = Backends(settings, blobs=blobs)
    plugin = HelixPlugin(settings, agents=[Agent(name="plain", model=model)], backends=backends)
    metrics = MetricBuffer(100_000)
    client = await Client.connect(
        settings.temporal_address,
        plugins=[plugin],
        runtime=Runtime(telemetry=TelemetryConfig(metrics=metrics)),
    )
    sessions = SessionClient(
        client, task_queue=settings.task_queue, options=SessionOptions(idle_timeout=3600)
    )
    async with HelixWorker(client, plugin, drain=1.0):
        yield Site(settings, client, sessions, blobs, metrics)


@dataclass(frozen=True, slots=True)
class Spent:
    """What something cost; ``hot`` are bytes of Redis that the session's thread has afterwards."""

    actions: Mapping[str, int]
    puts: int
    gets: int
    listings: int
    uploaded: int
    hot: int


async def _spend(here: Site, session_id: str, done: Callable[[], Awaitable[None]]) -> Spent:
    """Do it, and count; the actions are those of the session's newest execution alone, from its begin on."""
    here.blobs.reset()
    await done()
    blobs, redis = here.blobs, redis_client(here.settings)
    hot: Any = await redis.memory_usage(f"{here.settings.redis_prefix}{{{session_id}}}", samples=0)
    await redis.aclose()
    actions = await here.count_actions(session_id)
    return Spent(actions, blobs.puts, blobs.gets, blobs.listings, blobs.uploaded, hot or 0)


async def cost(lab: Lab) -> list[Row]:
    """A session: its first turn, many more, its end, and its next turn from the archive."""
    turns, session_id = lab.sizes.cost_turns, f"cost-{uuid.uuid4().hex[:8]}"

    async def talk(count: int) -> None:
        for _ in range(count):
            await here.ask(session_id, lab.words.text(1024))

    async with site(lab, Plain()) as here:
        first = await _spend(here, session_id, lambda: talk(1))
        lab.say(f"cost: {turns} turns")
        more = await _spend(here, session_id, lambda: talk(turns))
        ended = await _spend(here, session_id, lambda: here.end(session_id))
        again = await _spend(here, session_id, lambda: talk(1))
        await here.end(session_id)
    name = f"a turn, of {turns}"
    actions = _minus(more.actions, first.actions)
    note = _describe(actions)
    return [
        told(f"{name}: actions", "actions", [sum(actions.values()) / turns], note=note),
        told(f"{name}: PUT", "requests", [more.puts / turns]),
        told(f"{name}: GET", "requests", [more.gets / turns]),
        told(f"{name}: uploaded", "KB", [more.uploaded / turns / 1024], note="for 2 KB of text"),
        told(f"{name}: bytes of Redis", "B", [more.hot / (turns + 1)], note="while it is hot"),
        *_session_rows("a session's first turn", first, first.actions),
        *_session_rows("a session's end", ended, _minus(ended.actions, more.actions)),
        *_session_rows("the first turn after it, from the archive", again, again.actions),
        *await _slow_turns(lab),
    ]


async def _slow_turns(lab: Lab) -> list[Row]:
    """Actions of a plain turn whose model takes its time, with heartbeats, by the profile of settings."""
    rows, seconds = [], lab.sizes.model_seconds
    profiles: tuple[tuple[Literal["fast", "cloud"], float | None], ...] = (("fast", None), ("cloud", 4.0))
    for profile, at_most in profiles:
        lab.say(f"cost: a turn of {seconds:g} s, profile {profile}")
        session_id = f"slow-{uuid.uuid4().hex[:8]}"
        timeouts = Settings(profile=profile).timeouts
        async with site(lab, Slow(seconds), profile=profile, timeouts=timeouts) as here:
            await here.ask(session_id, lab.words.text(1024))
            before = sum((await here.count_actions(session_id)).values())
            here.count_heartbeats()
            await here.ask(session_id, lab.words.text(1024))
            turn = sum((await here.count_actions(session_id)).values()) - before
            beats = here.count_heartbeats()
            await here.end(session_id)
        name = f"a turn with a model call of {seconds:g} s, profile {profile}: actions"
        note = f"{turn} and {beats} heartbeats"
        rows.append(told(name, "actions", [float(turn + beats)], at_most=at_most, note=note))
    return rows


def _session_rows(name: str, spent: Spent, actions: Mapping[str, int]) -> list[Row]:
    requests = f"{spent.puts} PUT, {spent.gets} GET, {spent.listings} LIST"
    return [
        told(f"{name}: actions", "actions", [float(sum(actions.values()))], note=_describe(actions)),
        told(
            f"{name}: requests to S3",
            "requests",
            [float(spent.puts + spent.gets + spent.listings)],
            note=requests,
        ),
    ]


def _minus(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    found = {kind: count - before.get(kind, 0) for kind, count in after.items()}
    return {kind: count for kind, count in found.items() if count}


def _describe(actions: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in actions.items())
