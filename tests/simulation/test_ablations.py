"""A checker that can't fail proves nothing: each guard removed from the real code must be missed."""

import pytest

from tests.simulation._ablations import GUARDS, first_caught
from tests.simulation._run import simulate


@pytest.mark.parametrize("name", GUARDS)
def test_each_guard_is_where_it_is_removed(name: str) -> None:
    """Guards are replaced by name: one that has another name now would be found by the long form alone."""
    guard = GUARDS[name]
    assert (
        simulate(0, exit_mode=guard.exit_mode, rates=guard.rates, strict=False, broken=guard.remove).seed == 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", GUARDS)
def test_a_missing_guard_is_seen(name: str) -> None:
    """Users lose, see twice, or miss something without it, within a bounded number of seeds."""
    guard = GUARDS[name]
    assert first_caught(guard, [guard.known, *range(guard.within)]) is not None


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["closed", "generation", "last_id", "own_epoch"])
def test_with_all_guards_the_same_surroundings_do_no_harm(name: str) -> None:
    """What is seen without a guard must be its absence, not the roughness of the surroundings."""
    guard = GUARDS[name]
    verdicts = [simulate(seed, exit_mode=guard.exit_mode, rates=guard.rates) for seed in range(50)]
    assert [(verdict.seed, verdict.why) for verdict in verdicts if verdict.why] == []
