"""The words and tones of states."""

import pytest

from helix_temporal.inspector import marks
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import SessionStatus
from helix_temporal.views.models import (
    ScheduleFacts,
    ScheduleRun,
    SessionView,
    WaitingFor,
)
from tests.unit.inspector._shown import attempt, overview


def test_a_session_runs_waits_or_is_active() -> None:
    """The one word at the top of its page."""
    waits = WaitingFor(call_id="c", tool="refund", kind="approval")
    suspended = attempt(status=RunStatus.SUSPENDED_CLIENT_TOOL)
    assert marks.mark_now(SessionView(overview=overview(), live_run=attempt())).word == "running"
    assert marks.mark_now(SessionView(overview=overview(), live_run=suspended)).word == "waiting"
    assert marks.mark_now(SessionView(overview=overview(), waiting=(waits,))).word == "waiting"
    assert marks.mark_now(SessionView(overview=overview())).word == "active"
    failed = overview(status=SessionStatus.FAILED)
    assert marks.mark_now(SessionView(overview=failed)) == ("failed", "bad")


def test_one_state_of_a_session_has_one_word() -> None:
    """The list said "active" and "paused", and the page of the same session "idle" and "waiting"."""
    waits = WaitingFor(call_id="c", tool="refund", kind="approval")
    paused = overview(status=SessionStatus.PAUSED)
    now = marks.mark_now(SessionView(overview=paused, waiting=(waits,)))
    assert now == marks.mark_session(paused) == marks.mark_followed(SessionView(overview=paused), "waiting")
    assert marks.mark_now(SessionView(overview=overview())) == marks.mark_session(overview())


def test_every_state_has_words() -> None:
    """A new one must not break a page that meets it first."""
    assert {marks.mark_run(attempt(status=each)).word for each in RunStatus}
    assert {marks.mark_session(overview(status=each)).word for each in SessionStatus}
    assert marks.mark_session(overview(status=None)).word == "not known"


def test_a_schedule_is_judged_by_its_newest_run() -> None:
    """One that failed yesterday and went well since needs nobody."""
    well, failed = ScheduleRun(at=2), ScheduleRun(at=1, status="failed", failure="503")
    schedule = ScheduleFacts(schedule_id="s", kind="sweep", recent=(well, failed))
    assert marks.mark_schedule(schedule).tone == "good"
    assert marks.mark_schedule(schedule.model_copy(update={"recent": (failed, well)})).tone == "bad"
    assert marks.mark_schedule(schedule.model_copy(update={"paused": True})).word == "paused"


@pytest.mark.parametrize("status", ["failed", "timed_out", "terminated", "canceled"])
def test_a_sweep_that_somebody_ended_is_not_on_schedule(status: str) -> None:
    """Its work is not done; the doctor says so as well."""
    schedule = ScheduleFacts(schedule_id="s", kind="sweep", recent=(ScheduleRun(at=1, status=status),))
    assert marks.mark_schedule(schedule).tone == "bad"
