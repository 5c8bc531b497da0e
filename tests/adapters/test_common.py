"""What all adapters share: answers kept as they were, ids, arguments, the wire."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.adapters._answers import attach_provider_raw, raw_of, sent_arguments_text, tool_call
from helix_temporal.adapters._http import ServerEvent, server_events
from helix_temporal.adapters._messages import prepare_outgoing
from helix_temporal.errors import ModelStreamEndedError
from helix_temporal.models import messages as parts
from helix_temporal.models.agents import ModelResponse
from helix_temporal.models.base import check_text, storable_text
from helix_temporal.models.messages import Message, ToolCall, invalid_arguments
from tests.adapters._talk import result, stored

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(TEXT.map(lambda text: text * 4), max_size=4), JSON)
def test_what_is_kept_comes_back_byte_for_byte(texts: list[str], more: Any) -> None:
    """Whatever the texts are, which are taken out of it and put in again."""
    raw = {"z": more, "texts": [*texts, *texts], "a": "".join(texts)}
    response = ModelResponse(content=[parts.text_part(text) for text in texts])
    kept = attach_provider_raw("x", response, raw, lambda _: None)
    assert json.dumps(raw_of(stored(kept), "x")) == json.dumps(raw)


def test_nothing_is_kept_where_our_form_gives_the_same() -> None:
    """And it says all the same who made the answer."""
    kept = attach_provider_raw("x", ModelResponse(content="Hi"), ["Hi"], lambda message: [message.text])
    assert kept.provider == {"x": {}}
    assert raw_of(stored(kept), "x") is None


def test_an_order_of_keys_that_a_store_loses_is_kept() -> None:
    """What is compared is the message as it comes back."""
    call = ToolCall(id="c", name="n", arguments={"z": 1, "a": 2})
    response = ModelResponse(tool_calls=(call,))
    kept = attach_provider_raw(
        "x", response, {"z": 1, "a": 2}, lambda message: message.tool_calls[0].arguments
    )
    assert json.dumps(raw_of(stored(kept), "x")) == '{"z": 1, "a": 2}'


@pytest.mark.parametrize(
    "changes",
    [
        {"content": "other"},
        {"content": [parts.text_part("said"), parts.text_part("more")]},
        {"tool_calls": ()},
        {"tool_calls": (ToolCall(id="c", name="n", arguments={"a": 2}),)},
    ],
)
def test_an_answer_that_was_changed_has_nothing_kept(changes: dict[str, Any]) -> None:
    """What was taken out of it must not come back."""
    call = ToolCall(id="c", name="n", arguments={"a": 1})
    response = ModelResponse(content="said", tool_calls=(call,))
    message = stored(attach_provider_raw("x", response, ["raw"], lambda _: None))
    assert raw_of(message, "x") == ["raw"]
    assert raw_of(message, "y") is None
    assert raw_of(message.model_copy(update=changes), "x") is None


def test_ids_that_were_made_unique_do_not_change_what_is_kept() -> None:
    """The answer is the same, and its results follow it under the ids that its provider knows."""
    call = ToolCall(id="call_0", name="n")
    response = ModelResponse(tool_calls=(call,))
    message = stored(attach_provider_raw("x", response, {"ids": ["call_0"]}, lambda _: None))
    renamed = call.model_copy(update={"id": "call_0_2"})
    message = message.model_copy(update={"tool_calls": (renamed,)})
    sent = prepare_outgoing([message, result(renamed)], "x", lambda raw: raw["ids"])
    assert sent[0].raw == {"ids": ["call_0"]}
    assert sent[1].message.tool_call_id == "call_0"


def answer_with(number: int, *ids: str, **fields: Any) -> Message:
    calls = tuple(ToolCall(id=each, name="n") for each in ids)
    return Message(id=f"a{number}", role="assistant", tool_calls=calls, **fields)


def ids_of(*messages: Message, adapter: str = "x") -> list[list[str]]:
    """Ids as they are sent: those of calls, and of results one by one."""
    sent = [each.message for each in prepare_outgoing(messages, adapter, lambda _: [])]
    return [
        [call.id for call in each.tool_calls] if each.role == "assistant" else [str(each.tool_call_id)]
        for each in sent
    ]


def test_ids_that_are_used_again_in_later_turns_are_told_apart() -> None:
    """Providers of local models count from 0 in each answer, and others refuse that."""
    one, two = answer_with(1, "call_0"), answer_with(2, "call_0")
    found = ids_of(one, result(one.tool_calls[0]), two, result(two.tool_calls[0]))
    assert found[0] == found[1] == ["call_0"]
    assert found[2] == found[3] != ["call_0"]


def test_ids_of_a_provider_are_its_own_business() -> None:
    """It gave one twice, and gets it so: what it said is what it said."""
    one, two = answer_with(1, "call_0", provider={"x": {}}), answer_with(2, "call_0", provider={"x": {}})
    assert ids_of(one, result(one.tool_calls[0]), two, result(two.tool_calls[0])) == [["call_0"]] * 4


def test_an_id_that_is_still_to_come_is_not_given_to_another() -> None:
    """A later answer of the provider's own has it."""
    other, own = answer_with(1, "call_0"), answer_with(2, "call_0", provider={"x": {}})
    found = ids_of(other, result(other.tool_calls[0]), own, result(own.tool_calls[0]))
    assert found[2] == ["call_0"]
    assert found[0] == found[1] != ["call_0"]


@pytest.mark.parametrize("odd", ["x" * 256, "a b", "é", "x" * 65, "call:1", "a\nb"])
def test_ids_that_a_provider_refuses_are_replaced_the_same_way_each_time(odd: str) -> None:
    """A prefix that changes from step to step is cached for nothing."""
    message = answer_with(1, odd)
    first = ids_of(message, result(message.tool_calls[0]))
    assert first == ids_of(message, result(message.tool_calls[0]))
    assert first[0] == first[1]
    assert first[0][0].startswith("call_")
    assert len(first[0][0]) <= 40


@given(st.text(), st.text(), st.text())
def test_any_call_can_be_stored(call_id: str, name: str, arguments: str) -> None:
    """A model says what it likes; the turn goes on."""
    call = tool_call(call_id, name, arguments)
    kept = stored(ModelResponse(tool_calls=(call,)))
    assert kept.tool_calls == (call,)


@given(TEXT)
def test_arguments_that_could_not_be_read_go_back_to_those_who_take_text(arguments: str) -> None:
    """As far as they are kept."""
    call = tool_call("c", "n", arguments)
    said = invalid_arguments(call.arguments)
    text = json.dumps(call.arguments, separators=(",", ":"), ensure_ascii=False) if said is None else said
    assert sent_arguments_text(call) == text


@given(st.text())
def test_any_text_can_be_stored(text: str) -> None:
    """And only what no store can hold is changed."""
    check_text(storable_text(text), "text")
    assert len(storable_text(text)) <= len(text)


async def read(*chunks: bytes) -> list[ServerEvent]:
    async def source() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return [event async for event in server_events("x", source())]


STREAM = (
    'event: a\ndata: {"x": "ä\u2028\u0085b"}\n\n: a note\n\ndata: 1\r\ndata: 2\r\nid: 7\r\n\r\ndata: half'
)
EVENTS = [ServerEvent("a", '{"x": "ä\u2028\u0085b"}'), ServerEvent("", "1\n2")]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
async def test_events_come_whole_however_they_are_cut(size: int) -> None:
    """Networks cut where they like, within a character too; lines end where the standard says."""
    data = STREAM.encode()
    assert await read(*[data[at : at + size] for at in range(0, len(data), size)]) == EVENTS


@pytest.mark.parametrize("data", ["no", '{"x":', "[" * 100_000])
def test_an_event_that_cannot_be_read_is_a_cut_stream(data: str) -> None:
    """The attempt is made again, rather than the session failing by what a provider sent."""
    with pytest.raises(ModelStreamEndedError, match="no JSON"):
        ServerEvent("", data).parse_json("x")


async def test_what_breaks_while_reading_is_a_cut_stream() -> None:
    """Whatever the library calls it."""

    async def source() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        raise OSError("reset by peer")

    with pytest.raises(ModelStreamEndedError, match="OSError"):
        [event async for event in server_events("x", source())]
