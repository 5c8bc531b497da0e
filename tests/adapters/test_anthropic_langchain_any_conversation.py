"""Any conversation in our form becomes a request that Anthropic takes, and messages that LangChain's do."""

import re
from typing import Any

from anthropic.types import MessageParam
from hypothesis import HealthCheck, given, settings
from langchain_anthropic.chat_models import _format_messages
from langchain_core.messages import AIMessage, ToolMessage
from pydantic import TypeAdapter

from helix_temporal.adapters.anthropic import MAX_MARKS, request_fields
from helix_temporal.adapters.langchain import messages_of
from helix_temporal.models.agents import ModelRequest
from tests.adapters._conversations import requests

MESSAGES: TypeAdapter[list[Any]] = TypeAdapter(list[MessageParam])
ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

any_request = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read(value: Any) -> None:
    """Look at all of it: what a type calls iterable is checked only then."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, str | int | float | None):
        for each in value:
            read(each)


@any_request
@given(request=requests())
def test_anthropic_takes_any_conversation(request: ModelRequest) -> None:
    """Turns take turns, from the user's on; the calls of each are answered first thing in the next."""
    fields = request_fields(request, {"type": "ephemeral"})

    read(MESSAGES.validate_python(fields["messages"]))
    assert str(fields).count("cache_control") <= MAX_MARKS
    called: list[str] = []
    seen: list[str] = []
    for at, message in enumerate(fields["messages"]):
        blocks: list[dict[str, Any]] = message["content"]
        assert message["role"] == ("user", "assistant")[at % 2]
        assert blocks
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert answered == called
        assert [block["type"] for block in blocks[: len(called)]] == ["tool_result"] * len(called)
        called = [block["id"] for block in blocks if block["type"] == "tool_use"]
        seen += called
    assert called == []
    assert len(set(seen)) == len(seen)
    assert all(map(ID.fullmatch, seen))


@any_request
@given(request=requests())
def test_langchain_takes_any_conversation(request: ModelRequest) -> None:
    """Each call is answered at once, by a message with its id; a package can make its own form of it."""
    sent = messages_of(request, "langchain/x", marks=True)

    expected: list[str] = []
    for message in sent:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id == expected.pop(0)
        else:
            assert expected == []
            calls = message.tool_calls if isinstance(message, AIMessage) else []
            expected = [str(call["id"]) for call in calls]
    assert expected == []
    _format_messages(sent, model=None)
