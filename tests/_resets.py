"""Resets of executions, as an operator makes them."""

import uuid
from collections.abc import Sequence
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

_ATTEMPTS: Final = 5


async def reset_workflow(
    client: Client,
    workflow: str,
    event_id: int,
    *,
    run_id: str = "",
    exclude: Sequence[ResetReapplyExcludeType.ValueType] = (),
) -> str:
    """Go on from this event in a new run, whose id comes back.

    A server closes its connections now and then, and a request that is under way just then comes back as
    cancelled, which the SDK does not repeat; under the same request id the server resets once.
    """
    request = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow, run_id=run_id),
        reason="a test",
        workflow_task_finish_event_id=event_id,
        request_id=uuid.uuid4().hex,
        reset_reapply_exclude_types=list(exclude),
    )
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            response = await client.workflow_service.reset_workflow_execution(request, retry=True)
        except RPCError as error:
            if error.status is not RPCStatusCode.CANCELLED or attempt == _ATTEMPTS:
                raise
        else:
            return response.run_id
    raise AssertionError
