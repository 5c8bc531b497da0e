"""Every activity is hit at every I/O boundary."""

import pytest

from helix_temporal.activities import LockActivities, UsageActivities
from helix_temporal.activities.checkpoints import CheckpointActivities
from helix_temporal.activities.cleanup import CleanupActivities
from helix_temporal.activities.reads import SessionReads
from helix_temporal.activities.states import SessionStoreActivities
from helix_temporal.activities.take_backs import TakeBacks
from tests.chaos._boundaries import SHORT
from tests.chaos._points import KillPoints
from tests.chaos._stage import Stage
from tests.chaos._thread_scenes import SCENES

pytestmark = pytest.mark.slow

_ONE_CALL_OF_A_STORE = {
    each.__temporal_activity_definition.name
    for holder in (
        SessionStoreActivities,
        CheckpointActivities,
        CleanupActivities,
        LockActivities,
        UsageActivities,
    )
    for each in vars(holder).values()
    if hasattr(each, "__temporal_activity_definition")
}
"""Each is one call of a store that is broken off at every statement by its own tests (tests/contracts)."""

_READS = {
    each.__temporal_activity_definition.name
    for holder in (SessionReads, TakeBacks)
    for each in vars(holder).values()
    if hasattr(each, "__temporal_activity_definition")
}
"""They change nothing: what is lost is asked again."""


@pytest.mark.parametrize("scene", SCENES)
async def test_whatever_happens_at_any_boundary_the_retried_activity_takes_effect_once(
    stage: Stage, scene: str
) -> None:
    """Errors before, lost answers, crashes, late attempts: Temporal promises all of them."""
    found = [problem for what in SHORT for problem in (await KillPoints(stage, scene).run(what)).found]
    assert not found, "\n".join(found[:10])


async def test_every_activity_has_a_scene(stage: Stage) -> None:
    """An activity that is added without one would be tested by nobody here."""
    played = {(await play(stage, f"scene-{number}")).activity for number, play in enumerate(SCENES.values())}
    own = set(stage.calm.activities) - _ONE_CALL_OF_A_STORE - _READS
    assert {_kind(each) for each in played} == {_kind(each) for each in own}


def _kind(activity: str) -> str:
    """Tools are run by one and the same code, whatever they are called."""
    return "helix.tools" if activity.startswith("helix.tools.") else activity
