"""Workers hang and go on under sessions that are queried."""

from pathlib import Path

import pytest

from helix_temporal.settings import Settings
from tests.chaos._freezes import FreezeCampaign
from tests.chaos._report import Progress

pytestmark = pytest.mark.slow


async def test_workers_that_hang_and_die_leave_histories_that_replay_whoever_queries(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    """A campaign of hundreds finds what one that is so short does by chance: `make chaos`."""
    campaign = FreezeCampaign(settings, tmp_path, seed=seed, sessions=6)
    (await campaign.run(4, Progress(shown=False))).check()
