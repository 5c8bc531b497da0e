"""Workers: open the stores, check them, serve, drain, close."""

import asyncio
import gc
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, NoReturn

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Worker, WorkerDeploymentConfig

from helix_temporal._setting_rules import redact_url
from helix_temporal.agents import Agent
from helix_temporal.agents.checks import check_type
from helix_temporal.client._diagnosis import check_namespace_exists
from helix_temporal.errors import InvalidConfigError, StoreUnavailableError
from helix_temporal.health import HealthServer, WorkerHealth
from helix_temporal.outages import StoreOutages
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.slots import ActivitySlots, DrainedActivities
from helix_temporal.telemetry import Telemetry
from helix_temporal.telemetry.runtime import metrics_runtime


async def connect(
    settings: Settings, agents: Sequence[Agent] = (), *, telemetry: Telemetry | None = None, **plugin: Any
) -> tuple[Client, HelixPlugin]:
    """A client with the plugin, as the settings say.

    Args:
        settings: Where Temporal and the stores are.
        agents: That workers of the client serve.
        telemetry: Where metrics and traces go; addresses that it does not name are those of the settings.
        plugin: Further arguments of `HelixPlugin`.

    Raises:
        InvalidConfigError: ``settings`` are none; `Settings.from_env` reads those of the environment.  Or
            metrics cannot be given out where they say.
        StoreUnavailableError: Temporal does not answer.
    """
    check_type(settings, Settings, "settings")
    helix = HelixPlugin(settings, agents=agents, telemetry=telemetry, **plugin)
    runtime = metrics_runtime(_with_addresses(telemetry or Telemetry(), settings))
    key = settings.temporal_api_key
    try:
        client = await Client.connect(
            settings.temporal_address,
            namespace=settings.temporal_namespace,
            tls=settings.temporal_tls,
            api_key=key.get_secret_value() if key else None,
            plugins=[helix],
            runtime=runtime,
        )
    except RuntimeError as error:
        raise StoreUnavailableError(
            f"Temporal at {settings.temporal_address} does not answer; is it running? It was asked "
            f"{'with' if settings.temporal_tls else 'without'} TLS. See the settings temporal_address and "
            f"temporal_tls ({error})"
        ) from error
    return client, helix


def _with_addresses(telemetry: Telemetry, settings: Settings) -> Telemetry:
    """With the addresses of the settings, unless it names one."""
    if telemetry.prometheus is not None or telemetry.otlp is not None:
        return telemetry
    return replace(telemetry, prometheus=settings.metrics_prometheus, otlp=settings.metrics_otlp)


class HelixWorker:
    """A worker whose stores are checked before it serves and closed after it has drained.

    ::

        async with HelixWorker(client, plugin):
            ...

    Args:
        client: Connected with the plugin.
        plugin: By default the client's.
        drain: Seconds that running activities have to end when the worker stops; None for as long as the
            longest of its model calls and tools may take, since a call that is cancelled is made, and paid
            for, again.  A worker without running activities stops at once.
        options: Further arguments for `temporalio.worker.Worker`.  Without a ``tuner``, an
            ``activity_executor`` or a number of its own it takes as many activities at once as the settings
            say, 1,000 by default: model calls wait for their provider, and must not keep store operations
            waiting.  Without a ``deployment_config`` it has the version that the settings name, and
            workflows of the application that say nothing of it go on with the current version, as without
            versions.

    Raises:
        InvalidConfigError: The client has no `HelixPlugin`, or another than ``plugin``.
    """

    def __init__(
        self,
        client: Client,
        plugin: HelixPlugin | None = None,
        *,
        drain: float | None = None,
        **options: Any,
    ) -> None:
        plugin = _plugin_of(client, plugin, options.get("plugins", ()))
        self._client, self._plugin = client, plugin
        options.setdefault("task_queue", plugin.settings.task_queue)
        longest = plugin.longest_step if drain is None else timedelta(seconds=drain)
        options.setdefault("graceful_shutdown_timeout", longest)
        if options.get("tuner") is None and options.get("activity_executor") is None:
            options.setdefault("max_concurrent_activities", plugin.settings.max_concurrent_activities)
        if (version := _worker_version(plugin.settings)) is not None:
            options.setdefault("deployment_config", version)
        self._slots = ActivitySlots(options.get("max_concurrent_activities"), options["task_queue"])
        find_unanswered = plugin.backends.find_unanswered
        self._outages = StoreOutages(partial(find_unanswered, every=True))
        options["interceptors"] = [*(options.get("interceptors") or ()), self._slots, self._outages]
        self._worker = Worker(client, **options)
        self._health = WorkerHealth(self._worker, client, find_unanswered, self._slots)
        self._probes = AsyncExitStack()
        self._idle_warning: asyncio.Task[None] | None = None

    @property
    def drained(self) -> DrainedActivities:
        """How the activities ended that still ran when the worker was told to stop."""
        return self._slots.drained

    async def __aenter__(self) -> Worker:
        """Check the stores, then serve.

        Raises:
            UnsafeRedisPolicyError, ConditionalWritesUnsupportedError: A server would lose data.
            StoreUnavailableError: A server does not answer.
            InvalidConfigError: The port of probes cannot be had, or the server does not have the namespace.
        """
        settings = self._plugin.settings
        try:
            if settings.health_port is not None:
                server = HealthServer(self._health, settings.health_host, settings.health_port)
                await self._probes.enter_async_context(server)
            # A worker that finds it missing itself cancels the block, which cannot say why.
            await check_namespace_exists(self._client)
            await self._plugin.backends.check()
        except BaseException:
            await self._probes.aclose()
            await self._plugin.backends.close()
            raise
        self._health.start()
        worker = await self._worker.__aenter__()
        self._idle_warning = asyncio.create_task(self._health.warn_if_idle())
        return worker

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain, then close the stores."""
        self._health.stop()
        self._slots.begin_drain()
        if self._idle_warning is not None:
            self._idle_warning.cancel()
        try:
            await self._worker.__aexit__(kind, exception, traceback)
        finally:
            self._slots.stop()
            await self._outages.stop()
            await self._probes.aclose()
            await self._plugin.backends.close()


def _plugin_of(client: Client, wanted: HelixPlugin | None, own: Sequence[Any]) -> HelixPlugin:
    """The plugin that a worker of this client would have.

    Args:
        client: The worker's.
        wanted: The one that it should be; None for any.
        own: Further plugins of the worker.
    """
    check_type(client, Client, "client")
    if wanted is not None:
        check_type(wanted, HelixPlugin, "plugin")
    there = [*client.config(active_config=True)["plugins"], *own]
    for each in there:
        if isinstance(each, HelixPlugin) and wanted in {None, each}:
            return each
    which = "no HelixPlugin" if wanted is None else "not the HelixPlugin that the worker is given"
    raise InvalidConfigError(
        f"the client has {which}: give it to Client.connect (plugins=[plugin]), or make both with "
        "helix_temporal.worker.connect(settings, agents)"
    )


def _worker_version(settings: Settings) -> WorkerDeploymentConfig | None:
    """The version that the settings name, if they do."""
    if settings.build_id is None:
        return None
    name = settings.worker_deployment or settings.task_queue
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=name, build_id=settings.build_id),
        use_worker_versioning=True,
        # Nothing tells a workflow of the application to move: pinned, it would need old workers to its end.
        default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE,
    )


def startup_line(settings: Settings, *, given: bool = False) -> str:
    """Whom a worker serves, and which store keeps what; without secrets.

    Args:
        settings: Of the worker.
        given: The program made the stores itself.
    """
    who = (
        f"helix_temporal {settings.deployment}: namespace {settings.temporal_namespace!r} at "
        f"{settings.temporal_address}, task queue {settings.task_queue!r}"
    )
    if (config := _worker_version(settings)) is not None:
        version = config.version
        who += f", build {version.build_id!r} of Worker Deployment {version.deployment_name!r}"
    if given:
        return f"{who}; stores: those that the program gave"
    places = {
        "threads": settings.threads_in,
        "archive": _describe_archive(settings),
        "state": "with the thread" if settings.session_store == "none" else settings.state_in,
        "streams": settings.streams_in,
        "locks and usage": settings.state_in,
    }
    kept = "; ".join(f"{what}: {_describe_store(settings, where)}" for what, where in places.items())
    in_memory = [what for what, where in places.items() if where == "memory"]
    return f"{who}; {kept}{_describe_loss(settings, in_memory)}"


def _describe_loss(settings: Settings, in_memory: list[str]) -> str:
    if settings.threads_in == "memory" and not settings.has_cold_tier:
        return ". Served from memory: EVERYTHING IS LOST WHEN THIS PROCESS ENDS"
    return f". In memory, lost when this process ends: {', '.join(in_memory)}" if in_memory else ""


def _describe_archive(settings: Settings) -> str:
    if settings.s3_bucket is not None:
        return f"s3://{settings.s3_bucket}/{settings.s3_prefix}"
    directory = settings.cold_directory
    return "nothing" if directory is None else str(directory / settings.s3_prefix)


def _describe_store(settings: Settings, where: str) -> str:
    """A store as it is told: with its address, without credentials."""
    if where == "redis":
        return f"{redact_url(settings.redis_url or '')} (keys {settings.redis_prefix}*)"
    if where == "postgres":
        return f"{redact_url(settings.postgres_dsn or '')} (tables {settings.table_prefix}*)"
    return str(settings.sqlite_file) if where == "sqlite" else where


async def serve(settings: Settings, agents: Sequence[Agent], **plugin: Any) -> DrainedActivities:
    """Run a worker until SIGINT or SIGTERM; prints `startup_line` once it serves.

    Returns:
        How the activities ended that still ran when it was told to stop.
    """
    end_on_sigterm()
    client, helix = await connect(settings, agents, **plugin)
    stop = stop_on_signals()
    worker = HelixWorker(client, helix)
    async with worker:
        _spare_the_collector()
        print(startup_line(settings, given=plugin.get("backends") is not None), flush=True)  # noqa: T201 (whoever runs it must see where things are)
        await stop.wait()
    return worker.drained


def end_on_sigterm() -> None:
    """Until `stop_on_signals`, SIGTERM ends the process at once, also the first process of a container.

    Agents may take long to import, and Temporal to answer.  Nothing runs yet that should finish first.
    """
    signal.signal(signal.SIGTERM, _end_before_serving)


def stop_on_signals() -> asyncio.Event:
    """An event that SIGINT or SIGTERM sets; the next one ends the process at once, whatever still runs."""
    stop, loop, numbers = asyncio.Event(), asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)

    def begin_to_stop() -> None:
        stop.set()
        for number in numbers:
            # Beside the loop's own, which still wakes it where another thread gets the signal.
            signal.signal(number, _end_at_once)

    for number in numbers:
        loop.add_signal_handler(number, begin_to_stop)
    return stop


def _end_before_serving(number: int, _frame: object) -> NoReturn:
    _end_process(number, b"Ended by a signal, before it served anything.\n")


def _end_at_once(number: int, _frame: object) -> NoReturn:
    _end_process(number, b"Ended by a second signal: what was running has not finished, and is run again.\n")


def _end_process(number: int, said: bytes) -> NoReturn:
    """End the process with the status of one that a signal ended.

    A default action would not: Linux keeps signals without a handler from the first process of a container,
    and `KeyboardInterrupt` cancels tasks, which may not end.
    """
    os.write(2, said)
    os._exit(128 + number)


def _spare_the_collector() -> None:
    """Tell the garbage collector to leave out what is there now: modules, models, schemas, which all stay.

    Walking them is most of a full collection, which stops the event loop and all that it serves.
    """
    gc.collect()
    gc.freeze()
