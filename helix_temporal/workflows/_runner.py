"""A sandboxed runner that leaves out what only payload codecs and external storage need."""

from typing import Any

from temporalio import converter
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner


class ContextFreeRunner(SandboxedWorkflowRunner):
    """The SDK's sandbox, which it does not enter to ask for whom a payload is.

    The SDK asks for each payload six times, for codecs and external storage that may want to know;
    each time it enters the sandbox anew.  Where there are none, that is a quarter of a worker's
    processor time for nothing.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """As `SandboxedWorkflowRunner.create_instance`."""
        return _ContextFree(super().create_instance(det))


class _ContextFree(WorkflowInstance):
    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner = inner

    def activate(self, act: Any) -> Any:
        return self._inner.activate(act)

    def get_serialization_context(self, command_info: Any) -> converter.SerializationContext | None:  # noqa: ARG002
        return None

    def get_external_store_context(self, command_info: Any) -> Any:  # noqa: ARG002
        return converter.StorageDriverStoreContext(target=None)

    def get_info(self) -> Any:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


def needs_contexts(used: converter.DataConverter) -> bool:
    """Whether something may ask for whom a payload is, or this SDK's instances are not the ones we know."""
    asked = used.payload_codec is not None or getattr(used, "external_storage", None) is not None
    return asked or not WorkflowInstance.__abstractmethods__ <= vars(_ContextFree).keys()
