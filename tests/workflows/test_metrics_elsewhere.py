"""Metrics of a client that the application made itself, and of stores that keep a turn's end otherwise."""

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig

from helix_temporal.client import SessionClient
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker
from tests.workflows._desk import Desk, first_tools_then
from tests.workflows._metered import fails_for_good

STORES: dict[str, dict[str, Any]] = {
    # The last step and the state are one transaction; else the step comes first; else there is no state.
    "together": {},
    "apart": {"cold_directory": "archive"},
    "no state": {"session_store": "none"},
}


@pytest.mark.parametrize("stores", STORES)
async def test_each_turn_is_counted_once(temporal_address: str, tmp_path: Path, stores: str) -> None:
    """By the application's own runtime, which nobody changes, whatever the stores."""
    (tmp_path / "archive").mkdir()
    changes = STORES[stores]
    if "cold_directory" in changes:
        changes = changes | {"cold_directory": tmp_path / changes["cold_directory"]}
    settings = Settings(
        temporal_address=temporal_address,
        task_queue=f"t{uuid.uuid4().hex[:12]}",
        data_directory=tmp_path,
        **changes,
    )
    buffer, desk = MetricBuffer(10_000), Desk()
    plugin = HelixPlugin(settings, agents=desk.agents())
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    client = await Client.connect(temporal_address, plugins=[plugin], runtime=runtime)
    async with HelixWorker(client, plugin, drain=1.0):
        sessions = SessionClient(client, task_queue=settings.task_queue)
        sid = f"s-{uuid.uuid4().hex[:8]}"
        await sessions.ask(sid, "hello", agent="main", timeout=30)
        desk.scripts[sid] = first_tools_then("done", "this")
        await sessions.ask(sid, "again", agent="main", timeout=30)
        desk.scripts[sid] = fails_for_good
        await sessions.ask(sid, "and again", agent="main", timeout=30)
        waiting = f"s-{uuid.uuid4().hex[:8]}"
        desk.scripts[waiting] = first_tools_then("done", "me", name="locate")
        await sessions.ask(waiting, "hello", agent="people", timeout=30)
        await sessions.session(waiting).stop(abort=True)
        desk.scripts[waiting] = lambda _: "next"
        await sessions.ask(waiting, "next", agent="people", timeout=30)
    turns = [each for each in buffer.retrieve_updates() if each.metric.name == "helix_turns"]
    found: Counter[str] = Counter()
    for each in turns:
        found[str(each.attributes["outcome"])] += int(each.value)
    assert +found == {"completed": 3, "failed": 1, "aborted": 1}
