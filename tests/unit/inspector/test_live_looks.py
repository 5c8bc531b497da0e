"""When a page that follows a conversation looks at the stores again, and what it tells of silence."""

import pytest

from helix_temporal.inspector.live_looks import AFTER_CHANGE, KEEP_ALIVE, WHILE_IDLE, WHILE_RUNNING, LiveLooks
from helix_temporal.views.silence import SILENCE


class Clock:
    """Seconds, as the test says."""

    now = 100.0

    def __call__(self) -> float:
        """The present time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands."""
    return Clock()


@pytest.fixture
def looks(clock: Clock) -> LiveLooks:
    """Of a page that was just opened."""
    return LiveLooks(clock)


def test_an_idle_session_is_seldom_looked_at(clock: Clock, looks: LiveLooks) -> None:
    """It may be closed, which no chunk tells; but hundreds of tabs must cost next to nothing."""
    assert looks.wait_time(running=False) == KEEP_ALIVE
    clock.now += WHILE_IDLE - 1
    assert not looks.take_due(running=False)
    clock.now += 1
    assert looks.take_due(running=False)
    assert not looks.take_due(running=False)


def test_a_store_that_is_away_is_looked_at_until_it_is_back(clock: Clock, looks: LiveLooks) -> None:
    """The page says that not all can be read: that must not stay when it can."""
    looks.is_unread = True
    for _ in range(20):
        assert not looks.take_due(running=False)
        clock.now += looks.wait_time(running=False)
        assert looks.take_due(running=False)


def test_the_end_of_a_turn_is_looked_at_some_times(clock: Clock, looks: LiveLooks) -> None:
    """Its run is recorded as ended after its last chunk."""
    looks.begin()
    begun = clock.now
    taken = []
    for _ in range(len(AFTER_CHANGE) + 3):
        clock.now += looks.wait_time(running=False)
        taken.append(clock.now - begun if looks.take_due(running=False) else None)
    assert taken[: len(AFTER_CHANGE)] == pytest.approx(AFTER_CHANGE)
    assert taken[len(AFTER_CHANGE) :] == [None] * 3


def test_a_turn_that_runs_is_looked_at_now_and_then(clock: Clock, looks: LiveLooks) -> None:
    """Its end may never be told."""
    assert looks.wait_time(running=True) == WHILE_RUNNING
    clock.now += WHILE_RUNNING
    assert looks.take_due(running=True)
    assert not looks.take_due(running=True)
    assert looks.are_chunks_missing


def test_silence_is_told_at_longer_and_longer_intervals(clock: Clock, looks: LiveLooks) -> None:
    """A blinking cursor beside a worker that is dead looks like progress; a screen reader reads each."""
    told = []
    for _ in range(50):
        clock.now += 1
        told.append(looks.silence.tell())
    assert [(at, each) for at, each in enumerate(told, 1) if each] == [(10, 10), (20, 20), (40, 40)]
    assert looks.silence.end(0.0)
    assert not looks.silence.end(0.0)
    assert looks.silence.tell() is None
    assert looks.wait_time(running=True) <= SILENCE


def test_a_page_that_is_opened_late_knows_how_old_the_last_chunk_is(clock: Clock, looks: LiveLooks) -> None:
    """The worker was killed a minute ago: that is told at once, not after ten seconds more."""
    looks.silence.end(60.0)
    assert looks.silence.tell() == 40
    looks.silence.end(60.0)  # by a clock that is wrong: it has come just now
    clock.now += 1
    assert looks.silence.tell() is None
