"""Any answer of OpenAI or Gemini goes back to it exactly as it came, through a store and back."""

import json
from collections.abc import Sequence
from typing import Any

from google.genai import types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helix_temporal.adapters._answers import as_json
from helix_temporal.adapters.google import GoogleAnswer as GeminiAnswer
from helix_temporal.adapters.google import wire_contents, wire_parts
from helix_temporal.adapters.openai_chat import ChatAnswer, wire_messages
from helix_temporal.adapters.openai_responses import read_response, wire_input
from helix_temporal.models.agents import ModelResponse
from helix_temporal.models.messages import Message
from tests.adapters._google import call, piece, signature
from tests.adapters._openai import (
    answered,
    asking,
    call_item,
    chunk,
    message_item,
    reasoning_item,
    result,
    user,
)

any_answer = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(max_size=40) | st.sampled_from(['long "text" \\u0000 ' * 4, "\0\ud800", "{}", "é\u2028"])
arguments = texts | st.dictionaries(texts, texts, max_size=2).map(json.dumps) | st.just('{"city": "Paris"}')


def sent_again(response: ModelResponse) -> Sequence[Message]:
    """The thread when the model is asked again: its answer, as stored, with the results of its calls."""
    answer = answered(response)
    results = [result(each.id, "fine", f"r{at}") for at, each in enumerate(answer.tool_calls)]
    return (user("hi"), answer, *results)


output_parts = st.one_of(
    texts.map(lambda text: {"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
    texts.map(lambda text: {"type": "output_text", "text": text, "annotations": [{"type": "new"}]}),
    texts.map(lambda text: {"type": "refusal", "refusal": text}),
)
call_items = st.builds(call_item, st.uuids().map(str), st.just("weather"), arguments)
items = st.one_of(
    st.lists(output_parts, max_size=2).map(lambda parts: message_item(*parts)),
    call_items,
    st.just({"id": "ws_1", "type": "web_search_call", "status": "completed"}),
)
outputs = st.lists(st.one_of(items, texts.map(reasoning_item)), max_size=4)


@any_answer
@given(output=outputs, last=items)
def test_items_of_responses_come_back_as_they_went(output: list[Any], last: Any) -> None:
    """Whatever is in an item, and wherever its text has to be mended for our stores."""
    given_items = [*output, last]

    response = read_response({"status": "completed", "output": given_items}, ())

    sent = wire_input(asking(*sent_again(response)))
    assert [as_json(each) for each in sent[1 : 1 + len(given_items)]] == [
        as_json(each) for each in given_items
    ]


chat_calls = st.tuples(st.uuids().map(str), arguments)


@any_answer
@given(
    text=texts,
    refusal=st.just("") | texts,
    thought=st.just("") | texts,
    calls=st.lists(chat_calls, max_size=3),
    cuts=st.integers(1, 5),
)
def test_messages_of_chat_come_back_as_they_went(
    text: str, refusal: str, thought: str, calls: list[tuple[str, str]], cuts: int
) -> None:
    """Pieces of any length make the same message."""
    deltas: list[dict[str, Any]] = [{"reasoning_content": each} for each in pieces(thought, cuts)]
    deltas += [{"content": each} for each in pieces(text, cuts)]
    deltas += [{"refusal": each} for each in pieces(refusal, cuts)]
    for at, (call_id, given_arguments) in enumerate(calls):
        first = {"index": at, "id": call_id, "type": "function", "function": {"name": "weather"}}
        more = [{"index": at, "function": {"arguments": each}} for each in pieces(given_arguments, cuts)]
        deltas += [{"tool_calls": [each]} for each in [first, *more]]
    answer = ChatAnswer(lambda place: f"made-{place}")

    for each in deltas:
        answer.add_event(chunk(**each))
    answer.add_event(chunk("stop"))

    expected: dict[str, Any] = {"role": "assistant", "content": text}
    if not text and (calls or refusal):
        expected["content"] = None
    if refusal:
        expected["refusal"] = refusal
    if calls:
        expected["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": each}}
            for call_id, each in calls
        ]
    if thought:
        expected["reasoning_content"] = thought
    assert as_json(wire_messages(asking(*sent_again(answer.build_response())))[1]) == as_json(expected)


def pieces(text: str, size: int) -> list[str]:
    """The text in pieces of this size."""
    return [text[at : at + size] for at in range(0, len(text), size)]


plain_texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
values = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | plain_texts
signed: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.binary(min_size=1, max_size=8).map(
    lambda data: {"thoughtSignature": signature(data)}
)
gemini_parts = st.one_of(
    st.builds(lambda text, more: {"text": text, **more}, plain_texts, signed),
    plain_texts.map(lambda text: {"text": text, "thought": True}),
    st.builds(
        lambda args, more, given_id: call("weather", args, given_id, **more),
        st.dictionaries(plain_texts, values, max_size=2),
        signed,
        st.none() | st.uuids().map(str),
    ),
    st.just({"inlineData": {"data": signature(b"\xfb\xff"), "mimeType": "image/png"}}),
    st.just({"executableCode": {"code": "1", "language": "PYTHON"}}),
)


@any_answer
@given(parts=st.lists(gemini_parts, min_size=1, max_size=5))
def test_parts_of_gemini_come_back_as_they_went(parts: list[dict[str, Any]]) -> None:
    """Signatures stay on their parts; only what follows each other as the same kind of text becomes one."""
    answer = GeminiAnswer(asking(user("hi")))
    answer.begin_stream()

    for each in parts:
        list(answer.add_event(types.GenerateContentResponse.model_validate_json(json.dumps(piece(each)))))
    list(
        answer.add_event(types.GenerateContentResponse.model_validate_json(json.dumps(piece(finish="STOP"))))
    )

    model = wire_contents(sent_again(answer.build_response()))[1]
    assert model.role == "model"
    assert as_json(wire_parts(model)) == as_json(read(joined(parts)))


def joined(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts with texts that follow each other as one."""
    found: list[dict[str, Any]] = []
    for part in parts:
        same = found and "text" in part and "thoughtSignature" not in part
        if same and found[-1].keys() == part.keys():
            found[-1] = {**found[-1], "text": found[-1]["text"] + part["text"]}
        else:
            found.append(part)
    return found


def read(parts: Sequence[dict[str, Any]]) -> list[Any]:
    """The parts in the order of fields that the library has."""
    return wire_parts(types.Content.model_validate_json(json.dumps({"role": "model", "parts": parts})))
