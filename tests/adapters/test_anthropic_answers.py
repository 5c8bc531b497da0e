"""What comes of Anthropic's streams: pieces, ends, arguments, usage."""

from typing import Any

import pytest

from helix_temporal.models.agents import ReasoningDelta, TextDelta, ToolArgumentsDelta, ToolCallStarted
from helix_temporal.models.messages import Finish, Usage, why_not_run
from tests.adapters import _anthropic as wire
from tests.adapters._standin import StandIn
from tests.adapters._talk import WEATHER, answer_of, asking, events_of, goes_on


async def test_pieces_come_as_they_come(standin: StandIn) -> None:
    """Somebody watches the answer being written."""
    standin.will(wire.says(wire.thinking("Hm.."), wire.text("Look"), wire.use("toolu_1", city="B")))
    *pieces, _ = await events_of(wire.model(standin), asking("go", tools=[WEATHER]))
    assert pieces == [
        ReasoningDelta("Hm"),
        ReasoningDelta(".."),
        TextDelta("Lo"),
        TextDelta("ok"),
        ToolCallStarted("toolu_1", "weather"),
        ToolArgumentsDelta("toolu_1", '{"city'),
        ToolArgumentsDelta("toolu_1", '": "B"}'),
    ]


async def test_usage_counts_what_was_cached_and_thought(standin: StandIn) -> None:
    """Limits and bills of all providers are compared by the same counts."""
    usage = {"input_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    ends = wire.ends("end_turn", output_tokens=50, output_tokens_details={"thinking_tokens": 30})
    standin.will(wire.stream(wire.begins(usage), *wire.block_events(0, wire.text("ok")), *ends))
    answer = await answer_of(wire.model(standin), asking("go"))
    assert answer.usage == Usage(
        input_tokens=123,
        output_tokens=50,
        cached_read_tokens=100,
        cached_write_tokens=20,
        reasoning_tokens=30,
    )


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", Finish.STOP),
        ("stop_sequence", Finish.STOP),
        ("max_tokens", Finish.LENGTH),
        ("model_context_window_exceeded", Finish.LENGTH),
        ("refusal", Finish.REFUSAL),
    ],
)
async def test_ends_are_typed(standin: StandIn, stop: str, finish: Finish) -> None:
    """An application asks whether an answer is whole, and not in each provider's words."""
    standin.will(wire.says(wire.text("I"), stop=stop))
    answer = await answer_of(wire.model(standin), asking("go"))
    assert (answer.finish, answer.stop_reason) == (finish, stop)


async def test_a_refusal_without_a_word_is_an_answer(standin: StandIn) -> None:
    """The turn ends with it, and the thread goes on."""
    model = wire.model(standin)
    standin.will(wire.says(stop="refusal"), wire.says(wire.text("ok")))
    answer = await answer_of(model, asking("go"))
    assert (answer.content, answer.finish) == ("", Finish.REFUSAL)
    await goes_on(model, answer)


async def test_a_call_that_was_cut_before_its_arguments_is_not_run(standin: StandIn) -> None:
    """Without arguments it would look like a call that needs none."""
    standin.will(wire.says(wire.use("toolu_1"), stop="max_tokens"))
    answer = await answer_of(wire.model(standin), asking("go", tools=[WEATHER]))
    assert answer.finish is Finish.LENGTH
    assert "cut at its limit" in (why_not_run(answer.tool_calls[0]) or "")


async def test_arguments_in_pieces_of_no_length_are_none(standin: StandIn) -> None:
    """So a tool without parameters is asked for."""
    standin.will(wire.says(wire.use("toolu_1")))
    (call,) = (await answer_of(wire.model(standin), asking("go", tools=[WEATHER]))).tool_calls
    assert (call.arguments, why_not_run(call)) == ({}, None)


async def test_text_that_no_store_can_hold_is_mended(standin: StandIn) -> None:
    """PostgreSQL takes no U+0000; the turn is not to fail for it."""
    standin.will(wire.says(wire.text("a\x00b")))
    answer: Any = await answer_of(wire.model(standin), asking("go"))
    assert answer.content == "a\ufffdb"
