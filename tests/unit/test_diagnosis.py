"""Words for what the server tells of a session that does not answer."""

import asyncio
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.history.v1 import HistoryEvent, WorkflowTaskTimedOutEventAttributes
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    DescribeWorkflowExecutionResponse,
)
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.client import _diagnosis
from helix_temporal.client._diagnosis import Diagnosis, describe_task_timeout
from helix_temporal.client._task_queues import are_there
from helix_temporal.models.sessions import FailingCall
from tests.unit._web import until


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
    assert are_there([poller]) is there
    assert not are_there([])


class Crowd:
    """A task queue at which a worker polls, and much waits."""

    def __init__(self, age: float) -> None:
        self.workflow_service, self.namespace = self, "default"
        self.age, self.asked = age, 0

    async def describe_task_queue(
        self, request: DescribeTaskQueueRequest, timeout: timedelta
    ) -> DescribeTaskQueueResponse:
        """As the server; it takes its time."""
        assert timeout
        self.asked += 1
        await asyncio.sleep(0.01)
        found = DescribeTaskQueueResponse()
        poller = found.pollers.add()
        poller.last_access_time.GetCurrentTime()
        if request.report_stats:
            found.stats.approximate_backlog_count = 140
            found.stats.approximate_backlog_age.FromTimedelta(timedelta(seconds=self.age))
        return found


def diagnosis_of(client: object) -> Diagnosis:
    return Diagnosis(cast("Any", client), "queue", (), "helix")


async def test_a_crowded_queue_is_looked_up_once_for_all_who_wait() -> None:
    """Their questions came on top of what the server had no time for, and none was answered in time."""
    crowd = Crowd(age=14)
    diagnosis = diagnosis_of(crowd)
    found = {*(await asyncio.gather(*(diagnosis.explain_queue() for _ in range(200))))}
    (said,) = found
    assert said.startswith(
        "workers poll task queue 'queue' and have too much to do (there wait 140 workflow tasks"
    )
    assert said.endswith("start more workers")
    assert crowd.asked == 3


async def test_what_has_waited_for_a_moment_is_no_crowd() -> None:
    """Of 140 tasks the last one waits, too."""
    assert await diagnosis_of(Crowd(age=1)).explain_queue() == ""


async def test_a_missing_worker_is_logged_once_for_all_who_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of 200 callers logged it."""

    async def missing(_self: Diagnosis, _execution: str) -> str:
        return "no worker has polled task queue 'queue' in namespace 'default' for 9 s"

    async def nothing(_self: Diagnosis, _execution: str) -> tuple[()]:
        return ()

    monkeypatch.setattr(_diagnosis, "_FIRST_LOOK", 0.01)
    monkeypatch.setattr(Diagnosis, "describe_missing_worker", missing)
    monkeypatch.setattr(Diagnosis, "find_failing_calls", nothing)
    diagnosis = diagnosis_of(SimpleNamespace())

    def told() -> list[str]:
        return [said for each in caplog.records if "no worker has polled" in (said := each.getMessage())]

    async def wait_for_it(number: int) -> None:
        async with diagnosis.log_while_waiting(f"w{number}", f"session {number}"):
            await until(lambda: told() != [])
            await asyncio.sleep(0.1)  # the others look as well

    await asyncio.gather(*(wait_for_it(number) for number in range(20)))
    assert len(told()) == 1


async def test_a_failure_of_before_somebody_asked_is_no_reason_to_give_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store was back; who asked anew was told that it is away, ten seconds before the next attempt."""
    attempts = [8, 8, 8, 9]

    async def failing(_self: Diagnosis, _execution: str) -> tuple[FailingCall, ...]:
        since = int((time.time() - 60) * 1000)
        said = "StoreUnavailableError: S3 gave no whole answer"
        attempt = attempts.pop(0)
        return (FailingCall(activity="helix.sessions.open", attempt=attempt, error=said, since=since),)

    async def none_missing(_self: Diagnosis, _execution: str) -> str:
        return ""

    monkeypatch.setattr(_diagnosis, "_FIRST_LOOK", 0.01)
    monkeypatch.setattr(_diagnosis, "_UNOPENED_LOOK", 0.01)
    monkeypatch.setattr(Diagnosis, "describe_missing_worker", none_missing)
    monkeypatch.setattr(Diagnosis, "_describe_untaken_start", none_missing)
    monkeypatch.setattr(Diagnosis, "find_failing_calls", failing)
    told = await diagnosis_of(SimpleNamespace()).watch_execution("w", "session 'w'")
    assert "attempt 9" in told
    assert not attempts


async def test_a_sub_agent_that_has_ended_meanwhile_hides_no_other_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was known to hold the session up, though its own calls failed."""
    found = DescribeWorkflowExecutionResponse()
    found.pending_workflow_task.attempt = 3
    found.pending_children.add().workflow_id = "child"

    async def describe(_self: Diagnosis, workflow_id: str) -> Any:
        if workflow_id == "child":
            raise RPCError("not found", RPCStatusCode.NOT_FOUND, b"")
        return SimpleNamespace(raw_description=found, id=workflow_id, workflow_type="helix.session")

    async def no_events(_self: Diagnosis, _described: Any) -> list[HistoryEvent]:
        return []

    monkeypatch.setattr(Diagnosis, "_describe_execution", describe)
    monkeypatch.setattr(Diagnosis, "_newest_events", no_events)
    (failing,) = await diagnosis_of(SimpleNamespace(namespace="default")).find_failing_calls("w")
    assert (failing.activity, failing.attempt) == ("workflow task of helix.session", 3)
