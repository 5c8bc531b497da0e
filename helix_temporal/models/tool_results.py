"""What comes of a tool call.

These models are in workflow histories: fields are added with defaults, never renamed or removed, and a
default never changes, since fields that were not set are not written.
"""

from typing import Literal

from pydantic import JsonValue

from helix_temporal.models._base import Model
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import Usage


class ChildEnd(Model):
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


class ToolResult(Model):
    """A tool's result: short ones as they are, long ones by reference.

    Attributes:
        staged: Names what the tool changed of the session's state; empty where it changed nothing.
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
