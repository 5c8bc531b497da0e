"""Workers die by SIGKILL under sessions whose agents call each other."""

from pathlib import Path
from types import MappingProxyType

import pytest

from helix_temporal.devstack import Valkey
from helix_temporal.settings import Settings
from tests.chaos._child_ends import ChildEnds
from tests.chaos._children import ChildKillCampaign
from tests.chaos._report import Progress
from tests.chaos._trees import TreeKills

pytestmark = pytest.mark.slow


async def test_killed_workers_lose_no_sub_agents_answer_and_leave_none_behind(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    """A call is made again under the same name, by whoever takes the caller over; `make chaos` kills more."""
    campaign = ChildKillCampaign(settings, tmp_path, seed=seed, sessions=1, askers=1)
    (await campaign.run(3, Progress(shown=False))).check()


class _Nested(ChildKillCampaign):
    name = "kills with sub-agents side by side and below each other"
    _manner = MappingProxyType({"texts": ("agents=3", "deep agents=2")})


async def test_what_sub_agents_used_is_in_the_sums_of_their_root_once_whoever_was_killed(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    """Every call has its own price, and the model keeps books: the sums are those of what was paid."""
    report = await _Nested(settings, tmp_path, seed=seed, sessions=1, askers=1).run(2, Progress(shown=False))
    report.check()
    assert report.figures["sub_agents"] >= 2


async def test_killed_workers_and_a_wiped_redis_lose_nothing_of_trees_that_end_while_they_wait(
    settings: Settings, own_valkey: Valkey, tmp_path: Path, seed: int
) -> None:
    """Between a sub-agent's end and its caller's, and while the answer goes down, too."""
    campaign = TreeKills(settings, tmp_path, seed=seed, valkey=own_valkey, sessions=1)
    (await campaign.run(3, Progress(shown=False))).check()


async def test_a_session_that_is_stopped_or_reset_while_others_work_for_it_leaves_none_behind(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    """Nobody looks for an agent that goes on spending when its caller is gone."""
    (await ChildEnds(settings, tmp_path, seed=seed).run(5, Progress(shown=False))).check()
