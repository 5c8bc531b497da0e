"""A stream as text, while it comes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helix_temporal.cli.live_text import LiveText
from helix_temporal.cli.session_messages import _follow
from helix_temporal.models.streams import (
    ChunkBase,
    Custom,
    Heartbeat,
    RunEnded,
    RunStarted,
    StepDiscarded,
    StoredChunk,
    StreamResync,
    Suspended,
    TextChunk,
    Thinking,
    ToolApprovalRequest,
    ToolEnd,
    ToolStart,
    UnknownChunk,
)
from helix_temporal.models.waiting import DENIED, NO_ANSWER
from helix_temporal.views.models import ConversationPage


def written(*chunks: ChunkBase) -> str:
    live = LiveText()
    return "".join(live.write_chunk(chunk) for chunk in chunks)


def test_an_answer_is_written_piece_by_piece() -> None:
    """Each piece is seen when it comes, with the question's turn above it."""
    assert written(
        RunStarted(turn=2, texts=("Hi",)),
        TextChunk(delta="Hel", message_id="a", step=1),
        Heartbeat(),
        TextChunk(delta="lo\nyou", message_id="a", step=1),
        RunEnded(status="completed"),
    ) == ("turn 2\n  user\n    Hi\n  assistant · step 1\n    Hello\n    you\n  turn ended: completed\n\n")


def test_calls_stand_between_the_answers() -> None:
    """What the model asked for, and what it was given, in one line each."""
    assert written(
        TextChunk(delta="Let me see", message_id="a", step=1),
        ToolStart(tool_call_id="c", tool_name="weather", arguments={"city": "Bern"}),
        ToolEnd(tool_call_id="c", result="sunny"),
        ToolEnd(tool_call_id="d", success=False, error="no such city"),
        ToolApprovalRequest(tool_call_id="e", tool_name="pay", approval_id="p"),
        TextChunk(delta="Sunny.", message_id="b", step=2),
    ) == (
        "  assistant · step 1\n    Let me see\n"
        '    → weather {"city":"Bern"}\n    ← sunny\n    ← failed: no such city\n'
        "    ? pay waits for an approval\n"
        "  assistant · step 2\n    Sunny."
    )


def test_thinking_is_told_apart_from_the_answer() -> None:
    """Nobody takes what the model considered for what it said."""
    assert (
        written(Thinking(content="Hmm", message_id="a"), TextChunk(delta="Yes", message_id="a"))
        == "  assistant\n    (thinking) Hmm\n    Yes"
    )


def test_an_attempt_that_is_void_is_told() -> None:
    """Its text stands above, and the next attempt begins again."""
    assert written(
        TextChunk(delta="One", message_id="a", step=1),
        StepDiscarded(step_id="s", attempt=1),
        TextChunk(delta="Two", message_id="b", step=1),
    ) == (
        "  assistant · step 1\n    One\n    (the attempt above was discarded)\n  assistant · step 1\n    Two"
    )


def test_a_stream_that_fell_behind_says_so() -> None:
    """What is above is not the whole conversation."""
    assert "void" in written(StreamResync(reason="trimmed"))


def test_a_turn_that_leaves_nothing_says_so() -> None:
    """Its text was shown, and is in no thread."""
    assert "nothing of it stays" in written(RunEnded(status="aborted", in_thread=False))


def test_pieces_of_a_stranger_s_text_do_not_act() -> None:
    """The terminal is not theirs."""
    text = written(TextChunk(delta="a\x1b[2J\nturn 9", message_id="a"), UnknownChunk(type="new"))
    assert text == "  assistant\n    a\\x1b[2J\n    turn 9"


def test_the_end_is_said_in_the_words_of_the_conversation() -> None:
    """Who reads "failed" looks for a fault where a person has decided."""
    denied = ToolEnd(tool_call_id="c", success=False, error=f"{DENIED} too much")
    late = ToolEnd(tool_call_id="c", success=False, error=NO_ANSWER)
    assert written(denied, late) == f"    ← denied: {DENIED} too much\n    ← expired: {NO_ANSWER}\n"
    assert written(Suspended(calls=({"id": "x"},))) == "  waits for 1 call\n"
    assert written(Suspended(calls=({"id": "x"}, {"id": "y"}))) == "  waits for 2 calls\n"
    assert written(RunEnded(status="completed", exit_reason="completed")) == "  turn ended: completed\n\n"
    told = written(RunEnded(status="completed", exit_reason="max_steps"))
    assert told == "  turn ended: completed (max_steps)\n\n"


def test_what_a_tool_tells_of_itself_is_shown() -> None:
    """Of a tool that takes minutes it is all there is to see."""
    assert written(
        Custom(event_name="progress", data={"percent": 40}, tool_call_id="c"),
        Custom(event_name="reading", tool_call_id="c"),
        Custom(event_name="\x1b[2J", data="x" * 500, tool_call_id="c"),
        Custom(event_name="of the application", data=1),
    ) == ('    · progress {"percent":40}\n    · reading\n    · \\x1b[2J ' + "x" * 119 + "…\n")


class DeletedSession:
    """Views of a session that is deleted as soon as it is followed."""

    async def find_live_place(self, session_id: str) -> int:
        """Its beginning."""
        return 0

    async def read_turns(self, session_id: str, **_: object) -> ConversationPage:
        """None."""
        return ConversationPage(session_id=session_id, thread_id=session_id)

    async def follow_session(self, session_id: str, place: int) -> AsyncIterator[StoredChunk]:
        """Nothing."""
        nothing: tuple[StoredChunk, ...] = ()
        for each in nothing:
            yield each


async def test_whoever_follows_a_session_is_told_that_it_was_deleted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A command that ends by itself without a word looks as if it had crashed."""
    views: Any = DeletedSession()
    await _follow(views, "s1", 1, as_json=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "session 's1' was deleted: nothing more will come" in shown.err
