"""Recorded conversations are read, or refused with the place of what is wrong."""

import json
from pathlib import Path

import pytest

from helix_temporal.errors import InvalidMessageError, InvalidRequestError
from helix_temporal.testing.recorded import RecordedConversation, parse_conversation, read_conversation
from tests.unit.agents._play import EXAMPLE

USER = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "seen"}


def _parse(*rows: object) -> RecordedConversation:
    return parse_conversation(json.dumps(rows))


def _call(**changes: object) -> dict[str, object]:
    return {"role": "assistant", "tool_calls": [CALL | changes]}


def test_the_example_is_a_conversation_of_ten_turns() -> None:
    """The demo, the README and the bench count on it."""
    recorded = read_conversation(EXAMPLE)
    assert (len(recorded.turns), len(recorded.expected()), recorded.left_out) == (10, 49, 0)


@pytest.mark.parametrize(
    "data",
    [
        json.dumps([USER, ANSWER]),
        json.dumps({"messages": [USER, ANSWER]}),
        json.dumps({"model": "x", "messages": [USER, ANSWER]}, indent=2),
        f"{json.dumps(USER)}\n\n{json.dumps(ANSWER)}\r\n",
        "\ufeff" + json.dumps([USER, ANSWER]),
    ],
    ids=["array", "object", "indented", "lines", "byte order mark"],
)
def test_all_usual_forms_are_read(data: str) -> None:
    """Exports of chats come in several shapes."""
    assert [message.text for message in parse_conversation(data.encode()).expected()] == ["hi", "hello"]


def test_system_rows_become_the_instructions() -> None:
    """Instructions belong to the agent and are no row of the thread."""
    rows = (
        {"role": "system", "content": "Be kind."},
        USER,
        {"role": "developer", "content": "Be brief."},
        ANSWER,
    )
    assert _parse(*rows).instructions == "Be kind.\n\nBe brief."


def test_rows_of_one_role_in_succession_belong_together() -> None:
    """A session takes waiting messages as one turn, and a turn has one final answer."""
    turn = _parse(USER, USER, ANSWER, ANSWER).turns[0]
    assert (turn.text, turn.answer) == ("hi\n\nhi", "hello\n\nhello")


def test_a_text_before_a_call_becomes_one_answer_with_it() -> None:
    """Some exports split one answer into its text and its calls."""
    step = _parse(USER, ANSWER, ASKS, RESULT, ANSWER).turns[0].steps[0]
    assert (step.text, step.calls[0].arguments, step.results) == ("hello", {"at": 1}, ("seen",))


def test_results_in_another_order_are_sorted_by_their_calls() -> None:
    """Threads hold results in call order."""
    asks = {"role": "assistant", "tool_calls": [CALL, CALL | {"id": "c2"}]}
    step = (
        _parse(USER, asks, RESULT | {"tool_call_id": "c2", "content": "second"}, RESULT, ANSWER)
        .turns[0]
        .steps[0]
    )
    assert step.results == ("seen", "second")


def test_an_unfinished_turn_at_the_end_is_counted_and_left_out() -> None:
    """Logs of live chats end anywhere."""
    recorded = _parse(USER, ANSWER, USER, ASKS)
    assert (len(recorded.turns), recorded.left_out) == (1, 2)


def test_content_parts_stay_as_they_are_in_answers() -> None:
    """What a provider wrote must come back unchanged."""
    parts = [{"type": "text", "text": "a"}, {"type": "output_audio", "id": "x"}]
    assert _parse(USER, {"role": "assistant", "content": parts}).turns[0].steps[0].content == parts


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "row 1: a JSON array of messages"),
        ([USER, 5], "row 2: a message object expected, got int"),
        ([USER, {"role": "robot"}], "row 2: role 'robot'"),
        ([USER, {"role": "assistant", "content": 5}], "row 2: content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "row 1: content part of type 'image_url'"),
        ([USER, {"role": "assistant", "content": [{"type": "text"}]}], "row 2: content"),
        ([ANSWER], "row 1: an answer before the first user's message"),
        ([USER, RESULT], "row 2: tool_call_id 'c1' answers no open call"),
        ([USER, ASKS, USER], "row 3: call 'c1' of row 2 has no result yet"),
        ([USER, ASKS, RESULT, USER], "row 4: the turn before it has no final answer"),
        ([USER, _call(id="")], "row 2: id"),
        ([USER, _call(function=5)], r"row 2: tool_calls\[0\]: an object with id and function"),
        ([USER, _call(function={"name": "a b"})], "function.name 'a b'"),
        ([USER, _call(function={"name": "a", "arguments": "{"})], "arguments: not JSON"),
        ([USER, _call(function={"name": "a", "arguments": "[1]"})], "arguments: a JSON object expected"),
        ([USER, _call(function={"name": "a", "arguments": '{"a": "\\u0000"}'})], r"arguments: .*U\+0000"),
        ([USER, ANSWER | {"tool_calls": {}}], "row 2: tool_calls: a list expected"),
        ([{"role": "user", "content": "a\u0000"}], r"row 1: .*U\+0000 at 1"),
        ([USER], "end: no finished turn"),
    ],
)
def test_what_cannot_be_played_is_refused_with_its_row(rows: list[object], message: str) -> None:
    """A file of thousands of rows is only mended by who knows where."""
    with pytest.raises(InvalidMessageError, match=message):
        _parse(*rows)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1: not JSON"),
        (b"\xff\xfe", "byte 0: not UTF-8"),
        (b'[\n{"role": "user",\n oops}\n]', "line 3: not JSON"),
        (b'{"role": "user", "content": "hi"}\n{"role": \n', "line 2: not JSON"),
        (b'{"messages": []}\n{"messages": []}', "line 1: one of several conversations"),
        (b"[NaN]\n", "line 1: not JSON"),
    ],
)
def test_what_is_no_json_is_refused_with_its_line(data: bytes, message: str) -> None:
    """The same for files that were cut or edited by hand."""
    with pytest.raises(InvalidMessageError, match=message):
        parse_conversation(data)


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    """The path is typed by a user of the demo."""
    with pytest.raises(InvalidRequestError, match="can't be read: No such file"):
        read_conversation(tmp_path / "none.json")
