"""A conversation on a terminal."""

from decimal import Decimal

import pytest

from helix_temporal.cli.conversation_text import print_turn
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import ErrorInfo
from helix_temporal.views.models import (
    ConversationCall,
    ConversationMessage,
    ConversationTurn,
    ModelCall,
    ShownTokens,
    TurnAttempt,
)


def a_turn(*messages: ConversationMessage, **fields: object) -> ConversationTurn:
    return ConversationTurn.model_validate(
        {"number": 3, "start": 4, "stop": 8, "messages": messages, **fields}
    )


def user(text: str, **fields: object) -> ConversationMessage:
    return ConversationMessage.model_validate(
        {"message_id": "m", "position": 4, "role": "user", "text": text, **fields}
    )


def answer(*calls: ConversationCall, **fields: object) -> ConversationMessage:
    return ConversationMessage.model_validate(
        {"message_id": "a", "position": 5, "role": "assistant", "step": 1, "calls": calls, **fields}
    )


def a_call(**fields: object) -> ConversationCall:
    return ConversationCall.model_validate(
        {"call_id": "c", "name": "weather", "position": 5, "arguments": {"city": "Bern"}, **fields}
    )


@pytest.mark.parametrize(("number", "told"), [(1, "1 discarded answer"), (2, "2 discarded answers")])
def test_answers_that_were_paid_and_discarded_are_told(
    capsys: pytest.CaptureFixture[str], number: int, told: str
) -> None:
    """Else the tokens are more than those of the messages below, and nobody knows why."""
    print_turn(a_turn(user("hi"), discarded_answers=number))
    assert capsys.readouterr().out.splitlines()[0] == f"turn 3 · {told}"


def test_a_turn_is_read_from_the_question_to_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """As a conversation, with what it cost, not as a list of spans."""
    kept = TurnAttempt(run_id="r2", turn=3, status=RunStatus.COMPLETED, started_at=1_700_000_000_000)
    print_turn(
        a_turn(
            user("How is\nBern?"),
            answer(a_call(result="sunny", duration_ms=300), tokens=ShownTokens(input=10, output=2)),
            answer(text="Sunny.", position=7, step=2),
            attempts=(kept,),
            tokens=ShownTokens(input=30, output=5),
            cost_usd=Decimal("0.002"),
            duration_ms=2100,
        )
    )
    assert capsys.readouterr().out.splitlines() == [
        "turn 3 · 2023-11-14T22:13:20Z · 2.1 s · 35 tokens · $0.0020",
        "  user · #4",
        "    How is",
        "    Bern?",
        "  assistant · #5 · step 1 · 12 tokens",
        '    → weather {"city":"Bern"}',
        "    ← done, 300 ms: sunny",
        "  assistant · #7 · step 2",
        "    Sunny.",
        "",
    ]


def test_a_run_that_was_thrown_away_is_told_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Its tokens were paid for, and its messages are nowhere."""
    lost = TurnAttempt(
        run_id="r1",
        turn=2,
        status=RunStatus.FAILED,
        error=ErrorInfo(type="ModelUnavailableError", message="no answer"),
        steps=2,
        kept=False,
        model_calls=(ModelCall(model="m", tokens=ShownTokens(input=7, output=1)),),
    )
    print_turn(a_turn(user("Hi"), attempts=(lost,)))
    assert capsys.readouterr().out.splitlines()[1] == (
        "  discarded: run r1 of turn 2, failed (ModelUnavailableError: no answer), 2 steps, 8 tokens"
    )


def test_what_was_asked_in_a_run_that_was_thrown_away_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """It is in no message; another line of it must not look like one of ours."""
    lost = TurnAttempt(run_id="r1", turn=2, status=RunStatus.FAILED, kept=False, asked=("Where\nis it?", "?"))
    print_turn(a_turn(user("Hi"), attempts=(lost,)))
    assert capsys.readouterr().out.splitlines()[2:5] == ["    asked: Where", "    is it?", "    asked: ?"]


def test_a_turn_that_was_taken_back_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    """After a rewind it was "discarded, completed (completed)", and nothing said why."""
    lost = TurnAttempt(
        run_id="r1", turn=2, status=RunStatus.COMPLETED, reason="completed", steps=1, kept=False
    )
    print_turn(a_turn(user("Hi"), attempts=(lost,)))
    assert capsys.readouterr().out.splitlines()[1] == (
        "  discarded: run r1 of turn 2, completed (taken back or lost later), 1 step"
    )


def test_arguments_and_results_are_folded_until_one_turn_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A result of a megabyte is a line in the conversation, and whole in its turn."""
    turn = a_turn(answer(a_call(result="x" * 500 + "\nend")))
    print_turn(turn)
    folded = capsys.readouterr().out
    assert "x" * 119 + "…\n" in folded
    print_turn(turn, whole=True)
    assert "x" * 500 + "\n    end\n" in capsys.readouterr().out


def test_a_call_that_failed_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """It is what people look for."""
    print_turn(a_turn(answer(a_call(status="failed", error="ValueError: no such city"))))
    assert "    ← failed: ValueError: no such city\n" in capsys.readouterr().out


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Text that was cut, and a body that is damaged, must not read as all there is."""
    print_turn(a_turn(user("long", cut=12_345), user("", damage="checksum differs")))
    out = capsys.readouterr().out
    assert "    … 12,345 more characters\n" in out
    assert "    damaged: checksum differs\n" in out


def test_a_message_cannot_pretend_to_be_a_turn(capsys: pytest.CaptureFixture[str]) -> None:
    """All of its lines are indented, and nothing in it acts on the terminal."""
    print_turn(a_turn(user("a\nturn 4 · completed\x1b[2J\r\nb")))
    assert capsys.readouterr().out.splitlines()[2:5] == ["    a", r"    turn 4 · completed\x1b[2J", "    b"]


def test_attempts_of_a_tool_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Its time is that of the last one: the pauses between them are in that of the turn alone."""
    print_turn(a_turn(answer(a_call(result="sunny", duration_ms=1, attempts=3))))
    assert "← done, 1 ms, 3 attempts: sunny\n" in capsys.readouterr().out


def test_a_call_that_ended_while_another_waits_says_when_the_model_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its result is not in the thread: else one would look for it there."""
    print_turn(a_turn(answer(a_call(status="failed", result=None, result_due=True, duration_ms=15_000))))
    said = capsys.readouterr().out
    assert "← failed, 15.0 s, its result goes to the model with the next step\n" in said
