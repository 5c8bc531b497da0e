"""What zeitlich would send of its threads to a model, ours sends; and any other provider is told as much."""

import base64
import json
from typing import Any

import pytest
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from helix_temporal.adapters.anthropic import messages_of as anthropic_messages
from helix_temporal.adapters.google import wire_contents
from helix_temporal.adapters.langchain import messages_of as langchain_messages
from helix_temporal.adapters.zeitlich import convert_zeitlich_rows
from helix_temporal.models import messages
from helix_temporal.models.messages import Message
from tests.adapters import _zeitlich as zeitlich
from tests.adapters._talk import asking
from tests.adapters._zeitlich import PNG, rows

ALL = settings(max_examples=60, deadline=None)
IMAGE = messages.image_part(media_type="image/png", data=PNG)


def langchain_sent(each: list[zeitlich.Json]) -> list[Any]:
    """What any chat model of LangChain's is given."""
    request = asking(*rows("langChain", each))
    return langchain_messages(request, "langchain/openai-chat", marks=False)


@ALL
@given(
    zeitlich.conversations(
        zeitlich.some(zeitlich.ANTHROPIC_USER),
        zeitlich.some(zeitlich.ANTHROPIC_ANSWER),
        zeitlich.ANTHROPIC_RESULTS,
    )
)
def test_anthropic_is_sent_what_zeitlich_would_send(drawn: list[Any]) -> None:
    """Block by block: documents, search results, citations, signatures, marks of the cache."""
    written = zeitlich.anthropic_rows(drawn)
    expected = zeitlich.merged([each["message"] for each in written], "content")
    sent = anthropic_messages(rows("anthropic", written))
    assert json.dumps(sent) == json.dumps(expected)


@ALL
@given(
    zeitlich.conversations(
        zeitlich.some(zeitlich.GOOGLE_USER), zeitlich.some(zeitlich.GOOGLE_ANSWER), zeitlich.GOOGLE_RESULTS
    )
)
def test_google_is_sent_what_zeitlich_would_send(drawn: list[Any]) -> None:
    """Part by part: code and what it gave, images in answers and results, signatures."""
    written = zeitlich.google_rows(drawn)
    expected = zeitlich.merged([each["content"] for each in written], "parts")
    sent = wire_contents(rows("googleGenAI", written))
    assert sent == [types.Content.model_validate_json(json.dumps(each)) for each in expected]


@ALL
@given(
    zeitlich.conversations(
        st.sampled_from(zeitlich.LANGCHAIN_USER),
        st.sampled_from(zeitlich.LANGCHAIN_ANSWER),
        zeitlich.LANGCHAIN_RESULTS,
    )
)
def test_langchain_is_sent_what_zeitlich_would_send(drawn: list[Any]) -> None:
    """Whatever the content is made of, and whichever the model."""
    written = zeitlich.langchain_rows(drawn)
    sent = langchain_sent(written)
    assert [each.content for each in sent] == [each["data"]["content"] for each in written]
    kinds = {"human": HumanMessage, "ai": AIMessage, "tool": ToolMessage}
    assert [type(each) for each in sent] == [kinds[each["type"]] for each in written]
    calls = [each["data"]["tool_calls"] for each in written if each["type"] == "ai"]
    assert [each.tool_calls for each in sent if isinstance(each, AIMessage)] == calls
    answered = [each["data"]["tool_call_id"] for each in written if each["type"] == "tool"]
    assert [each.tool_call_id for each in sent if isinstance(each, ToolMessage)] == answered


@pytest.mark.parametrize(
    ("content", "text"),
    [({"a": [1, None]}, '{"a":[1,null]}'), (42, "42"), (True, "true"), ([1, {"a": "ü"}], None)],
)
def test_structured_results_of_langchain_are_told_as_json(content: Any, text: str | None) -> None:
    """It stores what a tool returns, and its own LangChain refuses to read objects and numbers."""
    written = zeitlich.langchain_rows([("Hi", "", [content])])
    result = convert_zeitlich_rows(rows("langChain", written))[2]
    assert result.text == (text or '1{"a":"ü"}')
    sent = langchain_sent(written)[2].content
    assert sent == (text or ["1", {"a": "ü"}])


def test_content_blocks_of_langchain_are_read() -> None:
    """Messages of its newer form have no other content."""
    blocks = [{"type": "text", "text": "See"}, {"type": "image", "mimeType": "image/png", "data": PNG}]
    data = {"id": "u", "content_blocks": blocks, "response_metadata": {"output_version": "v1"}}
    (user,) = convert_zeitlich_rows(rows("langChain", [{"type": "human", "data": data}]))
    assert user.content == [messages.text_part("See"), IMAGE]
    (sent,) = langchain_sent([{"type": "human", "data": data}])
    assert sent.content[1] == {"type": "image", "base64": PNG, "mime_type": "image/png"}


def said(adapter: str, row: zeitlich.Json) -> Any:
    """What a provider that did not write the row is told."""
    (message,) = convert_zeitlich_rows(rows(adapter, [row]), "openai")
    assert message.provider == {}
    return message.content


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (
            zeitlich.ANTHROPIC_USER[5],
            [
                messages.file_part(
                    media_type="text/plain", data=base64.b64encode(b"All of it.").decode(), name="T"
                )
            ],
        ),
        (zeitlich.ANTHROPIC_USER[7], "One."),
        (zeitlich.ANTHROPIC_USER[8], [messages.file_part(file_id="file_2")]),
        (zeitlich.ANTHROPIC_USER[9], "Found\nhttps://e.test/s\nIt rains."),
        (zeitlich.ANTHROPIC_USER[4], [messages.file_part(file_id="file_1")]),
        (IMAGE, [IMAGE]),
    ],
)
def test_blocks_of_anthropic_are_told_to_any_model(block: zeitlich.Json, found: Any) -> None:
    """Also an image in the form of our own older exports, which made the whole message unreadable."""
    assert said("anthropic", {"id": "u", "message": {"role": "user", "content": [block]}}) == found


def test_what_gemini_ran_is_told_to_any_model() -> None:
    """With the image that it drew."""
    content = said("googleGenAI", {"id": "a", "content": {"role": "model", "parts": zeitlich.GOOGLE_ANSWER}})
    assert content == [
        messages.thinking_part("Bern, then."),
        messages.text_part("Sunny."),
        messages.text_part("```python\nprint(1)\n```"),
        messages.text_part("OUTCOME_OK\n1\n"),
        IMAGE,
    ]


@pytest.mark.parametrize("block", zeitlich.LANGCHAIN_USER[1:4])
def test_images_of_langchain_are_told_to_any_model(block: list[zeitlich.Json]) -> None:
    """Whichever of its forms they have."""
    content = said("langChain", zeitlich.stored("human", id="u", content=block))
    assert content[-1] == IMAGE


def test_each_row_is_read_as_what_it_looks_like() -> None:
    """A thread may have gone from one adapter to another, and was stored under the name of one."""
    written = [
        zeitlich.anthropic_rows([([{"type": "text", "text": "a"}], [{"type": "text", "text": "b"}], [])])[0],
        zeitlich.google_rows([([{"text": "c"}], [{"text": "d"}], [])])[1],
        zeitlich.stored("human", id="u", content="e"),
    ]
    found = convert_zeitlich_rows(rows("anthropic", written))
    assert [(each.role, each.content) for each in found] == [("user", "a"), ("assistant", "d"), ("user", "e")]
    unnamed = [
        Message(id=each.id, role="foreign", format="zeitlich-v1", content=each.content)
        for each in rows("", written)
    ]
    assert [each.content for each in convert_zeitlich_rows(unnamed)] == ["a", "d", "e"]
