"""Messages: the same message always has the same bytes, and comes back as it was."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.errors import ArchiveCorruptError, InvalidMessageError, TooLargeError
from helix_temporal.models.limits import MAX_MESSAGE_BYTES
from helix_temporal.models.messages import (
    Message,
    ToolCall,
    Usage,
    check_size,
    decode_message,
    encode_message,
    kind_of,
)
from helix_temporal.models.stored_messages import Kind, StoredMessage
from helix_temporal.testing.builders import user_message

json_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | json_text
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(json_text, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
messages = st.builds(
    Message,
    id=st.just("m"),
    role=st.sampled_from(["system", "user", "assistant", "tool", "foreign"]),
    content=json_text | st.lists(st.dictionaries(json_text, json_values, max_size=3), max_size=3),
    tool_calls=st.lists(
        st.builds(
            ToolCall,
            id=st.just("c"),
            name=st.just("look"),
            arguments=st.dictionaries(json_text, json_values, max_size=3),
        ),
        max_size=2,
    ),
    metadata=st.dictionaries(json_text, json_values, max_size=3),
    usage=st.none() | st.builds(Usage, input_tokens=st.integers(0, 2**63 - 1)),
)


@given(messages)
def test_a_message_comes_back(message: Message) -> None:
    """Text, parts, tool calls, numbers and metadata."""
    assert decode_message(encode_message(message)) == message


@given(messages)
def test_a_message_always_has_the_same_bytes(message: Message) -> None:
    """A repeat is known by its bytes, whatever the order of keys was."""
    again = Message.model_validate_json(message.model_dump_json())
    assert encode_message(again) == encode_message(message)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Message(id="m", role="user"), Kind.USER),
        (Message(id="m", role="assistant"), Kind.ANSWER),
        (Message(id="m", role="assistant", tool_calls=(ToolCall(id="c", name="x"),)), Kind.CALLS),
        (Message(id="m", role="tool"), Kind.RESULT),
        (Message(id="m", role="system"), Kind.OTHER),
        (Message(id="m", role="foreign"), Kind.OTHER),
    ],
)
def test_a_store_sees_what_kind_it_is(message: Message, kind: str) -> None:
    """All it needs to keep call and result together."""
    assert kind_of(message) == kind


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"role":"robot"}',
        b'{"role":"user","content":5}',
        b"\xff",
        b'{"role":"user","content":"\\u0000"}',
    ],
)
def test_bodies_that_are_no_messages_are_damage(body: bytes) -> None:
    """Not an empty message."""
    with pytest.raises(ArchiveCorruptError, match="message 'm'"):
        decode_message(StoredMessage(Kind.USER, "m", body))


def test_fields_of_a_newer_release_are_ignored() -> None:
    """Two releases share a thread during a roll-out."""
    message = StoredMessage(Kind.USER, "m", b'{"role":"user","content":"hi","mood":"fine"}')
    assert decode_message(message) == user_message("m", "hi")


def test_the_body_does_not_repeat_the_id() -> None:
    """The stored message carries it, and that is the one that counts."""
    assert b'"m' not in encode_message(user_message("m17", "hi")).body.replace(b'"metadata"', b"")


def test_a_message_beyond_a_segment_is_refused() -> None:
    """The message says how large it is; its text is not in the error."""
    with pytest.raises(TooLargeError, match=f"> {MAX_MESSAGE_BYTES} bytes") as caught:
        encode_message(user_message("m", "x" * (MAX_MESSAGE_BYTES + 1)))
    assert "xxx" not in str(caught.value)


@pytest.mark.parametrize("content", [5, None, {"a": 1}, ["text"], [{"a": float("nan")}]], ids=repr)
def test_content_that_is_neither_text_nor_parts_is_refused(content: Any) -> None:
    """Nothing is converted."""
    with pytest.raises((InvalidMessageError, ValueError)):
        Message(id="m", role="user", content=content)


def test_the_text_of_parts_is_joined() -> None:
    """Images and others have none."""
    parts: list[Any] = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert Message(id="m", role="user", content=parts).text == "ab"


def test_usage_adds_up_field_by_field() -> None:
    """A session's totals."""
    total = Usage(input_tokens=1, output_tokens=2) + Usage(input_tokens=10, reasoning_tokens=5)
    assert total == Usage(input_tokens=11, output_tokens=2, reasoning_tokens=5)


def test_a_size_at_its_limit_is_allowed() -> None:
    """One byte more is not."""
    check_size(10, 10, "state")
    with pytest.raises(TooLargeError, match="state: 11 > 10 bytes"):
        check_size(11, 10, "state")
