"""Workers die, and Redis is wiped, while sessions wait for people."""

from pathlib import Path

import pytest

from helix_temporal.devstack import Valkey
from helix_temporal.settings import Settings
from tests.chaos._report import Progress
from tests.chaos._wait_ends import WaitEnds
from tests.chaos._waits import Suspend, WaitKills

pytestmark = pytest.mark.slow

QUIET = Progress(shown=False)


@pytest.mark.parametrize(("suspend", "cold"), [("wait", False), ("exit", False), ("exit", True)])
async def test_killed_workers_and_a_wiped_redis_lose_no_answer_and_count_none_twice(
    settings: Settings, own_valkey: Valkey, tmp_path: Path, seed: int, suspend: Suspend, cold: bool
) -> None:
    """Somebody has approved a payment: he is not asked again, and it is made once."""
    campaign = WaitKills(
        settings, tmp_path, seed=seed, suspend=suspend, valkey=own_valkey, sessions=2, cold=cold
    )
    (await campaign.run(3, QUIET)).check()


async def test_sessions_that_are_ended_or_reset_while_they_wait_lose_no_answer(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    """A wait lasts days: whatever can be done to a workflow is done to one that waits."""
    (await WaitEnds(settings, tmp_path, seed=seed).run(8, QUIET)).check()
