"""How long other workers are asked for what one lacks: while no worker polled the queue, none was."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Never

import pytest
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, RetryState
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities._runtime import application_error
from helix_temporal.errors import NotServedError
from helix_temporal.workflows import calls
from helix_temporal.workflows.calls import RollOuts

ROLL_OUT = 600
MISSING = NotServedError("tool 'look_up' is not known here", retry_for_ms=1000 * ROLL_OUT)


def is_final(number: int, *, queued: timedelta = timedelta()) -> bool:
    """Whether an attempt of that number, so long after the call was scheduled, was the last one."""
    environment = ActivityEnvironment()
    scheduled = datetime.now(UTC) - queued
    environment.info = replace(environment.default_info(), attempt=number, scheduled_time=scheduled)
    error: ApplicationError = environment.run(lambda: application_error(MISSING))
    return error.non_retryable


def test_a_call_that_waited_for_any_worker_is_tried_elsewhere() -> None:
    """An old worker came back first after an hour without workers: the call failed for good at once."""
    assert not is_final(1, queued=timedelta(hours=1))


def test_it_fails_once_workers_were_asked_for_the_time_of_a_roll_out() -> None:
    """Attempts are seconds apart."""
    numbers = [number for number in range(1, 500) if is_final(number)]
    assert numbers[0] > ROLL_OUT / 5
    assert numbers == list(range(numbers[0], 500))


class Clock:
    """Of a workflow."""

    def __init__(self) -> None:
        self.now = 1_000

    async def sleep(self, pause: timedelta) -> None:
        """Time passes."""
        self.now += int(pause.total_seconds() * 1000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(calls, "now_ms", lambda: clock.now)
    monkeypatch.setattr(workflow, "sleep", clock.sleep)
    return clock


def not_registered() -> Never:
    error = ActivityError(
        "activity failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="old-worker",
        activity_type="helix.tool",
        activity_id="1",
        retry_state=RetryState.NON_RETRYABLE_FAILURE,
    )
    error.__cause__ = ApplicationError("is not registered on this worker", type="NotFoundError")
    raise error


async def test_an_activity_that_waited_for_any_worker_is_scheduled_again(clock: Clock) -> None:
    """It failed at its first answer, for ten minutes in which nobody was asked."""
    rounds: list[int] = []

    async def call() -> str:
        rounds.append(clock.now)
        if len(rounds) == 1:
            clock.now += 3_600_000
        if len(rounds) <= 2:
            not_registered()
        return "found"

    assert await RollOuts().run_until_served(call, "hook 'x'", ROLL_OUT) == "found"


async def test_an_activity_that_no_worker_has_is_given_up(clock: Clock) -> None:
    """After the time of a roll-out."""

    async def call() -> str:
        not_registered()

    began = clock.now
    with pytest.raises(NotServedError, match="old-worker"):
        await RollOuts().run_until_served(call, "hook 'x'", ROLL_OUT)
    assert ROLL_OUT <= (clock.now - began) / 1000 < ROLL_OUT + 10
