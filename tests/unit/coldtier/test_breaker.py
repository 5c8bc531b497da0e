"""When steps go without the archive, and when it is tried again."""

from helix_temporal.coldtier.flush import Breaker

NOW = 1000.0


def a_breaker(*failed: str) -> Breaker:
    breaker = Breaker()
    for name in failed:
        breaker.note_failure(name, NOW)
    return breaker


def test_one_thread_never_opens_it() -> None:
    """However often it fails."""
    assert a_breaker(*["a"] * 100).admit_try(NOW)


def test_two_threads_do_not_open_it() -> None:
    """Two slow PUTs at once are no outage."""
    assert a_breaker("a", "b", "a", "b").admit_try(NOW)


def test_three_threads_open_it() -> None:
    """Nobody has heard from the archive."""
    assert not a_breaker("a", "b", "c").admit_try(NOW)


def test_a_success_between_them_keeps_it_closed() -> None:
    """The archive answers."""
    breaker = a_breaker("a", "b")
    breaker.note_success()
    breaker.note_failure("c", NOW)
    assert breaker.admit_try(NOW)


def test_once_open_one_step_a_second_tries() -> None:
    """The others are told at once that they are not archived."""
    breaker = a_breaker("a", "b", "c")
    assert [breaker.admit_try(NOW + after) for after in (0.9, 1.0, 1.1, 1.9, 2.1)] == [
        *(False, True),
        *(False, False, True),
    ]


def test_a_success_closes_it() -> None:
    """At once, and for all threads."""
    breaker = a_breaker("a", "b", "c")
    assert breaker.admit_try(NOW + 1)
    breaker.note_success()
    assert (breaker.admit_try(NOW + 1), breaker.is_open) == (True, False)


def test_a_failed_try_leaves_it_open() -> None:
    """Until the next second."""
    breaker = a_breaker("a", "b", "c")
    assert breaker.admit_try(NOW + 1)
    breaker.note_failure("d", NOW + 1)
    assert not breaker.admit_try(NOW + 1.5)
    assert breaker.admit_try(NOW + 2)
