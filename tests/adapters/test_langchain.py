"""Chat models of LangChain: real ones against the stand-in, and one that shows what it is sent."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from helix_temporal.adapters.langchain import LangChainModel
from helix_temporal.errors import (
    InvalidConfigError,
    ModelUnavailableError,
)
from helix_temporal.models import messages
from helix_temporal.models.agents import (
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
)
from helix_temporal.models.messages import Finish, Message, Usage, why_not_run
from tests.adapters import _anthropic as claude_wire
from tests.adapters import _langchain as wire
from tests.adapters._standin import StandIn, plain
from tests.adapters._talk import WEATHER, answer_of, asking, events_of, goes_on, result, stored

CALL = {"id": "call_1", "name": "weather", "arguments": '{"z": 1, "city": "Bern"}'}

CLAUDE_ANSWERS = {
    "text": [claude_wire.text("Grüezi \u2028 all")],
    "parallel tools": [
        claude_wire.text("Both."),
        claude_wire.use("toolu_1", z=1, city="Bern"),
        claude_wire.use("toolu_2", city="Biel"),
    ],
    "thinking": [claude_wire.thinking("Hm. " * 30), claude_wire.text("Wait."), claude_wire.use("toolu_1")],
    "redacted thinking": [claude_wire.redacted(), claude_wire.text("Yes."), claude_wire.use("toolu_1", a=1)],
}


@pytest.mark.parametrize("blocks", CLAUDE_ANSWERS.values(), ids=CLAUDE_ANSWERS)
async def test_claude_gets_its_answers_back(standin: StandIn, blocks: list[dict[str, Any]]) -> None:
    """Signatures of its reasoning among them, through a store that sorts the keys of objects."""
    model = wire.claude(standin, thinking={"type": "enabled", "budget_tokens": 1024})
    standin.will(claude_wire.says(*blocks), claude_wire.says(claude_wire.text("done")))
    await goes_on(model, await answer_of(model, asking("go", tools=[WEATHER])))
    sent = standin.bodies[1]["messages"][1]["content"]
    sent = [claude_wire.text(sent)] if isinstance(sent, str) else sent
    assert sent == blocks
    inputs = [[block["input"] for block in each if "input" in block] for each in (sent, blocks)]
    assert json.dumps(inputs[0]) == json.dumps(inputs[1])


async def test_gpt_gets_its_answers_back(standin: StandIn) -> None:
    """Text, calls and their results, in OpenAI's chat format."""
    model = wire.gpt(standin)
    standin.will(wire.says("Let me look.", CALL), wire.says("done"))
    await goes_on(model, await answer_of(model, asking("go", tools=[WEATHER])))
    function = {"name": "weather", "arguments": CALL["arguments"]}
    assert standin.bodies[1]["messages"][1:] == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [{"type": "function", "id": "call_1", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "fine"},
    ]


GIVEN = [
    AIMessage("Hi.", id="run-1", name="bot", response_metadata={"b": 1, "a": [2.0]}),
    AIMessage(
        [{"type": "odd", "z": 1, "a": "x" * 100}, {"type": "text", "text": "Hello there. " * 9}],
        additional_kwargs={"z": {"b": 1, "a": 2}, "signature": "c2ln"},
        id="run-2",
    ),
    AIMessage("", tool_calls=[{"name": "weather", "args": {"z": 1, "a": 2}, "id": "c:1"}], id="run-3"),
]


@pytest.mark.parametrize("answer", GIVEN)
async def test_a_model_is_sent_the_very_message_that_it_gave(answer: AIMessage) -> None:
    """Packages keep what they need in fields of their own, and nobody else knows which."""
    parrot = wire.Parrot(answers=[answer, AIMessage("done")])
    model = LangChainModel(parrot)
    await goes_on(model, await answer_of(model, asking("go", tools=[WEATHER])))
    sent = parrot.sent[1][1]
    assert isinstance(sent, AIMessage)
    assert json.dumps(sent.model_dump()) == json.dumps(answer.model_dump())


async def test_another_class_of_model_gets_our_form() -> None:
    """What one package keeps, another would choke on."""
    one = LangChainModel(wire.Parrot(answers=[GIVEN[1]]))
    other = wire.Parrot(answers=[AIMessage("ok")], kind="other")
    first = await answer_of(one, asking("go"))
    await answer_of(LangChainModel(other), asking("go", stored(first), "and?"))
    assert other.sent[0][1] == AIMessage("Hello there. " * 9)


async def test_users_results_and_instructions_are_messages_of_their_own() -> None:
    """With images and files as LangChain's standard blocks, which each package translates."""
    parrot = wire.Parrot(answers=[AIMessage("ok")])
    call = {"id": "c1", "name": "weather", "arguments": {"city": "Bern"}}
    asked = Message.model_validate({"id": "a1", "role": "assistant", "tool_calls": [call]})
    content = [
        messages.text_part("See", cache=True),
        messages.image_part(media_type="image/png", data="iVBO"),
        messages.image_part(url="http://a/b.png"),
        messages.file_part(media_type="application/pdf", data="JVBE", name="a.pdf"),
        messages.file_part(media_type="text/csv", data="YSxi", name="a.csv"),
        messages.file_part(file_id="f1"),
        {"type": "poll"},
    ]
    user = Message(id="u", role="user", content=content)
    note = Message(id="s", role="system", content="It is Monday.")
    failed = result(asked.tool_calls[0], "no such city", is_error=True)
    await answer_of(LangChainModel(parrot), asking("go", asked, failed, note, user, instructions="Be kind."))
    assert parrot.sent[0] == [
        SystemMessage("Be kind.\n\nIt is Monday."),
        HumanMessage("go"),
        AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Bern"}, "id": "c1"}]),
        ToolMessage("no such city", tool_call_id="c1", name="weather", status="error"),
        HumanMessage(
            [
                {"type": "text", "text": "See"},
                {"type": "image", "base64": "iVBO", "mime_type": "image/png"},
                {"type": "image", "url": "http://a/b.png"},
                {"type": "file", "base64": "JVBE", "mime_type": "application/pdf", "filename": "a.pdf"},
                {"type": "text", "text": "a.csv:\na,b"},
                {"type": "file", "file_id": "f1"},
            ]
        ),
    ]


@pytest.mark.parametrize("made", [wire.claude, wire.gpt])
async def test_images_and_files_reach_the_provider(standin: StandIn, made: Any) -> None:
    """In its own form, by its own package."""
    image = messages.image_part(media_type="image/png", data="iVBO")
    pdf = messages.file_part(media_type="application/pdf", data="JVBE", name="a.pdf")
    standin.will(claude_wire.says(claude_wire.text("ok")) if made is wire.claude else wire.says("ok"))
    await answer_of(made(standin), asking(Message(id="u", role="user", content=[image, pdf])))
    sent = json.dumps(standin.bodies[0]["messages"])
    assert "iVBO" in sent
    assert "JVBE" in sent
    assert ("a.pdf" in sent) == (made is wire.gpt)


async def test_marks_of_the_cache_are_for_those_who_take_them(standin: StandIn) -> None:
    """OpenAI refuses fields that it does not know."""
    marked = Message(id="u", role="user", content=[messages.text_part("long", cache=True)])
    standin.will(claude_wire.says(claude_wire.text("ok")), wire.says("ok"))
    await answer_of(wire.claude(standin), asking(marked))
    await answer_of(wire.gpt(standin), asking(marked))
    assert "cache_control" in json.dumps(standin.bodies[0])
    assert "cache_control" not in json.dumps(standin.bodies[1])


# -- answers


async def test_pieces_of_claude_come_as_they_come(standin: StandIn) -> None:
    """Reasoning, text, and calls."""
    model = wire.claude(standin, thinking={"type": "enabled", "budget_tokens": 1024})
    blocks = [claude_wire.thinking("Hm"), claude_wire.text("Look"), claude_wire.use("toolu_1", city="B")]
    standin.will(claude_wire.says(*blocks))
    *pieces, last = await events_of(model, asking("go", tools=[WEATHER]))
    assert pieces == [
        ReasoningDelta("H"),
        ReasoningDelta("m"),
        TextDelta("Lo"),
        TextDelta("ok"),
        ToolCallStarted("toolu_1", "weather"),
        ToolArgumentsDelta("toolu_1", '{"city'),
        ToolArgumentsDelta("toolu_1", '": "B"}'),
    ]
    assert isinstance(last, ModelResponse)
    assert last.content == [messages.thinking_part("Hm"), messages.text_part("Look")]


async def test_pieces_of_gpt_come_as_they_come(standin: StandIn) -> None:
    """Its calls have an id in their first piece alone."""
    standin.will(wire.says("Look", CALL))
    *pieces, last = await events_of(wire.gpt(standin), asking("go", tools=[WEATHER]))
    assert pieces == [
        TextDelta("Lo"),
        TextDelta("ok"),
        ToolCallStarted("call_1", "weather"),
        ToolArgumentsDelta("call_1", CALL["arguments"]),
    ]
    assert isinstance(last, ModelResponse)
    assert last.usage == Usage(input_tokens=20, output_tokens=5, cached_read_tokens=15, reasoning_tokens=2)


async def test_a_model_that_does_not_stream_answers_in_one_piece() -> None:
    """Then nobody can watch, but all else is the same."""
    parrot = wire.Parrot(answers=[AIMessage("Hi.", tool_calls=[{"name": "weather", "args": {}, "id": None}])])
    *pieces, last = await events_of(LangChainModel(parrot), asking("go", tools=[WEATHER]))
    assert isinstance(last, ModelResponse)
    assert pieces == [TextDelta("Hi.")]
    assert last.tool_calls[0].id.startswith("call_")


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("stop", Finish.STOP),
        ("length", Finish.LENGTH),
        ("content_filter", Finish.CONTENT_FILTER),
    ],
)
async def test_ends_are_typed(standin: StandIn, stop: str, finish: Finish) -> None:
    """Whichever package says so, in whichever words."""
    standin.will(wire.says("I", stop=stop))
    answer = await answer_of(wire.gpt(standin), asking("go"))
    assert (answer.finish, answer.stop_reason) == (finish, stop)


async def test_a_refusal_is_typed(standin: StandIn) -> None:
    """OpenAI's stops as usual and says it beside the text, Claude's stops for it."""
    refused = {"role": "assistant", "content": None, "refusal": "I can't."}
    choice = {"index": 0, "message": refused, "finish_reason": "stop"}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "g", "choices": [choice]}
    standin.will(plain(whole), claude_wire.says(stop="refusal"))
    gpt = await answer_of(wire.gpt(standin, disable_streaming=True), asking("go"))
    claude = await answer_of(wire.claude(standin), asking("go"))
    assert (gpt.finish, gpt.content) == (Finish.REFUSAL, "I can't.")
    assert claude.finish is Finish.REFUSAL


async def test_claudes_arguments_that_cannot_be_read_come_back_as_an_object(standin: StandIn) -> None:
    """With the signature of the reasoning before them."""
    model = wire.claude(standin, thinking={"type": "enabled", "budget_tokens": 1024})
    before = claude_wire.block_events(0, claude_wire.thinking("Hm."))
    call = claude_wire.block_from(1, claude_wire.use("toolu_1"), *claude_wire.pieces_of_input('{"city": "Be'))
    standin.will(
        claude_wire.stream(claude_wire.begins(), *before, *call, *claude_wire.ends("tool_use")),
        claude_wire.says(claude_wire.text("ok")),
    )
    answer = await answer_of(model, asking("go", tools=[WEATHER]))
    await goes_on(model, answer)
    assert why_not_run(answer.tool_calls[0])
    assert standin.bodies[1]["messages"][1]["content"] == [
        claude_wire.thinking("Hm."),
        claude_wire.use("toolu_1", INVALID_JSON='{"city": "Be'),
    ]


# -- failures


async def test_what_nobody_knows_is_told_to_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    """A package's error may hold what was said; the next attempt may do better."""
    model = LangChainModel(wire.Parrot(answers=[]))
    with pytest.raises(ModelUnavailableError, match="IndexError"):
        await answer_of(model, asking("go"))
    assert "list index out of range" in caplog.text


async def test_what_is_no_chat_model_is_refused() -> None:
    """One with bound options would lose them."""
    bound: Any = wire.Parrot(answers=[]).bind(stop=["x"])
    with pytest.raises(InvalidConfigError, match="Binding"):
        LangChainModel(bound)


async def test_the_model_that_was_given_is_left_as_it_was(standin: StandIn) -> None:
    """Others may use it, with retries."""
    given = wire.Parrot(answers=[])
    assert LangChainModel(given).adapter == "langchain/parrot"
    assert wire.claude(standin).adapter == "langchain/anthropic-chat"
