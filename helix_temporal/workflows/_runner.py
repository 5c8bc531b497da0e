"""Runners of workflows: with markers between tasks, and without what only codecs need."""

from collections.abc import Sequence
from typing import Any

from temporalio import converter, workflow
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from helix_temporal.workflows._task_markers import TaskMarkers


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
        return self._markers.activate(self._inner, act)

    def get_serialization_context(self, command_info: Any) -> converter.SerializationContext | None:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Any:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


class _ContextFree(_Marked):
    def get_serialization_context(self, command_info: Any) -> converter.SerializationContext | None:  # noqa: ARG002
        return None

    def get_external_store_context(self, command_info: Any) -> Any:  # noqa: ARG002
        return converter.StorageDriverStoreContext(target=None)


def needs_contexts(used: converter.DataConverter) -> bool:
    """Whether something may ask for whom a payload is."""
    return used.payload_codec is not None or getattr(used, "external_storage", None) is not None
