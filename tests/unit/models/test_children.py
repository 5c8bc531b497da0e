"""Names of sub-agents' sessions, and references to content in other threads."""

import pytest

from helix_temporal.errors import InvalidIdError
from helix_temporal.models.agents import ChildThread
from helix_temporal.models.ids import CallKey, validate_id
from helix_temporal.models.waiting import (
    MessageRef,
    PayloadRef,
    check_own_id,
    child_session_id,
    is_child_id,
    is_foreign_ref,
    message_ref,
    payload_ref,
    task_of,
    tool_of,
)


def test_a_call_has_one_session_however_often_it_is_made() -> None:
    """Retries, replays and resets find it."""
    names = {child_session_id("s", "helper", "new", "abc.0") for _ in range(3)}
    assert names == {"s>helper>abc.0"}


def test_calls_of_a_continuing_tool_share_a_session() -> None:
    """It is one conversation."""
    assert child_session_id("s", "pal", "continue", "a.0") == child_session_id("s", "pal", "continue", "b.1")


@pytest.mark.parametrize("parent", ["p" * 256, "é" * 256, "𝄞" * 128])
def test_names_stay_ids_however_long_the_parents_is(parent: str) -> None:
    """Eight levels of them, too."""
    name = parent
    for level in range(8):
        name = child_session_id(name, "t" * 64, "new", f"{'a' * 16}.{level}")
        validate_id(name)


def test_long_names_differ_where_their_calls_do() -> None:
    """What is left out is in the digest."""
    names = {child_session_id("p" * 256, "helper", "new", f"abc.{number}") for number in range(20)}
    assert len(names) == 20


@pytest.mark.parametrize("parent", ["s", "s>helper>abc.0", "p" * 256, "Anna <a@b.c> x"])
@pytest.mark.parametrize("thread", ["new", "continue"])
def test_every_name_of_a_sub_agent_is_known_as_one(parent: str, thread: ChildThread) -> None:
    """No session of a user's may begin under any of them."""
    name = child_session_id(parent, "t-1_x", thread, "0123456789abcdef.17")
    assert is_child_id(name)
    with pytest.raises(InvalidIdError, match="choose another"):
        check_own_id(name)


@pytest.mark.parametrize("name", ["s", "a-b", ">helper", "a>", "a > b", "Anna <anna@example.com>", "a>é"])
def test_other_names_are_free(name: str) -> None:
    """What was an id stays one, but for those that could be a sub-agent's."""
    assert check_own_id(name) == name


def test_a_name_tells_its_tool() -> None:
    """References of before tools were kept with them; a shortened name does not say."""
    assert tool_of("s", "s>helper>abc.0") == tool_of("s", "s>helper") == "helper"
    assert tool_of("s>a>b.0", "s>a>b.0>pal") == "pal"
    assert tool_of("p" * 256, child_session_id("p" * 256, "helper", "new", "abc.0")) == ""


def test_a_calls_name_is_that_of_its_result() -> None:
    """Session ids may hold the character that parts a key."""
    key = CallKey.parse("a/b/c/answer/3")
    assert (key.session_id, key.result_id, str(key)) == ("a/b/c", "answer.3", "a/b/c/answer/3")


def test_references_come_back_as_they_were() -> None:
    """Whatever is in the ids."""
    ref = MessageRef(thread_id='a"b/ü', position=7, id="m>1", call=0, argument="task")
    aside = PayloadRef(thread_id='a"b/ü', name="0001/x")
    assert (message_ref(ref.as_ref()), payload_ref(aside.as_ref())) == (ref, aside)
    assert is_foreign_ref(ref.as_ref())
    assert is_foreign_ref(aside.as_ref())


@pytest.mark.parametrize("text", ["00000000000000000001/abc", "thread:", "thread:[]", "payload:{}", ""])
def test_what_is_no_reference_is_none(text: str) -> None:
    """A broken one is not there, and no error in the middle of a step."""
    assert (message_ref(text), payload_ref(text)) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "argument", "task"),
    [
        ({"task": "do it"}, "task", "do it"),
        ({"task": " "}, "task", None),
        ({"task": 7}, "task", None),
        ({}, "task", None),
        ({"b": 1, "a": "x"}, None, '{"a":"x","b":1}'),
    ],
)
def test_the_task_is_one_argument_or_all_of_them(
    arguments: dict[str, object], argument: str | None, task: str | None
) -> None:
    """A model that gives none is told so."""
    assert task_of(arguments, argument) == task
