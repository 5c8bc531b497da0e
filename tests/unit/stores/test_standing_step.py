"""Whether a step stands in its thread already: the rule, asked by each of those that need it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from helix_temporal.errors import HeadMovedError, HelixError, IdempotencyConflictError
from helix_temporal.models.stored_messages import EMPTY, Head, Kind, StoredMessage
from helix_temporal.stores.protocols.hot import StepAppend, StepView
from helix_temporal.stores.threads.standing_step import find_standing_step, find_step, is_repeated_step
from helix_temporal.testing.builders import a_header, a_message, a_step

HI, MORE = a_message("hi", message_id="hi"), a_message("more", message_id="more")
OTHER_BYTES = a_message("something else", message_id="hi")
ANSWER, LATER = (a_message("hello", kind=Kind.ANSWER, message_id=each) for each in ("answer", "later"))
CALLS = a_message("tools", kind=Kind.CALLS, message_id="calls")
RESULT = a_message("done", kind=Kind.RESULT, message_id="result")


@pytest.mark.parametrize(
    ("stored", "input_ids", "answers", "count"),
    [
        pytest.param((HI, ANSWER), ["hi"], "ac", 2, id="whole"),
        pytest.param((HI, CALLS), ["hi"], "ac", 2, id="an answer that asks for tools"),
        pytest.param((HI, ANSWER, MORE), ["hi"], "ac", 2, id="what follows is not of it"),
        pytest.param((ANSWER,), [], "ac", 1, id="an answer alone"),
        pytest.param((HI, ANSWER), ["hi"], "", 1, id="inputs alone"),
        pytest.param((), ["hi"], "ac", None, id="nothing stands"),
        pytest.param((HI,), ["hi"], "ac", None, id="no answer stands"),
        pytest.param((HI, MORE), ["hi"], "ac", None, id="goes on with another message"),
        pytest.param((HI, RESULT), ["hi"], "ac", None, id="a result is no answer"),
        pytest.param((MORE, ANSWER), ["hi"], "ac", None, id="another input"),
        pytest.param((HI,), ["hi", "more"], "", None, id="not all inputs"),
    ],
)
def test_a_step_is_its_inputs_and_an_answer(
    stored: tuple[StoredMessage, ...], input_ids: list[str], answers: str, count: int | None
) -> None:
    """One step is told from another by ids, places and kinds, whatever its answer says."""
    found = find_step(stored, input_ids, answers)
    assert found == (None if count is None else stored[:count])


@pytest.mark.parametrize(
    ("stored", "stands"),
    [
        pytest.param((), False, id="the thread ends at its head"),
        pytest.param((HI, ANSWER), True, id="this very answer"),
        pytest.param((HI, LATER), True, id="the answer of another attempt"),
        pytest.param((HI, CALLS), True, id="another attempt's answer asks for tools"),
        pytest.param((HI,), HeadMovedError, id="only its inputs"),
        pytest.param((MORE, ANSWER), HeadMovedError, id="another message"),
        pytest.param((OTHER_BYTES, ANSWER), IdempotencyConflictError, id="its id with other content"),
    ],
)
def test_a_store_tells_a_repeat(stored: tuple[StoredMessage, ...], stands: bool | type[HelixError]) -> None:
    """An append that is repeated changes nothing; one that came too late is refused."""
    assert _ask(is_repeated_step, a_header("t", stored), "", stored, _step()) == stands


def test_a_step_after_another_message_does_not_stand() -> None:
    """The same messages at the same place of another timeline are another step."""
    assert (
        _ask(is_repeated_step, a_header("t", (HI, ANSWER)), "another", (HI, ANSWER), _step())
        == HeadMovedError
    )


@pytest.mark.parametrize(
    ("stored", "committed", "inputs", "stands"),
    [
        pytest.param((), 0, ["hi"], None, id="the thread ends at its head"),
        pytest.param((HI, CALLS), 0, ["hi"], (HI, CALLS), id="under way"),
        pytest.param((HI, ANSWER), 2, ["hi"], (HI, ANSWER), id="ended its turn"),
        pytest.param((HI, ANSWER), 2, ["hi", "more"], (HI, ANSWER), id="has the first of the inputs"),
        pytest.param((HI, MORE, ANSWER), 3, ["hi"], HeadMovedError, id="goes on with another message"),
        pytest.param((HI, CALLS, RESULT, ANSWER), 4, ["hi"], HeadMovedError, id="its turn went on and ended"),
        pytest.param((MORE, ANSWER), 2, ["hi"], HeadMovedError, id="another step"),
    ],
)
def test_an_activity_finds_the_step_that_it_would_make(
    stored: tuple[StoredMessage, ...],
    committed: int,
    inputs: list[str],
    stands: tuple[StoredMessage, ...] | type[HelixError] | None,
) -> None:
    """A model call whose answer stands is never made again."""
    assert _ask(find_standing_step, _view(stored, committed), EMPTY, inputs) == stands


def test_an_activity_finds_no_step_after_another_message() -> None:
    """A hot thread that went back has another message before the head."""
    assert (
        _ask(find_standing_step, _view((HI, ANSWER), 2), Head(position=0, last_id="x"), ["hi"])
        == HeadMovedError
    )


def _step() -> StepAppend:
    return a_step("t", inputs=[HI], answer=ANSWER)


def _view(stored: tuple[StoredMessage, ...], committed: int) -> StepView:
    header = replace(a_header("t", stored), committed=committed)
    return StepView(header, after=stored, before=(), earlier_ids=(), last_id_at_head="")


def _ask(rule: Callable[..., object], *arguments: object) -> object:
    """What a rule answers, or the class of what it raises."""
    try:
        return rule(*arguments)
    except HelixError as error:
        return type(error)
