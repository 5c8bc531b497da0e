"""Sessions are terminated; the maintenance worker sweeps."""

from pathlib import Path

import pytest

from helix_temporal.settings import Settings
from tests.chaos._report import Progress
from tests.chaos._terminates import TerminateCampaign

pytestmark = pytest.mark.slow


async def test_one_sweep_archives_what_terminated_sessions_left_and_they_go_on(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    """Nothing of ours runs when a session is terminated: what was in Redis must not stay there alone."""
    (await TerminateCampaign(settings, tmp_path, seed=seed).run(30, Progress(shown=False))).check()
