"""A worker and clients with whatever a user brings: converters, codecs, interceptors."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client
from temporalio.converter import DataConverter

from helix_temporal.agents import Agent, ModelRequest, ScriptedModel
from helix_temporal.client import SessionClient
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker
from tests.workflows.conftest import TIMEOUTS

OPTIONS = SessionOptions(idle_timeout=60)


def unreachable(request: ModelRequest) -> str:
    """A provider that is away."""
    raise ConnectionError("the secret was refused")


AGENTS = [
    Agent(name="main", model=ScriptedModel(lambda request: f"{len(request.messages)}")),
    Agent(name="away", model=ScriptedModel(unreachable)),
]


@dataclass(frozen=True)
class Served:
    """A worker, and the converter that its client has."""

    client: Client
    settings: Settings
    sessions: SessionClient

    async def another(self, converter: DataConverter, **changes: Any) -> SessionClient:
        """A client with a converter, and with settings, of its own."""
        settings = self.settings.model_copy(update=changes)
        plugins = [HelixPlugin(settings)]
        client = await Client.connect(settings.temporal_address, data_converter=converter, plugins=plugins)
        return SessionClient(client, options=OPTIONS)


@asynccontextmanager
async def served_with(
    address: str, converter: DataConverter, connect: dict[str, Any] | None = None, **changes: Any
) -> AsyncIterator[Served]:
    """A worker whose client has a data converter of the user's."""
    fields = {"temporal_address": address, "task_queue": f"q-{uuid.uuid4().hex[:8]}", "timeouts": TIMEOUTS}
    settings = Settings(**(fields | changes))
    helix = HelixPlugin(settings, agents=AGENTS)
    client = await Client.connect(address, data_converter=converter, plugins=[helix], **(connect or {}))
    async with HelixWorker(client, helix, drain=1.0):
        yield Served(client, settings, SessionClient(client, options=OPTIONS))
