"""Gemini, by the vendor's client."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.genai import types

from helix_temporal.adapters._answers import kept_with
from helix_temporal.adapters.google import GoogleModel
from helix_temporal.errors import (
    InvalidConfigError,
    ModelUnavailableError,
)
from helix_temporal.models import messages
from helix_temporal.models.agents import (
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolSpec,
)
from helix_temporal.models.messages import Finish, Message, ToolCall, Usage, invalid_arguments
from tests.adapters._google import KEY, call, client_of, contents_of, gemini, gemini_text, piece, signature
from tests.adapters._openai import WEATHER, answered, asking, result, said, user
from tests.adapters._standin import StandIn, plain

MALFORMED = "malformed function call"
SKIPPED = signature(b"skip_thought_signature_validator")


@pytest.fixture
async def model(standin: StandIn) -> AsyncIterator[GoogleModel]:
    """The adapter on the vendor's client."""
    async with client_of(standin) as client:
        yield GoogleModel("gemini-3", client)


async def test_text_streams_and_ends_as_one_answer(standin: StandIn, model: GoogleModel) -> None:
    """A reader sees the words as they come; the thread gets them whole, with what they cost."""
    used = {
        "promptTokenCount": 20,
        "toolUsePromptTokenCount": 3,
        "candidatesTokenCount": 4,
        "thoughtsTokenCount": 5,
        "cachedContentTokenCount": 16,
        "totalTokenCount": 32,
    }
    first = piece({"text": "Good "}) | {"usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 1}}
    standin.will(gemini(first, piece({"text": "day"}), piece(finish="STOP") | {"usageMetadata": used}))

    response, seen = await said(model, asking(user("hi")))

    assert seen == [TextDelta("Good "), TextDelta("day")]
    assert (response.content, response.finish, response.stop_reason) == ("Good day", Finish.STOP, "STOP")
    assert response.usage == Usage(
        input_tokens=23, output_tokens=9, cached_read_tokens=16, reasoning_tokens=5
    )
    assert response.provider == {"google": {}}


async def test_the_request_says_it_all(standin: StandIn) -> None:
    """Instructions, tools and options reach the provider; the key goes in its header alone."""
    standin.will(gemini_text("ok"))
    async with client_of(standin) as client:
        model = GoogleModel("gemini-3", client, temperature=0.5)
        system = Message(id="s1", role="system", content="The user is Ann.")
        await said(model, asking(system, user("hi"), instructions="Be kind.", tools=(WEATHER,)))

    [asked] = standin.asked
    assert asked.path.endswith("/models/gemini-3:streamGenerateContent?alt=sse")
    assert asked.headers["x-goog-api-key"] == KEY
    assert {name: value for name, value in asked.body.items() if name != "tools"} == {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "systemInstruction": {"parts": [{"text": "Be kind.\n\nThe user is Ann."}], "role": "user"},
        "generationConfig": {"temperature": 0.5},
    }
    [tool] = asked.body["tools"]
    [declared] = [types.FunctionDeclaration.model_validate(each) for each in tool["functionDeclarations"]]
    assert (declared.name, declared.description) == ("weather", "The weather of a city.")
    assert declared.parameters_json_schema == WEATHER.parameters


async def test_thoughts_signatures_and_calls_go_back_as_they_came(
    standin: StandIn, model: GoogleModel
) -> None:
    """The model goes on from what it thought: signatures stay on their parts."""
    signed = signature(bytes(range(256)))
    came = [
        {"text": "Two cities.", "thought": True},
        call("weather", {"city": "Paris", "when": None, "n": 1.5}, thoughtSignature=signed),
        call("weather", {"city": "Rome"}),
    ]
    standin.will(gemini(piece(came[0]), piece(*came[1:]), piece(finish="STOP")), gemini_text("Sunny."))

    response, seen = await said(model, asking(user("weather?"), tools=(WEATHER,)))
    first, second = response.tool_calls
    given = [result(first.id, "sun"), result(second.id, "rain", is_error=True)]
    await said(model, asking(user("weather?"), answered(response), *given))

    assert seen == [
        ReasoningDelta("Two cities."),
        ToolCallStarted(first.id, "weather"),
        ToolArgumentsDelta(first.id, '{"city":"Paris","when":null,"n":1.5}'),
        ToolCallStarted(second.id, "weather"),
        ToolArgumentsDelta(second.id, '{"city":"Rome"}'),
    ]
    assert first.id != second.id
    assert response.finish is Finish.TOOL_CALLS
    assert response.content == [messages.thinking_part("Two cities.")]
    assert contents_of(standin.asked[1])[1:] == [
        {"role": "model", "parts": came},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "weather", "response": {"output": "sun"}}},
                {"functionResponse": {"name": "weather", "response": {"error": "rain"}}},
            ],
        },
    ]


async def test_ids_that_gemini_gave_are_answered(standin: StandIn, model: GoogleModel) -> None:
    """Where it tells calls apart by ids, so do their results."""
    came = [call("weather", {"city": "Paris"}, "id-1"), call("weather", {"city": "Rome"}, "id-2")]
    standin.will(gemini(piece(*came, finish="STOP")), gemini_text("Sunny."))

    response, _ = await said(model, asking(user("weather?")))
    await said(
        model, asking(user("weather?"), answered(response), result("id-1", "sun"), result("id-2", "rain"))
    )

    _, answer, results = contents_of(standin.asked[1])
    assert [call.id for call in response.tool_calls] == ["id-1", "id-2"]
    assert answer["parts"] == came
    assert [each["functionResponse"]["id"] for each in results["parts"]] == ["id-1", "id-2"]


async def test_each_attempt_gives_a_call_the_same_id_and_each_step_another(
    standin: StandIn, model: GoogleModel
) -> None:
    """A late answer to one call must not be taken for that to another."""
    standin.will(*[gemini(piece(call("weather", {}), finish="STOP"))] * 3)

    first, _ = await said(model, asking(user("hi"), step_key="t/1/1"))
    again, _ = await said(model, asking(user("hi"), step_key="t/1/1"))
    later, _ = await said(model, asking(user("hi"), step_key="t/1/5"))

    assert first.tool_calls[0].id == again.tool_calls[0].id != later.tool_calls[0].id


async def test_a_tool_may_be_called_as_gemini_does_not_allow(standin: StandIn, model: GoogleModel) -> None:
    """Names are ours: a thread that changes its provider keeps its tools."""
    came = call("_2fa", {})
    standin.will(gemini(piece(came, finish="STOP")), gemini_text("ok"))

    response, seen = await said(model, asking(user("hi"), tools=(ToolSpec(name="2fa"),)))
    [made] = response.tool_calls
    await said(model, asking(user("hi"), answered(response), result(made.id, "done")))

    [tool] = standin.bodies[0]["tools"]
    assert tool["functionDeclarations"][0]["name"] == "_2fa"
    assert (made.name, seen[0]) == ("2fa", ToolCallStarted(made.id, "2fa"))
    assert contents_of(standin.asked[1])[1]["parts"] == [came]


@pytest.mark.parametrize("part", [{"text": "Sunny."}, {"text": "Sunny.", "hologram": 1}])
async def test_an_answer_that_the_library_does_not_read_is_sent_in_our_form(
    standin: StandIn, model: GoogleModel, part: dict[str, Any]
) -> None:
    """It may have been kept by another version of the library; empty text is refused."""
    kept = Message(id="a1", role="assistant", content="Sunny.")
    raw: Any = [part, {"text": ""}]
    standin.will(gemini_text("ok"))

    answer = kept.model_copy(update={"provider": {"google": kept_with(kept, raw)}})
    await said(model, asking(user("hi"), answer, user("more", "u2")))

    assert contents_of(standin.asked[0])[1]["parts"] == [{"text": "Sunny."}]


async def test_a_signature_on_nothing_goes_back(standin: StandIn, model: GoogleModel) -> None:
    """Streams may end with an empty part that is signed."""
    last = {"text": "", "thoughtSignature": signature(b"abc")}
    standin.will(gemini(piece({"text": "Good "}), piece({"text": "day"}), piece(last, finish="STOP")))
    standin.will(gemini_text("ok"))

    response, _ = await said(model, asking(user("hi")))
    await said(model, asking(user("hi"), answered(response), user("more", "u2")))

    assert response.content == "Good day"
    assert contents_of(standin.asked[1])[1]["parts"] == [{"text": "Good day"}, last]


async def test_code_that_ran_there_goes_back(standin: StandIn, model: GoogleModel) -> None:
    """What the provider's own tools did is its business, but it needs it back."""
    came: list[dict[str, Any]] = [
        {"executableCode": {"code": "print(1)", "language": "PYTHON"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"text": "One."},
    ]
    standin.will(gemini(piece(*came, finish="STOP")), gemini_text("ok"))

    response, _ = await said(model, asking(user("hi")))
    await said(model, asking(user("hi"), answered(response), user("more", "u2")))

    assert response.content == "One."
    assert contents_of(standin.asked[1])[1]["parts"] == came


async def test_an_image_that_the_model_makes_is_a_part(standin: StandIn, model: GoogleModel) -> None:
    """The application gets it in the same form whoever made it, in plain base64."""
    blob = {"data": signature(b"\xfb\xff\xfe"), "mimeType": "image/png"}
    standin.will(gemini(piece({"text": "Here:"}, {"inlineData": blob}, finish="STOP")), gemini_text("ok"))

    response, _ = await said(model, asking(user("draw")))
    await said(model, asking(user("draw"), answered(response), user("more", "u2")))

    assert response.content == [
        messages.text_part("Here:"),
        messages.image_part(media_type="image/png", data="+//+"),
    ]
    assert response.provider == {"google": {}}
    assert contents_of(standin.asked[1])[1]["parts"] == [{"text": "Here:"}, {"inlineData": blob}]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("MAX_TOKENS", Finish.LENGTH),
        ("SAFETY", Finish.CONTENT_FILTER),
        ("RECITATION", Finish.CONTENT_FILTER),
        ("PROHIBITED_CONTENT", Finish.CONTENT_FILTER),
    ],
)
async def test_ends_are_typed(standin: StandIn, model: GoogleModel, reason: str, finish: Finish) -> None:
    """A cut or withheld answer is not taken for a whole one."""
    standin.will(gemini(piece({"text": "Once"}), piece(finish=reason)))

    response, _ = await said(model, asking(user("tell")))

    assert (response.content, response.finish, response.stop_reason) == ("Once", finish, reason)


async def test_a_blocked_prompt_is_a_withheld_answer(standin: StandIn, model: GoogleModel) -> None:
    """The provider says nothing then; trying again would not help."""
    standin.will(gemini({"promptFeedback": {"blockReason": "SAFETY"}}), gemini_text("ok"))

    response, _ = await said(model, asking(user("bad")))
    await said(model, asking(user("bad"), answered(response), user("good", "u2")))

    assert (response.content, response.finish) == ("", Finish.CONTENT_FILTER)
    assert contents_of(standin.asked[1]) == [{"role": "user", "parts": [{"text": "bad"}, {"text": "good"}]}]


async def test_a_malformed_call_does_not_fail_the_turn(standin: StandIn, model: GoogleModel) -> None:
    """The model is told what it said wrong, and sees its own words again."""
    standin.will(gemini(piece({"text": "Hm."}, finish="MALFORMED_FUNCTION_CALL")), gemini_text("ok"))

    response, _ = await said(model, asking(user("weather?"), tools=(WEATHER,)))
    [made] = response.tool_calls
    await said(model, asking(user("weather?"), answered(response), result(made.id, "wrong", is_error=True)))

    assert (made.name, invalid_arguments(made.arguments)) == ("weather", MALFORMED)
    assert response.finish is Finish.TOOL_CALLS
    assert contents_of(standin.asked[1])[1:] == [
        {"role": "model", "parts": [{"text": "Hm."}, call("weather", {"INVALID_JSON": MALFORMED})]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "weather", "response": {"error": "wrong"}}}],
        },
    ]


async def test_arguments_that_no_store_can_hold_are_not_run(standin: StandIn, model: GoogleModel) -> None:
    """Numbers of more than 64 bits would come out changed."""
    came = call("weather", {"n": 2**80})
    standin.will(gemini(piece(came, finish="STOP")), gemini_text("ok"))

    response, _ = await said(model, asking(user("weather?")))
    [made] = response.tool_calls
    await said(model, asking(user("weather?"), answered(response), result(made.id, "wrong", is_error=True)))

    assert invalid_arguments(made.arguments) is not None
    assert contents_of(standin.asked[1])[1]["parts"] == [came]


async def test_a_model_that_says_nothing_is_asked_again(standin: StandIn, model: GoogleModel) -> None:
    """An answer that failed is none."""
    standin.will(gemini(piece(finish="OTHER")))

    with pytest.raises(ModelUnavailableError, match="OTHER"):
        await said(model, asking(user("hi")))


async def test_a_long_answer_goes_on_in_a_second_request(standin: StandIn, model: GoogleModel) -> None:
    """It is one answer to us; what both requests used is counted."""
    used = {"usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 4}}
    token = {"continuationToken": signature(b"more")}
    standin.will(gemini(piece({"text": "Good "}, finish="CONTINUATION", **token) | used))
    standin.will(gemini(piece({"text": "day"}, finish="STOP") | used))

    response, _ = await said(model, asking(user("hi")))

    assert response.content == "Good day"
    assert response.usage == Usage(input_tokens=20, output_tokens=8)
    assert standin.bodies[1]["continuationToken"] == signature(b"more")


async def test_images_and_files_are_shown(standin: StandIn, model: GoogleModel) -> None:
    """What a user attaches reaches the model, by data or address; what it can't reach is named."""
    standin.will(gemini_text("nice"))
    shown = [
        messages.text_part("Look:"),
        messages.image_part(media_type="image/png", data="+//+"),
        messages.image_part(url="https://x.example/a.png?x=1"),
        messages.file_part(media_type="application/pdf", data="aGk=", name="a.pdf"),
        messages.file_part(file_id="files/abc", media_type="application/pdf"),
        messages.file_part(url="gs://b/a.pdf"),
        messages.file_part(file_id="file-openai", name="b.pdf"),
        messages.image_part(media_type="image/png", data="%%%"),
        messages.thinking_part("not for it"),
        messages.text_part(""),
    ]

    await said(model, asking(user(shown)))

    files = "https://generativelanguage.googleapis.com/v1beta/files/abc"
    assert contents_of(standin.asked[0])[0]["parts"] == [
        {"text": "Look:"},
        {"inlineData": {"data": "-__-", "mimeType": "image/png"}},
        {"fileData": {"fileUri": "https://x.example/a.png?x=1", "mimeType": "image/png"}},
        {"inlineData": {"data": "aGk=", "mimeType": "application/pdf"}},
        {"fileData": {"fileUri": files, "mimeType": "application/pdf"}},
        {"fileData": {"fileUri": "gs://b/a.pdf", "mimeType": "application/pdf"}},
        {"text": "(b.pdf can't be shown to this model.)"},
        {"text": "(a file is damaged and can't be shown.)"},
    ]


async def test_calls_of_another_provider_are_answered_in_order(standin: StandIn, model: GoogleModel) -> None:
    """Its ids may repeat; the model sees which result is which, and images after all of them."""
    standin.will(gemini_text("ok"))
    calls = (ToolCall(id="x", name="draw", arguments={"n": 1}), ToolCall(id="x", name="1.2"))

    await said(
        model,
        asking(
            Message(id="a1", role="assistant", content="I draw.", tool_calls=calls),
            result(
                "x",
                [messages.text_part("first"), messages.image_part(media_type="image/png", data="aGk=")],
                "r1",
            ),
            result("x", "second", "r2"),
            user("nice"),
        ),
    )

    assert contents_of(standin.asked[0]) == [
        {"role": "user", "parts": [{"text": "(The beginning of this conversation is not shown.)"}]},
        {
            "role": "model",
            "parts": [
                {"text": "I draw."},
                call("draw", {"n": 1}, thoughtSignature=SKIPPED),
                call("_1_2", {}),
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "draw", "response": {"output": "first"}}},
                {"functionResponse": {"name": "_1_2", "response": {"output": "second"}}},
                {"text": "From the result of draw:"},
                {"inlineData": {"data": "aGk=", "mimeType": "image/png"}},
                {"text": "nice"},
            ],
        },
    ]


async def test_a_failure_that_is_no_json_passes(standin: StandIn, model: GoogleModel) -> None:
    """A proxy in between may answer in words."""
    standin.will(plain("x", status=502, content_type="text/html"))

    with pytest.raises(ModelUnavailableError):
        await said(model, asking(user("hi")))


@pytest.mark.parametrize("option", ["system_instruction", "cached_content", "hologram"])
def test_options_that_cannot_be_are_refused(option: str) -> None:
    """A named cache would bring back what an edit took away; a misspelt option would be ignored."""
    given: dict[str, Any] = {option: "x"}

    with pytest.raises(InvalidConfigError, match=option):
        GoogleModel("gemini-3", None, **given)
