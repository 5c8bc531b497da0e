"""Streams: what is stored of one, one model a type of chunk, and the way to bytes and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, Discriminator, Field, JsonValue, Tag, ValidationError

from helix_temporal.errors import InvalidMessageError, StoreCorruptError
from helix_temporal.models.base import CheckedObject, CheckedValue, WireModel, dump_json
from helix_temporal.models.messages import Usage
from helix_temporal.models.states import ErrorInfo

EndStatus = Literal["completed", "interrupted", "aborted"]
"""How what a stream tells of came to its end, other than by a failure."""


class ChunkBase(BaseModel, frozen=True, extra="allow"):
    """What all chunks have.  The writer fills in the first four where they are not given.

    Attributes:
        agent_id: The run's id.
        agent_type: The agent's name.
        timestamp: Milliseconds since 1970, by the producer's clock.
        step: The step of the turn, from 1.
        message_id: The id that the answer, of which this is a piece, has in the thread if it gets there.
            Each attempt of a step has an id of its own.
    """

    type: str
    agent_id: str = ""
    agent_type: str | None = None
    timestamp: int = 0
    step: int | None = None
    message_id: str | None = None

    def model_post_init(self, context: object, /) -> None:  # noqa: ARG002
        """Count the type as given: it is always written."""
        self.__pydantic_fields_set__.add("type")


class TextChunk(ChunkBase, frozen=True):
    """A piece of the answer's text."""

    type: Literal["text_delta"] = "text_delta"
    delta: str


class Thinking(ChunkBase, frozen=True):
    """A piece of the model's reasoning; ``is_complete`` with the last one."""

    type: Literal["thinking"] = "thinking"
    content: str
    is_complete: bool = False


class ToolArgStreamStart(ChunkBase, frozen=True):
    """The model begins to ask for a tool; its arguments follow in pieces."""

    type: Literal["tool_arg_stream_start"] = "tool_arg_stream_start"
    tool_call_id: str
    tool_name: str


class ToolArgStreamDelta(ChunkBase, frozen=True):
    """A piece of a tool call's arguments, as JSON text."""

    type: Literal["tool_arg_stream_delta"] = "tool_arg_stream_delta"
    tool_call_id: str
    delta: str


class ToolStart(ChunkBase, frozen=True):
    """A tool is asked for, by the answer ``message_id``.

    Attributes:
        arguments_bytes: Set where they are too large to be shown: their size as JSON.
    """

    type: Literal["tool_start"] = "tool_start"
    tool_call_id: str
    tool_name: str
    arguments: CheckedObject = Field(default_factory=dict)
    arguments_bytes: int | None = None


class ToolEnd(ChunkBase, frozen=True):
    """A tool has run; ``error`` says why it failed.

    Attributes:
        result_bytes: Set where the result is too large to be shown: its size as JSON.
    """

    type: Literal["tool_end"] = "tool_end"
    tool_call_id: str
    result: CheckedValue = None
    result_bytes: int | None = None
    success: bool = True
    error: str | None = None


class ToolApprovalRequest(ChunkBase, frozen=True):
    """Somebody must approve a call before it runs."""

    type: Literal["tool_approval_request"] = "tool_approval_request"
    tool_call_id: str
    tool_name: str
    approval_id: str
    input: CheckedValue = None


class SubAgentStart(ChunkBase, frozen=True):
    """Another agent begins to work for this one, in a session of its own."""

    type: Literal["subagent_start"] = "subagent_start"
    sub_session_id: str
    sub_agent_type: str
    tool_call_id: str | None = None


class SubAgentEnd(ChunkBase, frozen=True):
    """It is done; the ``tool_end`` of its call follows.

    Attributes:
        result: The beginning of its answer's text, at most 2,000 characters; with ``success`` false: what the
            model is told instead.
    """

    type: Literal["subagent_end"] = "subagent_end"
    sub_session_id: str
    sub_agent_type: str
    tool_call_id: str | None = None
    result: CheckedValue = None
    success: bool = True


class StatePatch(ChunkBase, frozen=True):
    """What a tool changed of the state, as operations of RFC 6902."""

    type: Literal["state_patch"] = "state_patch"
    patches: tuple[CheckedObject, ...]


class Custom(ChunkBase, frozen=True):
    """What an application tells its own consumers; ``tool_call_id`` if one of its tools does."""

    type: Literal["custom"] = "custom"
    event_name: str
    data: CheckedValue = None
    tool_call_id: str | None = None


class Error(ChunkBase, frozen=True):
    """Something failed; without ``recoverable`` the run ends by it.

    Attributes:
        code: The error's class name, if it is one of ours.
    """

    type: Literal["error"] = "error"
    message: str
    recoverable: bool = False
    code: str | None = None


class Output(ChunkBase, frozen=True):
    """The run's result, where it has one beside its answer."""

    type: Literal["output"] = "output"
    output: CheckedValue


class UsageChunk(ChunkBase, frozen=True):
    """What a model call used."""

    type: Literal["usage"] = "usage"
    usage: Usage


class Heartbeat(ChunkBase, frozen=True):
    """The producer is alive and has nothing to say."""

    type: Literal["heartbeat"] = "heartbeat"


class StepStarted(ChunkBase, frozen=True):
    """An attempt of a step calls the model; its pieces carry the same ``message_id``."""

    type: Literal["step_started"] = "step_started"
    step_id: str
    attempt: int = 1


class StepCommitted(ChunkBase, frozen=True):
    """The answer ``message_id`` stands in the thread at ``position``; the step's other attempts are void.

    Attributes:
        characters: Of its text: who has shown another number of them reads the answer from the thread.
    """

    type: Literal["step_committed"] = "step_committed"
    step_id: str
    position: int | None = None
    characters: int | None = None


class StepDiscarded(ChunkBase, frozen=True):
    """Attempts of a step up to this one are void: whoever shows their text drops it."""

    type: Literal["step_discarded"] = "step_discarded"
    step_id: str
    attempt: int


class RunStarted(ChunkBase, frozen=True):
    """A turn begins with these messages of the user's; ``agent_id`` is its run.

    Attributes:
        texts: What they say, in the same order: 2,000 characters of all together, so that the last ones may
            be cut or missing.  Until the turn's first step is in the thread, that has none of them.
    """

    type: Literal["run_started"] = "run_started"
    turn: int
    message_ids: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


class RunEnded(ChunkBase, frozen=True):
    """A turn is over.

    Attributes:
        status: The run's.
        exit_reason: Why it ended, in a word.
        in_thread: False where nothing of the turn stays in the thread, whatever was shown of it.
        message_id: Of the answer, if there is one.
        position: Where that stands in the thread.
    """

    type: Literal["run_ended"] = "run_ended"
    status: str
    exit_reason: str | None = None
    in_thread: bool = True
    position: int | None = None


class RunPaused(ChunkBase, frozen=True):
    """The run waits; it goes on with ``run_resumed``."""

    type: Literal["run_paused"] = "run_paused"
    reason: str | None = None


class RunResumed(ChunkBase, frozen=True):
    """The run goes on."""

    type: Literal["run_resumed"] = "run_resumed"


class RunInterrupted(ChunkBase, frozen=True):
    """Somebody stopped the run."""

    type: Literal["run_interrupted"] = "run_interrupted"
    reason: str | None = None


class RunSuperseded(ChunkBase, frozen=True):
    """Another run took this one's place."""

    type: Literal["run_superseded"] = "run_superseded"
    by: str | None = None


class CheckpointCreated(ChunkBase, frozen=True):
    """The state was saved under this id."""

    type: Literal["checkpoint_created"] = "checkpoint_created"
    checkpoint_id: str


class Suspended(ChunkBase, frozen=True):
    """The run waits for answers to these calls."""

    type: Literal["suspended"] = "suspended"
    calls: tuple[CheckedObject, ...] = ()


class StreamResync(ChunkBase, frozen=True):
    """All that came before is void: whoever shows it loads the session anew and reads on from here.

    Attributes:
        position: The last sequence that is void.
    """

    type: Literal["stream_resync"] = "stream_resync"
    reason: str
    position: int = 0


class UnknownChunk(ChunkBase, frozen=True):
    """A chunk of a type that this version does not know, with all its fields (see ``model_extra``)."""


KNOWN: Final[tuple[type[ChunkBase], ...]] = (
    TextChunk, Thinking, ToolArgStreamStart, ToolArgStreamDelta, ToolStart, ToolEnd, ToolApprovalRequest,
    SubAgentStart, SubAgentEnd, StatePatch, Custom, Error, Output, UsageChunk, Heartbeat,
    StepStarted, StepCommitted, StepDiscarded, RunStarted, RunEnded, RunPaused, RunResumed, RunInterrupted,
    RunSuperseded, CheckpointCreated, Suspended, StreamResync,
)  # fmt: skip
"""The models of all types that are known."""

_MODELS: Final[Mapping[str, type[ChunkBase]]] = {each.model_fields["type"].default: each for each in KNOWN}
_UNKNOWN: Final = "*"


def _chunk_tag(value: object) -> str:
    found = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    return found if isinstance(found, str) and found in _MODELS else _UNKNOWN


StreamChunk = Annotated[
    Annotated[TextChunk, Tag("text_delta")]
    | Annotated[Thinking, Tag("thinking")]
    | Annotated[ToolArgStreamStart, Tag("tool_arg_stream_start")]
    | Annotated[ToolArgStreamDelta, Tag("tool_arg_stream_delta")]
    | Annotated[ToolStart, Tag("tool_start")]
    | Annotated[ToolEnd, Tag("tool_end")]
    | Annotated[ToolApprovalRequest, Tag("tool_approval_request")]
    | Annotated[SubAgentStart, Tag("subagent_start")]
    | Annotated[SubAgentEnd, Tag("subagent_end")]
    | Annotated[StatePatch, Tag("state_patch")]
    | Annotated[Custom, Tag("custom")]
    | Annotated[Error, Tag("error")]
    | Annotated[Output, Tag("output")]
    | Annotated[UsageChunk, Tag("usage")]
    | Annotated[Heartbeat, Tag("heartbeat")]
    | Annotated[StepStarted, Tag("step_started")]
    | Annotated[StepCommitted, Tag("step_committed")]
    | Annotated[StepDiscarded, Tag("step_discarded")]
    | Annotated[RunStarted, Tag("run_started")]
    | Annotated[RunEnded, Tag("run_ended")]
    | Annotated[RunPaused, Tag("run_paused")]
    | Annotated[RunResumed, Tag("run_resumed")]
    | Annotated[RunInterrupted, Tag("run_interrupted")]
    | Annotated[RunSuperseded, Tag("run_superseded")]
    | Annotated[CheckpointCreated, Tag("checkpoint_created")]
    | Annotated[Suspended, Tag("suspended")]
    | Annotated[StreamResync, Tag("stream_resync")]
    | Annotated[UnknownChunk, Tag(_UNKNOWN)],
    Discriminator(_chunk_tag),
]
"""Any chunk, for models that hold one: by its ``type``, an `UnknownChunk` if that is unknown."""


def to_bytes(chunk: ChunkBase, defaults: Mapping[str, str | int]) -> bytes:
    """The chunk as a store keeps it, with these fields where it was not given its own.

    Raises:
        InvalidMessageError: It cannot be written as JSON: a number that is not finite, bad text.
    """
    # As model_dump(exclude_unset=True) would, which takes twice as long: chunks are flat, or hold JSON.
    given, extra = chunk.__pydantic_fields_set__, chunk.__pydantic_extra__
    fields: dict[str, Any] = {**defaults}
    fields.update((name, value) for name, value in chunk.__dict__.items() if name in given)
    fields.update(extra or {})
    try:
        return dump_json(fields, default=_dump_model)
    except TypeError as error:
        raise InvalidMessageError(
            f"a chunk of type {chunk.type!r} cannot be written as JSON: numbers must be finite and within "
            "64 bits, text without lone surrogates"
        ) from error


def _dump_model(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True, warnings=False)
    raise TypeError("not JSON")


def from_bytes(body: bytes) -> ChunkBase:
    """Inverse of `to_bytes`.  What does not fit the model of its type is an `UnknownChunk`.

    Raises:
        StoreCorruptError: It is no chunk at all.
    """
    try:
        fields = orjson.loads(body)
        kind: object = fields["type"]
        model = _MODELS.get(kind, UnknownChunk) if isinstance(kind, str) else None
        if model is None:
            raise TypeError("type")
        try:
            return model.model_validate(fields)
        except (ValidationError, InvalidMessageError):
            return UnknownChunk.model_construct(_fields_set=set(fields), **fields)
    except (ValueError, TypeError, KeyError) as error:
        raise StoreCorruptError("what a stream holds is not a chunk; delete the stream") from error


StreamStatus = Literal["active", "paused", "ended", "failed"]
"""``paused``: closed cleanly for now, as while a person is asked; it may become active again."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """What a store keeps of a stream, and for how long.

    Attributes:
        ttl: Seconds after the last write; None keeps it until it is deleted.
        max_chunks: The newest so many are kept; 0 for all.
        max_chunk_bytes: The largest chunk, as JSON.
        abandoned_after: Seconds without a write or beat after which readers take the producer for gone.
    """

    ttl: float | None = 24 * 3600.0
    max_chunks: int = 10_000
    max_chunk_bytes: int = 1024 * 1024
    abandoned_after: float = 600.0


DEFAULT_LIMITS: Final = StreamLimits()


@dataclass(frozen=True)
class StoredChunk:
    """A chunk where it stands in its stream.

    Attributes:
        sequence: From 1, without gaps but those before a ``stream_resync``.
        run_id: Of the run whose writer wrote it; empty if that named none.
        written_at: Milliseconds since 1970, by the store's clock.
        body: The chunk as JSON, to be passed on as it is.
    """

    sequence: int
    run_id: str
    written_at: int
    body: bytes

    @cached_property
    def chunk(self) -> ChunkBase:
        """The chunk; several readers may be given the same one: do not change what is in it."""
        return from_bytes(self.body)


class StreamInfo(WireModel):
    """A stream as it stands.

    Attributes:
        outcome: How it ended, with status ``ended``.
        chunk_count: Ever written, also those that were trimmed or dropped; the last sequence may be higher.
        first_sequence: Of the oldest chunk that can be read; one more than the last if there is none.
        last_sequence: 0 if nothing was written.
        output: What it ended with.
        output_bytes: Set where that was too large to keep: its size.
        error: Why it failed.
        max_fence: The highest that anybody wrote under.
        created_at, updated_at, ended_at: Milliseconds since 1970, by the store's clock.
    """

    stream_id: str
    status: StreamStatus
    outcome: EndStatus | None = None
    chunk_count: int = 0
    first_sequence: int = 1
    last_sequence: int = 0
    output: JsonValue = None
    output_bytes: int | None = None
    error: ErrorInfo | None = None
    max_fence: int | None = None
    created_at: int
    updated_at: int
    ended_at: int | None = None
