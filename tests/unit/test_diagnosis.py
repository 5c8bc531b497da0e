"""Words for what the server tells of a session that does not answer."""

import pytest
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.history.v1 import HistoryEvent, WorkflowTaskTimedOutEventAttributes

from helix_temporal.client._diagnosis import describe_task_timeout


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE, "froze, died or is overloaded"),
        (TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START, "no worker took it"),
    ],
)
def test_a_workflow_task_that_timed_out_is_told_as_that(kind: "TimeoutType.ValueType", said: str) -> None:
    """Of a frozen worker it was said that "the workflow task failed", which sounds like a bug."""
    attributes = WorkflowTaskTimedOutEventAttributes(timeout_type=kind)
    assert said in describe_task_timeout(HistoryEvent(workflow_task_timed_out_event_attributes=attributes))
