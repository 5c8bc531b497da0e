"""Any conversation in our form becomes a request that each provider takes: as its library's types say, and
with each call answered where the provider looks for the answer.
"""

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter, ValidationError

from helix_temporal.adapters import google, openai_chat, openai_responses
from helix_temporal.models.agents import ModelRequest
from tests.adapters._conversations import requests

CHAT: TypeAdapter[list[Any]] = TypeAdapter(list[ChatCompletionMessageParam])
ITEMS: TypeAdapter[list[Any]] = TypeAdapter(list[ResponseInputItemParam])
ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
DATA = {"text", "functionCall", "functionResponse", "inlineData", "fileData"}

any_request = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def taken(adapter: TypeAdapter[list[Any]], sent: list[Any]) -> None:
    """Assert that the library's types hold for what is sent."""
    read(adapter.validate_python(sent))


def read(value: Any) -> None:
    """Look at all of it: what a type calls iterable is checked only then."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, str | int | float | None):
        for each in value:
            read(each)


@any_request
@given(request=requests())
def test_chat_takes_any_conversation(request: ModelRequest) -> None:
    """Each call is answered at once, by a message with its id, once."""
    sent = openai_chat.wire_messages(request, breakpoints=True)

    taken(CHAT, sent)
    expected: list[str] = []
    for message in sent:
        got: Any = message
        if got["role"] == "tool":
            assert got["tool_call_id"] == expected.pop(0)
        else:
            assert expected == []
            expected = [call["id"] for call in got.get("tool_calls", ())]
        assert got["role"] != "user" or got["content"] is not None
    assert expected == []


@any_request
@given(request=requests())
def test_responses_take_any_conversation(request: ModelRequest) -> None:
    """Each call has an id of its own and one output after it."""
    sent: list[Any] = openai_responses.wire_input(request, breakpoints=True)

    taken(ITEMS, sent)
    called = [item["call_id"] for item in sent if item.get("type") == "function_call"]
    answered = [item["call_id"] for item in sent if item.get("type") == "function_call_output"]
    assert called == answered
    assert len(set(called)) == len(called)
    assert all(map(ID.fullmatch, called))


@any_request
@given(request=requests())
def test_gemini_takes_any_conversation(request: ModelRequest) -> None:
    """Turns take turns, from the user's on, and each turn of calls is followed by as many results."""
    sent = google.wire_contents(request.messages)

    turns = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in sent]
    assert [turn["role"] for turn in turns] == [("user", "model")[at % 2] for at in range(len(turns))]
    expected: list[str] = []
    for turn in turns:
        parts: list[dict[str, Any]] = turn["parts"]
        assert parts
        assert all(len(DATA & part.keys()) == 1 for part in parts)
        results = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        assert results == expected
        expected = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
    assert expected == []


@pytest.mark.parametrize(
    ("adapter", "wrong"),
    [
        (CHAT, {"role": "tool", "content": "fine"}),
        (CHAT, {"role": "user", "content": [{"type": "text"}]}),
        (ITEMS, {"type": "function_call", "name": "weather"}),
        (ITEMS, {"role": "user", "content": [{"type": "input_image", "detail": "huge"}]}),
    ],
)
def test_the_types_of_the_library_refuse_what_is_wrong(
    adapter: TypeAdapter[list[Any]], wrong: dict[str, Any]
) -> None:
    """Types that hold for anything would show nothing."""
    with pytest.raises(ValidationError):
        taken(adapter, [wrong])
