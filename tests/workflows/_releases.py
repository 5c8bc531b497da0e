"""Releases of one application beside each other, each a version of one Worker Deployment."""

import asyncio
import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from temporalio.api.enums.v1 import (
    EventType,
    RoutingConfigUpdateState,
    TaskQueueType,
    WorkflowTaskFailedCause,
)
from temporalio.api.taskqueue.v1 import TaskQueue, TaskQueueVersioningInfo
from temporalio.api.workflow.v1 import VersioningOverride
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
    SetWorkerDeploymentRampingVersionRequest,
    UpdateWorkflowExecutionOptionsRequest,
)
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkerConfig
from temporalio.workflow import _Definition

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, agent_tool, tool
from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.models.ids import SESSION_WORKFLOW
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker
from helix_temporal.workflows._versions import VersionedSessionWorkflow
from tests.workflows._changed_session import ChangedSession, UnpinnedChangedSession
from tests.workflows._desk import Gate

OLD, NEW = "one", "two"
PINNED: Final[Mapping[str, type | None]] = MappingProxyType({OLD: None, NEW: ChangedSession})
"""Session workflows by release; None for the pack's own, as the plugin marks it."""
UNPINNED: Final[Mapping[str, type | None]] = MappingProxyType(
    {OLD: VersionedSessionWorkflow, NEW: UnpinnedChangedSession}
)
_NORMAL: Final = frozenset(
    {
        # The server has new events for a run that ends, which looks at them before it ends.
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_UPDATE,
    }
)


_CALLS: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {
        "act": ("act", "what", "for"),
        "sign": ("sign", "what", "for"),
        "helper": ("helper", "task", "for"),
        "signer": ("helper", "task", "sign"),
    }
)
"""By the user's first word the tool that is called, its argument, and how that begins."""


class _ReleasePlugin(HelixPlugin):
    """The pack's, for a release whose session workflow is another one."""

    def __init__(self, settings: Settings, sessions: type | None, **options: Any) -> None:
        super().__init__(settings, **options)
        self._sessions = sessions

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        config = super().configure_worker(config)
        if self._sessions is not None:
            named = {_Definition.must_from_class(each).name: each for each in config.get("workflows", ())}
            config["workflows"] = [*(named | {SESSION_WORKFLOW: self._sessions}).values()]
        return config


@dataclass
class Book:
    """What the models of all releases were asked.

    Attributes:
        builds: Of each model call the release that made it, by session and the user's text.
        calls: How often a model was asked the same.
        gates: Hold a model call about the text until they are opened.
    """

    builds: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    calls: Counter[tuple[str, int]] = field(default_factory=Counter)
    gates: dict[str, Gate] = field(default_factory=dict)

    def note_call(self, build: str, session_id: str, asked: str, messages: int) -> None:
        """A model was given so many messages, the last of the user's being this one."""
        self.builds[session_id, asked].append(build)
        self.calls[session_id, messages] += 1

    def repeated(self) -> int:
        """Model calls that were made again."""
        return sum(count - 1 for count in self.calls.values())


class FiledBook(Book):
    """A book of several processes: each call is a line of a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def note_call(self, build: str, session_id: str, asked: str, messages: int) -> None:
        """Write a line, which the other processes do not tear."""
        with self.path.open("a") as file:
            file.write(json.dumps([build, session_id, asked, messages]) + "\n")

    def read(self) -> Book:
        """All calls so far."""
        found = Book()
        for line in self.path.read_text().splitlines():
            found.note_call(*json.loads(line))
        return found


class _Model:
    """Does what the user's first word says, then says that it is done."""

    def __init__(self, build: str, book: Book, seconds: float) -> None:
        self._build, self._book, self._seconds = build, book, seconds

    async def generate(self, request: ModelRequest) -> ModelResponse:
        asked = next(each.text for each in reversed(request.messages) if each.role == "user")
        self._book.note_call(self._build, request.session_id, asked, len(request.messages))
        if gate := self._book.gates.get(asked):
            await gate.passing()
        await asyncio.sleep(self._seconds)
        word, last = asked.split()[0], request.messages[-1]
        if last.role == "user" and (found := _CALLS.get(word)):
            name, argument, task = found
            call = ToolCall(id="call", name=name, arguments={argument: f"{task} {asked}"})
            return ModelResponse(tool_calls=(call,))
        return ModelResponse(f"done: {asked}")


def agents(build: str, book: Book, seconds: float = 0.0) -> list[Agent]:
    """Who is served: ``main`` acts, asks its helper, and signs if somebody agrees, as its helper does.

    The new release has an agent more, ``added``.
    """
    model = _Model(build, book, seconds)

    @tool
    async def act(what: str) -> str:
        """Do something."""
        return what

    @tool(approval=True)
    async def sign(what: str) -> str:
        """Sign something."""
        return what

    added = [Agent(name="added", model=model)] if build == NEW else []
    return [
        *added,
        Agent(name="helper", model=model, tools=[sign]),
        Agent(name="main", model=model, tools=[act, sign, agent_tool("helper", agent="helper")]),
    ]


@dataclass
class Release:
    """A worker of one release, with a client of its own."""

    client: Client
    sessions: SessionClient


@dataclass
class Releases:
    """The releases of one Worker Deployment."""

    settings: Settings
    book: Book
    workflows: Mapping[str, type | None] = field(default_factory=lambda: PINNED)
    options: SessionOptions = field(default_factory=lambda: SessionOptions(idle_timeout=60))
    seconds: float = 0.0

    @contextlib.asynccontextmanager
    async def serve(self, build: str, **worker: Any) -> AsyncIterator[Release]:
        """A worker of this release."""
        settings = self.settings.model_copy(update={"build_id": build})
        served = agents(build, self.book, self.seconds)
        plugin = _ReleasePlugin(settings, self.workflows[build], agents=served)
        client = await Client.connect(settings.temporal_address, plugins=[plugin])
        async with HelixWorker(client, plugin, **{"drain": 10.0, **worker}):
            yield Release(client, SessionClient(client, task_queue=settings.task_queue, options=self.options))

    async def make_current(self, release: Release, build: str) -> None:
        """All sessions go on with this release; comes back once the server routes them there."""
        await make_current(release.client, self.settings.task_queue, build)

    async def ramp(self, release: Release, build: str, percentage: float) -> None:
        """So many of 100 sessions go on with this release; comes back as `make_current`."""
        client, name = release.client, self.settings.task_queue
        request = SetWorkerDeploymentRampingVersionRequest(
            **_version(client, name, build), percentage=percentage
        )
        await until(lambda: _is_taken(client.workflow_service.set_worker_deployment_ramping_version(request)))
        await until(lambda: _is_routed(client, name))


async def make_current(client: Client, worker_deployment: str, build: str) -> None:
    """As ``temporal worker deployment set-current-version`` does, once the version's workers poll.

    Comes back once the server routes tasks there.
    """
    request = SetWorkerDeploymentCurrentVersionRequest(**_version(client, worker_deployment, build))
    await until(lambda: _is_taken(client.workflow_service.set_worker_deployment_current_version(request)))
    await until(lambda: _is_routed(client, worker_deployment))


def _version(client: Client, worker_deployment: str, build: str) -> dict[str, Any]:
    return {
        "namespace": client.namespace,
        "deployment_name": worker_deployment,
        "build_id": build,
        "ignore_missing_task_queues": True,
    }


async def _is_routed(client: Client, worker_deployment: str) -> bool:
    """Whether what was set is what the server goes by, for all partitions of the task queues."""
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=worker_deployment)
    found = (await client.workflow_service.describe_worker_deployment(request)).worker_deployment_info
    if found.routing_config_update_state == RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_COMPLETED:
        return True
    # A busy server may never say so, although each task queue has long been told.
    kinds = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
    told = [await _routes_of(client, worker_deployment, kind) for kind in kinds]
    wanted = found.routing_config
    return all(
        each.current_deployment_version == wanted.current_deployment_version
        and each.ramping_deployment_version == wanted.ramping_deployment_version
        and each.ramping_version_percentage == wanted.ramping_version_percentage
        for each in told
    )


async def _routes_of(
    client: Client, task_queue: str, kind: "TaskQueueType.ValueType"
) -> TaskQueueVersioningInfo:
    queue = TaskQueue(name=task_queue)
    request = DescribeTaskQueueRequest(namespace=client.namespace, task_queue=queue, task_queue_type=kind)
    return (await client.workflow_service.describe_task_queue(request)).versioning_info


async def until(is_so: Callable[[], Awaitable[bool]], *, within: float = 90) -> None:
    """Come back once something is so; fail if it is not within so many seconds."""
    async with asyncio.timeout(within):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.1)


async def _is_taken(setting: Any) -> bool:
    """Whether the server knows the version by now; its workers tell it when they first poll."""
    try:
        await setting
    except RPCError as error:
        if error.status not in {RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION}:
            raise
        return False
    return True


async def pin(client: Client, worker_deployment: str, session_id: str, build: str) -> None:
    """As ``temporal workflow update-options --versioning-override-behavior pinned`` does."""
    request = UpdateWorkflowExecutionOptionsRequest(namespace=client.namespace)
    request.workflow_execution.workflow_id = workflow_id(session_id)
    request.update_mask.paths.append("versioning_override")
    pinned = request.workflow_execution_options.versioning_override.pinned
    pinned.behavior = VersioningOverride.PinnedOverrideBehavior.PINNED_OVERRIDE_BEHAVIOR_PINNED
    pinned.version.deployment_name, pinned.version.build_id = worker_deployment, build
    await client.workflow_service.update_workflow_execution_options(request)


async def unpin(client: Client, session_id: str) -> None:
    """As ``temporal workflow update-options --versioning-override-behavior auto_upgrade`` does."""
    request = UpdateWorkflowExecutionOptionsRequest(namespace=client.namespace)
    request.workflow_execution.workflow_id = workflow_id(session_id)
    request.update_mask.paths.append("versioning_override")
    request.workflow_execution_options.versioning_override.auto_upgrade = True
    await client.workflow_service.update_workflow_execution_options(request)


async def build_of(client: Client, session_id: str) -> str:
    """The release that serves a session, or served it last."""
    return await build_of_run(client, workflow_id(session_id))


async def build_of_run(client: Client, workflow_id: str) -> str:
    """The release that serves a workflow, or served it last."""
    described = await client.get_workflow_handle(workflow_id).describe()
    return described.raw_description.workflow_execution_info.versioning_info.deployment_version.build_id


async def list_runs(client: Client, task_queue: str) -> list[WorkflowExecution]:
    """All runs of the task queue, also those of sub-agents and those that have ended."""
    return [each async for each in client.list_workflows(f"TaskQueue = '{task_queue}'")]


async def failed_tasks(client: Client, runs: list[WorkflowExecution]) -> list[str]:
    """Why workflow tasks of these runs failed, by what no ordinary run has."""
    found = []
    for run in runs:
        history = await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
        for event in history.events:
            if event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                continue
            failed = event.workflow_task_failed_event_attributes
            if failed.cause not in _NORMAL:
                found.append(f"{run.id}: {WorkflowTaskFailedCause.Name(failed.cause)}")
    return found


def still_running(runs: list[WorkflowExecution]) -> list[str]:
    """Ids of those that have not ended."""
    return [each.id for each in runs if each.status is WorkflowExecutionStatus.RUNNING]
