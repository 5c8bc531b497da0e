"""What is live of a turn, from its chunks."""

from collections.abc import Sequence

import pytest

from helix_temporal.inspector.live_turn import (
    MAX_CALLS,
    MAX_TEXT,
    LiveChanges,
    LiveQuestion,
    LiveRun,
    LiveTurn,
)
from helix_temporal.inspector.rendering import render_macro
from helix_temporal.models import streams
from helix_temporal.models.streams import ChunkBase
from helix_temporal.models.waiting import DENIED, NO_ANSWER
from helix_temporal.views.models import (
    ConversationCall,
    ConversationMessage,
    ConversationTurn,
    WaitingFor,
)


def piece(text: str, message_id: str | None = "m1") -> ChunkBase:
    """A piece of an answer."""
    return streams.TextChunk(delta=text, message_id=message_id)


def begun(message_id: str = "m1", attempt: int = 1) -> ChunkBase:
    """A step calls the model."""
    return streams.StepStarted(step_id="s", attempt=attempt, message_id=message_id, step=1)


def take(turn: LiveTurn, *chunks: ChunkBase) -> LiveChanges:
    """What these chunks change."""
    for chunk in chunks:
        turn.take_chunk(chunk)
    return turn.pop_changes()


def test_pieces_are_added_to_the_step_that_is_shown() -> None:
    """Sending the whole text with each piece would cost its square."""
    turn = LiveTurn()
    first = take(turn, begun(), piece("Hel"))
    assert first.step is not None
    assert first.step.text == "Hel"
    assert first.text == ""
    second = take(turn, piece("lo "), piece("you"))
    assert (second.step, second.text) == (None, "lo you")


def test_a_step_that_is_in_the_thread_is_shown_from_there() -> None:
    """The page shows what is stored, not what was guessed from pieces."""
    turn = LiveTurn()
    take(turn, begun(), piece("Hello"))
    changes = take(turn, streams.StepCommitted(step_id="s", position=1, message_id="m1"))
    assert changes.cleared
    assert changes.stored


def test_a_discarded_attempt_leaves_the_page() -> None:
    """Its text was never said; nor are its late pieces."""
    turn = LiveTurn()
    take(turn, begun(), piece("Wrong"))
    assert take(turn, streams.StepDiscarded(step_id="s", attempt=1)).cleared
    assert take(turn, piece("late")) == LiveChanges()
    again = take(turn, begun("m2", attempt=2), piece("Right", "m2"), piece("late", "m1"))
    assert again.step is not None
    assert again.step.text == "Right"


def test_whoever_comes_in_the_middle_of_a_long_step_gets_its_end() -> None:
    """An answer of megabytes is not sent again to each page."""
    turn = LiveTurn()
    changes = take(turn, begun(), piece("a" * MAX_TEXT), piece("b" * 10))
    assert changes.step is not None
    assert changes.step.text == "a" * (MAX_TEXT - 10) + "b" * 10
    assert changes.step.cut == 10


def test_a_piece_without_a_step_begins_one() -> None:
    """Frameworks write pieces without telling of steps."""
    changes = take(LiveTurn(), piece("Hi", None))
    assert changes.step is not None
    assert changes.step.text == "Hi"


CALLS: Sequence[tuple[ChunkBase, str]] = [
    (streams.ToolArgStreamStart(tool_call_id="c", tool_name="look_up"), "asked"),
    (streams.ToolStart(tool_call_id="c", tool_name="look_up"), "running"),
    (streams.ToolEnd(tool_call_id="c", result="x"), "done"),
    (streams.ToolEnd(tool_call_id="c", success=False, error="no"), "failed"),
    (streams.ToolEnd(tool_call_id="c", success=False, error=f"{DENIED} no"), "denied"),
    (streams.ToolEnd(tool_call_id="c", success=False, error=NO_ANSWER), "expired"),
]


@pytest.mark.parametrize(("chunk", "progress"), CALLS)
def test_a_call_shows_how_far_it_is(chunk: ChunkBase, progress: str) -> None:
    """A slow tool is the usual reason why nothing is written for a while."""
    turn = LiveTurn()
    take(turn, streams.ToolStart(tool_call_id="c", tool_name="look_up"))
    changes = take(turn, chunk)
    assert changes.calls is not None
    assert [(each.name, each.progress) for each in changes.calls] == [("look_up", progress)]


def test_a_call_that_waits_for_approval_is_left_to_the_thread() -> None:
    """There it stands with what is to be approved, and would be on the page twice."""
    turn = LiveTurn()
    take(turn, streams.ToolStart(tool_call_id="c", tool_name="look_up"))
    asked = streams.ToolApprovalRequest(tool_call_id="c", tool_name="look_up", approval_id="a")
    changes = take(turn, asked)
    assert (changes.calls, changes.stored) == ((), True)


def test_a_turns_question_is_known_until_its_first_step_is_stored() -> None:
    """Whoever watches an answer being written wants to know what was asked."""
    turn = LiveTurn()
    take(turn, streams.RunStarted(turn=3, texts=("Why?",)), begun(), piece("Because"))
    asked = turn.question
    take(turn, streams.StepCommitted(step_id="s", position=1, message_id="m1"))
    assert (asked, turn.question) == (LiveQuestion(3, ("Why?",)), None)


def test_the_question_of_a_turn_that_was_aborted_goes() -> None:
    """Nothing of it is in the thread."""
    turn = LiveTurn()
    take(turn, streams.RunStarted(turn=4, texts=("And?",)), streams.RunEnded(status="aborted"))
    assert turn.question is None


def test_the_stores_are_right_about_a_turn_whose_end_nobody_told() -> None:
    """A worker that was killed writes no last chunk."""
    turn = LiveTurn()
    take(turn, streams.RunStarted(turn=1, agent_id="r1"), begun(), piece("half"))
    turn.correct_status("idle")
    changes = turn.pop_changes()
    assert (changes.status, changes.cleared, changes.run) == ("idle", True, LiveRun())


def test_a_tool_that_calls_thousands_does_not_fill_the_page() -> None:
    """The newest are shown."""
    many = [streams.ToolStart(tool_call_id=str(each), tool_name="t") for each in range(MAX_CALLS * 3)]
    calls = take(LiveTurn(), *many).calls
    assert calls is not None
    assert len(calls) == MAX_CALLS
    assert calls[-1].call_id == str(MAX_CALLS * 3 - 1)


STATUSES: Sequence[tuple[ChunkBase, str]] = [
    (streams.RunStarted(turn=1), "running"),
    (streams.RunPaused(), "waiting"),
    (streams.Suspended(), "waiting"),
    (streams.RunResumed(), "running"),
    (streams.RunEnded(status="completed"), "idle"),
]


@pytest.mark.parametrize(("chunk", "status"), STATUSES)
def test_the_turns_status_is_told_and_the_thread_read(chunk: ChunkBase, status: str) -> None:
    """What waits, and for whom, is in the thread and not in the chunk."""
    turn = LiveTurn()
    turn.status = "running" if status != "running" else "waiting"
    changes = take(turn, chunk)
    assert changes.status == status
    assert changes.stored
    assert take(turn, streams.Heartbeat()) == LiveChanges()


def test_the_end_of_a_turn_takes_away_what_was_under_way() -> None:
    """An aborted turn leaves nothing in the thread, and nothing on the page."""
    turn = LiveTurn()
    take(turn, begun(), piece("half"), streams.ToolStart(tool_call_id="c", tool_name="t"))
    changes = take(turn, streams.RunEnded(status="aborted", in_thread=False))
    assert changes.cleared
    assert changes.calls == ()


def test_the_run_that_a_stop_would_name_is_told_once() -> None:
    """The form to stop a turn names the turn that is shown, and goes with it."""
    turn = LiveTurn()
    started = take(turn, streams.RunStarted(turn=1, agent_id="r1"))
    assert started.run is not None
    assert started.run.run_id == "r1"
    assert take(turn, piece("x")).run is None
    ended = take(turn, streams.RunEnded(status="completed", agent_id="r1"))
    assert ended.run is not None
    assert ended.run.run_id == ""


def test_a_reset_stream_is_told() -> None:
    """All that the page shows may be void."""
    assert take(LiveTurn(), streams.StreamResync(reason="restored")).resync == "restored"


def test_chunks_of_a_later_version_change_nothing() -> None:
    """A worker may be newer than the inspector."""
    unknown = streams.UnknownChunk(type="hologram")
    assert take(LiveTurn(), unknown, streams.Custom(event_name="news")).step is None


def test_calls_stand_as_in_the_thread_above_them() -> None:
    """A sub-agent that has ended was "running" below, and so was the question that waited above."""
    turn = LiveTurn()
    take(turn, streams.ToolStart(tool_call_id="c0", tool_name="research"))
    take(turn, streams.ToolStart(tool_call_id="c1", tool_name="ask_user"))
    take(turn, streams.ToolStart(tool_call_id="c2", tool_name="slow"))
    wait = WaitingFor(call_id="c1_a1", tool="ask_user", kind="client")
    stored = ConversationMessage(
        message_id="a1",
        position=1,
        role="assistant",
        calls=(
            ConversationCall(call_id="c0", name="research", position=1, status="done", result_due=True),
            ConversationCall(call_id="c1", name="ask_user", position=1, status="waiting", waiting=wait),
            ConversationCall(call_id="c2", name="slow", position=1, status="running"),
        ),
    )
    turn.follow_thread([ConversationTurn(start=0, stop=2, messages=(stored,))])
    calls = turn.pop_changes().calls
    assert calls is not None
    assert [(each.name, each.progress) for each in calls] == [("research", "done"), ("slow", "running")]
    # Its end is told by a chunk as well, with the next step.
    changes = take(turn, streams.ToolEnd(tool_call_id="c1"))
    assert (changes.calls, changes.stored) == (None, True)


def test_a_tool_that_has_ended_is_not_told_with_its_progress() -> None:
    """A progress of 0 percent beside "done" reads as one that is still at work."""
    turn = LiveTurn()
    take(turn, streams.ToolStart(tool_call_id="c", tool_name="look_up"))
    take(turn, streams.Custom(event_name="progress", data={"percent": 0}, tool_call_id="c"))
    changes = take(turn, streams.ToolEnd(tool_call_id="c"))
    assert changes.calls is not None
    assert [(each.progress, each.event, each.event_value) for each in changes.calls] == [("done", "", None)]


def test_what_a_tool_tells_of_itself_is_shown_with_its_value() -> None:
    """How far a long one is; a large value is cut, as all of it comes again to whoever connects."""
    turn = LiveTurn()
    take(turn, streams.ToolStart(tool_call_id="c", tool_name="look_up"))
    changes = take(turn, streams.Custom(event_name="progress", data={"percent": 40}, tool_call_id="c"))
    assert changes.calls is not None
    assert [(each.event, each.event_value) for each in changes.calls] == [("progress", {"percent": 40})]
    shown = render_macro("live.html", "calls", changes.calls, page=None)
    assert "progress" in shown
    assert "40" in shown
    odd = streams.Custom(event_name="<b>", data="<i>" + "x" * 5_000, tool_call_id="c")
    calls = take(turn, odd).calls
    assert calls is not None
    call = calls[0]
    assert isinstance(call.event_value, str)
    assert len(call.event_value) == 200
    shown = render_macro("live.html", "calls", (call,), page=None)
    assert "<i>" not in shown
    assert "<b>" not in shown
