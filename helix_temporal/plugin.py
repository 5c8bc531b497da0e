"""HelixPlugin: one object that makes a client and its workers know the pack."""

import asyncio
import atexit
import contextlib
import dataclasses
import functools
import inspect
import itertools
import logging
import os
import re
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from temporalio.activity import _Definition
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client, ClientConfig
from temporalio.common import MetricMeter
from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin
from temporalio.runtime import Runtime
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from helix_temporal._converter import check_carries_models, user_data_converter
from helix_temporal._deployments import DeploymentGuard, ReadableHeaders
from helix_temporal._retries import retry_pause
from helix_temporal.agents import Agent
from helix_temporal.agents.checks import check_list, check_type
from helix_temporal.agents.sub_agents import AgentTool, check_served
from helix_temporal.errors import HelixError, InvalidConfigError
from helix_temporal.models.deployments import DeploymentCheck
from helix_temporal.settings import Settings
from helix_temporal.telemetry import Telemetry
from helix_temporal.telemetry.metrics import listen_with
from helix_temporal.telemetry.workers import tell_worker
from helix_temporal.workflows import WORKFLOWS
from helix_temporal.workflows._versions import with_versioning
from helix_temporal.workflows.calls import RollOutInterceptor
from helix_temporal.workflows.runners import session_runner
from helix_temporal.workflows.target_version import IS_TOLD

Transform = Callable[..., Any]

_ONE: Final = "give one, with all agents, to Client.connect: its workers use it"
_TELLS_TARGET: Final = (1, 31)
"""Servers from this version on tell a pinned run that another worker version is to serve it."""
_ASK: Final = timedelta(seconds=10)
_ASK_ONCE: Final = timedelta(seconds=3)
_WILL_NOT_SAY: Final = frozenset(
    {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED, RPCStatusCode.UNIMPLEMENTED}
)
_NOT_PINNED: Final = (
    "Worker Versioning: sessions of this worker are not pinned to its version, so the next version takes "
    "them over in the middle of turns and must replay their histories: %s"
)

_log: Final = logging.getLogger(__name__)
_INTERVALS: Final = ("max_heartbeat_throttle_interval", "sticky_queue_schedule_to_start_timeout")


class HelixPlugin(SimplePlugin):
    """Register once, on the client; its workers get it from there.

    Adds the data converter, the activities, the workflows, the error types, and passes
    ``helix_temporal`` and Redis' driver through the workflow sandbox.  A process that only has a client
    opens no store, and needs no settings of stores.

    Args:
        settings: Where the stores are; only workers use that.
        agents: The agents that workers of this client serve.
        transforms: What forks may do to messages, by name.
        backends: Stores from elsewhere, as `helix_temporal.backends.Backends`; otherwise as settings say.
        passthrough: Further modules that the sandbox passes through, such as the application's own.
        telemetry: Where metrics and traces go, besides what the settings say.

    Raises:
        InvalidConfigError: The client's payload converter does not carry ``None`` and JSON objects; or,
            once a worker is made, the client has a converter that does not carry the pack's models.  A client
            or a worker has two plugins.
        AgentNotServedError: An agent's tool is another agent, which the same workers would have to serve, and
            is not among ``agents``; where the tool names their task queue, once a worker is made.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        agents: Sequence[Agent] = (),
        transforms: Mapping[str, Transform] | None = None,
        backends: Any = None,
        passthrough: Sequence[str] = (),
        telemetry: Telemetry | None = None,
    ) -> None:
        self._telemetry = telemetry
        self.settings = Settings() if settings is None else settings
        check_type(self.settings, Settings, "settings")
        check_list(agents, "agents")
        self._agents, self._transforms = tuple(agents), dict(transforms or {})
        check_served(self._agents)
        # What the driver leaves behind imports more of it when it is collected, which may be in a workflow.
        # pydantic imports the last one when a model is first used: too late for the sandbox of older SDKs.
        self._passthrough = ("helix_temporal", "redis", "annotated_types", *passthrough)
        self._backends: Any = backends
        # Stores from elsewhere may be anywhere.
        check = DeploymentCheck(
            self.settings.deployment,
            self.settings.also_known_as,
            names_all=backends is None,
            process=f"process {os.getpid()}@{socket.gethostname()}",
        )
        self._guard = DeploymentGuard(check)
        self._pins_sessions = False
        """Whether the server tells pinned runs when they should move, as far as it said."""
        self._why_unknown = "the client was not made by Client.connect, or is lazy: the server was not asked"
        super().__init__(
            "helix.HelixPlugin",
            data_converter=user_data_converter,
            workflows=WORKFLOWS,
            workflow_runner=self._add_passthrough,
            activities=self._add_activities,
            workflow_failure_exception_types=[HelixError],
        )

    @property
    def backends(self) -> Any:
        """The stores of this process, built at first use; see `helix_temporal.backends.Backends`."""
        if self._backends is None:
            # Not at the top: a client-only process, and the sandbox, do without drivers.
            from helix_temporal.backends import Backends  # noqa: PLC0415

            self._backends = Backends(self.settings)
        return self._backends

    @property
    def longest_step(self) -> timedelta:
        """The longest time that one attempt of a model call, or of a tool of these agents, may take.

        A call of a sub-agent is none: its session is a workflow, which goes on at other workers.
        """
        timeouts = self.settings.timeouts
        tools = [each for agent in self._agents for each in agent.tools if not isinstance(each, AgentTool)]
        own = [each.timeout for each in tools if each.timeout is not None]
        return max(
            timeouts.model_start_to_close,
            timeouts.tool_start_to_close,
            *(timedelta(seconds=each) for each in own),
        )

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        """Add to what `SimplePlugin` does the refusal of a second one, whose settings would be others."""
        if sum(isinstance(each, HelixPlugin) for each in config.get("plugins", ())) > 1:
            raise InvalidConfigError(f"the client has two of HelixPlugin; {_ONE}")
        config = super().configure_client(config)
        others = [each for each in config.get("interceptors", ()) if not isinstance(each, ReadableHeaders)]
        config["interceptors"] = [ReadableHeaders(), *others]
        return config

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add what `SimplePlugin` does not: interceptors, two intervals, versions of our workflows, runners.

        The intervals decide how fast failures are seen; one that the worker's maker has set stays.  Where the
        client has metrics, ours come out with them.

        Raises:
            InvalidConfigError: An agent calls sub-agents that nobody serves, or the client's data converter
                cannot carry our models.
        """
        config = super().configure_worker(config)
        config["interceptors"] = [*(config.get("interceptors") or ()), self._guard]
        check_served(self._agents, config.get("task_queue"))
        for name in _INTERVALS:
            default = inspect.signature(Worker).parameters[name].default
            if config.get(name, default) == default:
                config[name] = getattr(self.settings.timeouts, name)
        config["interceptors"] = [*(config.get("interceptors") or []), RollOutInterceptor(_is_dynamic)]
        deployment = config.get("deployment_config")
        if deployment is not None and deployment.use_worker_versioning:
            workflows = config.get("workflows") or ()
            if not self._pins_sessions and IS_TOLD and self._why_unknown:
                _log.warning(_NOT_PINNED, self._why_unknown)
            config["workflows"] = with_versioning(workflows, pins_sessions=self._pins_sessions)
        client = config.get("client")
        used = client.data_converter if client is not None else DataConverter()
        if client is not None:
            check_carries_models(used)
            listen_with(_meter_of(client))
        sandboxed = config.get("workflow_runner") or SandboxedWorkflowRunner()
        config["workflow_runner"] = session_runner(sandboxed, used)
        unsandboxed = config.get("unsandboxed_workflow_runner") or UnsandboxedWorkflowRunner()
        config["unsandboxed_workflow_runner"] = session_runner(unsandboxed, used)
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:  # noqa: A002 — the name in the SDK
        """Run it as usual, and tell meanwhile that it serves, where the client has metrics."""
        client, agents = worker.client, [each.name for each in self._agents]
        with tell_worker(_meter_of(client), client.namespace, worker.task_queue, agents):
            await super().run_worker(worker, next)

    async def connect_service_client(
        self,
        config: ConnectConfig,
        next: Callable[[ConnectConfig], Awaitable[ServiceClient]],  # noqa: A002 — the name in the SDK
    ) -> ServiceClient:
        """Connect as usual; see that short programs end well, and whether sessions can be pinned there."""
        _yield_at_exit()
        service = await super().connect_service_client(config, next)
        # A lazy one connects with its first call, which is not for us to make.
        if IS_TOLD and not config.lazy:
            self._pins_sessions, self._why_unknown = await _ask_tells_target(service)
        return service

    def _add_activities(self, present: Sequence[Callable[..., Any]] | None) -> Sequence[Callable[..., Any]]:
        if hasattr(self.backends, "start_traces"):
            self.backends.start_traces(self._telemetry)
        mine = self.backends.make_activities(self._agents, self._transforms)
        if not _activity_names(mine).isdisjoint(_activity_names(present or ())):
            raise InvalidConfigError(f"the worker has the activities of HelixPlugin already; {_ONE}")
        return [*(present or []), *mine]

    def _add_passthrough(self, runner: WorkflowRunner | None) -> WorkflowRunner:
        if not isinstance(runner, SandboxedWorkflowRunner):
            return runner or SandboxedWorkflowRunner()
        restrictions = runner.restrictions.with_passthrough_modules(*self._passthrough)
        return dataclasses.replace(runner, restrictions=restrictions)


def _meter_of(client: Client) -> MetricMeter:
    """That of the client's runtime."""
    return (client.service_client.config.runtime or Runtime.default()).metric_meter


def _activity_names(activities: Sequence[Callable[..., Any]]) -> set[str]:
    """Under which the activities are called; a dynamic one has none."""
    found = (_Definition.from_callable(each) for each in activities)
    return {each.name for each in found if each is not None and each.name is not None}


def _is_dynamic(function: Callable[..., Any]) -> bool:
    """Whether it is an activity that takes calls of any name."""
    definition = _Definition.from_callable(function)
    return definition is not None and definition.name is None


async def _ask_tells_target(service: ServiceClient) -> tuple[bool, str]:
    """Whether the server tells pinned runs that they should move; and why that is not known, if it is not."""
    why = "no answer in time"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ASK.total_seconds()):
            for attempt in itertools.count():
                try:
                    return await _tells_target(service), ""
                except RPCError as error:
                    why = error.status.name
                    if error.status in _WILL_NOT_SAY:
                        break
                await asyncio.sleep(retry_pause(attempt, first=0.1, longest=1.6))
    return False, f"the server does not say its version ({why})"


async def _tells_target(service: ServiceClient) -> bool:
    request = GetSystemInfoRequest()
    found = await service.workflow_service.get_system_info(request, timeout=_ASK_ONCE)
    version = re.match(r"(\d+)\.(\d+)", found.server_version)
    return version is not None and (int(version[1]), int(version[2])) >= _TELLS_TARGET


@functools.cache
def _yield_at_exit() -> None:
    """Let the SDK's threads give the interpreter back before it ends.

    Otherwise a program that ends right after its last call aborts (sdk-python issue 300; 5 of 12 runs).
    """
    atexit.register(time.sleep, 0.01)
