"""Checks of the schedules of maintenance: there, not paused, and their last runs ended well."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from temporalio.client import Client

from helix_temporal.doctor.checks import Check, Probe, make_check
from helix_temporal.doctor.shared import Shared
from helix_temporal.settings import Settings
from helix_temporal.views.models import Millis, ScheduleFacts
from helix_temporal.views.schedules import read_schedules

_MISSED: Final = 3
"""Intervals without a run after which a schedule is said to stand still."""
_SPARE: Final = timedelta(minutes=2)
_check: Final = partial(make_check, "maintenance")


def make_schedule_probe(client: Shared[Client], settings: Settings) -> Probe:
    """Of all schedules together.

    Args:
        client: Connects, once for all.
        settings: Whose schedules they are.
    """

    async def look() -> Sequence[Check]:
        found = await read_schedules(await client.get(), settings.task_queue, runs=1)
        return judge_schedules(found, datetime.now(UTC))

    return Probe("maintenance", "schedules", look, server="temporal")


def judge_schedules(found: Sequence[ScheduleFacts], now: datetime) -> list[Check]:
    """What is to be said of all of them; where there is none that is one line."""
    if not found:
        said = (
            "there are none: what terminated sessions left is not archived, and nothing is cleaned up; "
            "helix-temporal maintenance makes them"
        )
        return [_check("schedules", "warning", said)]
    return [judge_schedule(each, now) for each in found]


def judge_schedule(facts: ScheduleFacts, now: datetime) -> Check:
    """What is to be said of a schedule."""
    if facts.problem:
        return _check(facts.kind, "warning", f"schedule {facts.schedule_id!r}: {facts.problem}")
    if facts.paused:
        note = f" ({facts.note})" if facts.note else ""
        said = f"is paused{note}; temporal schedule toggle --unpause --schedule-id {facts.schedule_id}"
        return _check(facts.kind, "warning", said)
    last = facts.recent[0] if facts.recent else None
    if last is not None and last.is_failed:
        why = f" ({last.failure})" if last.failure else ""
        said = (
            f"its last run {last.status}{why}; look at workflow {last.workflow_id!r}, and at the log of the "
            "maintenance worker"
        )
        return _check(facts.kind, "failed", said)
    every, ago = timedelta(milliseconds=facts.every), None if last is None else _find_age(last.at, now)
    idle = ago if ago is not None or facts.made_at is None else _find_age(facts.made_at, now)
    if idle is not None and idle > _MISSED * every + _SPARE:
        said = (
            f"has not run for {_format_span(idle)}, every {_format_span(every)} expected; is a run stuck, "
            "because no maintenance worker is there?"
        )
        return _check(facts.kind, "warning", said)
    ran = "has not run yet" if ago is None else f"last run {_format_span(ago)} ago"
    return _check(facts.kind, "ok", f"every {_format_span(every)}, {ran}")


def _find_age(at: Millis, now: datetime) -> timedelta:
    return now - datetime.fromtimestamp(at / 1000, UTC)


def _format_span(span: timedelta) -> str:
    seconds = max(span.total_seconds(), 0)
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
