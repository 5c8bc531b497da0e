"""Which parts of the archive a run of upkeep looks at as a whole, whatever the interval of its schedule."""

import itertools
from collections.abc import Iterable

import pytest

from helix_temporal.models.maintenance import ARCHIVE_PARTS, KeepInput, KeepResult
from helix_temporal.workflows.maintenance import UpkeepPlan, note_progress, plan_upkeep

ALL = frozenset(range(ARCHIVE_PARTS))
BEGAN = 1_700_000_000.0
TODAY = 19_700
YESTERDAY = KeepResult(since=BEGAN, day=TODAY - 1, group=4)


def play_runs(
    days: Iterable[int],
) -> list[tuple[int, UpkeepPlan]]:
    """What the runs of a schedule look at, each told of the one before."""
    found, given, last = [], KeepInput(), None
    for day in days:
        plan = plan_upkeep(given, last, day)
        last = note_progress(KeepResult(since=BEGAN), (), plan, given, last)
        found.append((day, plan))
    return found


def find_longest_gap(runs: list[tuple[int, UpkeepPlan]], kind: str) -> int:
    """The most days between two looks at a whole part, up to the end of the runs."""
    looks = [[runs[0][0], *(day for day, plan in runs if part in getattr(plan, kind))] for part in ALL]
    return max(
        later - earlier for days in looks for earlier, later in itertools.pairwise([*days, runs[-1][0]])
    )


@pytest.mark.parametrize("kind", ["whole", "audited"])
@pytest.mark.parametrize("interval", range(1, 31))
def test_every_part_is_looked_at_within_thirty_days(interval: int, kind: str) -> None:
    """With an interval of two days half of the parts never were; neither with 3, 5, 6 and others."""
    runs = play_runs(range(TODAY, TODAY + 400, interval))
    assert find_longest_gap(runs, kind) <= 30


@pytest.mark.parametrize("interval", [31, 45, 90])
def test_a_schedule_that_comes_more_rarely_looks_at_everything(interval: int) -> None:
    """Each time."""
    runs = play_runs(range(TODAY, TODAY + 400, interval))
    assert {plan.whole for _, plan in runs} == {ALL}


def test_runs_of_each_hour_look_at_a_group_a_day() -> None:
    """Not at the same group 24 times."""
    runs = play_runs(day for day in range(TODAY, TODAY + 100) for _ in range(24))
    sizes = [len(plan.whole) for _, plan in runs[1:]]
    assert sum(size > 0 for size in sizes) == 99
    assert max(sizes) == 9
    assert find_longest_gap(runs, "whole") <= 30


def test_an_interval_of_a_day_and_a_half_loses_a_day_at_most() -> None:
    """Its runs are one day apart, then two."""
    runs = play_runs(TODAY + number * 36 // 24 for number in range(250))
    assert find_longest_gap(runs, "whole") <= 31


def test_runs_that_were_missed_are_made_up_for() -> None:
    """After a week without a maintenance worker, a week's groups come at once."""
    plan = plan_upkeep(KeepInput(), YESTERDAY, TODAY + 6)
    assert plan.next_group >= (YESTERDAY.group + 7) % 30
    assert {part % 30 for part in plan.whole} >= set(range(4, 11))


def test_the_first_run_looks_at_everything_and_verifies_a_thirtieth() -> None:
    """Nothing is known yet; reading all of the archive would take long."""
    plan = plan_upkeep(KeepInput(audit=True), None, TODAY)
    assert (plan.since, plan.whole) == (None, ALL)
    assert {part % 30 for part in plan.audited} == {0}


def test_a_run_of_everything_verifies_everything() -> None:
    """Somebody asked for it."""
    plan = plan_upkeep(KeepInput(whole=True, audit=True), YESTERDAY, TODAY)
    assert (plan.since, plan.whole, plan.audited) == (None, ALL, ALL)


def test_a_part_in_which_something_failed_is_looked_at_as_a_whole_next_time() -> None:
    """And holds back no other: a damaged thread made each run look at all that ever changed."""
    today = plan_upkeep(KeepInput(), YESTERDAY, TODAY)
    found = note_progress(KeepResult(since=BEGAN + 86_400, failures=1), {77}, today, KeepInput(), YESTERDAY)
    assert found.missed == (77,)
    tomorrow = plan_upkeep(KeepInput(), found, TODAY + 1)
    assert 77 in tomorrow.whole
    assert tomorrow.since == BEGAN + 86_400 - 600
    assert {part for part in tomorrow.whole if part % 30 != 5} == {77}
    assert 77 in tomorrow.audited  # or it may be two rounds until it is verified


def test_it_is_forgotten_once_it_succeeds() -> None:
    """Then what has changed is enough."""
    last = YESTERDAY.model_copy(update={"missed": (77,)})
    plan = plan_upkeep(KeepInput(), last, TODAY)
    found = note_progress(KeepResult(since=BEGAN), (), plan, KeepInput(), last)
    assert 77 not in plan_upkeep(KeepInput(), found, TODAY + 1).whole


def test_a_run_of_some_parts_changes_nothing_for_the_others() -> None:
    """It did not look at them."""
    last = YESTERDAY.model_copy(update={"missed": (7, 77)})
    given = KeepInput(parts=(77, 78))
    plan = plan_upkeep(given, last, TODAY)
    found = note_progress(KeepResult(since=BEGAN + 86_400), {78}, plan, given, last)
    assert (found.since, found.day, found.group) == (last.since, last.day, last.group)
    assert found.missed == (7, 78)


def test_an_archive_without_dates_is_looked_at_as_a_whole() -> None:
    """Nobody can tell what has changed."""
    plan = plan_upkeep(KeepInput(), YESTERDAY, TODAY)
    found = note_progress(KeepResult(since=None), (), plan, KeepInput(), YESTERDAY)
    assert plan_upkeep(KeepInput(), found, TODAY + 1).whole == ALL


def test_a_clock_that_went_back_does_no_harm() -> None:
    """The next day goes on."""
    plan = plan_upkeep(KeepInput(), YESTERDAY, TODAY - 3)
    assert (plan.whole, plan.next_group) == (frozenset(), YESTERDAY.group)
