"""What people are told of a failure: the one that is meant, not what Temporal put around it."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError, FailureError, ServerError, TimeoutType
from temporalio.exceptions import TimeoutError as TemporalTimeoutError

from helix_temporal._failures import describe_failure
from helix_temporal.activities._runtime import raise_application_errors

MEANT = ApplicationError("model of agent 'a': RuntimeError: odd", type="RuntimeError")


def cut_by_server(meant: FailureError) -> FailureError:
    """As a server keeps a failure that is larger than it takes."""
    error = ServerError("Failure exceeds size limit.")
    error.__cause__ = meant
    return error


def out_of_time(last: FailureError) -> FailureError:
    """As the SDK tells of an activity whose attempts are over."""
    error = TemporalTimeoutError(
        "Not enough time to schedule next retry before activity ScheduleToClose timeout, giving up retrying",
        type=TimeoutType.SCHEDULE_TO_CLOSE,
        last_heartbeat_details=[],
    )
    error.__cause__ = last
    return error


@pytest.mark.parametrize(
    "told",
    [MEANT, cut_by_server(MEANT), out_of_time(MEANT), out_of_time(cut_by_server(MEANT))],
    ids=["alone", "cut", "out of time", "cut and out of time"],
)
def test_the_failure_that_is_meant_is_told(told: FailureError) -> None:
    """It was `ServerError: Failure exceeds size limit.` wherever the path of the environment is long."""
    assert describe_failure(told) == "RuntimeError: model of agent 'a': RuntimeError: odd"


def test_another_error_of_the_server_stays() -> None:
    """Nothing better is known."""
    assert describe_failure(ServerError("odd")) == "ServerError: odd"


async def test_an_error_leaves_an_activity_without_the_frames_below_it() -> None:
    """The server counts them, and cuts a failure of some 4 KB."""

    @raise_application_errors
    async def fails(request: Any) -> None:
        deep(20)

    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise ApplicationError("odd")

    with pytest.raises(ApplicationError) as raised:
        await fails(None)
    assert len(raised.traceback) <= 3
