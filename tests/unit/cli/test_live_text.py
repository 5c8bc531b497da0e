"""A stream as text, while it comes."""

from helix_temporal.cli.live_text import LiveText
from helix_temporal.models.streams import (
    ChunkBase,
    Heartbeat,
    RunEnded,
    RunStarted,
    StepDiscarded,
    StreamResync,
    TextChunk,
    Thinking,
    ToolApprovalRequest,
    ToolEnd,
    ToolStart,
    UnknownChunk,
)


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
