"""Tokens of messages, estimated or counted: what of a thread fits a model's context."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.agents import ContextPolicy, choose_context, estimate_tokens
from helix_temporal.agents.context import Decoded
from helix_temporal.errors import InvalidConfigError
from helix_temporal.models import messages as parts
from helix_temporal.models.messages import Message, Role, ToolCall, encode_message


def said(at: int, text: str, role: Role = "user") -> Message:
    return Message(id=f"m{at}", role=role, content=text)


def thread(*texts: str) -> list[Message]:
    """Questions and answers in turn."""
    return [said(at, text, "user" if at % 2 == 0 else "assistant") for at, text in enumerate(texts)]


def chosen(messages: list[Message], policy: ContextPolicy, spent: int = 0) -> list[str]:
    stored = [encode_message(each) for each in messages]
    return [each.id for each in choose_context(stored, policy, complete_before=True, spent=spent)]


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("", 4),
        ("four", 5),
        ("five!", 6),
        ("ééé", 6),
        ([parts.text_part("four"), parts.thinking_part("four")], 6),
        ([parts.image_part(media_type="image/png", data="A" * 100_000)], 1_504),
        ([parts.image_part(url="https://example.com/a.png")], 1_504),
        ([parts.file_part(media_type="text/plain", data="A" * 400)], 79),
        ([parts.file_part(media_type="application/pdf", data="A" * 140_000)], 4_504),
        ([parts.file_part(file_id="f")], 1_504),
        ([{"type": "unknown", "data": "x" * 1000}], 4),
    ],
)
def test_what_a_message_is_taken_for(content: Any, tokens: int) -> None:
    """An image is not the size of its base64: it would push everything else out of the context."""
    assert estimate_tokens(Message(id="m", role="user", content=content)) == tokens


def test_calls_count_with_their_arguments() -> None:
    """They are as much a part of the context as text is."""
    call = ToolCall(id="c", name="look", arguments={"where": "x" * 300})
    assert estimate_tokens(Message(id="m", role="assistant", tool_calls=(call,))) > 100


def test_whole_turns_are_taken_as_many_as_the_tokens_allow() -> None:
    """As with messages and bytes; the model is never given half a turn because of it."""
    messages = thread("a" * 400, "b" * 400, "c" * 400, "d" * 400, "e")
    assert chosen(messages, ContextPolicy(max_tokens=500)) == ["m0", "m1", "m2", "m3", "m4"]
    assert chosen(messages, ContextPolicy(max_tokens=300)) == ["m2", "m3", "m4"]
    assert chosen(messages, ContextPolicy(max_tokens=300), spent=100) == ["m4"]
    assert chosen(messages, ContextPolicy(max_tokens=1)) == ["m4"]


def test_a_tokenizer_of_ones_own_is_asked() -> None:
    """Where the estimate is not good enough."""
    messages = thread("a", "b", "c", "d", "e")
    policy = ContextPolicy(max_tokens=3, count_tokens=lambda message: len(message.text))
    assert chosen(messages, policy) == ["m2", "m3", "m4"]


def test_every_message_is_counted_once_and_none_that_is_out_of_reach() -> None:
    """A tokenizer costs milliseconds a page; a thread has thousands."""
    counted: list[str] = []

    def count(message: Message) -> int:
        counted.append(message.id)
        return 10

    messages = thread(*(str(at) for at in range(101)))
    stored = [encode_message(each) for each in messages]
    policy = ContextPolicy(max_tokens=200, count_tokens=count)
    decoded = Decoded(stored)
    choose_context(stored[40:], policy, complete_before=True, decoded=decoded.take_last(61))
    choose_context(stored, policy, complete_before=True, decoded=decoded)
    assert counted == [f"m{at}" for at in range(100, 79, -1)]


@given(st.integers(0, 30), st.integers(0, 30))
def test_a_part_of_the_messages_shares_what_is_known_of_all(count: int, at: int) -> None:
    """Places are those of each part's own."""
    messages = thread(*(str(number) for number in range(31)))
    decoded = Decoded([encode_message(each) for each in messages])
    part = decoded.take_last(31 - count)
    place = min(at, 30 - count)
    assert part[place] == decoded[count + place] == messages[count + place]


@pytest.mark.parametrize("bad", [0, -5, True, 2.5])
def test_the_bound_must_be_a_positive_integer(bad: object) -> None:
    """As the others."""
    with pytest.raises(InvalidConfigError, match="max_tokens must be at least 1"):
        ContextPolicy(max_tokens=bad)  # type: ignore[arg-type]


def test_what_counts_must_be_a_function() -> None:
    """A number there would fail each model call instead."""
    with pytest.raises(InvalidConfigError, match="count_tokens must be a function"):
        ContextPolicy(max_tokens=5, count_tokens=7)  # type: ignore[arg-type]
