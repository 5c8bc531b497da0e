"""What sessions leave in Temporal: events and bytes of a plain turn, and very long sessions."""

import time
import uuid
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client, WorkflowHandle

from bench._bare_stores import redis_client
from bench._lab import Lab
from bench._report import Row, told
from bench._workers import worker
from bench.worker import ANSWER_BYTES
from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings

_TEXT_BYTES = 1024
_LOOKS = 5
"""Turns that are looked at, one after the other, at each place."""


@dataclass(frozen=True, slots=True)
class History:
    """How long a run's history is."""

    run_id: str
    events: int
    bytes: int


class Talk:
    """One session, and a look at its history."""

    def __init__(self, client: Client, settings: Settings, agent: str) -> None:
        self._client, self._agent = client, agent
        options = SessionOptions(idle_timeout=3600)
        self.sessions = SessionClient(client, task_queue=settings.task_queue, options=options)
        self.session_id = f"bench-{uuid.uuid4().hex}"
        self.turns = 0

    async def ask(self, text: str) -> str | None:
        """One turn."""
        result = await self.sessions.ask(self.session_id, text, agent=self._agent, timeout=300)
        assert result.status is AskStatus.ANSWERED, result
        self.turns += 1
        return result.text

    def run(self, run_id: str | None = None) -> WorkflowHandle[Any, Any]:
        """A run of the session."""
        return self._client.get_workflow_handle(workflow_id(self.session_id), run_id=run_id)

    async def history(self, run_id: str | None = None) -> History:
        """Length of a run's history; of the present one by default."""
        described = await self.run(run_id).describe()
        info = described.raw_description.workflow_execution_info
        return History(described.run_id, described.history_length, info.history_size_bytes)

    async def end(self) -> None:
        """Close, and wait until it is archived."""
        await self.sessions.session(self.session_id).close()
        await self.sessions.session(self.session_id).result()


async def history(lab: Lab) -> list[Row]:
    """Events and bytes that a plain turn adds, early and late in a session's life."""
    settings = lab.own()
    rows = []
    async with worker("helix", settings):
        client = await Client.connect(settings.temporal_address, plugins=[HelixPlugin()])
        talk = Talk(client, settings, "plain")
        for turn in lab.sizes.history_turns:
            while talk.turns < turn:
                if talk.turns % 100 == 0:
                    lab.say(f"history: turn {talk.turns} of {lab.sizes.history_turns[-1]}")
                await talk.ask(lab.words.text(_TEXT_BYTES))
            events, size = await _look(lab, talk)
            over = [each - 2 * (_TEXT_BYTES + ANSWER_BYTES) for each in size]
            rows += [
                told(f"history: events of turn {turn:,}", "events", events, at_most=12),
                told(f"history: bytes of turn {turn:,} above twice its texts", "B", over, at_most=2048),
            ]
        await talk.end()
    return rows


async def _look(lab: Lab, talk: Talk) -> tuple[list[float], list[float]]:
    """What each of some turns adds; one that continues as new in between is left out."""
    events: list[float] = []
    size: list[float] = []
    before = await talk.history()
    while len(events) < _LOOKS:
        await talk.ask(lab.words.text(_TEXT_BYTES))
        after = await talk.history()
        if after.run_id == before.run_id:
            events.append(after.events - before.events)
            size.append(after.bytes - before.bytes)
        before = after
    return events, size


async def long(lab: Lab) -> list[Row]:
    """Thousands of turns with large tool results, over many runs."""
    settings, turns = lab.own(), lab.sizes.long_turns
    async with worker("helix", settings, BENCH_TOOL_BYTES=str(lab.sizes.tool_bytes)):
        client = await Client.connect(settings.temporal_address, plugins=[HelixPlugin()])
        talk = Talk(client, settings, "fetching")
        runs: dict[str, None] = {}
        started = time.perf_counter()
        for turn in range(turns):
            text = await talk.ask(f"read page {turn}")
            assert text == f"{lab.sizes.tool_bytes} bytes read", text
            if turn % 25 == 0 or turn == turns - 1:
                runs[(await talk.history()).run_id] = None
                spent = time.perf_counter() - started
                lab.say(f"long: {turn + 1} of {turns} turns, {len(runs)} runs, {spent:.0f} s")
        spent = time.perf_counter() - started
        head = (await talk.sessions.session(talk.session_id).describe_thread()).head.position
        held = await _held(settings, talk.session_id)
        histories = [await talk.history(run_id) for run_id in runs]
        lab.say("long: reading the histories")
        largest = max([await _largest_event(talk.run(run_id)) for run_id in runs])
        await talk.end()
    note = f"{turns:,} turns with tool results of {lab.sizes.tool_bytes / 1e6:g} MB"
    return [
        told("long session: messages", "messages", [head], at_least=4 * turns, note=note),
        told("long session: seconds", "s", [spent]),
        told("long session: Redis at its end", "MB", [held], at_most=128 * lab.sizes.tool_bytes / 1e6),
        told("long session: runs", "runs", [len(runs)]),
        told("long session: events of a run, most", "events", [max(each.events for each in histories)]),
        told(
            "long session: bytes of a run, most",
            "B",
            [max(each.bytes for each in histories)],
            at_most=8 * 2**20,
        ),
        told("long session: bytes of a turn", "B", [_mean_bytes(histories, turns)], at_most=8 * 1024),
        told("long session: largest event", "B", [largest], at_most=64 * 1024),
    ]


async def _held(settings: Settings, session_id: str) -> float:
    """MB of the session's record in Redis."""
    client = redis_client(settings)
    try:
        used: Any = await client.memory_usage(f"{settings.redis_prefix}{{{session_id}}}", samples=0)
    finally:
        await client.aclose()
    return used / 1e6 if used else 0.0


def _mean_bytes(histories: list[History], turns: int) -> float:
    return sum(each.bytes for each in histories) / turns


async def _largest_event(run: WorkflowHandle[Any, Any]) -> int:
    found = await run.fetch_history()
    return max(event.ByteSize() for event in found.events)
