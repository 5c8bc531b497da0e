"""Which items of a run stand in the thread, wait, or were not kept by the runner."""

from typing import Any

from helix_temporal.frameworks.openai_agents_turns import RunItems, as_plain, find_answer_items, make_key
from helix_temporal.models.foreign_rows.openai_agents import drop_unanswered_calls

USER: Any = {"role": "user", "content": "hello"}
CALL: Any = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}", "id": "fc"}
RESULT: Any = {"type": "function_call_output", "call_id": "c", "output": "seen"}
ANSWER: Any = {
    "type": "message",
    "role": "assistant",
    "id": "m",
    "status": "completed",
    "content": [{"text": "a"}],
}


def test_a_stored_answer_is_not_added_twice() -> None:
    """Though the runner drops its id and status."""
    items = RunItems()
    items.add([USER])
    sent = list(items.pending)
    items.take_stored(0, sent, [ANSWER])
    items.add([{key: value for key, value in ANSWER.items() if key not in {"id", "status"}}])
    assert items.pending == []
    assert items.find_cut() is None


def test_the_same_answer_twice_is_two_items() -> None:
    """A model may repeat itself."""
    items = RunItems()
    items.take_stored(0, [], [ANSWER])
    items.add([ANSWER])
    items.take_stored(1, [], [ANSWER])
    items.add([ANSWER])
    items.add([ANSWER])
    assert items.pending == [ANSWER]


def test_an_answer_that_was_not_kept_is_where_to_cut() -> None:
    """What the runner did keep behind it follows the cut."""
    items = RunItems()
    items.take_stored(4, [USER], [CALL])
    items.take_stored(6, [], [ANSWER])
    items.add([ANSWER, RESULT])
    assert items.find_cut() == 5
    assert items.list_kept_from(5) == [ANSWER, RESULT]


def test_what_waits_for_an_approval_stays_known() -> None:
    """Over the end of its run, and is no place to cut then: others may follow it."""
    items = RunItems()
    items.take_stored(0, [USER], [CALL])
    items.forget_confirmed()
    assert items.find_cut() is None
    assert items.list_unconfirmed() == [make_key(CALL)]
    items.add([CALL, RESULT])
    assert items.pending == [RESULT]


def test_an_item_of_the_run_is_found_by_its_place() -> None:
    """As it is, and no other."""
    items = RunItems()
    items.take_stored(7, [USER], [CALL])
    assert [items.find_position(each) for each in (USER, CALL, RESULT)] == [7, 8, None]
    items.forget_confirmed()
    assert items.find_position(USER) is None


def test_the_answer_of_a_stream_is_its_last_event() -> None:
    """None where it has not come to its end."""
    done = {"type": "response.completed", "response": {"output": [ANSWER]}}
    assert find_answer_items([{"type": "response.created"}, done]) == [ANSWER]
    assert find_answer_items([{"type": "response.created"}]) is None
    assert find_answer_items({"output": [CALL]}) == [CALL]


def test_iterators_become_lists() -> None:
    """Pydantic leaves them."""
    assert as_plain({"content": iter(({"text": "a"},))}) == {"content": [{"text": "a"}]}


def test_calls_without_results_are_not_shown() -> None:
    """Nor the reasoning that led to them, nor results without calls; what the run itself has stays."""
    thought: Any = {"type": "reasoning", "id": "r", "summary": []}
    items = [USER, thought, CALL, USER, {**RESULT, "call_id": "x"}, {**CALL, "call_id": "new"}]
    assert drop_unanswered_calls(items, range(5)) == [USER, USER, items[5]]
    assert drop_unanswered_calls([*items[:3], RESULT], range(3)) == [USER, thought, CALL, RESULT]
