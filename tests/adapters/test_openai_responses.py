"""OpenAI's Responses API without state there, by the vendor's client."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helix_temporal.adapters.openai_responses import OpenAIResponsesModel
from helix_temporal.errors import (
    InvalidConfigError,
)
from helix_temporal.models import messages
from helix_temporal.models.agents import ReasoningDelta, TextDelta, ToolArgumentsDelta, ToolCallStarted
from helix_temporal.models.messages import Finish, Message, ToolCall, Usage
from tests.adapters._openai import (
    WEATHER,
    answered,
    asking,
    call_item,
    client_of,
    message_item,
    reasoning_item,
    response_events,
    responses,
    result,
    said,
    text_item,
    user,
)
from tests.adapters._standin import StandIn, events


@pytest.fixture
async def model(standin: StandIn) -> AsyncIterator[OpenAIResponsesModel]:
    """The adapter on the vendor's client."""
    async with client_of(standin) as client:
        yield OpenAIResponsesModel("gpt-5", client)


async def test_text_streams_and_ends_as_one_answer(standin: StandIn, model: OpenAIResponsesModel) -> None:
    """A reader sees the words as they come; the thread gets them whole, with what they cost."""
    used = {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 4},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 5},
    }
    standin.will(responses(text_item("Suntan"), usage=used))

    response, seen = await said(model, asking(user("hi")))

    assert seen == [TextDelta("Sun"), TextDelta("tan")]
    assert (response.content, response.finish, response.stop_reason) == ("Suntan", Finish.STOP, "completed")
    assert response.usage == Usage(
        input_tokens=20, output_tokens=9, cached_read_tokens=16, cached_write_tokens=4, reasoning_tokens=5
    )


async def test_the_request_asks_for_nothing_to_be_stored(standin: StandIn) -> None:
    """Threads are ours alone; what the model thought comes back to us, encrypted."""
    standin.will(responses(text_item("ok")))
    async with client_of(standin) as client:
        model = OpenAIResponsesModel("gpt-5", client, include=["x"], reasoning={"summary": "auto"})
        await said(model, asking(user("hi"), instructions="Be kind.", tools=(WEATHER,)))

    [asked] = standin.asked
    body = asked.body
    assert asked.path == "/v1/responses"
    assert len(body.pop("prompt_cache_key")) == 32
    assert body == {
        "model": "gpt-5",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content", "x"],
        "reasoning": {"summary": "auto"},
        "instructions": "Be kind.",
        "input": [{"role": "user", "content": "hi"}],
        "tools": [
            {
                "type": "function",
                "name": "weather",
                "description": "The weather of a city.",
                "parameters": WEATHER.parameters,
                "strict": False,
            }
        ],
    }


async def test_reasoning_and_calls_go_back_byte_for_byte(
    standin: StandIn, model: OpenAIResponsesModel
) -> None:
    """The model goes on from what it thought, and finds its calls with their ids, each answered."""
    items = [
        reasoning_item("**Weighing**", "Two cities."),
        call_item("call_A", "weather", '{"city": "Paris"}'),
        call_item("call_B", "weather", '{"city":"Rome"}'),
    ]
    standin.will(responses(*items), responses(text_item("Sunny.")))

    response, seen = await said(model, asking(user("weather?"), tools=(WEATHER,)))
    answer = answered(response)
    await said(model, asking(user("weather?"), answer, result("call_A", "sun"), result("call_B", "rain")))

    assert seen == [
        ReasoningDelta("**Weighing**"),
        ReasoningDelta("\n\n"),
        ReasoningDelta("Two cities."),
        ToolCallStarted("call_A", "weather"),
        ToolArgumentsDelta("call_A", '{"city":'),
        ToolArgumentsDelta("call_A", ' "Paris"}'),
        ToolCallStarted("call_B", "weather"),
        ToolArgumentsDelta("call_B", '{"city"'),
        ToolArgumentsDelta("call_B", ':"Rome"}'),
    ]
    assert response.finish is Finish.TOOL_CALLS
    assert response.content == [messages.thinking_part("**Weighing**\n\nTwo cities.")]
    assert [call.arguments for call in response.tool_calls] == [{"city": "Paris"}, {"city": "Rome"}]
    sent = standin.bodies[1]["input"]
    # As text: the order of keys counts, too.
    assert [str(item) for item in sent[1:4]] == [str(item) for item in items]
    assert sent[4:] == [
        {"type": "function_call_output", "call_id": "call_A", "output": "sun"},
        {"type": "function_call_output", "call_id": "call_B", "output": "rain"},
    ]


async def test_annotations_phases_and_unknown_items_go_back(
    standin: StandIn, model: OpenAIResponsesModel
) -> None:
    """What we do not understand is the provider's, and it gets it back."""
    cited = {
        "type": "url_citation",
        "url": "https://x.example",
        "title": "X",
        "start_index": 0,
        "end_index": 2,
    }
    items = [
        {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}},
        message_item(
            {"type": "output_text", "text": "As X says", "annotations": [cited]},
            phase="final_answer",
            new=None,
        ),
    ]
    standin.will(responses(*items), responses(text_item("ok")))

    response, _ = await said(model, asking(user("hi")))
    await said(model, asking(user("hi"), answered(response), user("more", "u2")))

    assert standin.bodies[1]["input"][1:3] == items


async def test_reasoning_that_would_be_refused_is_left_out(
    standin: StandIn, model: OpenAIResponsesModel
) -> None:
    """Without its encrypted content, or with nothing after it, reasoning makes the provider refuse all."""
    bare = reasoning_item("bare", encrypted=None)
    alone = reasoning_item("alone", item_id="rs_2")
    details = {"reason": "max_output_tokens"}
    standin.will(
        responses(bare, text_item("Once"), alone, status="incomplete", incomplete_details=details),
        responses(text_item("ok")),
    )

    response, _ = await said(model, asking(user("hi")))
    await said(model, asking(user("hi"), answered(response), user("more", "u2")))

    assert response.finish is Finish.LENGTH
    assert standin.bodies[1]["input"][1:-1] == [text_item("Once")]


async def test_a_refusal_is_told_and_goes_back_as_one(standin: StandIn, model: OpenAIResponsesModel) -> None:
    """The application can tell a refusal from an answer; the model remembers that it refused."""
    refusal = message_item({"type": "refusal", "refusal": "I can't."})
    standin.will(responses(refusal), responses(text_item("ok")))

    response, seen = await said(model, asking(user("bad")))
    await said(model, asking(user("bad"), answered(response), user("good", "u2")))

    assert seen == [TextDelta("I ca"), TextDelta("n't.")]
    assert (response.finish, response.content) == (Finish.REFUSAL, "I can't.")
    assert standin.bodies[1]["input"][1] == refusal


@pytest.mark.parametrize(
    ("reason", "finish"), [("max_output_tokens", Finish.LENGTH), ("content_filter", Finish.CONTENT_FILTER)]
)
async def test_ends_are_typed(
    standin: StandIn, model: OpenAIResponsesModel, reason: str, finish: Finish
) -> None:
    """A cut or withheld answer is not taken for a whole one."""
    standin.will(
        responses(text_item("Once"), status="incomplete", incomplete_details={"reason": reason}),
    )

    response, _ = await said(model, asking(user("tell")))

    assert (response.content, response.finish, response.stop_reason) == ("Once", finish, reason)


async def test_images_and_files_are_shown(standin: StandIn, model: OpenAIResponsesModel) -> None:
    """What a user attaches, or a tool gives, reaches the model: by data, address or id."""
    standin.will(responses(text_item("nice")))
    shown = [
        messages.text_part("Look:"),
        messages.image_part(media_type="image/png", data="aGk="),
        messages.image_part(url="https://x.example/a.png"),
        messages.file_part(media_type="application/pdf", data="aGk=", name="a.pdf"),
        messages.file_part(file_id="file-1"),
        messages.file_part(media_type="image/png", file_id="file-2"),
        messages.file_part(url="https://x.example/a.pdf"),
        messages.thinking_part("not for it"),
        messages.file_part(file_id="file_claude", name="b.pdf"),
    ]
    calls = (ToolCall(id="a", name="draw"),)

    await said(
        model,
        asking(user(shown), Message(id="a1", role="assistant", tool_calls=calls), result("a", shown[:2])),
    )

    wired = [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
        {"type": "input_image", "image_url": "https://x.example/a.png", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_image", "detail": "auto", "file_id": "file-2"},
        {"type": "input_file", "file_url": "https://x.example/a.pdf"},
        {"type": "input_text", "text": "(b.pdf can't be shown to this model.)"},
    ]
    assert standin.bodies[0]["input"] == [
        {"role": "user", "content": wired},
        {"type": "function_call", "call_id": "a", "name": "draw", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": wired[:2]},
    ]


async def test_another_providers_words_are_sent_in_ours(
    standin: StandIn, model: OpenAIResponsesModel
) -> None:
    """What another provider needs back, such as signatures, means nothing here."""
    standin.will(responses(text_item("ok")))
    other = Message(
        id="a1",
        role="assistant",
        content=[messages.thinking_part("hm"), messages.text_part("Bonjour")],
        provider={"anthropic": {"raw": "[]", "of": "x"}},
    )

    await said(model, asking(user("hi"), other, user("more", "u2")))

    assert standin.bodies[0]["input"][1] == {"role": "assistant", "content": "Bonjour"}


async def test_a_last_event_without_items_takes_those_that_came(
    standin: StandIn, model: OpenAIResponsesModel
) -> None:
    """Some servers send the items only one by one."""
    told = response_events(text_item("Hello"))
    told[-1][1]["response"]["output"] = []
    standin.will(events(*told))

    response, _ = await said(model, asking(user("hi")))

    assert response.content == "Hello"


@pytest.mark.parametrize("option", ["previous_response_id", "conversation", "background", "store"])
def test_state_at_the_provider_is_refused(option: str) -> None:
    """A thread that is also kept elsewhere would come apart from ours."""
    given: dict[str, Any] = {option: "x"}

    with pytest.raises(InvalidConfigError, match=option):
        OpenAIResponsesModel("gpt-5", None, **given)


async def test_an_option_that_cannot_be_sent_fails_for_good(standin: StandIn) -> None:
    """An untyped error would be tried again for ever."""
    async with client_of(standin) as client:
        with pytest.raises(InvalidConfigError, match="options"):
            await said(OpenAIResponsesModel("gpt-5", client, warmth=1), asking(user("hi")))
