"""Workers die under sessions that are watched."""

from pathlib import Path

import pytest

from helix_temporal.settings import Settings
from tests.chaos._report import Progress
from tests.chaos._streams import StreamKills

pytestmark = pytest.mark.slow


async def test_what_is_shown_when_a_turn_ends_is_what_stands_whoever_died_meanwhile(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    """A reader keeps no word of an attempt that came to nothing, and misses none that stands."""
    campaign = StreamKills(settings, tmp_path, seed=seed, sessions=2, askers=1)
    (await campaign.run(3, Progress(shown=False))).check()
