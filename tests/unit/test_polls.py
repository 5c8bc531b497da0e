"""Whether a worker polls, by what Temporal says of it; and what a probe says where Temporal tells nothing."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.health import POLLED_WITHIN, Polls, Probed, Serving, WorkerHealth, find_none
from helix_temporal.slots import ActivitySlots

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(seconds=POLLED_WITHIN + 50)
ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
WORKFLOW = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW


def poller(at: datetime, identity: str = "me") -> PollerInfo:
    """One that polled then."""
    seconds = Timestamp()
    seconds.FromDatetime(at)
    return PollerInfo(identity=identity, last_access_time=seconds)


def polls(*pollers: PollerInfo) -> Polls:
    """Of the worker "me", as Temporal says of one kind."""
    return Polls("me", "queue").with_pollers(pollers)


def test_who_has_just_polled_polls() -> None:
    """A poll without work ends after a minute, and the next one begins."""
    assert polls(poller(NOW - timedelta(seconds=70))).find_wrong(NOW) == ""


def test_who_polled_long_ago_does_not() -> None:
    """Its process may be there all the same."""
    assert polls(poller(LONG_AGO)).find_wrong(NOW) == "was last polled 200 s ago"


def test_polls_of_others_do_not_count() -> None:
    """Each worker answers for itself."""
    said = polls(poller(NOW, "you")).find_wrong(NOW)
    assert said == "sees nobody called 'me' poll 'queue'"


def test_the_newest_poll_of_either_kind_counts() -> None:
    """Whose activity slots are all taken does not poll for activities, and does for workflows."""
    found = polls(poller(LONG_AGO)).with_pollers([poller(NOW), poller(LONG_AGO)])
    assert found.find_wrong(NOW) == ""


def test_whose_slots_are_all_taken_need_not_poll() -> None:
    """It has as much to do as it can."""
    assert polls(poller(LONG_AGO)).find_wrong(NOW, slots_taken=True) == ""
    assert polls().find_wrong(NOW, slots_taken=True) == ""


class Temporal:
    """Answers who polls, of each kind of tasks, or refuses."""

    def __init__(self, **answers: Sequence[PollerInfo] | RPCStatusCode) -> None:
        self.answers, self.asked = answers, 0
        self.workflow_service = self

    async def describe_task_queue(self, request: DescribeTaskQueueRequest) -> DescribeTaskQueueResponse:
        """As the server."""
        self.asked += 1
        answer = self.answers["workflow" if request.task_queue_type == WORKFLOW else "activity"]
        if isinstance(answer, RPCStatusCode):
            raise RPCError(answer.name, answer, b"")
        return DescribeTaskQueueResponse(pollers=answer)


async def probe(temporal: Temporal, slots: ActivitySlots | None = None) -> Probed:
    """Of a worker that has started, and whose stores answer."""
    worker = SimpleNamespace(task_queue="queue", config=lambda: {"identity": "me"})
    client = SimpleNamespace(namespace="default", identity="", workflow_service=temporal)
    health, counted = WorkerHealth(), slots or ActivitySlots(None)
    health.start(Serving(cast("Any", worker), cast("Any", client), find_none, slots=counted))
    return await health.probe_ready()


def just_now() -> list[PollerInfo]:
    return [poller(datetime.now(UTC))]


@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"])
async def test_a_worker_that_may_not_ask_who_polls_is_ready(
    code: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Temporal is there; who polls stays unknown, and that is said."""
    refused = RPCStatusCode[code]
    temporal = Temporal(activity=refused, workflow=refused)
    found = await probe(temporal)
    assert found.is_well
    assert found.unknown == {"temporal": f"does not say who polls ({code})"}
    assert [each.getMessage() for each in caplog.records if code in each.getMessage()] != []
    assert temporal.asked == 1


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "NOT_FOUND", "UNAUTHENTICATED"])
async def test_a_worker_whose_temporal_is_away_is_not_ready(code: str) -> None:
    """Nor one that Temporal does not know any more."""
    away = RPCStatusCode[code]
    found = await probe(Temporal(activity=away, workflow=away))
    assert found.wrong == {"temporal": f"does not answer ({code})"}


async def test_a_worker_that_polls_for_activities_is_asked_for_once() -> None:
    """Each question is a call."""
    temporal = Temporal(activity=just_now(), workflow=[])
    assert (await probe(temporal)).is_well
    assert temporal.asked == 1


async def test_a_worker_that_polls_for_workflows_alone_is_ready() -> None:
    """Its activity slots are all taken."""
    assert (await probe(Temporal(activity=[poller(LONG_AGO)], workflow=just_now()))).is_well


async def test_a_worker_that_polls_for_neither_is_not_ready() -> None:
    """Something has stopped it."""
    found = await probe(Temporal(activity=[poller(LONG_AGO)], workflow=[]))
    assert "was last polled" in found.wrong["temporal"]


async def test_slots_that_are_taken_excuse_a_worker_from_polling() -> None:
    """All of them; with one that is free it would poll."""
    slots = ActivitySlots(2)
    temporal = Temporal(activity=[poller(LONG_AGO)], workflow=[])
    slots.take("tool")
    assert not (await probe(temporal, slots)).is_well
    slots.take("tool")
    found = await probe(temporal, slots)
    assert found.is_well
    assert "HELIX_MAX_CONCURRENT_ACTIVITIES" in found.busy["activities"]
    slots.stop()
