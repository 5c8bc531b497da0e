"""Workers: open the stores, check them, serve, drain, close."""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, NoReturn

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Worker, WorkerDeploymentConfig

from helix_temporal._setting_rules import redact_url
from helix_temporal.agents import Agent
from helix_temporal.agents.checks import check_type
from helix_temporal.client._server_check import check_temporal, find_silence
from helix_temporal.errors import HelixError, InvalidConfigError, StoreUnavailableError
from helix_temporal.health import HealthServer, Serving, WorkerHealth
from helix_temporal.outages import StoreOutages, TemporalOutage
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.slots import ActivitySlots, DrainedActivities
from helix_temporal.startup import check_now_or_later, wait_for_servers
from helix_temporal.telemetry import Telemetry
from helix_temporal.telemetry.runtime import metrics_runtime


async def connect(
    settings: Settings,
    agents: Sequence[Agent] = (),
    *,
    telemetry: Telemetry | None = None,
    lazy: bool = False,
    **plugin: Any,
) -> tuple[Client, HelixPlugin]:
    """A client with the plugin, as the settings say.

    Args:
        settings: Where Temporal and the stores are.
        agents: That workers of the client serve.
        telemetry: Where metrics and traces go; addresses that it does not name are those of the settings.
        lazy: Connect when something is asked of Temporal; nothing is until then.
        plugin: Further arguments of `HelixPlugin`.

    Raises:
        InvalidConfigError: ``settings`` are none; `Settings.from_env` reads those of the environment.  Or
            metrics cannot be given out where they say.  Or Temporal refuses the key or the certificate.
        StoreUnavailableError: Temporal does not answer; nothing is waited for (`serve` waits).
    """
    helix, connecting = _prepare_connection(settings, agents, telemetry, plugin, lazy=lazy)
    return await connecting(), helix


async def connect_without_metrics(settings: Settings, *, lazy: bool = False) -> tuple[Client, HelixPlugin]:
    """As `connect`, for a command: metrics go to the address of a worker on this machine."""
    quiet = settings.model_copy(update={"metrics_prometheus": None, "metrics_otlp": None})
    return await connect(quiet, lazy=lazy)


def _prepare_connection(
    settings: Settings,
    agents: Sequence[Agent],
    telemetry: Telemetry | None,
    plugin: dict[str, Any],
    *,
    lazy: bool = False,
) -> tuple[HelixPlugin, Callable[[], Awaitable[Client]]]:
    """The plugin, and what connects a client with it, as often as it is called."""
    check_type(settings, Settings, "settings")
    helix = HelixPlugin(settings, agents=agents, telemetry=telemetry, **plugin)
    runtime = metrics_runtime(_with_addresses(telemetry or Telemetry(), settings))
    key = settings.temporal_api_key

    async def connect_once() -> Client:
        try:
            return await Client.connect(
                settings.temporal_address,
                namespace=settings.temporal_namespace,
                tls=settings.temporal_tls,
                api_key=key.get_secret_value() if key else None,
                plugins=[helix],
                runtime=runtime,
                lazy=lazy,
            )
        except RuntimeError as error:
            raise _connection_error(settings, error) from error

    return helix, connect_once


_REFUSALS: Final = ("code: Unauthenticated", "code: PermissionDenied", "peer certificate")
"""What the SDK says of a server that is there, and takes no connection like this one."""


def _connection_error(settings: Settings, error: RuntimeError) -> HelixError:
    """What keeps a client from connecting: Temporal is away, or refuses."""
    where, how = settings.temporal_address, "with" if settings.temporal_tls else "without"
    if any(each in str(error) for each in _REFUSALS):
        return InvalidConfigError(
            f"Temporal at {where} takes no connection {how} TLS and with this key: see "
            f"HELIX_TEMPORAL_TLS and HELIX_TEMPORAL_API_KEY ({error})"
        )
    return StoreUnavailableError(
        f"Temporal at {where} does not answer; is it running? It was asked {how} TLS. See "
        f"HELIX_TEMPORAL_ADDRESS and HELIX_TEMPORAL_TLS ({error})"
    )


def _with_addresses(telemetry: Telemetry, settings: Settings) -> Telemetry:
    """With the addresses of the settings, unless it names one."""
    if telemetry.prometheus is not None or telemetry.otlp is not None:
        return telemetry
    return replace(telemetry, prometheus=settings.metrics_prometheus, otlp=settings.metrics_otlp)


_CONNECTED_WITHIN: Final = 10.0
"""Seconds for one attempt to connect to Temporal; the SDK waits for 30 where nothing is refused."""


class HelixWorker:
    """A worker whose stores are checked before it serves and closed after it has drained.

    ::

        async with HelixWorker(client, plugin):
            ...

    While Temporal or a store is away, it does not serve yet: it tries again until they are there, says so in
    the log, and by its probes.  Cancelling ends that at once (``asyncio.timeout`` is a limit of your own).
    What is wrong raises at once: a password, a bucket that is missing, tables of another version.  An archive
    that is away, and not required, keeps no worker from serving.

    Args:
        client: Connected with the plugin.
        plugin: By default the client's.
        drain: Seconds that running activities have to end when the worker stops; None for as long as the
            longest of its model calls and tools may take, since a call that is cancelled is made, and paid
            for, again.  A worker without running activities stops at once.
        wait: Whether to wait for servers that are away; otherwise that is `StoreUnavailableError`.
        health: Probes of this process that are answered already; by default those of the settings'
            ``health_port`` are answered by this.
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
        wait: bool = True,
        health: WorkerHealth | None = None,
        **options: Any,
    ) -> None:
        plugin = _plugin_of(client, plugin, options.get("plugins", ()))
        self._client, self._plugin = client, plugin
        options.setdefault("task_queue", plugin.settings.task_queue)
        longest = plugin.longest_step if drain is None else timedelta(seconds=drain)
        self._drain: timedelta = options.setdefault("graceful_shutdown_timeout", longest)
        if options.get("tuner") is None and options.get("activity_executor") is None:
            options.setdefault("max_concurrent_activities", plugin.settings.max_concurrent_activities)
        if (version := _worker_version(plugin.settings)) is not None:
            options.setdefault("deployment_config", version)
        stores = plugin.backends
        self._slots = ActivitySlots(options.get("max_concurrent_activities"), options["task_queue"])
        self._outages = StoreOutages(partial(stores.find_unanswered, every=True))
        options["interceptors"] = [*(options.get("interceptors") or ()), self._slots, self._outages]
        self._worker, self._wait = Worker(client, **options), wait
        self._serving = Serving(
            self._worker, client, stores.find_unanswered, stores.find_degraded, self._slots
        )
        self._answers_probes = health is None
        self._health = WorkerHealth() if health is None else health
        self._probes = AsyncExitStack()
        self._are_servers_there = False
        self._checking_archive: asyncio.Task[None] | None = None
        self._watches: list[asyncio.Task[None]] = []

    @property
    def drained(self) -> DrainedActivities:
        """How the activities ended that still ran when the worker was told to stop."""
        return self._slots.drained

    async def __aenter__(self) -> Worker:
        """Check the stores, waiting for those that are away, then serve.

        Raises:
            UnsafeRedisPolicyError, ConditionalWritesUnsupportedError: A server would lose data.
            StoreUnavailableError: A server does not answer, and ``wait`` is false.
            InvalidConfigError: The port of probes cannot be had, or the server does not have the namespace.
        """
        async with self._closing_on_error():
            if self._answers_probes:
                settings = self._plugin.settings
                await self._probes.enter_async_context(answer_probes(settings, self._health))
            await self._find_servers()
            self._health.start(self._serving)
            worker = await self._worker.__aenter__()
        temporal = TemporalOutage(partial(find_silence, self._client))
        self._watches = [
            asyncio.create_task(self._serving.warn_if_idle()),
            asyncio.create_task(temporal.watch()),
        ]
        return worker

    async def wait_for_servers(self) -> None:
        """The first part of ``async with``: come back once all servers are there; nothing the second time.

        Raises:
            HelixError: As ``async with``; the stores are closed then.
        """
        async with self._closing_on_error():
            await self._find_servers()

    async def _find_servers(self) -> None:
        if self._are_servers_there:
            return
        stores = self._plugin.backends
        # A worker that finds the namespace missing itself cancels the block, which cannot say why.
        checks = {"temporal": partial(check_temporal, self._client), **stores.list_checks()}
        if not stores.needs_archive:
            checks["archive"] = self._check_archive
        if self._wait:
            await wait_for_servers(checks, self._health.away)
        else:
            for check in checks.values():
                await check()
        await stores.warn_of_threads_elsewhere()
        self._are_servers_there = True

    @asynccontextmanager
    async def _closing_on_error(self) -> AsyncIterator[None]:
        """Whoever cannot begin to serve leaves no store, and no port of probes, open."""
        try:
            yield
        except BaseException:
            await self._close()
            raise

    async def _check_archive(self) -> None:
        """Check the archive now, or, if it is away, as soon as it is there."""
        if self._wait:
            self._checking_archive = await check_now_or_later(self._plugin.backends)
        else:
            await self._plugin.backends.check_archive()

    async def _close(self) -> None:
        self._slots.stop()
        await self._outages.stop()
        if self._checking_archive is not None:
            self._checking_archive.cancel()
            await asyncio.gather(self._checking_archive, return_exceptions=True)
        await self._probes.aclose()
        await self._plugin.backends.close()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain, then close the stores."""
        self._health.stop()
        self._slots.begin_drain(self._drain)
        for watch in self._watches:
            watch.cancel()
        try:
            await self._worker.__aexit__(kind, exception, traceback)
        finally:
            await self._close()


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

    While Temporal or a store is away, it waits, as `HelixWorker` does; a signal ends the process meanwhile.

    Returns:
        How the activities ended that still ran when it was told to stop.
    """
    async with prepare_worker(settings, agents, **plugin) as (_, worker):
        stop = stop_on_signals()
        async with worker:
            _spare_the_collector()
            print(startup_line(settings, given=plugin.get("backends") is not None), flush=True)  # noqa: T201 (whoever runs it must see where things are)
            await stop.wait()
    return worker.drained


@asynccontextmanager
async def prepare_worker(
    settings: Settings,
    agents: Sequence[Agent] = (),
    *,
    telemetry: Telemetry | None = None,
    task_queue: str | None = None,
    **plugin: Any,
) -> AsyncIterator[tuple[Client, HelixWorker]]:
    """A client and a worker whose servers are there, ready to serve; probes are answered from the start on.

    SIGTERM ends the process until then.

    Raises:
        HelixError: As `connect` and `HelixWorker`; but what is merely away is waited for.
    """
    end_on_sigterm()
    helix, connect_once = _prepare_connection(settings, agents, telemetry, plugin)
    health = WorkerHealth()
    async with answer_probes(settings, health):
        connected: list[Client] = []

        async def check_connection() -> None:
            try:
                async with asyncio.timeout(_CONNECTED_WITHIN):
                    connected.append(await connect_once())
            except TimeoutError as error:
                where = settings.temporal_address
                raise StoreUnavailableError(f"Temporal at {where} did not answer in time") from error

        # Stores as well, so that each server that is away is named while Temporal is.
        try:
            checks = {"temporal": check_connection, **helix.backends.list_checks()}
            await wait_for_servers(checks, health.away)
        except BaseException:
            await helix.backends.close()
            raise
        own: dict[str, Any] = {} if task_queue is None else {"task_queue": task_queue}
        worker = HelixWorker(connected[0], helix, health=health, **own)
        await worker.wait_for_servers()
        yield connected[0], worker


@asynccontextmanager
async def answer_probes(settings: Settings, health: WorkerHealth) -> AsyncIterator[None]:
    """Answer probes while the block runs, if the settings name a port for them.

    Raises:
        InvalidConfigError: The port cannot be had.
    """
    if settings.health_port is None:
        yield
        return
    async with HealthServer(health, settings.health_host, settings.health_port):
        yield


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
    _end_process(number, b"Ended at once by a second signal; activities that were running are run again.\n")


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
