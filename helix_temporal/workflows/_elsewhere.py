"""Where an activity is run that the worker of this workflow lacks: at any other one.

Apart from `_roll_outs`, since only workers need it and what it imports is heavy.
"""

from typing import TYPE_CHECKING, Any

from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from helix_temporal.workflows._roll_outs import elsewhere

if TYPE_CHECKING:
    from temporalio import workflow


class RollOutInterceptor(Interceptor):
    """Sends an activity that this worker lacks through the task queue, where others can take it.

    The SDK hands an activity at once to the worker that runs the workflow ("eagerly").  That would be
    the same worker again, as long as it keeps the workflow in its cache.
    """

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002 — the name in the SDK
    ) -> type[WorkflowInboundInterceptor]:
        """As in `Interceptor`."""
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> "workflow.ActivityHandle[Any]":
        if elsewhere.get():
            input.disable_eager_execution = True
        return self.next.start_activity(input)
