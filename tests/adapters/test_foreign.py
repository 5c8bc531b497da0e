"""Rows of zeitlich's archives: a thread that was begun there goes on here, with any provider."""

import json
from typing import Any

import pytest

from helix_temporal.adapters._messages import prepare_outgoing
from helix_temporal.adapters.zeitlich import convert_zeitlich_rows
from helix_temporal.models import messages
from helix_temporal.models.messages import Message
from tests.adapters import _anthropic as claude
from tests.adapters._standin import StandIn
from tests.adapters._talk import answer_of, asking

SIGNED = [claude.thinking("Bern, then."), claude.use("toolu_1", z=1, city="Bern")]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
ANTHROPIC: list[dict[str, Any]] = [
    {"id": "s", "message": {"role": "user", "content": "Be kind."}, "isSystem": True},
    {
        "id": "u",
        "message": {"role": "user", "content": [claude.text("See"), IMAGE]},
    },
    {"id": "a", "message": {"role": "assistant", "content": SIGNED}},
    {
        "id": "r",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sun"}],
        },
    },
    {"id": "b", "message": {"role": "assistant", "content": [claude.text("Sunny.")]}},
]
GOOGLE: list[dict[str, Any]] = [
    {"id": "s", "content": {"role": "system", "parts": [{"text": "Be kind."}]}},
    {
        "id": "u",
        "content": {
            "role": "user",
            "parts": [{"text": "See"}, {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}],
        },
    },
    {
        "id": "a",
        "content": {
            "role": "model",
            "parts": [
                {"text": "Bern, then.", "thought": True},
                {"functionCall": {"name": "weather", "args": {"z": 1, "city": "Bern"}}},
            ],
        },
    },
    {
        "id": "r",
        "content": {
            "role": "user",
            "parts": [{"functionResponse": {"name": "weather", "response": {"result": "sun"}}}],
        },
    },
    {"id": "b", "content": {"role": "model", "parts": [{"text": "Sunny."}]}},
]
LANGCHAIN: list[dict[str, Any]] = [
    {"type": "system", "data": {"id": "s", "content": "Be kind."}},
    {
        "type": "human",
        "data": {
            "id": "u",
            "content": [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
            ],
        },
    },
    {
        "type": "ai",
        "data": {
            "id": "a",
            "content": "",
            "tool_calls": [{"name": "weather", "args": {"z": 1, "city": "Bern"}, "id": "call_1"}],
        },
    },
    {"type": "tool", "data": {"id": "r", "content": "sun", "tool_call_id": "call_1"}},
    {"type": "ai", "data": {"id": "b", "content": "Sunny."}},
]
THREADS = {"anthropic": ANTHROPIC, "googleGenAI": GOOGLE, "langChain": LANGCHAIN}


def rows(adapter: str, each: list[dict[str, Any]]) -> list[Message]:
    """The rows as an import stores them."""
    form = f"zeitlich-v1/{adapter}"
    return [
        Message(id=f"v{at}", role="foreign", format=form, content=json.dumps(row))
        for at, row in enumerate(each)
    ]


@pytest.mark.parametrize("adapter", THREADS)
def test_rows_of_each_adapter_become_messages(adapter: str) -> None:
    """The same conversation, whoever wrote it down; its prompt is the agent's now."""
    user, asked, answered, last = convert_zeitlich_rows(rows(adapter, THREADS[adapter]))
    assert user.role == "user"
    assert user.content == [
        messages.text_part("See"),
        messages.image_part(media_type="image/png", data="iVBO"),
    ]
    (call,) = asked.tool_calls
    assert (call.name, call.arguments) == ("weather", {"z": 1, "city": "Bern"})
    assert (answered.role, answered.tool_call_id, answered.content) == ("tool", call.id, "sun")
    assert (last.role, last.content) == ("assistant", "Sunny.")


async def test_anthropic_goes_on_from_its_own_words(standin: StandIn) -> None:
    """Signatures among them, byte for byte."""
    standin.will(claude.says(claude.text("ok")))
    await answer_of(claude.model(standin), asking(*rows("anthropic", ANTHROPIC), "And now?"))
    sent = standin.bodies[0]["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "user", "assistant", "user"]
    assert json.dumps(sent[1]["content"]) == json.dumps(SIGNED)
    assert sent[2]["content"][0]["tool_use_id"] == "toolu_1"


@pytest.mark.parametrize("adapter", THREADS)
def test_a_window_that_begins_or_ends_within_a_turn_is_mended(adapter: str) -> None:
    """Whoever asks for a page as it is gets halves, and providers refuse them."""
    whole = rows(adapter, THREADS[adapter])
    begun = prepare_outgoing(whole[3:], "x", lambda _: [])
    ended = prepare_outgoing(whole[:3], "x", lambda _: [])
    assert [each.message.role for each in begun] == ["assistant"]
    assert [each.message.role for each in ended] == ["user", "assistant", "tool"]
    assert ended[2].message.is_error


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"message": 1}',
        '{"message": {"role": "assistant", "content": [{}]}}',
        '{"data": {}}',
    ],
)
@pytest.mark.parametrize(
    "form", ["zeitlich-v1/anthropic", "zeitlich-v1/googleGenAI", "zeitlich-v1/langChain", "x"]
)
def test_rows_that_nobody_can_read_are_left_out(text: str, form: str) -> None:
    """The thread goes on without them; they stay where they are."""
    row = Message(id="r", role="foreign", format=form, content=text)
    said = Message(id="u", role="user", content="Hi")
    assert list(convert_zeitlich_rows([row, said])) == [said]


def test_rows_that_we_exported_ourselves_are_read_as_they_were() -> None:
    """A thread may have gone there and come back."""
    call = {"id": "c1", "name": "weather", "arguments": {"city": "Bern"}}
    asked = {"id": "a", "message": {"role": "assistant", "content": "", "tool_calls": [call]}}
    answered = {"id": "r", "message": {"role": "tool", "content": "sun", "tool_call_id": "c1"}}
    first, second = convert_zeitlich_rows(rows("anthropic", [asked, answered]))
    assert first.tool_calls[0].arguments == {"city": "Bern"}
    assert (second.tool_call_id, second.content) == ("c1", "sun")
