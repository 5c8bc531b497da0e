"""Worker processes that die by SIGKILL in the middle of a conversation, on real servers."""

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.openai_agents import OpenAIAgentsPlugin

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.openai_agents import HelixSession
from tests.frameworks import _openai_workflows as own
from tests.frameworks._openai_worker import POINTS
from tests.frameworks._openai_workflows import Conversation, Talk

LINES = ["one", "tool look", "tool explode caught", "two"]
TOOLS = ["user", "function_call", "function_call_output", "assistant"]
ROLES = ["user", "assistant", *TOOLS, "user", "user", "assistant"]
PLACES = ("sqlite", "redis", "redis and s3", "postgres")


@asynccontextmanager
async def worker(variables: dict[str, str], *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker process, killed at the end."""
    environment = {**os.environ, **variables, "SETTINGS": ",".join(variables)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.frameworks._openai_worker", *arguments, env=environment
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def check(variables: dict[str, str], said: list[str], calls: Path, extra: int) -> None:
    """Each item stands once, what was answered stands, and only so many answers were paid for twice."""
    backends = Backends(Settings.from_env(variables))
    items: list[Any] = await HelixSession("s", backends.sessions).get_items()
    await backends.close()
    assert [item.get("role") or item["type"] for item in items] == ROLES
    assert list_answers(items) == [*said[:2], said[3]]
    given = Counter(len(call["items"]) for call in own.read_calls(calls))
    assert sorted(given) == [1, 3, 5, 7, 8]
    assert sum(given.values()) <= 5 + extra


def list_answers(items: list[Any]) -> list[str]:
    """What the thread has of the model's answers."""
    return [item["content"][0]["text"] for item in items if item.get("role") == "assistant"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("variables", "point"),
    [
        *(("redis and s3", point) for point in POINTS),
        *(("sqlite", point) for point in ("after the answer", "after the end")),
        *((place, "after the answer") for place in ("redis", "postgres")),
    ],
    indirect=["variables"],
)
async def test_a_worker_is_killed(
    variables: dict[str, str], point: str, temporal_address: str, unique: str, tmp_path: Path
) -> None:
    """The next worker goes on, and an answer that stands is not paid for again."""
    calls = tmp_path / "calls"
    client = await Client.connect(temporal_address, plugins=[OpenAIAgentsPlugin()])
    handle = await client.start_workflow(
        Conversation.run, Talk("s", list(LINES)), id=unique, task_queue=unique
    )
    arguments = temporal_address, unique, str(calls)
    async with worker(variables, *arguments, point) as process:
        await asyncio.wait_for(process.wait(), 200)
        assert process.returncode == -9
    async with worker(variables, *arguments, ""):
        said = await asyncio.wait_for(handle.result(), 200)
    await check(variables, said, calls, 1 if point == "after the model" else 0)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variables", PLACES, indirect=True)
async def test_workers_are_killed_at_any_moment(
    variables: dict[str, str], temporal_address: str, unique: str, tmp_path: Path
) -> None:
    """Fifty conversations, a kill in each, after a time that chance decides."""
    client = await Client.connect(temporal_address, plugins=[OpenAIAgentsPlugin()])
    chance = random.Random(20)
    paid, kills = 0, int(os.environ.get("KILLS", "50"))
    for number in range(kills):
        calls, own_variables = tmp_path / f"calls-{number}", dict(variables)
        session, queue = f"s{number}", f"{unique}-{number}"
        handle = await client.start_workflow(
            Conversation.run, Talk(session, LINES * 3), id=queue, task_queue=queue
        )
        arguments = temporal_address, queue, str(calls)
        async with worker(own_variables, *arguments, "") as process:
            while not calls.exists():  # noqa: ASYNC110 — another process is watched
                await asyncio.sleep(0.01)
            await asyncio.sleep(chance.random() * 2)
            process.kill()
        async with worker(own_variables, *arguments, ""):
            said = await asyncio.wait_for(handle.result(), 200)
        backends = Backends(Settings.from_env(own_variables))
        items: list[Any] = await HelixSession(session, backends.sessions).get_items()
        await backends.close()
        assert [item.get("role") or item["type"] for item in items] == ROLES * 3
        assert list_answers(items) == [each for at, each in enumerate(said) if at % 4 != 2]
        assert len(own.read_calls(calls)) <= 16
        paid += len(own.read_calls(calls)) - 15
    assert paid <= kills // 4  # paid for, and gone with the worker before it could be stored
