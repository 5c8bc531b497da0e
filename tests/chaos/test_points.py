"""Every activity is hit at every I/O boundary."""

import pytest

from tests.chaos._boundaries import SHORT
from tests.chaos._points import KillPoints
from tests.chaos._stage import Stage
from tests.chaos._thread_scenes import SCENES


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
    assert played == set(stage.calm.activities)
