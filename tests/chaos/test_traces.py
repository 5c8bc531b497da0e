"""Workers that tell of turns are killed: what they could not export is told again, and nothing twice."""

from pathlib import Path

import pytest

from helix_temporal.settings import Settings
from tests.chaos._report import Progress
from tests.chaos._traces import TraceKills

pytestmark = pytest.mark.slow


async def test_after_a_backfill_each_turn_has_one_root(settings: Settings, tmp_path: Path, seed: int) -> None:
    """Tracing that loses the turns in which something went wrong is worth little; `make chaos` has 200."""
    report = await TraceKills(settings, tmp_path, seed=seed, sessions=40).run(8, Progress(shown=False))
    report.check()
