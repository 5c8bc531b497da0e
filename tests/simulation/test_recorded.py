"""Programs that keep records in a session: each write happens once, none is lost, and packs go with it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.protocols.session_rows import RowsCommitted, SessionCommit, SessionRow
from helix_temporal.stores.records import archive, store
from helix_temporal.stores.sessions import loop
from tests.simulation._recorded import simulate_recorded

SEEDS = 120
SEEN = ("records written", "counted", "taken over", "archived", "packs freed", "deleted", "late commit")
FAR = 400
"""Among so many seeds the absence of a guard is seen; the known one comes first."""


@contextmanager
def any_revision() -> Iterator[None]:
    """Who names the revision that it read writes over what came since."""
    with patch.object(store, "_check_revision", lambda *_: None):
        yield


@contextmanager
def any_epoch() -> Iterator[None]:
    """Who was taken over goes on writing."""
    with patch.object(loop, "check_fence", lambda *_: None):
        yield


@contextmanager
def no_first_answers() -> Iterator[None]:
    """A repeat writes again."""
    with patch.object(loop, "_first_answer", lambda *_: None):
        yield


@contextmanager
def no_compare() -> Iterator[None]:
    """A commit comes true whatever was committed since it was decided."""
    commit = MemorySessions.commit

    async def blind(self: MemorySessions, change: SessionCommit) -> RowsCommitted | None:
        held = self._held_session(change.session_id)
        return await commit(self, replace(change, revision=held.revision))

    with patch.object(MemorySessions, "commit", blind):
        yield


@contextmanager
def used_packs_freed() -> Iterator[None]:
    """A pack goes while records are in it."""
    with patch.object(archive, "_is_in_pack", lambda *_: False):
        yield


@contextmanager
def old_bodies_archived() -> Iterator[None]:
    """A record that was replaced while its body was moved is what it was before."""
    with patch.object(SessionRow, "__eq__", lambda one, other: other and one.name == other.name):
        yield


def test_records_are_what_was_written_and_none_is_lost() -> None:
    """Whatever happens to the store's commits and to the archive's objects on the way."""
    verdicts = [simulate_recorded(seed) for seed in range(SEEDS)]
    assert [(verdict.seed, verdict.why) for verdict in verdicts if verdict.why] == []
    assert all(sum(verdict.seen[what] for verdict in verdicts) for what in SEEN)


@pytest.mark.parametrize(
    ("remove", "known"),
    [
        (any_revision, 94),
        (any_epoch, 3),
        (no_first_answers, 5),
        (no_compare, 45),
        (used_packs_freed, 0),
        (old_bodies_archived, 28),
    ],
)
def test_a_missing_guard_is_seen(remove: Callable[[], Any], known: int) -> None:
    """A checker that can't fail proves nothing."""
    verdicts = (simulate_recorded(seed, broken=remove()) for seed in (known, *range(FAR)))
    assert next((verdict for verdict in verdicts if verdict.why), None) is not None
