"""What an execution does next: every situation has one answer, and none of them loses anything."""

import itertools
from dataclasses import fields, replace

import pytest

from helix_temporal.session.next_work import Situation, Work, may_end, next_work

NAMES = [each.name for each in fields(Situation)]
ALL = [
    Situation(**dict(zip(NAMES, given, strict=True)))
    for given in itertools.product([False, True], repeat=len(NAMES))
]
POSSIBLE = [
    now for now in ALL if (now.messages or not now.archive_behind) and (now.suspended or not now.can_resume)
]
"""Only messages are held, and only a suspended turn is resumed."""


def test_no_turn_begins_beside_one_that_is_suspended() -> None:
    """Nor one of messages that are held."""
    serving = [now for now in POSSIBLE if next_work(now) is Work.SERVE]
    assert serving
    assert all(now.messages and not now.suspended and not now.archive_behind for now in serving)


def test_an_execution_that_ends_takes_no_message_and_no_request_with_it() -> None:
    """A turn that waits is left to the next one, if the session is meant to end while it waits."""
    ending = [now for now in POSSIBLE if next_work(now) is Work.END]
    assert ending
    for now in ending:
        assert not any([now.messages, now.rewind, now.can_resume])
        assert now.exits or not now.suspended


def test_whatever_comes_is_done_at_once() -> None:
    """Nobody who sends something has to wait for an idle time-out."""
    for now in POSSIBLE:
        assert next_work(replace(now, rewind=True)) is Work.REWIND
        if now.suspended and not now.rewind:
            assert next_work(replace(now, can_resume=True)) is Work.RESUME
        if not (now.suspended or now.rewind):
            assert next_work(replace(now, messages=True, archive_behind=False)) is Work.SERVE


@pytest.mark.parametrize("persistent", [True, False])
def test_who_has_nothing_to_do_waits_or_ends(persistent: bool) -> None:
    """A session that serves one task ends by itself; others once they are closed, or idle for long."""
    rest = Situation(persistent=persistent)
    assert next_work(rest) is (Work.WAIT if persistent else Work.END)
    assert next_work(replace(rest, ends=True)) is Work.END
    assert next_work(replace(rest, ends=True, messages=True, archive_behind=True)) is Work.WAIT


def test_a_suspended_turn_holds_its_execution_where_it_is_to_wait() -> None:
    """Idle time does not count meanwhile; `close` lets it go, since `exits` is true then."""
    for ends, persistent in itertools.product([False, True], repeat=2):
        asleep = Situation(suspended=True, ends=ends, persistent=persistent)
        assert next_work(asleep) is Work.WAIT
        assert next_work(replace(asleep, exits=True)) is Work.END
        assert next_work(replace(asleep, exits=True, messages=True)) is Work.WAIT


def test_what_may_end_has_nothing_to_do_and_nothing_to_wait_for() -> None:
    """Whether it is closed, idle, or neither yet."""
    for now in POSSIBLE:
        wanted = now.rewind or now.can_resume or now.messages or (now.suspended and not now.exits)
        assert may_end(now) is not wanted
