"""Redis is wiped, goes back, or is away: the archive has every step."""

from pathlib import Path

import pytest

from helix_temporal.devstack import Valkey
from helix_temporal.settings import Settings
from tests.chaos._redis import RedisCampaigns
from tests.chaos._report import Progress

pytestmark = pytest.mark.slow

QUIET = Progress(shown=False)


@pytest.fixture
def redis(settings: Settings, own_valkey: Valkey, tmp_path: Path, seed: int) -> RedisCampaigns:
    return RedisCampaigns(settings, own_valkey, tmp_path, seed=seed)


async def test_a_redis_wiped_after_each_turn_loses_nothing(redis: RedisCampaigns) -> None:
    """With the default flush a Redis without a disk is as good as one with it."""
    (await redis.wiped_at_turns(9, QUIET)).check()


async def test_a_redis_wiped_at_random_instants_loses_nothing_and_runs_no_turn_again(
    redis: RedisCampaigns,
) -> None:
    """A wipe in the middle of a step is no different."""
    (await redis.wiped_at_random(25, QUIET)).check()


async def test_a_redis_that_goes_back_in_time_is_seen_and_mended(redis: RedisCampaigns) -> None:
    """A failover to a replica that lags must not shorten a conversation."""
    (await redis.rolled_back(3, QUIET)).check()


async def test_sessions_wait_for_a_redis_that_is_down(redis: RedisCampaigns) -> None:
    """An outage shorter than the activities' patience is a pause, not a failure."""
    (await redis.down(2, QUIET)).check()
