"""What Anthropic's models say comes back to them exactly as they said it."""

import json
from typing import Any

import pytest

from helix_temporal.models import messages
from helix_temporal.models.messages import Finish, Message
from tests.adapters import _anthropic as wire
from tests.adapters._standin import StandIn
from tests.adapters._talk import WEATHER, answer_of, asking, goes_on, result, stored

SEARCHED: list[dict[str, Any]] = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Bern"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [
            {
                "type": "web_search_result",
                "url": "http://a",
                "title": "A",
                "encrypted_content": "Eo8B",
                "page_age": None,
            }
        ],
    },
    {
        "type": "text",
        "text": "It is the capital.",
        "citations": [{"type": "web_search_result_location", "url": "http://a", "encrypted_index": "Eo9"}],
    },
]
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "text": [wire.text("Grüezi,  \u2028 all\n of you \\u00e9 \U0001f600")],
    "no text at all": [wire.use("toolu_1")],
    "a tool": [wire.text("Let me look."), wire.use("toolu_1", city="Bern")],
    "arguments in an order of their own": [wire.use("toolu_1", z=1, a={"y": [1.0, 1e30], "b": None})],
    "parallel tools": [wire.use("toolu_1", city="Bern"), wire.use("toolu_2", city="Genève")],
    "text after a tool": [wire.use("toolu_1", city="Bern"), wire.text("Both.")],
    "thinking": [wire.thinking("They want to know " * 20), wire.text("It is sunny in Bern. " * 9)],
    "thinking before a tool": [wire.thinking("Hm."), wire.text("Wait."), wire.use("toolu_1", city="Bern")],
    "thinking without its text": [wire.thinking("", "EqQBCgIYAg=="), wire.use("toolu_1", city="Bern")],
    "redacted thinking": [wire.redacted(), wire.thinking("Then."), wire.redacted("Em=="), wire.text("Yes.")],
    "the provider's own tools": [*SEARCHED, wire.use("toolu_1", city="Bern")],
    "fields that are not known yet": [{"type": "text", "text": "Hi", "new": {"b": 1, "a": 2}}],
    "blocks that are not known yet": [{"type": "hologram", "z": 1, "a": "b"}, wire.text("See?")],
    "a control character": [wire.text("a\x00b")],
}


@pytest.mark.parametrize("blocks", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_is_sent_back_byte_for_byte(standin: StandIn, blocks: list[dict[str, Any]]) -> None:
    """Signatures cover the reasoning as it was; a changed prefix costs the whole cache."""
    model = wire.model(standin)
    standin.will(wire.says(*blocks), wire.says(wire.text("done")))
    await goes_on(model, await answer_of(model, asking("go", tools=[WEATHER])))
    sent = standin.bodies[1]["messages"][1]
    assert sent["role"] == "assistant"
    assert json.dumps(sent["content"]) == json.dumps(blocks)


@pytest.mark.parametrize("kind", ["text", "a tool", "parallel tools"])
async def test_what_our_form_says_whole_is_not_kept_twice(standin: StandIn, kind: str) -> None:
    """Most answers are such; a thread is not to be twice its size."""
    standin.will(wire.says(*ANSWERS[kind]))
    answer = await answer_of(wire.model(standin), asking("go", tools=[WEATHER]))
    assert answer.provider == {"anthropic": {}}


async def test_long_texts_are_not_kept_twice_beside_signatures(standin: StandIn) -> None:
    """Reasoning is most of an answer, and what its provider needs back is not its text."""
    standin.will(wire.says(*ANSWERS["thinking"]))
    answer = await answer_of(wire.model(standin), asking("go"))
    assert len(json.dumps(answer.provider)) < 300


async def test_reasoning_is_a_part_and_text_stays_text(standin: StandIn) -> None:
    """An application shows both without knowing the provider."""
    standin.will(wire.says(wire.thinking("Hm."), wire.redacted(), wire.text("Yes.")))
    answer = await answer_of(wire.model(standin), asking("go"))
    assert answer.content == [messages.thinking_part("Hm."), messages.text_part("Yes.")]
    assert stored(answer).text == "Yes."


async def test_an_answer_that_was_edited_is_sent_as_it_is_now(standin: StandIn) -> None:
    """Who takes a word out of a thread must not find it at the provider again."""
    model = wire.model(standin)
    standin.will(wire.says(*ANSWERS["thinking"]), wire.says(wire.text("done")))
    first = stored(await answer_of(model, asking("go")))
    edited = first.model_copy(update={"content": "It rains."})
    await answer_of(model, asking("go", edited, "and?"))
    assert standin.bodies[1]["messages"][1]["content"] == [wire.text("It rains.")]


async def test_results_and_what_follows_are_one_turn_of_the_user(standin: StandIn) -> None:
    """Results come first, in call order; else the provider refuses them."""
    model = wire.model(standin)
    standin.will(wire.says(*ANSWERS["parallel tools"]), wire.says(wire.text("done")))
    first = await answer_of(model, asking("go", tools=[WEATHER]))
    one, two = first.tool_calls
    failed = result(two, "no such city", is_error=True)
    await answer_of(model, asking("go", stored(first), result(one), failed, "and now?", tools=[WEATHER]))
    assert standin.bodies[1]["messages"][2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [wire.text("fine")]},
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "is_error": True,
                "content": [wire.text("no such city")],
            },
            wire.text("and now?"),
        ],
    }


async def test_an_answer_that_pauses_again_and_again_is_told_as_cut(standin: StandIn) -> None:
    """It was told as one that is whole."""
    model = wire.model(standin)
    standin.will(*(wire.says(*SEARCHED[:1], stop="pause_turn") for _ in range(16)))
    answer = await answer_of(model, asking("go"))
    assert len(standin.asked) == 16
    assert answer.finish is Finish.LENGTH


async def test_an_answer_whose_turn_pauses_is_gone_on_with(standin: StandIn) -> None:
    """The provider's own tools may take longer than one request; the thread gets one answer."""
    model = wire.model(standin)
    standin.will(wire.says(*SEARCHED[:1], stop="pause_turn"), wire.says(*SEARCHED[1:]))
    answer = await answer_of(model, asking("go", step_key="Grüße/1/2"))
    # A provider that honours keys must not give the first part again.
    keys = [asked.headers["idempotency-key"] for asked in standin.asked]
    assert keys == ["Gr%C3%BC%C3%9Fe/1/2", "Gr%C3%BC%C3%9Fe/1/2/1"]
    standin.will(wire.says(wire.text("done")))
    await answer_of(model, asking("go", stored(answer), "and?"))
    assert standin.bodies[1]["messages"][-1] == {"role": "assistant", "content": SEARCHED[:1]}
    assert json.dumps(standin.bodies[2]["messages"][1]["content"]) == json.dumps(SEARCHED)
    assert answer.usage is not None
    assert answer.usage.output_tokens == 14


async def test_another_providers_answer_is_sent_in_our_form(standin: StandIn) -> None:
    """Its reasoning and its own form are nothing that Anthropic could read; its ids may not be."""
    foreign = Message.model_validate(
        {
            "id": "a1",
            "role": "assistant",
            "content": [messages.thinking_part("secret"), messages.text_part("Let me look.")],
            "tool_calls": [
                {"id": "call:0/äö", "name": "weather", "arguments": {"city": "Bern"}},
                {"id": "call_0", "name": "weather", "arguments": {"city": "Thun"}},
                {"id": "call_0", "name": "weather", "arguments": {"city": "Biel"}},
            ],
            "provider": {"other": {"raw": ["x"], "of": "y"}},
        }
    )
    standin.will(wire.says(wire.text("done")), wire.says(wire.text("done")))
    model = wire.model(standin)
    results = [
        result(call, call.arguments["city"]).model_copy(update={"id": f"r{at}"})
        for at, call in enumerate(foreign.tool_calls)
    ]
    await answer_of(model, asking("go", foreign, *results, tools=[WEATHER]))
    await answer_of(model, asking("go", foreign, *results, tools=[WEATHER]))
    answer, answered = standin.bodies[0]["messages"][1:]
    ids = [block["id"] for block in answer["content"][1:]]
    assert answer["content"][0] == wire.text("Let me look.")
    assert len(set(ids)) == 3
    assert ids[1] == "call_0"
    assert [(each["tool_use_id"], each["content"][0]["text"]) for each in answered["content"]] == [
        (ids[0], "Bern"),
        (ids[1], "Thun"),
        (ids[2], "Biel"),
    ]
    assert standin.bodies[0] == standin.bodies[1]
