"""The conventions' names: all that a span can have is in the pinned version."""

import pytest

from helix_temporal.models.messages import Message, ToolCall, Usage
from helix_temporal.telemetry import genai
from tests._spans import CONVENTIONS


def test_every_name_is_in_the_pinned_conventions() -> None:
    """A board that was made for them shows our spans."""
    call = ToolCall(id="c", name="t", arguments={"a": 1})
    answer = Message(id="m", role="assistant", content="x", tool_calls=(call,))
    used = Usage(
        input_tokens=1, output_tokens=2, cached_read_tokens=3, cached_write_tokens=4, reasoning_tokens=5
    )
    names = {
        *genai.common_attributes(genai.CHAT, "s", "r", "a"),
        *genai.model_attributes("claude"),
        *genai.usage_attributes(used),
        *genai.finish_attributes("stop"),
        *genai.tool_attributes("t", "c"),
        *genai.error_attributes("E"),
        *genai.input_attributes([answer], "be kind"),
        *genai.output_attributes(answer),
        *genai.arguments_attributes({}),
        *genai.result_attributes("x"),
    }
    own = {name for name in names if name.startswith("helix.")}
    assert names - own == set(CONVENTIONS["attributes"])


def test_the_fixture_is_of_the_pinned_version() -> None:
    """A new version means a new fixture."""
    assert CONVENTIONS["schema_url"] == genai.SCHEMA_URL


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-sonnet-4-5", "anthropic"),
        ("models/gemini-2.5-pro", "gcp.gemini"),
        ("gpt-5", "openai"),
        ("ScriptedModel", "_OTHER"),
    ],
)
def test_a_provider_is_told_by_its_models_name(model: str, provider: str) -> None:
    """A backfill knows the name alone, and must say the same."""
    assert genai.provider_of(model) == provider


def test_a_message_is_written_in_the_conventions_parts() -> None:
    """Tools of others read them."""
    call = ToolCall(id="c", name="t", arguments={"a": 1})
    written = genai.output_attributes(Message(id="m", role="assistant", content="hi", tool_calls=(call,)))
    assert written["gen_ai.output.messages"] == [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "hi"},
                {"type": "tool_call", "id": "c", "name": "t", "arguments": {"a": 1}},
            ],
        }
    ]
    result = Message(id="r", role="tool", tool_call_id="c", content="42")
    assert genai.input_attributes([result])["gen_ai.input.messages"] == [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "42"}]}
    ]
