"""Threads of one worker share an archive's breaker: trouble of one must not become that of another."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from helix_temporal.coldtier import flush
from helix_temporal.coldtier.flush import Breaker
from tests.simulation._neighbours import simulate_neighbours

SEEDS = 200


@contextmanager
def one_failure_opens() -> Iterator[None]:
    """A single thread that fails keeps all others from the archive."""
    with patch.object(flush, "THREADS", 1):
        yield


@contextmanager
def never_closes() -> Iterator[None]:
    """A success tells nothing: once open, the breaker stays open."""
    with patch.object(Breaker, "note_success", lambda _: None):
        yield


@contextmanager
def never_opens() -> Iterator[None]:
    """Every step waits for an archive that answers nobody."""
    with patch.object(Breaker, "admit_try", lambda *_: True):
        yield


@contextmanager
def never_tried() -> Iterator[None]:
    """Once open, no step ever tries the archive again."""
    with patch.object(Breaker, "admit_try", lambda breaker, _: not breaker.is_open):
        yield


def test_a_healthy_thread_is_archived_whatever_happens_to_another() -> None:
    """What was said to be archived is, and what could be archived is said to be."""
    verdicts = [simulate_neighbours(seed) for seed in range(SEEDS)]
    assert [(verdict.seed, verdict.why) for verdict in verdicts if verdict.why] == []
    assert all(verdict.seen["archive in trouble for one"] for verdict in verdicts)
    assert all(verdict.seen["archive away for all"] for verdict in verdicts)


@pytest.mark.parametrize("remove", [one_failure_opens, never_closes, never_opens, never_tried])
def test_a_breaker_that_is_broken_is_seen(remove: Callable[[], Any]) -> None:
    """A checker that can't fail proves nothing."""
    verdicts = (simulate_neighbours(seed, broken=remove()) for seed in range(SEEDS))
    assert next((verdict for verdict in verdicts if verdict.why), None) is not None
