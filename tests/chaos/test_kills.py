"""Workers die by SIGKILL under running sessions."""

from pathlib import Path

import pytest

from helix_temporal.settings import Settings
from tests.chaos._exact import ExactKills
from tests.chaos._kills import KillCampaign
from tests.chaos._report import Progress

pytestmark = pytest.mark.slow

QUIET = Progress(shown=False)


async def test_killed_workers_lose_nothing_double_nothing_and_pay_nothing_twice(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    """The reason why the store operations are activities at all; `make chaos` kills hundreds."""
    report = await KillCampaign(settings, tmp_path, seed=seed, sessions=3).run(12, QUIET)
    report.check()


async def test_workers_that_are_replaced_under_load_drain_and_lose_nothing(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    """A deploy is a SIGTERM to every worker, many times a day."""
    campaign = KillCampaign(settings, tmp_path, seed=seed, sessions=3, graceful=True)
    (await campaign.run(8, QUIET)).check()


async def test_a_worker_killed_at_any_store_call_of_any_activity_loses_nothing(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    """Some boundaries at random here, all of them by `make chaos`."""
    report = await ExactKills(settings, tmp_path, seed=seed, flush="exit").run(QUIET, at_most=8)
    report.check()
