"""S3 is down, slow or broken while sessions run and end."""

from pathlib import Path

import pytest

from helix_temporal.devstack import Valkey
from helix_temporal.settings import Settings
from tests.chaos._report import Progress
from tests.chaos._s3 import S3Campaigns

pytestmark = pytest.mark.slow

QUIET = Progress(shown=False)


@pytest.fixture
def s3_campaigns(settings: Settings, own_valkey: Valkey, tmp_path: Path, seed: int) -> S3Campaigns:
    return S3Campaigns(settings, own_valkey, tmp_path, seed=seed)


async def test_a_session_that_ends_while_s3_is_down_says_so_and_the_maintenance_worker_archives_it(
    s3_campaigns: S3Campaigns,
) -> None:
    """An outage of S3 may last longer than anybody wants to keep workflows open."""
    (await s3_campaigns.down_at_exit(3, QUIET)).check()


async def test_sessions_go_on_while_s3_is_slow_cut_off_and_away(s3_campaigns: S3Campaigns) -> None:
    """Every kind of unclear outcome of a PUT occurs here, on a real server."""
    (await s3_campaigns.flapping(25, QUIET)).check()
