"""Workers: open the stores, check them, serve, drain, close."""

import asyncio
import signal
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from helix_temporal.agents import Agent
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings


async def connect(
    settings: Settings, agents: Sequence[Agent] = (), **plugin: Any
) -> tuple[Client, HelixPlugin]:
    """A client with the plugin, as the settings say.

    Raises:
        StoreUnavailableError: Temporal does not answer.
    """
    helix = HelixPlugin(settings, agents=agents, **plugin)
    key = settings.temporal_api_key
    try:
        client = await Client.connect(
            settings.temporal_address,
            namespace=settings.temporal_namespace,
            tls=settings.temporal_tls,
            api_key=key.get_secret_value() if key else None,
            plugins=[helix],
        )
    except RuntimeError as error:
        raise StoreUnavailableError(
            f"Temporal at {settings.temporal_address} does not answer; is it running? ({error})"
        ) from error
    return client, helix


class HelixWorker:
    """A worker whose stores are checked before it serves and closed after it has drained.

    ::

        async with HelixWorker(client, plugin):
            ...

    Args:
        drain: Seconds that running activities have to end when the worker stops.
        options: Further arguments for `temporalio.worker.Worker`.
    """

    def __init__(self, client: Client, plugin: HelixPlugin, *, drain: float = 10.0, **options: Any) -> None:
        self._plugin = plugin
        options.setdefault("task_queue", plugin.settings.task_queue)
        options.setdefault("graceful_shutdown_timeout", timedelta(seconds=drain))
        self._worker = Worker(client, **options)

    async def __aenter__(self) -> Worker:
        """Check the stores, then serve.

        Raises:
            UnsafeRedisPolicyError, ConditionalWritesUnsupportedError: A server would lose data.
            StoreUnavailableError: A server does not answer.
        """
        try:
            await self._plugin.backends.check()
        except BaseException:
            await self._plugin.backends.close()
            raise
        return await self._worker.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain, then close the stores."""
        try:
            await self._worker.__aexit__(kind, exception, traceback)
        finally:
            await self._plugin.backends.close()


async def serve(settings: Settings, agents: Sequence[Agent], **plugin: Any) -> None:
    """Run a worker until SIGINT or SIGTERM."""
    client, helix = await connect(settings, agents, **plugin)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with HelixWorker(client, helix):
        await stop.wait()
