"""OpenAI's Chat Completions, by the vendor's client."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helix_temporal.adapters.openai_chat import OpenAIChatModel
from helix_temporal.errors import (
    InvalidConfigError,
)
from helix_temporal.models import messages as parts
from helix_temporal.models.agents import ReasoningDelta, TextDelta, ToolArgumentsDelta, ToolCallStarted
from helix_temporal.models.messages import Finish, Message, ToolCall, Usage, invalid_arguments
from tests.adapters._openai import (
    KEY,
    WEATHER,
    answered,
    asking,
    call_chunks,
    chat,
    chat_text,
    chunk,
    client_of,
    result,
    said,
    usage_chunk,
    user,
)
from tests.adapters._standin import StandIn


@pytest.fixture
async def model(standin: StandIn) -> AsyncIterator[OpenAIChatModel]:
    """The adapter on the vendor's client."""
    async with client_of(standin) as client:
        yield OpenAIChatModel("gpt-5", client)


async def test_text_streams_and_ends_as_one_answer(standin: StandIn, model: OpenAIChatModel) -> None:
    """A reader sees the words as they come; the thread gets them whole, with what they cost."""
    used = {
        "prompt_tokens": 20,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    standin.will(chat(chunk(content="Good "), chunk(content="day"), chunk("stop"), usage_chunk(**used)))

    response, seen = await said(model, asking(user("hi")))

    assert seen == [TextDelta("Good "), TextDelta("day")]
    assert (response.content, response.finish, response.stop_reason) == ("Good day", Finish.STOP, "stop")
    assert response.usage == Usage(
        input_tokens=20, output_tokens=9, cached_read_tokens=16, cached_write_tokens=4, reasoning_tokens=5
    )
    assert response.provider == {"openai_chat": {}}


async def test_the_request_says_it_all(standin: StandIn) -> None:
    """Instructions, tools and options reach the provider; the key goes in its header alone."""
    standin.will(chat_text("ok"))
    async with client_of(standin) as client:
        model = OpenAIChatModel("gpt-5", client, temperature=0.5, extra_headers={"x-team": "blue"})
        await said(model, asking(user("hi"), instructions="Be kind.", tools=(WEATHER,)))

    [asked] = standin.asked
    key = asked.body.pop("prompt_cache_key", None)
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["x-team"] == "blue"
    assert key is None or len(key) == 32
    assert {name: value for name, value in asked.body.items() if name != "prompt_cache_key"} == {
        "model": "gpt-5",
        "temperature": 0.5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "The weather of a city.",
                    "parameters": WEATHER.parameters,
                },
            }
        ],
    }


async def test_parallel_calls_come_in_pieces_and_go_back_as_they_came(
    standin: StandIn, model: OpenAIChatModel
) -> None:
    """The provider finds its calls byte for byte, each followed by its result."""
    first = call_chunks(0, "call_A", "weather", '{"city": ', '"Paris"}')
    second = call_chunks(1, "call_B", "weather", '{"city":"Rome"}')
    standin.will(chat(*first, *second, chunk("tool_calls")), chat_text("Sunny."))

    response, seen = await said(model, asking(user("weather?"), tools=(WEATHER,)))
    answer = answered(response)
    await said(model, asking(user("weather?"), answer, result("call_A", "sun"), result("call_B", "rain")))

    assert seen == [
        ToolCallStarted("call_A", "weather"),
        ToolArgumentsDelta("call_A", '{"city": '),
        ToolArgumentsDelta("call_A", '"Paris"}'),
        ToolCallStarted("call_B", "weather"),
        ToolArgumentsDelta("call_B", '{"city":"Rome"}'),
    ]
    assert response.finish is Finish.TOOL_CALLS
    assert [call.arguments for call in response.tool_calls] == [{"city": "Paris"}, {"city": "Rome"}]
    assert standin.bodies[1]["messages"][1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_A",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
                },
                {
                    "id": "call_B",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_A", "content": "sun"},
        {"role": "tool", "tool_call_id": "call_B", "content": "rain"},
    ]


async def test_what_can_be_said_in_our_form_is_kept_once(standin: StandIn, model: OpenAIChatModel) -> None:
    """An answer that we can reproduce exactly is not stored a second time."""
    standin.will(chat(*call_chunks(0, "call_A", "weather", '{"city":"Paris"}'), chunk("tool_calls")))

    response, _ = await said(model, asking(user("weather?")))

    assert response.provider == {"openai_chat": {}}


async def test_reasoning_of_servers_that_show_it_goes_back(standin: StandIn, model: OpenAIChatModel) -> None:
    """Some models need what they thought before a call; people may see it."""
    thought = [chunk(reasoning_content="Let me "), chunk(reasoning_content="see.")]
    details = [chunk(reasoning_details=[{"type": "reasoning.encrypted", "data": "xyz"}])]
    standin.will(chat(*thought, *details, chunk(content="Hi"), chunk("stop")), chat_text("bye"))

    response, seen = await said(model, asking(user("hi")))
    await said(model, asking(user("hi"), answered(response), user("more", "u2")))

    assert seen == [ReasoningDelta("Let me "), ReasoningDelta("see."), TextDelta("Hi")]
    assert response.content == [parts.thinking_part("Let me see."), parts.text_part("Hi")]
    assert standin.bodies[1]["messages"][1] == {
        "role": "assistant",
        "content": "Hi",
        "reasoning_content": "Let me see.",
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "xyz"}],
    }


async def test_calls_that_are_all_numbered_zero_stay_apart(standin: StandIn, model: OpenAIChatModel) -> None:
    """Some servers do so; two calls must not run into one."""
    standin.will(
        chat(
            *call_chunks(0, "call_A", "weather", '{"city":"Paris"}'),
            *call_chunks(0, "call_B", "weather", '{"city":"Rome"}'),
            chunk("tool_calls"),
        )
    )

    response, _ = await said(model, asking(user("weather?")))

    assert [(call.id, call.arguments["city"]) for call in response.tool_calls] == [
        ("call_A", "Paris"),
        ("call_B", "Rome"),
    ]


async def test_calls_without_ids_get_some(standin: StandIn, model: OpenAIChatModel) -> None:
    """A call without an id could not be answered; each attempt of a step gives the same one."""
    call = {"index": 0, "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    standin.will(*[chat(chunk(tool_calls=[call]), chunk("tool_calls"))] * 2)

    first, _ = await said(model, asking(user("weather?")))
    again, _ = await said(model, asking(user("weather?")))

    assert first.tool_calls[0].id == again.tool_calls[0].id
    assert first.tool_calls[0].id.startswith("call_")


async def test_a_refusal_is_told_and_goes_back_as_one(standin: StandIn, model: OpenAIChatModel) -> None:
    """The application can tell a refusal from an answer; the model remembers that it refused."""
    standin.will(chat(chunk(refusal="I can't "), chunk(refusal="do that."), chunk("stop")), chat_text("ok"))

    response, seen = await said(model, asking(user("bad")))
    await said(model, asking(user("bad"), answered(response), user("good", "u2")))

    assert seen == [TextDelta("I can't "), TextDelta("do that.")]
    assert (response.finish, response.content) == (Finish.REFUSAL, "I can't do that.")
    assert standin.bodies[1]["messages"][1] == {
        "role": "assistant",
        "content": None,
        "refusal": "I can't do that.",
    }


@pytest.mark.parametrize(
    ("reason", "finish"), [("length", Finish.LENGTH), ("content_filter", Finish.CONTENT_FILTER)]
)
async def test_ends_are_typed(standin: StandIn, model: OpenAIChatModel, reason: str, finish: Finish) -> None:
    """A cut or withheld answer is not taken for a whole one."""
    standin.will(chat(chunk(content="Once"), chunk(reason)))

    response, _ = await said(model, asking(user("tell")))

    assert (response.content, response.finish, response.stop_reason) == ("Once", finish, reason)


async def test_arguments_cut_at_the_limit_are_not_run(standin: StandIn, model: OpenAIChatModel) -> None:
    """Half a call is none."""
    standin.will(chat(*call_chunks(0, "call_A", "weather"), chunk("length")))

    response, _ = await said(model, asking(user("weather?")))

    assert response.finish is Finish.LENGTH
    assert invalid_arguments(response.tool_calls[0].arguments) is not None


async def test_images_and_files_are_shown(standin: StandIn, model: OpenAIChatModel) -> None:
    """What a user attaches reaches the model, by data, address or id."""
    standin.will(chat_text("nice"))
    shown = [
        parts.text_part("Look:"),
        parts.image_part(media_type="image/png", data="aGk="),
        parts.image_part(url="https://x.example/a.png"),
        parts.file_part(media_type="application/pdf", data="aGk=", name="a.pdf"),
        parts.file_part(file_id="file-1"),
        parts.file_part(url="https://x.example/a.pdf", name="a.pdf"),
        parts.file_part(media_type="audio/wav", data="aGk="),
        parts.thinking_part("not for it"),
        parts.file_part(file_id="file_claude", name="b.pdf"),
        {"type": "hologram"},
    ]

    await said(model, asking(user(shown)))

    assert standin.bodies[0]["messages"][0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "text", "text": "[file a.pdf at https://x.example/a.pdf]"},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        {"type": "text", "text": "(b.pdf can't be shown to this model.)"},
    ]


async def test_an_image_of_a_tool_follows_all_results(standin: StandIn, model: OpenAIChatModel) -> None:
    """Results can only be text here, and nothing may come between those of one answer."""
    standin.will(chat_text("nice"))
    calls = (ToolCall(id="a", name="draw"), ToolCall(id="b", name="draw"))
    drawn = [parts.image_part(media_type="image/png", data="aGk=")]

    await said(
        model,
        asking(
            user("draw"),
            Message(id="a1", role="assistant", tool_calls=calls),
            result("a", drawn),
            result("b", "nothing"),
        ),
    )

    assert standin.bodies[0]["messages"][2:] == [
        {
            "role": "tool",
            "tool_call_id": "a",
            "content": "The result follows in the next message of the user.",
        },
        {"role": "tool", "tool_call_id": "b", "content": "nothing"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "From the result of a:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            ],
        },
    ]


async def test_an_edited_answer_is_sent_as_it_is_now(standin: StandIn, model: OpenAIChatModel) -> None:
    """Words that were taken back must not come back with what the provider once said."""
    standin.will(chat(chunk(refusal="No."), chunk("stop")), chat_text("ok"))
    response, _ = await said(model, asking(user("hi")))

    edited = answered(response).model_copy(update={"content": "Yes."})
    await said(model, asking(user("hi"), edited, user("more", "u2")))

    assert standin.bodies[1]["messages"][1] == {"role": "assistant", "content": "Yes."}


def test_options_that_the_adapter_sets_are_refused() -> None:
    """A second list of messages would be ignored, or worse."""
    with pytest.raises(InvalidConfigError, match="messages"):
        OpenAIChatModel("gpt-5", messages=[])


@pytest.mark.parametrize("option", [{"warmth": 1}, {"metadata": object()}], ids=["unknown", "no JSON"])
async def test_an_option_that_cannot_be_sent_fails_for_good(standin: StandIn, option: dict[str, Any]) -> None:
    """An untyped error would be tried again for ever."""
    async with client_of(standin) as client:
        with pytest.raises(InvalidConfigError, match="options"):
            await said(OpenAIChatModel("gpt-5", client, **option), asking(user("hi")))


@pytest.mark.parametrize("key", [f"{KEY}\n", "kéy"], ids=["line break", "no ASCII"])
async def test_a_key_that_cannot_be_sent_fails_for_good(standin: StandIn, key: str) -> None:
    """A secret read from a file has a line break at its end: no later attempt mends that."""
    async with client_of(standin).with_options(api_key=key) as client:
        with pytest.raises(InvalidConfigError, match="key") as caught:
            await said(OpenAIChatModel("gpt-5", client), asking(user("hi")))
    assert key.strip() not in str(caught.value)


async def test_an_address_that_is_none_fails_for_good(standin: StandIn) -> None:
    """Nothing is listening at an address without a scheme, and never will."""
    async with client_of(standin).with_options(base_url="localhost:1/v1") as client:
        with pytest.raises(InvalidConfigError, match="address"):
            await said(OpenAIChatModel("gpt-5", client), asking(user("hi")))


async def test_a_cache_key_is_that_of_the_session(standin: StandIn, model: OpenAIChatModel) -> None:
    """Requests of one session find their cache again; those of another don't look there."""
    standin.will(chat_text("1"), chat_text("2"), chat_text("3"))

    await said(model, asking(user("hi")))
    await said(model, asking(user("hi"), step_key="t/1/9"))
    await said(model, asking(user("hi"), session_id="other"))

    first, again, other = [body["prompt_cache_key"] for body in standin.bodies]
    assert first == again != other


async def test_cache_marks_are_sent_where_the_model_takes_them(standin: StandIn) -> None:
    """A marked part ends a cached beginning."""
    standin.will(chat_text("ok"))
    async with client_of(standin) as client:
        model = OpenAIChatModel("gpt-5.6", client, cache_breakpoints=True, cache_by=None)
        await said(model, asking(user([parts.text_part("long", cache=True), parts.text_part("short")])))

    assert "prompt_cache_key" not in standin.bodies[0]
    assert standin.bodies[0]["messages"][0]["content"] == [
        {"type": "text", "text": "long", "prompt_cache_breakpoint": {"mode": "explicit"}},
        {"type": "text", "text": "short"},
    ]


async def test_repeated_and_foreign_ids_are_made_fit(standin: StandIn, model: OpenAIChatModel) -> None:
    """Another provider's ids may repeat, or have signs that this one refuses."""
    standin.will(chat_text("ok"))
    calls = (ToolCall(id="a b", name="x.y"), ToolCall(id="a b", name="x.y"))

    await said(
        model,
        asking(
            user("hi"),
            Message(id="a1", role="assistant", tool_calls=calls),
            result("a b", "first", "r1"),
            result("a b", "second", "r2"),
        ),
    )

    _, answer, first, second = standin.bodies[0]["messages"]
    ids = [call["id"] for call in answer["tool_calls"]]
    assert len(set(ids)) == 2
    assert [(first["tool_call_id"], first["content"]), (second["tool_call_id"], second["content"])] == [
        (ids[0], "first"),
        (ids[1], "second"),
    ]
    assert {call["function"]["name"] for call in answer["tool_calls"]} == {"x_y"}
