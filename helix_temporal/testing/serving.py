"""A worker and a client for tests of sessions: one line from settings and agents to a first ask."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client

from helix_temporal.agents import Agent
from helix_temporal.client import SessionClient
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker, connect


@dataclass(frozen=True, slots=True)
class Served:
    """A running worker's surroundings.

    Attributes:
        plugin: Its ``backends`` are the worker's stores.
        sessions: Talks to the worker's sessions.
    """

    client: Client
    plugin: HelixPlugin
    sessions: SessionClient

    def create_client(self, options: SessionOptions) -> SessionClient:
        """Another client of the same worker; the sessions that it starts have these options."""
        return SessionClient(self.client, task_queue=self.plugin.settings.task_queue, options=options)


@contextlib.asynccontextmanager
async def session_worker(
    settings: Settings,
    agents: Sequence[Agent],
    *,
    options: SessionOptions | None = None,
    plugin: dict[str, Any] | None = None,
    **worker: Any,
) -> AsyncIterator[Served]:
    """Serve sessions of ``agents`` while the block runs, with the stores that the settings name.

    Settings without addresses of stores keep threads in memory, which is enough for a test of an agent.

    Args:
        settings: Where the stores and Temporal are.
        agents: Whom the worker serves.
        options: For the sessions that the client starts.
        plugin: Further arguments for `HelixPlugin`.
        worker: Further arguments for `HelixWorker`.

    Raises:
        StoreUnavailableError: A server does not answer; with ``wait=True`` it is waited for.
    """
    client, helix = await connect(settings, agents, **(plugin or {}))
    async with HelixWorker(client, helix, **{"drain": 10.0, "wait": False, **worker}):
        yield Served(client, helix, SessionClient(client, task_queue=settings.task_queue, options=options))
