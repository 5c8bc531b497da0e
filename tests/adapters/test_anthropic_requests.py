"""What Anthropic's models are sent: parts, instructions, tools, marks of the cache, options."""

import base64
from typing import Any

import pytest

from helix_temporal.errors import InvalidConfigError
from helix_temporal.models import messages as parts
from helix_temporal.models.agents import ToolSpec
from helix_temporal.models.messages import Message
from tests.adapters import _anthropic as wire
from tests.adapters._standin import StandIn
from tests.adapters._talk import WEATHER, answer_of, asking, goes_on, result, stored

MARK = {"type": "ephemeral"}


def said(*content: Any) -> Message:
    return Message(id="u1", role="user", content=list(content))


async def sent(standin: StandIn, *messages: Message | str, **fields: Any) -> Any:
    """The body of the request for these messages."""
    options = fields.pop("options", {})
    standin.will(wire.says(wire.text("ok")))
    await answer_of(wire.model(standin, **options), asking(*messages, **fields))
    return standin.bodies[-1]


PARTS = {
    "image": (
        parts.image_part(media_type="image/png", data="iVBO"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}},
    ),
    "image by address": (
        parts.image_part(url="http://a/b.png"),
        {"type": "image", "source": {"type": "url", "url": "http://a/b.png"}},
    ),
    "an image among files": (
        parts.file_part(media_type="image/png", data="iVBO"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}},
    ),
    "pdf": (
        parts.file_part(media_type="application/pdf", data="JVBE", name="a.pdf"),
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
            "title": "a.pdf",
        },
    ),
    "text file": (
        parts.file_part(media_type="text/csv", data=base64.b64encode("a,ö\n".encode()).decode()),
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,ö\n"}},
    ),
    "file of the provider's": (
        parts.file_part(file_id="file_1"),
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    ),
    "what the provider can't read": (
        parts.file_part(media_type="application/zip", data="UEsE", name="a.zip"),
        {"type": "text", "text": "(a.zip, application/zip: can't be shown to this model.)"},
    ),
    "an image that it can't read": (
        parts.image_part(media_type="image/tiff", data="SUkq"),
        {"type": "text", "text": "(image/tiff: can't be shown to this model.)"},
    ),
    "an address that it doesn't read": (
        parts.file_part(media_type="text/csv", url="http://a/b.csv"),
        {"type": "text", "text": "(text/csv, http://a/b.csv: can't be shown to this model.)"},
    ),
    "marked": (parts.text_part("long", cache=True), wire.text("long") | {"cache_control": MARK}),
}


@pytest.mark.parametrize(("part", "block"), PARTS.values(), ids=PARTS)
async def test_a_part_is_sent_in_the_providers_form(standin: StandIn, part: Any, block: Any) -> None:
    """Images and files of users reach every model that can see them."""
    body = await sent(standin, said(part))
    assert body["messages"] == [{"role": "user", "content": [block]}]


async def test_a_tool_may_give_an_image(standin: StandIn) -> None:
    """A screenshot is the whole point of some tools."""
    model = wire.model(standin)
    standin.will(wire.says(wire.use("toolu_1")), wire.says(wire.text("ok")))
    first = await answer_of(model, asking("go", tools=[WEATHER]))
    image, expected = PARTS["image"]
    answered = result(first.tool_calls[0], [parts.text_part("Look:"), image])
    await answer_of(model, asking("go", stored(first), answered, tools=[WEATHER]))
    assert standin.bodies[1]["messages"][2]["content"][0]["content"] == [wire.text("Look:"), expected]


@pytest.mark.parametrize("is_error", [False, True])
async def test_a_tool_may_give_nothing(standin: StandIn, is_error: bool) -> None:
    """The provider takes a result without content, but no failure that says nothing."""
    model = wire.model(standin)
    standin.will(wire.says(wire.use("toolu_1")), wire.says(wire.text("ok")))
    first = await answer_of(model, asking("go", tools=[WEATHER]))
    answered = result(first.tool_calls[0], "", is_error=is_error)
    await answer_of(model, asking("go", stored(first), answered, tools=[WEATHER]))
    (block,) = standin.bodies[1]["messages"][2]["content"]
    assert ("content" in block) == is_error


async def test_parts_that_nobody_knows_and_empty_text_are_left_out(standin: StandIn) -> None:
    """The provider refuses both, and a thread may hold them."""
    body = await sent(standin, said({"type": "poll", "x": 1}, parts.text_part(" "), parts.text_part("Hi")))
    assert body["messages"][0]["content"] == [wire.text("Hi")]


async def test_a_conversation_that_begins_with_an_answer_is_begun_for_it(standin: StandIn) -> None:
    """A window may begin within a long turn; the provider wants a user first."""
    answer = Message(id="a", role="assistant", content="Hello.")
    body = await sent(standin, answer, "Hi")
    assert [each["role"] for each in body["messages"]] == ["user", "assistant", "user"]


async def test_instructions_tools_and_options_are_sent(standin: StandIn) -> None:
    """And what is not there is not sent as null."""
    bare = ToolSpec(name="now")
    body = await sent(
        standin,
        "Hi",
        instructions="Be kind.",
        tools=[WEATHER, bare],
        options={"temperature": 0.2, "max_tokens": 99, "tools": [{"type": "web_search_1", "name": "w"}]},
    )
    assert body == {
        "model": "claude-test",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": [wire.text("Hi")]}],
        "system": [wire.text("Be kind.")],
        "temperature": 0.2,
        "tools": [
            {
                "name": "weather",
                "description": "Tells the weather.",
                "input_schema": WEATHER.parameters,
            },
            {"name": "now", "input_schema": {"type": "object"}},
            {"type": "web_search_1", "name": "w"},
        ],
        "stream": True,
    }


async def test_the_steps_key_is_sent_and_the_librarys_retries_are_off(standin: StandIn) -> None:
    """Attempts of one step say that they are one; how often to try is Temporal's to say."""
    await sent(standin, "Hi", step_key="t/1/2", options={"extra_headers": {"anthropic-beta": "files"}})
    headers = standin.asked[0].headers
    assert headers["idempotency-key"] == "t/1/2"
    assert headers["anthropic-beta"] == "files"
    assert headers["x-stainless-retry-count"] == "0"


async def test_the_cache_is_asked_for_before_and_at_the_end_of_the_conversation(standin: StandIn) -> None:
    """Each request reads what the last one wrote, and writes up to its own end."""
    options = {"cache": "auto"}
    answer = Message(id="a", role="assistant", content="Hello.")
    body = await sent(
        standin, "one", answer, "two", answer, "three", tools=[WEATHER], instructions="x", options=options
    )
    assert body["system"] == [wire.text("x") | {"cache_control": MARK}]
    assert "cache_control" not in body["tools"][0]
    marked = ["cache_control" in each["content"][-1] for each in body["messages"]]
    assert marked == [False, False, True, False, True]


async def test_without_instructions_the_tools_are_cached(standin: StandIn) -> None:
    """They are the longest part of many prompts."""
    body = await sent(standin, "one", tools=[WEATHER], options={"cache": "auto", "cache_ttl": "1h"})
    assert body["tools"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


async def test_no_more_marks_than_the_provider_takes(standin: StandIn) -> None:
    """A fifth fails the request; the newest are worth most."""
    marked = [parts.text_part(name, cache=True) for name in "abcdef"]
    body = await sent(standin, said(*marked), instructions="x", options={"cache": "auto"})
    found = [block["text"] for block in body["messages"][0]["content"] if "cache_control" in block]
    assert found == ["d", "e", "f"]


async def test_a_mark_of_a_result_is_at_the_result(standin: StandIn) -> None:
    """Within it, it would not be seen."""
    model = wire.model(standin)
    standin.will(wire.says(wire.use("toolu_1")), wire.says(wire.text("ok")))
    first = await answer_of(model, asking("go", tools=[WEATHER]))
    answered = result(first.tool_calls[0], [parts.text_part("long", cache=True)])
    await answer_of(model, asking("go", stored(first), answered, tools=[WEATHER]))
    assert standin.bodies[1]["messages"][2]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [wire.text("long")],
            "cache_control": MARK,
        }
    ]


async def test_answers_are_never_marked(standin: StandIn) -> None:
    """They come back as they were, and reasoning may not be marked at all."""
    model = wire.model(standin, cache="auto")
    blocks = [wire.thinking("Hm."), wire.use("toolu_1", city="Bern")]
    standin.will(wire.says(*blocks), wire.says(wire.text("ok")))
    await goes_on(model, await answer_of(model, asking("go", tools=[WEATHER])))
    assert standin.bodies[1]["messages"][1]["content"] == blocks


async def test_reasoning_is_not_asked_for_within_a_turn_that_another_model_began(standin: StandIn) -> None:
    """The provider wants reasoning before such a call, and nobody has it; the next turn has it again."""
    thinking = {"type": "enabled", "budget_tokens": 1024}
    options = {"thinking": thinking}
    call = {"id": "c1", "name": "weather", "arguments": {}}
    began = Message.model_validate({"id": "a1", "role": "assistant", "tool_calls": [call]})
    answered = result(began.tool_calls[0])
    within = await sent(standin, "go", began, answered, tools=[WEATHER], options=options)
    after = await sent(
        standin,
        "go",
        began,
        answered,
        Message(id="a2", role="assistant", content="ok"),
        "next",
        tools=[WEATHER],
        options=options,
    )
    assert "thinking" not in within
    assert after["thinking"] == thinking


async def test_rows_of_the_system_are_instructions(standin: StandIn) -> None:
    """There is no such role among the messages."""
    note = Message(id="s1", role="system", content="It is Monday.")
    body = await sent(standin, "Hi", note, instructions="Be kind.")
    assert body["system"] == [wire.text("Be kind."), wire.text("It is Monday.")]
    assert len(body["messages"]) == 1


async def test_options_that_the_adapter_sets_itself_are_refused(standin: StandIn) -> None:
    """They would be lost without a word."""
    with pytest.raises(InvalidConfigError, match="messages, stream"):
        wire.model(standin, stream=False, messages=[])
