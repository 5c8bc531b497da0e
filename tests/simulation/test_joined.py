"""Programs that share a session without a workflow: what they are told of their messages is true."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from helix_temporal.stores.sessions import base, cuts, threads
from helix_temporal.stores.threads import opening as threads_opening
from tests.simulation._joined import simulate_joined

SEEDS = 150
SEEN = ("taken back", "evict: dropped", "all wiped")
FAR = 500
"""Among so many seeds the absence of a guard is seen; the known one comes first."""


@contextmanager
def cuts_at_any_head() -> Iterator[None]:
    """A cut takes along what was appended since its messages were read."""
    with patch.object(threads_opening, "check_expected_head", lambda *_: None):
        yield


@contextmanager
def cuts_believed() -> Iterator[None]:
    """A cut is told as made before anybody knows that the thread had not gone on."""

    async def remembered(*_: Any) -> bool:
        return True

    with patch.object(cuts, "_is_remembered", remembered):
        yield


@contextmanager
def rows_unrestored() -> Iterator[None]:
    """A session whose row was lost is none, whatever its archive has."""

    async def trusting(*_: Any) -> bool:
        return False

    with patch.object(base, "restore_row", trusting):
        yield


@contextmanager
def one_epoch_for_two() -> Iterator[None]:
    """An open may choose the epoch that a cut chooses beside it."""
    with patch.object(threads, "next_epoch_to_join", threads.next_epoch):
        yield


def test_what_is_acknowledged_stands_and_what_is_taken_back_is_gone() -> None:
    """Whatever happens to Redis' scripts and to the archive's objects on the way."""
    verdicts = [simulate_joined(seed) for seed in range(SEEDS)]
    assert [(verdict.seed, verdict.why) for verdict in verdicts if verdict.why] == []
    assert all(sum(verdict.seen[what] for verdict in verdicts) for what in SEEN)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(3004789, id="an append that is repeated on an old copy"),
        pytest.param(3019045, id="a cut and an open in one millisecond"),
        pytest.param(3056009, id="what a wipe took comes to the archive late"),
        pytest.param(3063723, id="a cut beside opens of a thread that a wipe took"),
        pytest.param(3083565, id="an append beside two opens"),
        pytest.param(3084098, id="a cut that was decided before a wipe"),
    ],
)
def test_what_a_campaign_found_stays_mended(seed: int) -> None:
    """Each was a violation."""
    assert not simulate_joined(seed).why


@pytest.mark.parametrize(
    ("remove", "known"),
    [
        (cuts_at_any_head, 656),
        (cuts_believed, 1),
        (rows_unrestored, 2),
        (one_epoch_for_two, 3019045),
    ],
)
def test_a_missing_guard_is_seen(remove: Callable[[], Any], known: int) -> None:
    """A checker that can't fail proves nothing."""
    verdicts = (simulate_joined(seed, broken=remove()) for seed in (known, *range(FAR)))
    assert next((verdict for verdict in verdicts if verdict.why), None) is not None
