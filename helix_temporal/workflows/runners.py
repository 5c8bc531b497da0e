"""How a worker runs workflows so that histories stay replayable: runners, and markers between tasks."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final

from temporalio import converter, workflow
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

_NO_EVENT: Final = frozenset({"query_workflow", "notify_has_patch", "remove_from_cache"})
"""Jobs that do not come from a new event."""
_UNDONE_BY: Final = {"cancel_timer": "start_timer", "request_cancel_activity": "schedule_activity"}

_QUERY: Final = "legacy_query"
"""The SDK's id of a query that comes by itself, not with a workflow task."""

TASK_NOT_DONE: Final = "the query came with events of a workflow task that may not be done yet; ask again"

_current: Final[ContextVar["TaskMarkers | None"]] = ContextVar("helixtaskmarkers", default=None)


class TaskNotDoneError(RuntimeError):
    """Fails a query; the SDK forgets what the run did for it."""


class TaskMarkers:
    """Keeps the history of one workflow run replayable: adds markers, and refuses events without a task.

    Attributes:
        wanted: Whether the run has a session.  Other workflows are left as they are.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._task, self._started = -1, (-1, -1)
        self._empty, self._empty_before, self._hidden = True, True, False
        self._since_replay: int | None = None
        """Tasks that were run since the last replay, if there was one."""

    def activate(self, inner: Any, activation: Any) -> Any:
        """Run an activation; add a marker if this workflow task and the one before have no command.

        Raises:
            TaskNotDoneError: A query came with these events, or may have come with those before.
        """
        self._check_ahead(activation)
        self._check_query(activation)
        token = _current.set(self)
        try:
            completion = inner.activate(activation)
        finally:
            _current.reset(token)
        if completion.HasField("successful"):
            self._look_at(activation, completion.successful.commands)
        return completion

    def _check_ahead(self, activation: Any) -> None:
        if not _event_job_kinds(activation):
            return
        # Both come with the start of a task: where they stay, and events come, no task was started.
        started = (activation.timestamp.ToNanoseconds(), activation.history_size_bytes)
        ahead = started == self._started and activation.history_length > self._task
        if ahead and self.wanted and not activation.is_replaying:
            raise TaskNotDoneError(TASK_NOT_DONE)
        self._started = started

    def _check_query(self, activation: Any) -> None:
        if self.wanted and self._since_replay == 1 and _is_query(activation):
            raise TaskNotDoneError(TASK_NOT_DONE)

    def _look_at(self, activation: Any, commands: Any) -> None:
        jobs = _event_job_kinds(activation)
        if not jobs:
            return
        if activation.history_length != self._task:
            self._task = activation.history_length
            self._empty_before, self._empty = self._empty, True
            if activation.is_replaying:
                self._since_replay = 0
            elif self._since_replay is not None:
                self._since_replay += 1
        recorded = _recorded_command_kinds(commands)
        if recorded:
            self._empty = False
            # The SDK answers a task that only brings the end of a cancelled activity: we do not see it.
            self._hidden = self._hidden or "request_cancel_activity" in recorded
            return
        # A task before that has commands is not merged with this one, nor this one with the next.
        merges = self._empty and (self._empty_before or self._hidden)
        # The server forgets a task that only brought a refused update.
        stays = jobs != {"do_update"}
        if self.wanted and merges and stays and not activation.is_replaying:
            marker = commands.add().set_patch_marker
            marker.patch_id, marker.deprecated = f"helix-task-{self._task}", True
            self._empty = False


def _event_job_kinds(activation: Any) -> set[str]:
    """Kinds of jobs that come from new events."""
    return {each.WhichOneof("variant") for each in activation.jobs} - _NO_EVENT


def _is_query(activation: Any) -> bool:
    """A query came by itself; its events, if any, came with the activation before."""
    return any(each.query_workflow.query_id == _QUERY for each in activation.jobs)


def keep_tasks_apart() -> None:
    """Have the history of the workflow run that calls this kept replayable."""
    markers = _current.get()
    if markers is not None:
        markers.wanted = True


def _recorded_command_kinds(commands: Any) -> set[str]:
    """Kinds of those commands that get an event in the history."""
    found = {_name_of(each) for each in commands}
    undone = {(_UNDONE_BY[kind], seq) for kind, seq in found if kind in _UNDONE_BY} & found
    undone |= {(kind, seq) for kind, seq in found if (_UNDONE_BY.get(kind), seq) in undone}
    return {kind for kind, _ in found - undone} - {"respond_to_query", "rejection"}


def _name_of(command: Any) -> tuple[str, int]:
    kind = command.WhichOneof("variant")
    if kind == "update_response" and command.update_response.WhichOneof("response") == "rejected":
        return "rejection", 0
    return kind, getattr(getattr(command, kind), "seq", 0)


def session_runner(runner: WorkflowRunner, used: converter.DataConverter) -> WorkflowRunner:
    """The runner by which a worker serves sessions; the same one if this SDK's instances are unknown."""
    if not WorkflowInstance.__abstractmethods__ <= vars(_Marked).keys():
        return runner
    if type(runner) is not SandboxedWorkflowRunner:
        return MarkedRunner(runner)
    kind = MarkedSandbox if needs_contexts(used) else ContextFreeRunner
    return kind(runner.restrictions, runner.runner_class)


class MarkedRunner(WorkflowRunner):
    """Another runner, with `TaskMarkers`."""

    def __init__(self, inner: WorkflowRunner) -> None:
        self._inner = inner

    def prepare_workflow(self, defn: workflow._Definition) -> None:
        """As the other runner."""
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """As the other runner, with markers."""
        return _Marked(self._inner.create_instance(det))

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        """As the other runner."""
        self._inner.set_worker_level_failure_exception_types(types)


class MarkedSandbox(SandboxedWorkflowRunner):
    """The SDK's sandbox, with `TaskMarkers`."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """As `SandboxedWorkflowRunner.create_instance`, with markers."""
        return _Marked(super().create_instance(det))


class ContextFreeRunner(SandboxedWorkflowRunner):
    """The same, which does not enter the sandbox to ask for whom a payload is.

    The SDK asks for each payload six times, for codecs and external storage that may want to know;
    each time it enters the sandbox anew.  Where there are none, that is a quarter of a worker's
    processor time for nothing.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """As `SandboxedWorkflowRunner.create_instance`, with markers."""
        return _ContextFree(super().create_instance(det))


class _Marked(WorkflowInstance):
    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner, self._markers = inner, TaskMarkers()

    def activate(self, act: Any) -> Any:
        try:
            return self._markers.activate(self._inner, act)
        except TaskNotDoneError as error:
            # What is raised here, the SDK logs as an error of the worker; this one asks to be asked again.
            return _fail_activation(error)

    def get_serialization_context(self, command_info: Any) -> converter.SerializationContext | None:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Any:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


def _fail_activation(error: TaskNotDoneError) -> WorkflowActivationCompletion:
    """What the SDK would make of the error, without a line in the log."""
    completion = WorkflowActivationCompletion()
    completion.failed.failure.message = str(error)
    completion.failed.failure.application_failure_info.type = type(error).__name__
    return completion


class _ContextFree(_Marked):
    def get_serialization_context(self, command_info: Any) -> converter.SerializationContext | None:  # noqa: ARG002
        return None

    def get_external_store_context(self, command_info: Any) -> Any:  # noqa: ARG002
        return converter.StorageDriverStoreContext(target=None)


def needs_contexts(used: converter.DataConverter) -> bool:
    """Whether something may ask for whom a payload is."""
    return used.payload_codec is not None or getattr(used, "external_storage", None) is not None
