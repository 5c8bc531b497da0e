"""A session is cancelled, once and twice, at the events of its history."""

from pathlib import Path

from helix_temporal.settings import Settings
from tests.chaos._cancels import CancelCampaign
from tests.chaos._report import Progress


async def test_a_session_cancelled_anywhere_is_saved_archived_and_reported(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    """Cancel is the usual way to end a session: whatever runs just then, `finally` must do its work."""
    report = await CancelCampaign(settings, tmp_path, seed=seed).run(Progress(shown=False), every=4)
    report.check()
