"""Chunks of streams: to bytes and back, known and unknown."""

from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from helix_temporal.errors import InvalidMessageError, StoreCorruptError
from helix_temporal.models import streams
from helix_temporal.models.messages import Usage
from helix_temporal.models.streams import KNOWN, StreamChunk, TextChunk, UnknownChunk, from_bytes, to_bytes

STAMP: dict[str, str | int] = {"agent_id": "run-1", "timestamp": 7}

SOME: tuple[streams.ChunkBase, ...] = (
    streams.TextChunk(delta="é\u2028🔒", message_id="m", step=3, agent_type="writer"),
    streams.Thinking(content="hm", is_complete=True, message_id="m"),
    streams.ToolArgStreamStart(tool_call_id="c", tool_name="look", message_id="m"),
    streams.ToolArgStreamDelta(tool_call_id="c", delta='{"a":', message_id="m"),
    streams.ToolStart(tool_call_id="c", tool_name="look", arguments={"a": [1, None, {"b": 2**53 + 1}]}),
    streams.ToolEnd(tool_call_id="c", result={"x": None}, success=False, error="no"),
    streams.ToolApprovalRequest(tool_call_id="c", tool_name="buy", approval_id="p", input=[1.5, "x"]),
    streams.SubAgentStart(sub_session_id="s", sub_agent_type="researcher", tool_call_id="c"),
    streams.SubAgentEnd(sub_session_id="s", sub_agent_type="researcher", result="done"),
    streams.StatePatch(patches=({"op": "add", "path": "/a", "value": 1},)),
    streams.Custom(event_name="e", data={"a": None}),
    streams.Error(message="no", recoverable=True, code="ModelUnavailableError"),
    streams.Output(output=None),
    streams.UsageChunk(usage=Usage(input_tokens=3, output_tokens=2)),
    streams.Heartbeat(),
    streams.StepStarted(step_id="s1", attempt=2, message_id="m"),
    streams.StepCommitted(step_id="s1", message_id="m", position=4),
    streams.StepDiscarded(step_id="s1", attempt=1),
    streams.RunStarted(turn=1, message_ids=("u1", "u2")),
    streams.RunStarted(turn=1, message_ids=("u1", "u2"), texts=("hello", "…")),
    streams.RunEnded(status="completed", exit_reason="answered", message_id="m", position=4),
    streams.RunPaused(reason="a person is asked"),
    streams.RunResumed(),
    streams.RunInterrupted(reason="stop"),
    streams.RunSuperseded(by="run-2"),
    streams.CheckpointCreated(checkpoint_id="c1"),
    streams.Suspended(calls=({"id": "c", "name": "ask"},)),
    streams.StreamResync(reason="reset", position=9),
)


def test_every_known_type_is_tried_here() -> None:
    """A type without a test is a type whose bytes may change unseen."""
    assert {type(chunk) for chunk in SOME} == set(KNOWN)


@pytest.mark.parametrize("chunk", SOME, ids=lambda chunk: chunk.type)
def test_a_chunk_comes_back_as_it_was(chunk: streams.ChunkBase) -> None:
    """With what the writer filled in, and its own where it had it."""
    back = from_bytes(to_bytes(chunk, STAMP))
    assert type(back) is type(chunk)
    assert back == chunk.model_copy(update={"agent_id": "run-1", "timestamp": 7})
    assert orjson.loads(to_bytes(back, {})) == orjson.loads(to_bytes(chunk, STAMP))


@pytest.mark.parametrize("chunk", SOME, ids=lambda chunk: chunk.type)
def test_models_can_hold_any_chunk(chunk: streams.ChunkBase) -> None:
    """What travels through an API is told apart by its type."""

    class Holder(BaseModel):
        chunk: StreamChunk

    unknown = Holder.model_validate({"chunk": {"type": "new", "a": 1}})
    assert (type(unknown.chunk), unknown.chunk.model_extra) == (UnknownChunk, {"a": 1})
    again = Holder.model_validate_json(Holder.model_validate({"chunk": chunk}).model_dump_json())
    assert (type(again.chunk), again.chunk) == (type(chunk), chunk)


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "new", "a": {"b": [None]}},
        {"type": "new", "timestamp": "yesterday", "agent_id": None},
        {"type": "text_delta"},
        {"type": "text_delta", "delta": ["now", "a", "list"]},
        {"type": "tool_start", "tool_call_id": 7},
    ],
)
def test_what_fits_no_model_is_kept(fields: dict[str, Any]) -> None:
    """A newer version may have other fields: readers of an older one pass them on."""
    chunk = from_bytes(orjson.dumps(fields))
    assert isinstance(chunk, UnknownChunk)
    assert orjson.loads(to_bytes(chunk, {})) == fields


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"{}", b'{"type"', b'{"type":7}', b"\xff"])
def test_what_is_no_chunk_is_damage(body: bytes) -> None:
    """It was not written by us."""
    with pytest.raises(StoreCorruptError):
        from_bytes(body)


def test_numbers_that_json_has_not_are_refused() -> None:
    """Browsers could not read them."""
    with pytest.raises(InvalidMessageError):
        to_bytes(UnknownChunk.model_validate({"type": "x", "value": 2**64}), {})
    for value in (float("nan"), float("inf")):
        with pytest.raises(InvalidMessageError):
            streams.Custom(event_name="e", data=value)


def test_only_what_was_given_is_written() -> None:
    """A thousand chunks a turn: each byte counts."""
    assert to_bytes(TextChunk(delta="x"), {}) == b'{"type":"text_delta","delta":"x"}'
