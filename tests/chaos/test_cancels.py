"""A session is cancelled, once and twice, at the events of its history."""

import asyncio
from pathlib import Path

import pytest

from helix_temporal.settings import Settings
from tests.chaos._cancels import CancelCampaign, cancelled_while_opening
from tests.chaos._place import open_place
from tests.chaos._report import Progress
from tests.chaos._settings import quick

pytestmark = pytest.mark.slow


async def test_a_session_cancelled_anywhere_is_saved_archived_and_reported(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    """Cancel is the usual way to end a session: whatever runs just then, `finally` must do its work."""
    report = await CancelCampaign(settings, tmp_path, seed=seed).run(Progress(shown=False), every=4)
    report.check()


async def test_a_session_cancelled_while_it_opens_leaves_nothing_hot(
    settings: Settings, tmp_path: Path
) -> None:
    """The open goes on when nobody waits for it: what it makes hot would stay in Redis for ever."""
    async with open_place(quick(settings), tmp_path, "opening") as place:
        left = await asyncio.gather(
            *(cancelled_while_opening(place, f"opening-{number}", 0.002 * number) for number in range(8))
        )
    assert not [problem for each in left for problem in each]
