"""Words for what the server tells of a session that does not answer."""

import time

import pytest
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.history.v1 import HistoryEvent, WorkflowTaskTimedOutEventAttributes
from temporalio.api.taskqueue.v1 import PollerInfo

from helix_temporal.client._diagnosis import _are_there, describe_task_timeout


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


@pytest.mark.parametrize(("ago", "there"), [(1, True), (70, True), (100, False), (290, False)])
def test_workers_that_have_gone_are_not_said_to_poll_elsewhere(ago: int, there: bool) -> None:
    """The server remembers who polled for five minutes; whoever is sent there would find nobody."""
    poller = PollerInfo()
    poller.last_access_time.FromSeconds(int(time.time()) - ago)
    assert _are_there([poller]) is there
    assert not _are_there([])
