"""What is said of what servers say of themselves."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.deployment.v1 import WorkerDeploymentOptions, WorkerDeploymentVersion
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueueVersioningInfo
from temporalio.api.workflowservice.v1 import DescribeNamespaceResponse, DescribeTaskQueueResponse

from helix_temporal.doctor.checks import Check
from helix_temporal.doctor.clocks import ClockQuestion, check_clock
from helix_temporal.doctor.schedules import judge_schedule, judge_schedules
from helix_temporal.doctor.stores import check_disk, judge_postgres, judge_redis
from helix_temporal.doctor.temporal import judge_namespace, judge_pollers, judge_versions
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.server_facts import PostgresFacts, RedisFacts
from helix_temporal.views.models import Millis, ScheduleFacts, ScheduleRun

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
REDIS = RedisFacts("localhost", "Valkey 8.1", "noeviction", True, False, 100, 1000, 1, 0)
POSTGRES = PostgresFacts("localhost", "16.2", 7, 7, 10, 100, 0)


def ago(**span: float) -> Millis:
    """A moment before now."""
    return int((NOW - timedelta(**span)).timestamp() * 1000)


def ran(status: str, **span: float) -> dict[str, Any]:
    """A schedule's last run, so long ago."""
    return {"recent": (ScheduleRun(at=ago(**span), workflow_id="w", status=status),)}


SCHEDULE = ScheduleFacts(
    schedule_id="s", kind="sweep", every=60_000, made_at=ago(days=9), **ran("completed", seconds=30)
)


def find_wrong(checks: list[Check]) -> list[tuple[str, str]]:
    """Name and status of what is not well."""
    return [(each.name, each.status) for each in checks if each.status != "ok"]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, []),
        ({"memory": 950}, [("memory", "warning")]),
        ({"memory": 950, "max_memory": 0}, []),
        ({"keeps_log": False}, [("persistence", "warning")]),
        ({"save_failed": True}, [("persistence", "failed")]),
    ],
)
def test_a_redis_that_may_lose_data_is_told(changes: dict[str, Any], wrong: list[tuple[str, str]]) -> None:
    """A full one refuses writes, and one without a log forgets what it acknowledged."""
    assert find_wrong(judge_redis(replace(REDIS, **changes), Settings())) == wrong


def test_a_redis_without_a_log_says_what_would_be_lost() -> None:
    """With an archive that is little, and with the state of sessions there it is all of it."""
    settings = Settings(redis_url="redis://localhost/0", s3_bucket="threads")
    apart = settings.model_copy(update={"postgres_dsn": "postgresql://localhost/x"})
    told = [str(judge_redis(replace(REDIS, keeps_log=False), each)) for each in (settings, apart)]
    assert "sessions would be lost" in told[0]
    assert "what is not archived yet would be lost" in told[1]


def test_a_postgres_whose_connections_run_out_is_told() -> None:
    """The next worker is refused, in the middle of a roll-out."""
    assert find_wrong(judge_postgres(POSTGRES)) == []
    assert find_wrong(judge_postgres(replace(POSTGRES, connections=95))) == [("connections", "warning")]


@pytest.mark.parametrize(
    ("there", "difference"),
    [(100.5, 0.0), (103.0, 2.0), (97.0, -3.0), (99.2, -0.8)],
)
def test_a_difference_of_clocks_leaves_out_the_time_of_the_question(there: float, difference: float) -> None:
    """An answer that took a second is no second of difference."""
    assert ClockQuestion(100.0, 101.0).find_difference(there) == pytest.approx(difference)


def test_a_clock_in_whole_seconds_is_not_behind() -> None:
    """HTTP dates have no fractions."""
    assert ClockQuestion(100.9, 100.95).find_difference(100.0, resolution=1.0) == 0.0


@pytest.mark.parametrize(("difference", "status"), [(0.5, "ok"), (-5.0, "warning"), (90.0, "failed")])
def test_clocks_that_differ_are_told(difference: float, status: str) -> None:
    """Deadlines are kept by the store's clock, and set by a worker's."""
    assert check_clock("redis", difference).status == status


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({}, "ok", "every 60 s, last run 30 s ago"),
        ({"recent": (), "made_at": ago(seconds=0)}, "ok", "has not run yet"),
        ({"problem": "it is not there"}, "warning", "schedule 's': it is not there"),
        ({"paused": True, "note": "incident"}, "warning", "is paused (incident)"),
        (ran("failed", seconds=30), "failed", "its last run failed"),
        (ran("terminated", seconds=30), "failed", "its last run terminated"),
        (ran("running", seconds=30), "ok", "last run"),
        (ran("", seconds=30), "ok", "last run"),
        (ran("completed", hours=3), "warning", "has not run for 3 hours"),
        ({"recent": (), "made_at": ago(hours=3)}, "warning", "has not run for 3 hours"),
        ({"every": 86_400_000, **ran("completed", hours=30)}, "ok", "30 hours ago"),
    ],
)
def test_a_schedule_that_does_nothing_is_told(changes: dict[str, Any], status: str, said: str) -> None:
    """What is terminated is then archived by nobody, and nobody notices for weeks."""
    found = judge_schedule(SCHEDULE.model_copy(update=changes), NOW)
    assert (found.status, said in found.says) == (status, True), found.says


def test_schedules_that_nobody_made_are_one_line() -> None:
    """Where one of them is missing it is named; where all are, nobody runs maintenance."""
    gone = ScheduleFacts(schedule_id="s", kind="a", problem="it is not there")
    told = [judge_schedules(each, NOW) for each in ((), (gone, SCHEDULE))]
    assert [[each.name for each in checks if each.status == "warning"] for checks in told] == [
        ["schedules"],
        ["a"],
    ]


@pytest.mark.parametrize(
    ("hours", "status", "said"), [(72, "ok", "3 days"), (24, "ok", "24 hours"), (1, "warning", "1 hours")]
)
def test_a_short_retention_is_told(hours: int, status: str, said: str) -> None:
    """Who asks for a result the next morning finds nothing."""
    config = NamespaceConfig(workflow_execution_retention_ttl=Duration(seconds=hours * 3600))
    found = judge_namespace("shop", DescribeNamespaceResponse(config=config))
    assert (found.status, f"executions for {said}" in found.says) == (status, True)


def poller(ago: float = 1.0, build: str = "") -> PollerInfo:
    """One that polled so many seconds ago."""
    polled = Timestamp()
    polled.FromDatetime(datetime.now(UTC) - timedelta(seconds=ago))
    options = WorkerDeploymentOptions(deployment_name="shop", build_id=build)
    return PollerInfo(identity="worker-1", last_access_time=polled, deployment_options=options)


@pytest.mark.parametrize(
    ("workflows", "activities", "status", "said"),
    [
        ([1.0], [1.0], "ok", "'q' is polled by worker-1, last 1."),
        ([90.0, 40.2], [50.0], "ok", "'q' is polled by worker-1, last 40."),
        ([], [], "warning", "start helix-temporal worker"),
        ([600.0], [], "warning", "start helix-temporal worker"),
        ([1.0], [], "warning", "are all their slots taken?"),
    ],
)
def test_a_queue_that_nobody_polls_is_told(
    workflows: list[float], activities: list[float], status: str, said: str
) -> None:
    """One that was polled ten minutes ago has lost its worker."""
    polled = {"workflow tasks": list(map(poller, workflows)), "activities": list(map(poller, activities))}
    found = judge_pollers("workers", "q", polled)
    assert (found.status, said in found.says) == (status, True), found.says


@pytest.mark.parametrize(("current", "status"), [("2", "ok"), ("1", "warning")])
def test_a_version_that_gets_no_work_is_told(current: str, status: str) -> None:
    """A roll-out that nobody has finished: workers poll, and nothing comes."""
    version = WorkerDeploymentVersion(deployment_name="shop", build_id=current)
    routes = TaskQueueVersioningInfo(current_deployment_version=version)
    described = DescribeTaskQueueResponse(pollers=[poller(build="2")], versioning_info=routes)
    assert [each.status for each in judge_versions("workers", described)] == [status]


def test_workers_without_versions_have_nothing_to_tell() -> None:
    """Most deployments use none."""
    assert judge_versions("workers", DescribeTaskQueueResponse(pollers=[poller()])) == []


def test_a_disk_below_a_directory_that_is_not_there_is_asked_above(tmp_path: Path) -> None:
    """The first worker makes it."""
    (found,) = check_disk("sqlite", tmp_path / "not" / "yet")
    assert "bytes free of" in found.says
