"""Sub-agents that sleep while they wait for people: who may go on, and why."""

import pytest

from helix_temporal.models.messages import ToolResult
from helix_temporal.models.waiting import ChildWait, PendingCall, RoutedSubmit, SubmitInput
from helix_temporal.session.waiting import OpenCalls, Sleepers
from tests.unit._clock import Clock

HOUR = 3_600_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sleepers(clock: Clock) -> Sleepers:
    return Sleepers(clock)


def question(name: str, until: int | None = None) -> PendingCall:
    return PendingCall(id=name, call_id=name, name="ask_user", until=until)


def asleep(at: int, *calls: PendingCall, until: int | None = None, session: str = "") -> ChildWait:
    return ChildWait(at=at, session_id=session or f"child{at}", call=f"a.{at}", calls=calls, until=until)


LETTER = RoutedSubmit(id="1", reply_to="root", request=SubmitInput(call="q"))


def test_a_call_whose_session_sleeps_has_to_wait(sleepers: Sleepers) -> None:
    """To run it again for nothing would cost an execution each time."""
    sleepers.sleep(asleep(1, question("q")))
    assert [sleepers.holds(at) for at in (0, 1)] == [False, True]
    assert [each.route for each in sleepers.pending()] == [("child1",)]


def test_an_answer_wakes_its_session_alone(sleepers: Sleepers) -> None:
    """Others sleep on."""
    sleepers.take_up([asleep(0, question("q")), asleep(1, question("r"))])
    assert sleepers.send("child0", LETTER)
    assert [sleepers.holds(at) for at in (0, 1)] == [False, True]
    woken = sleepers.wake(0)
    assert woken is not None
    assert (woken.letters, woken.ends, woken.late) == ((LETTER,), False, False)
    assert not sleepers.send("child0", LETTER)


def test_a_deadline_below_wakes_it(sleepers: Sleepers, clock: Clock) -> None:
    """The session itself gives the call up; its own time is not over."""
    sleepers.sleep(asleep(0, question("q", until=HOUR)))
    assert (sleepers.holds(0), sleepers.left()) == (True, 3600.0)
    clock.now = HOUR
    woken = sleepers.wake(0)
    assert woken is not None
    assert not woken.late


def test_the_time_of_a_call_further_below_wakes_it(sleepers: Sleepers, clock: Clock) -> None:
    """The session itself ends that call; those above are told of the first time that passes, too."""
    sleepers.sleep(asleep(0, question("q", until=1), until=3 * HOUR))
    assert sleepers.due() == 3 * HOUR
    sleepers.sleep(asleep(0, question("q"), until=3 * HOUR).model_copy(update={"due": HOUR}))
    assert (sleepers.holds(0), sleepers.left(), sleepers.due()) == (True, 3600.0, HOUR)
    clock.now = HOUR
    woken = sleepers.wake(0)
    assert woken is not None
    assert not woken.late
    assert sleepers.due() is None


def test_the_time_of_one_behind_another_is_told_to_nobody(sleepers: Sleepers) -> None:
    """It may not go on before the first has its result: whoever it woke would sleep again at once."""
    sleepers.allow(parallel=False)
    sleepers.take_up([asleep(0, question("q")), asleep(1, question("r"), until=HOUR)])
    assert (sleepers.due(), sleepers.left()) == (None, None)


def test_a_call_whose_time_is_over_is_late(sleepers: Sleepers, clock: Clock) -> None:
    """Its turn is ended, and the model told."""
    sleepers.sleep(asleep(0, question("q"), until=HOUR))
    clock.now = HOUR
    assert not sleepers.holds(0)
    woken = sleepers.wake(0)
    assert woken is not None
    assert woken.late


def test_a_call_of_the_same_session_waits_behind_the_first(sleepers: Sleepers) -> None:
    """A thread that continues serves one call after the other, also over executions."""
    sleepers.take_up([asleep(0, question("q"), session="s"), asleep(1, session="s")])
    assert [sleepers.holds(at) for at in (0, 1)] == [True, True]
    sleepers.send("s", LETTER)
    sleepers.wake(0)
    assert not sleepers.holds(1)


def test_in_order_nothing_is_run_behind_one_that_sleeps(sleepers: Sleepers) -> None:
    """Each call may rely on those before it."""
    sleepers.in_order = True
    sleepers.sleep(asleep(1, question("q")))
    assert [sleepers.holds(at) for at in (0, 1, 2)] == [False, True, True]


def test_the_end_of_the_turn_wakes_all(sleepers: Sleepers) -> None:
    """They end their turns, and forget nobody."""
    sleepers.take_up([asleep(0, question("q"), session="s"), asleep(1, session="s")])
    sleepers.end_all()
    woken = sleepers.wake(0)
    assert woken is not None
    assert woken.ends
    assert not sleepers.holds(1)


def test_who_is_dismissed_is_forgotten(sleepers: Sleepers) -> None:
    """What had no turn yet needs no end."""
    first = asleep(0, question("q"), session="s")
    sleepers.take_up([first, asleep(1, session="s")])
    assert sleepers.dismiss() == (first,)
    assert not sleepers


def test_a_call_that_has_its_result_is_not_run_again(sleepers: Sleepers) -> None:
    """Nor one that sleeps."""
    calls = OpenCalls(3, sleepers)
    calls.found(0, ToolResult(text="done"))
    sleepers.sleep(asleep(1, question("q")))
    assert calls.to_run() == [2]
    assert [each.at for each in calls.known()] == [0]


def test_the_time_of_one_that_has_to_wait_for_another_wakes_nobody(sleepers: Sleepers, clock: Clock) -> None:
    """A session that found nothing to do each time would look again at once, for ever."""
    sleepers.in_order = True
    sleepers.take_up(
        [
            asleep(0, question("q"), until=2 * HOUR),
            asleep(1, question("r", until=HOUR)),
            asleep(2, until=HOUR, session="child0"),
        ]
    )
    clock.now = HOUR
    assert [sleepers.holds(at) for at in (0, 1, 2)] == [True, True, True]
    assert sleepers.left() == 3600.0
