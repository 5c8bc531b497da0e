"""The façade: a session as a program without Temporal sees it, and what happens in it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from helix_temporal.models.base import CheckedObject
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import Message, Usage
from helix_temporal.models.states import Millis, SessionProperties, StoredModel, Text


class UnfinishedTurn(StoredModel):
    """A turn that has not come to its end: stored before tools run, and before their results go to the model.

    Attributes:
        messages: From the user's message to an answer that asks for tools, or to the results of all of them.
        changes: What these tools changed of the session's state, by `CallKey.in_session`.
    """

    messages: Annotated[tuple[Message, ...], Field(min_length=1)]
    changes: dict[str, CheckedObject] = Field(default_factory=dict)


class StoredSession(StoredModel):
    """A whole session, as a `SessionStorage` keeps it.

    Attributes:
        messages: Of finished turns.
        unfinished: The turn that began behind them and was cut off; its message, sent again, goes on with it.
        parent_id: The session that it is a fork of.
        properties: When it expires, its user, tags and workspaces; those that are named.
        state: What tools have made of it (`ToolOutcome.state`), by key.
        created_at, updated_at: Milliseconds since 1970.
    """

    id: Id
    messages: tuple[Message, ...] = ()
    unfinished: UnfinishedTurn | None = None
    usage: Usage = Usage()
    metadata: CheckedObject = Field(default_factory=dict)
    state: CheckedObject = Field(default_factory=dict)
    created_at: Millis = 0
    updated_at: Millis = 0
    parent_id: Id | None = None
    properties: SessionProperties = SessionProperties()


class MessageEvent(StoredModel):
    """A message is in the session: the user's, an answer, or a tool's result."""

    type: Literal["message"] = "message"
    message: Message


class TextEvent(StoredModel):
    """Text of an answer."""

    type: Literal["text"] = "text"
    text: Text


class ToolUseEvent(StoredModel):
    """The model asks for a tool."""

    type: Literal["tool_use"] = "tool_use"
    id: Text
    name: Text
    input: dict[str, Any] = Field(default_factory=dict)


class ToolResultEvent(StoredModel):
    """A tool has answered."""

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: Text
    content: Any = ""
    is_error: bool = False


class StopEvent(StoredModel):
    """The turn is over: its `ExitReason`, such as ``completed``, ``suspended`` or ``interrupted``."""

    type: Literal["stop"] = "stop"
    stop_reason: Text
    usage: Usage = Usage()


class ResultEvent(StoredModel):
    """The turn's answer; the session is stored with it."""

    type: Literal["result"] = "result"
    text: str | None = None
    usage: Usage = Usage()


class ErrorEvent(StoredModel):
    """The turn failed, and the session has nothing of it; the same message, sent again, goes on with it."""

    type: Literal["error"] = "error"
    error_type: Text
    message: Text


SessionEvent = Annotated[
    MessageEvent | TextEvent | ToolUseEvent | ToolResultEvent | StopEvent | ResultEvent | ErrorEvent,
    Field(discriminator="type"),
]
"""What `Session.receive` yields."""
