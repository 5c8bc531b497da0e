"""Every activity is hit at every I/O boundary."""

import pytest

from tests.chaos._all_scenes import SCENES
from tests.chaos._boundaries import SHORT
from tests.chaos._points import KillPoints
from tests.chaos._stage import Stage

pytestmark = pytest.mark.slow

AT_MOST = 4
"""Cases of one scene, at random; `make chaos` has most of them."""


@pytest.mark.parametrize("scene", SCENES)
async def test_whatever_happens_at_any_boundary_the_retried_activity_takes_effect_once(
    stage: Stage, scene: str, seed: int
) -> None:
    """Errors before, lost answers, crashes, late attempts: Temporal promises all of them."""
    points = await KillPoints(stage, scene).run(SHORT, at_most=AT_MOST, seed=seed)
    assert not points.found, "\n".join(points.found[:10])
