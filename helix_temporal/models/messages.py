"""Messages: one canonical form for all providers; their parts, and results of tools."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BeforeValidator, Field, JsonValue, ValidationError

from helix_temporal.errors import ArchiveCorruptError, InvalidMessageError, TooLargeError
from helix_temporal.models.base import CheckedObject, Cost, JsonObject, WireModel, canonical_json, check_json
from helix_temporal.models.ids import Id
from helix_temporal.models.limits import MAX_MESSAGE_BYTES
from helix_temporal.models.states import SessionProperties
from helix_temporal.models.stored_messages import Kind, Position, StoredMessage

Role = Literal["system", "user", "assistant", "tool", "foreign"]


def _validate_content(value: object) -> object:
    check_json(value, "$.content")
    return value


Content = Annotated[str | list[JsonObject], BeforeValidator(_validate_content)]
"""Plain text, or provider-independent parts such as ``{"type": "text", "text": …}``."""


class Usage(WireModel):
    """What model calls used, in tokens; sums of several are sums of each field.

    ``input_tokens`` are all that went in, those read from and written to a cache among them;
    ``output_tokens`` all that came out, the reasoning among them.
    """

    input_tokens: int = Field(default=0, ge=0, lt=2**63)
    output_tokens: int = Field(default=0, ge=0, lt=2**63)
    cached_read_tokens: int = Field(default=0, ge=0, lt=2**63)
    cached_write_tokens: int = Field(default=0, ge=0, lt=2**63)
    reasoning_tokens: int = Field(default=0, ge=0, lt=2**63)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_read_tokens=self.cached_read_tokens + other.cached_read_tokens,
            cached_write_tokens=self.cached_write_tokens + other.cached_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    def __sub__(self, other: "Usage") -> "Usage":
        """What is left without the other's, never below nothing."""
        mine, theirs = self.model_dump(), other.model_dump()
        return Usage(**{name: max(mine[name] - theirs[name], 0) for name in mine})


class SummaryUsage(WireModel):
    """What it took to sum up turns that a model call was not given; ``id`` is of that work alone."""

    id: Id
    used: Usage
    cost_usd: Cost | None = None


class GivenSummary(WireModel):
    """The summary that stood for older messages in a model call.

    Attributes:
        upto: The position up to which it goes.
        text: Its text, where the call's answer is the first in the thread that was given with it.
        at: Else the position of the answer that has the text.
    """

    upto: Position
    text: str = ""
    at: Position | None = None


class GivenContext(WireModel):
    """Which part of its thread a model call was given, told with its answer.

    Attributes:
        first: Position of the first message that it was given.
        stop: Position behind the last one, at which the answer stands; an answer that stands elsewhere was
            copied from another thread, whose positions these are.
        summary: Of the messages before those, where there was one.
        prompt: Digest of the instructions and tools, as `Agent.digest_prompt` makes it.
        model: The model's name, as in the usage store.
    """

    first: Position = 0
    stop: Position = 0
    summary: GivenSummary | None = None
    prompt: str = ""
    model: str = ""


class Finish(StrEnum):
    """Why a model stopped, in the same words for all providers.

    ``length``: at its limit of tokens, so that the answer is cut.  ``content_filter``: the provider
    withheld it.  ``refusal``: the model declined.
    """

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"


class ToolCall(WireModel):
    """One tool that the model asks for; ``id`` is the provider's and need not be unique over turns."""

    id: str = Field(min_length=1, max_length=256)
    name: str = Field(min_length=1, max_length=128)
    arguments: CheckedObject = Field(default_factory=dict)


_INVALID: Final = "__helix_invalid__"
_LARGE: Final = "__helix_large__"


def not_arguments(text: str, reason: str) -> JsonObject:
    """What stands for arguments that could not be read: the tool is not run, and the model is told."""
    return {_INVALID: text, "reason": reason}


def why_not_run(call: ToolCall) -> str | None:
    """What the model is told of a call whose arguments could not be read; None for all usual calls."""
    if invalid_arguments(call.arguments) is None:
        return None
    reason = call.arguments.get("reason")
    return (
        f"The tool was not run: its arguments were not valid JSON ({reason}). Call it again with an object."
    )


def invalid_arguments(arguments: Mapping[str, Any]) -> str | None:
    """What the model gave in place of arguments that could be read; None for all usual ones."""
    text = arguments.get(_INVALID)
    return text if isinstance(text, str) else None


def without_arguments(call: ToolCall) -> ToolCall:
    """The call as a workflow carries it where its arguments are large: who needs them reads the thread."""
    return ToolCall(id=call.id, name=call.name, arguments={_LARGE: True})


def shorten_arguments(call: ToolCall, limit: int) -> ToolCall:
    """A call as a workflow carries it: without arguments beyond so many bytes."""
    if len(canonical_json(call.arguments)) <= limit:
        return call
    return without_arguments(call)


def are_left_out(arguments: Mapping[str, Any]) -> bool:
    """Whether these stand for arguments that are in the thread alone."""
    return arguments.get(_LARGE) is True


class Message(WireModel):
    """One message of a thread.

    Attributes:
        id: Unique within the thread; a user's message keeps the client's id.
        role: ``foreign`` is a row of another format that no adapter has converted.
        content: Text or parts.
        tool_calls: Tools that an assistant message asks for, in order.
        tool_call_id: Which call a tool message answers.
        name: The tool's name on a tool message.
        is_error: The tool failed and ``content`` says how.
        usage: What the model call that made an assistant message used, with what it cost to sum up the
            turns that it was not given.
        summary_usage: That part of ``usage``, where there was one.
        cost_usd: What that model call cost, without the summary, where its model told it.
        finish: Why it stopped, where that was neither ``stop`` nor ``tool_calls``.
        given: What the model was given that made an assistant message, where a step has told it.
        format: Format of a foreign row, such as ``openai-agents/1``; ``content`` is its raw text.  Of the
            formats in `foreign_rows.READERS` a store knows calls, results, and who speaks.
        provider: What an adapter needs back unchanged.
        metadata: What the application wants to keep beside the message.
    """

    id: Id
    role: Role
    content: Content = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool = False
    usage: Usage | None = None
    summary_usage: SummaryUsage | None = None
    cost_usd: Cost | None = None
    finish: Finish | None = None
    given: GivenContext | None = None
    format: str | None = None
    provider: CheckedObject = Field(default_factory=dict)
    metadata: CheckedObject = Field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text of the message: its content, or its text parts joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(str(part["text"]) for part in self.content if part.get("type") == "text")


class UserMessage(WireModel):
    """A message to a session.

    Attributes:
        id: The client's: a message sent again under the same id counts once.
        text: The text, or empty where ``ref`` names a payload that holds it.
        properties: Of the session: set before the message is taken.
        agent: Whom it is for: a session that runs with another one refuses it.
        thread_id: Where it is to go: a session that has another thread refuses it.
        traceparent: The sender's span, as the W3C header of that name has it.
    """

    id: Id
    text: str = ""
    ref: str | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    properties: SessionProperties | None = None
    agent: str | None = None
    thread_id: Id | None = None
    traceparent: Annotated[str, Field(max_length=128)] | None = None

    def without_properties(self) -> "UserMessage":
        """The message as the inbox and the thread have it."""
        named = self.model_fields_set - {"properties", "agent", "thread_id"}
        return UserMessage(**{name: getattr(self, name) for name in named})


def kind_of(message: Message) -> str:
    """How a store treats the message."""
    if message.role == "user":
        return Kind.USER
    if message.role == "tool":
        return Kind.RESULT
    if message.role == "assistant":
        return Kind.CALLS if message.tool_calls else Kind.ANSWER
    return Kind.OTHER


def encode_message(message: Message) -> StoredMessage:
    """The message as a store keeps it; the same message always gives the same bytes.

    Raises:
        InvalidMessageError: It cannot be written as JSON.
        TooLargeError: It would not fit a segment.
    """
    try:
        body = canonical_json(message.model_dump(mode="json", exclude={"id"}, exclude_defaults=True))
    except (TypeError, ValueError) as error:
        raise InvalidMessageError(f"message {message.id!r} cannot be written as JSON") from error
    if len(body) > MAX_MESSAGE_BYTES:
        raise TooLargeError(f"message {message.id!r}: {len(body)} > {MAX_MESSAGE_BYTES} bytes")
    return StoredMessage(kind_of(message), message.id, body)


def decode_message(message: StoredMessage) -> Message:
    """Inverse of `encode_message`.

    Raises:
        ArchiveCorruptError: The body is not a message of ours.
    """
    try:
        fields = orjson.loads(message.body)
        fields["id"] = message.id
        return Message.model_validate(fields)
    except (ValueError, TypeError, ValidationError, InvalidMessageError) as error:
        raise ArchiveCorruptError(f"the stored body of message {message.id!r} is not a message") from error


def check_size(data_bytes: int, limit: int, what: str) -> None:
    """Refuse what exceeds a limit.

    Raises:
        TooLargeError: It does.
    """
    if data_bytes > limit:
        raise TooLargeError(f"{what}: {data_bytes} > {limit} bytes")


def text_part(text: str, *, cache: bool = False) -> JsonObject:
    """A part of plain text."""
    return _with_cache_mark({"type": "text", "text": text}, cache)


def image_part(
    *, media_type: str = "", data: str | None = None, url: str | None = None, cache: bool = False
) -> JsonObject:
    """An image: base64 ``data`` of a ``media_type``, or a ``url``."""
    part: JsonObject = {"type": "image"}
    return _with_cache_mark(part | _nonempty_fields(media_type=media_type, data=data, url=url), cache)


def file_part(
    *,
    media_type: str = "",
    data: str | None = None,
    url: str | None = None,
    file_id: str | None = None,
    name: str | None = None,
    cache: bool = False,
) -> JsonObject:
    """A file: base64 ``data`` of a ``media_type``, a ``url``, or a provider's ``file_id``."""
    part: JsonObject = {"type": "file"}
    given = _nonempty_fields(media_type=media_type, data=data, url=url, file_id=file_id, name=name)
    return _with_cache_mark(part | given, cache)


def thinking_part(text: str) -> JsonObject:
    """A model's reasoning."""
    return {"type": "thinking", "text": text}


def _nonempty_fields(**fields: str | None) -> JsonObject:
    return {name: value for name, value in fields.items() if value}


def _with_cache_mark(part: JsonObject, cache: bool) -> JsonObject:
    return part | {"cache": True} if cache else part


class ChildEnd(WireModel):
    """Which sub-agent's session gave a tool's result, and how it ended there.

    Attributes:
        agent: Which one; empty where it was not called.
        duration_ms: From the call to the result.
        killed: It was terminated, or its time ran out: it could put nothing in order.
    """

    session_id: Id
    status: Literal["completed", "interrupted", "failed"]
    agent: str = ""
    duration_ms: int = 0
    killed: bool = False


class ToolResult(WireModel):
    """A tool's result: short ones as they are, long ones by reference.

    Attributes:
        staged: Names what the tool changed of the session's state; empty where it changed nothing.
        unfinished: No worker ran the call to an end: the tool failed, or is none, or nobody could answer.
    """

    text: str = ""
    parts: list[dict[str, JsonValue]] | None = None
    ref: str | None = None
    is_error: bool = False
    rewind: bool = False
    wait: bool = False
    usage: Usage | None = None
    child: ChildEnd | None = None
    staged: str = ""
    unfinished: bool = False
