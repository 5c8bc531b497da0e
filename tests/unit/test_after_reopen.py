"""How a turn goes on under which its thread was opened again: every case that there is."""

from collections.abc import Callable

import pytest

from helix_temporal.models.stored_messages import Head
from helix_temporal.session.after_reopen import After, Reopened, after_cut, after_step, after_wait


def head(position: int, which: str = "") -> Head:
    """A place; ``which`` tells two at one position apart."""
    return Head(position=position, last_id=f"{which}{position}")


Decision = Callable[[Reopened], After]
START, KNOWN = head(4), head(6)


@pytest.mark.parametrize(
    ("found", "after"),
    [
        (KNOWN, After.SAME_STEP),
        (head(8), After.SAME_STEP),  # both inputs, no answer
        (head(9), After.SAME_STEP),  # and the answer
        (head(10), After.NOWHERE),  # more than the step adds
        (head(6, "another"), After.NOWHERE),
        (head(5), After.NOWHERE),
        (START, After.FROM_START),
        (head(4, "another"), After.NOWHERE),
        (head(2), After.FROM_START),
    ],
)
def test_after_a_step_of_two_inputs(found: Head, after: After) -> None:
    """What lies behind may be the step itself; what is gone is run again."""
    assert after_step(Reopened(start=START, known=KNOWN, found=found), 2) is after


@pytest.mark.parametrize("decide", [lambda now: after_step(now, 2), after_wait, after_cut])
@pytest.mark.parametrize("found", [head(2), START, head(5), head(8), head(20)])
def test_a_reset_loses_nothing_that_the_thread_has(decide: Decision, found: Head) -> None:
    """Wherever the thread is by now: nothing is cut, and nothing is run before what is finished there."""
    assert decide(Reopened(start=START, known=KNOWN, found=found, reset=True)) is After.BEHIND


@pytest.mark.parametrize("decide", [lambda now: after_step(now, 2), after_wait, after_cut])
def test_a_turn_of_others_goes_first_after_a_reset(decide: Decision) -> None:
    """Also where the thread is at the very place."""
    now = Reopened(start=START, known=KNOWN, found=KNOWN, reset=True, of_others=True)
    assert decide(now) is After.BEHIND


@pytest.mark.parametrize(
    ("found", "reset", "goes_on", "after"),
    [
        (KNOWN, False, False, After.SAME_STEP),
        (KNOWN, False, True, After.FIND_STEPS),
        (KNOWN, True, True, After.FIND_STEPS),
        (KNOWN, True, False, After.FROM_START),
        (START, False, False, After.FROM_START),
        (head(2), False, False, After.FROM_START),
        (head(9), False, True, After.FIND_STEPS),
    ],
)
def test_before_a_turn_that_waited_goes_on(found: Head, reset: bool, goes_on: bool, after: After) -> None:
    """It waits no more where the thread has gone on from its step."""
    now = Reopened(start=START, known=KNOWN, found=found, reset=reset, goes_on=goes_on)
    assert after_wait(now) is after


@pytest.mark.parametrize(
    ("found", "after"), [(KNOWN, After.SAME_STEP), (START, After.FROM_START), (head(2), After.FROM_START)]
)
def test_after_a_tool_took_its_step_back(found: Head, after: After) -> None:
    """The model is asked again from where the step began, if that is still there."""
    assert after_cut(Reopened(start=START, known=KNOWN, found=found)) is after
