"""Sub-agents whose sessions have ended, since they wait for people: who may go on, and why."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
from temporalio import workflow

from helix_temporal.models.messages import ToolResult
from helix_temporal.models.sessions import SessionInput
from helix_temporal.models.steps import OpenSessionInput
from helix_temporal.models.waiting import RESUME, PendingCall, SubAgentCall, SubmitInput, TakenAnswer
from helix_temporal.session.pending_calls import SubAgentCalls, UnattendedCalls
from helix_temporal.workflows.sub_agents import SubAgents
from tests.unit._clock import Clock

HOUR = 3_600_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def calls(clock: Clock) -> SubAgentCalls:
    return SubAgentCalls(clock)


def question(name: str, until: int | None = None) -> PendingCall:
    return PendingCall(id=name, call_id=name, name="ask_user", until=until)


def waiting(at: int, *questions: PendingCall, until: int | None = None, session: str = "") -> SubAgentCall:
    return SubAgentCall(
        at=at, session_id=session or f"child{at}", call=f"a.{at}", calls=questions, until=until
    )


def answer(call: str = "q") -> TakenAnswer:
    return TakenAnswer(request=SubmitInput(call=call), when=1)


def test_a_suspended_call_has_to_wait(calls: SubAgentCalls) -> None:
    """To run it again for nothing would cost an execution each time."""
    calls.suspend_call(waiting(1, question("q")))
    assert [calls.must_wait(at) for at in (0, 1)] == [False, True]
    assert [each.route for each in calls.list_pending()] == [("child1",)]


def test_an_answer_resumes_its_session_alone(calls: SubAgentCalls) -> None:
    """Others wait on."""
    calls.restore_calls([waiting(0, question("q")), waiting(1, question("r"))])
    calls.add_answer(answer())
    assert [calls.must_wait(at) for at in (0, 1)] == [False, True]
    resumed = calls.resume_call(0)
    assert resumed is not None
    assert (resumed.call.answers, resumed.ends, resumed.late) == ((answer(),), False, False)


def test_a_deadline_below_resumes_it(calls: SubAgentCalls, clock: Clock) -> None:
    """The session itself gives the call up; its own time is not over."""
    calls.suspend_call(waiting(0, question("q", until=HOUR)))
    assert (calls.must_wait(0), calls.seconds_left()) == (True, 3600.0)
    clock.now = HOUR
    resumed = calls.resume_call(0)
    assert resumed is not None
    assert not resumed.late


def test_the_time_of_a_call_further_below_resumes_it(calls: SubAgentCalls, clock: Clock) -> None:
    """The session itself ends that call; those above are told of the first time that passes, too."""
    calls.suspend_call(waiting(0, question("q", until=1), until=3 * HOUR))
    assert calls.find_due_time() == 3 * HOUR
    calls.suspend_call(waiting(0, question("q"), until=3 * HOUR).model_copy(update={"due": HOUR}))
    assert (calls.must_wait(0), calls.seconds_left(), calls.find_due_time()) == (True, 3600.0, HOUR)
    clock.now = HOUR
    resumed = calls.resume_call(0)
    assert resumed is not None
    assert not resumed.late
    assert calls.find_due_time() is None


def test_the_time_of_one_behind_another_is_told_to_nobody(calls: SubAgentCalls) -> None:
    """It may not go on before the first has its result: whoever it resumed would wait again at once."""
    calls.in_order = True
    calls.restore_calls([waiting(0, question("q")), waiting(1, question("r"), until=HOUR)])
    assert (calls.find_due_time(), calls.seconds_left()) == (None, None)


def test_a_call_whose_time_is_over_is_late(calls: SubAgentCalls, clock: Clock) -> None:
    """Its turn is ended, and the model told."""
    calls.suspend_call(waiting(0, question("q"), until=HOUR))
    clock.now = HOUR
    assert not calls.must_wait(0)
    resumed = calls.resume_call(0)
    assert resumed is not None
    assert resumed.late


def test_a_call_of_the_same_session_waits_behind_the_first(calls: SubAgentCalls) -> None:
    """A thread that continues serves one call after the other, also over executions."""
    calls.restore_calls([waiting(0, question("q"), session="s"), waiting(1, session="s")])
    assert [calls.must_wait(at) for at in (0, 1)] == [True, True]
    calls.add_answer(answer())
    calls.resume_call(0)
    assert not calls.must_wait(1)


def test_in_order_nothing_is_run_behind_a_suspended_one(calls: SubAgentCalls) -> None:
    """Each call may rely on those before it."""
    calls.in_order = True
    calls.suspend_call(waiting(1, question("q")))
    assert [calls.must_wait(at) for at in (0, 1, 2)] == [False, True, True]


def test_the_end_of_the_turn_resumes_all(calls: SubAgentCalls) -> None:
    """They end their turns, and forget nobody."""
    calls.restore_calls([waiting(0, question("q"), session="s"), waiting(1, session="s")])
    calls.end_all()
    resumed = calls.resume_call(0)
    assert resumed is not None
    assert resumed.ends
    assert not calls.must_wait(1)


def test_who_is_dismissed_is_forgotten(calls: SubAgentCalls) -> None:
    """What had no turn yet needs no end."""
    first = waiting(0, question("q"), session="s")
    calls.restore_calls([first, waiting(1, session="s")])
    assert calls.dismiss_all() == (first,)
    assert not calls


def test_a_call_that_has_its_result_is_not_run_again(calls: SubAgentCalls) -> None:
    """Nor one that is suspended."""
    step = UnattendedCalls(3, calls)
    step.add_result(0, ToolResult(text="done"))
    calls.suspend_call(waiting(1, question("q")))
    assert step.list_runnable() == [2]
    assert [each.at for each in step.list_outcomes()] == [0]


def test_the_time_of_one_behind_another_resumes_nobody(calls: SubAgentCalls, clock: Clock) -> None:
    """A session that found nothing to do each time would look again at once, for ever."""
    calls.in_order = True
    calls.restore_calls(
        [
            waiting(0, question("q"), until=2 * HOUR),
            waiting(1, question("r", until=HOUR)),
            waiting(2, until=HOUR, session="child0"),
        ]
    )
    clock.now = HOUR
    assert [calls.must_wait(at) for at in (0, 1, 2)] == [True, True, True]
    assert calls.seconds_left() == 3600.0


def test_what_was_answered_is_pending_no_more(calls: SubAgentCalls) -> None:
    """Neither before its session goes on, nor while it works; what else it asked stays."""
    calls.suspend_call(waiting(0, question("q"), question("r")))
    calls.add_answer(answer())
    assert [each.id for each in calls.list_pending()] == ["r"]
    calls.resume_call(0)
    assert [each.id for each in calls.list_pending()] == ["r"]
    calls.finish_call(0)
    assert calls.list_pending() == ()


def test_an_answer_for_a_session_that_runs_is_sent_and_kept(calls: SubAgentCalls) -> None:
    """It may end before the signal comes: then it is started again with the answer."""
    calls.suspend_call(waiting(0, question("q"), question("r")))
    calls.add_answer(answer())
    calls.resume_call(0)
    calls.add_answer(answer("r"))
    assert calls.drain_unsent_answers() == [("child0", answer("r"))]
    assert calls.drain_unsent_answers() == []
    calls.suspend_call(waiting(0, question("r")))
    assert not calls.must_wait(0)
    resumed = calls.resume_call(0)
    assert resumed is not None
    assert resumed.call.answers == (answer("r"),)


def test_an_answer_that_a_session_has_had_does_not_resume_it_again(calls: SubAgentCalls) -> None:
    """It waits for something else by now."""
    calls.suspend_call(waiting(0, question("q"), question("r")))
    calls.add_answer(answer())
    calls.resume_call(0)
    calls.add_answer(answer("r"))
    calls.suspend_call(waiting(0, question("other")))
    assert calls.must_wait(0)


def test_of_what_nobody_answered_in_time_is_told(calls: SubAgentCalls, clock: Clock) -> None:
    """Once its session has ended without it: whoever answers later is told that it has expired."""
    expired = list[str]()
    calls.on_expired = lambda call: expired.append(call.id)
    calls.suspend_call(waiting(0, question("q", until=HOUR), question("r")))
    clock.now = HOUR
    calls.resume_call(0)
    calls.suspend_call(waiting(0, question("r")))
    assert expired == ["q"]
    calls.resume_call(0)
    calls.finish_call(0)
    assert expired == ["q"]


def test_new_questions_are_told_once(calls: SubAgentCalls) -> None:
    """Whoever asked the root is told what is waited for, each time that something is added."""
    told = list[int]()
    calls.on_child_waits = lambda: told.append(len(calls.list_pending()))
    calls.suspend_call(waiting(0, question("q")))
    calls.suspend_call(waiting(1, session="child0"))
    calls.add_answer(answer())
    calls.resume_call(0)
    calls.suspend_call(waiting(0, question("r")))
    assert told == [1, 1]


def test_who_is_to_look_is_resumed_with_nothing_answered(calls: SubAgentCalls) -> None:
    """The session store may have answers that nobody else has seen."""
    calls.restore_calls([waiting(0, question("q")), waiting(1, question("r"))])
    calls.resume_all(answer("resume"))
    assert [calls.must_wait(at) for at in (0, 1)] == [False, False]
    assert len(calls.list_pending()) == 2


def test_a_question_that_its_session_found_answered_is_not_told_to_be_late(
    calls: SubAgentCalls, clock: Clock
) -> None:
    """A program answered in the session store in time: only the sub-agent's session knows."""
    late: list[PendingCall] = []
    calls.on_expired = late.append
    calls.suspend_call(waiting(0, question("q", until=HOUR)))
    calls.resume_all(answer(RESUME))
    calls.resume_call(0)
    clock.now = 2 * HOUR
    calls.finish_call(0)
    assert late == []


async def test_a_session_that_nobody_can_resume_any_more_ends_with_its_callers_execution(
    calls: SubAgentCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roll-out took the tool while another call of the step still waits: the next execution forgets it."""
    begun: list[SessionInput] = []

    def begin(agents: SubAgents, child: Any, _facts: Any, start: SessionInput, _limit: Any) -> Any:
        agents._running.append(child)
        begun.append(start)
        return asyncio.create_task(asyncio.sleep(0))

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 (stands for the SDK's)
            await asyncio.sleep(0)

    monkeypatch.setattr(SubAgents, "_begin_child", begin)
    monkeypatch.setattr(workflow, "wait_condition", until)
    calls.suspend_call(waiting(0, question("q")))
    calls.suspend_call(waiting(1, question("r")))
    calls.finish_call(0)  # "There is no tool …"
    agents = SubAgents(None, calls, has_started=AsyncMock())
    request = OpenSessionInput(session_id="s", thread_id="s", agent="a", owner="o")
    await agents.wait_until_ended(pytest.fail, request, cut=False)
    assert [(each.session_id, each.woken and each.woken.ends) for each in begun] == [("child0", True)]
    assert calls.is_waiting(1)
