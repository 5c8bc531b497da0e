"""One input and one result per activity ``helix.threads.*``.

These models are in workflow histories: fields are added with defaults, never renamed or removed, and a
default never changes, since fields that were not set are not written.
"""

from typing import Annotated, Literal

from pydantic import Field

from helix_temporal.models.base import CheckedObject, WireModel
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import Message
from helix_temporal.models.steps import ReopenHeads
from helix_temporal.models.stored_messages import EMPTY, Epoch, Head, Position

Limit = Annotated[int, Field(strict=True)]


class ThreadInput(WireModel):
    """Names a thread."""

    thread_id: Id


class ThreadEpochInput(WireModel):
    """Names a thread and the epoch under which it is open."""

    thread_id: Id
    epoch: Epoch


class OpenThreadInput(WireModel):
    """Take a thread's epoch.  ``owner`` defaults to the calling workflow's first execution."""

    thread_id: Id
    create: Literal["auto", "new", "never"] = "auto"
    owner: str | None = None
    reopen: ReopenHeads | None = None
    rewind_to: Head | None = None
    adapter: str = ""


class OpenThreadResult(WireModel):
    """The epoch to write under, and where the thread stands."""

    epoch: Epoch
    head: Head
    committed: int
    slice_version: int = 0
    created: bool = False
    cut: int = 0


class AppendMessagesInput(WireModel):
    """One step: messages that stand together exactly at ``head``.

    Attributes:
        commits: They end a turn.
    """

    thread_id: Id
    epoch: Epoch
    head: Head
    messages: tuple[Message, ...]
    commits: bool = True


class AppendMessagesResult(WireModel):
    """Where the thread stands after them; ``repeated`` if they stood there already."""

    head: Head
    committed: int
    repeated: bool = False


class ReplaceMessagesInput(WireModel):
    """Replace all messages: a rewind to the beginning and an append, in one step."""

    thread_id: Id
    messages: tuple[Message, ...]
    owner: str | None = None


class ReadMessagesInput(WireModel):
    """Which messages to read; see `ReadPage` for the meaning of each field.

    Attributes:
        packed: Give them as bytes, and fewer than asked for where they do not fit into one result.
    """

    thread_id: Id
    start: Limit = 0
    stop: Limit | None = None
    limit: Limit = 100
    max_bytes: Limit = 256 * 1024
    backward: bool = False
    committed_only: bool = True
    whole: bool = True
    packed: bool = False


class LargeMessage(WireModel):
    """A message of a page whose content is too large for one result; ``size`` is that of its body."""

    position: Position
    id: str
    size: int


class ReadMessagesResult(WireModel):
    """Consecutive messages, oldest first, and where to go on.

    Attributes:
        large: Those among ``messages`` that come without their content; `ReadBodyInput` brings it.
        packed: Instead of ``messages``: messages as a store keeps them, compressed, as text; see `pack_page`.
    """

    first: Position
    messages: tuple[Message, ...]
    before: Position | None
    after: Position | None
    head: Head
    committed: int
    large: tuple[LargeMessage, ...] = ()
    packed: str = ""


class ReadBodyInput(WireModel):
    """A part of one message's body, from byte ``offset`` on."""

    thread_id: Id
    position: Position
    id: str
    offset: Position = 0


class ReadBodyResult(WireModel):
    """Bytes of the body in Base64, as many as fit one result, and how many there are in all."""

    data: str
    size: int


class DescribeThreadResult(WireModel):
    """Where a thread stands."""

    thread_id: str
    head: Head
    committed: int
    epoch: int
    owner: str
    closed: bool
    hot: bool
    archived: int
    slice_version: int
    adapter: str
    size: int


class ForkThreadInput(WireModel):
    """Copy finished turns into a new thread.  ``transform`` names a registered transform."""

    source_id: Id
    target_id: Id
    at: Position | None = None
    transform: str | None = None
    owner: str | None = None


class LoadStateResult(WireModel):
    """The slice and its version."""

    state: CheckedObject
    version: int


class SaveStateInput(WireModel):
    """Replace the slice of an open thread."""

    thread_id: Id
    epoch: Epoch
    state: CheckedObject
    expected_version: int


class SaveStateResult(WireModel):
    """The new version."""

    version: int


class FlushThreadInput(WireModel):
    """Archive an open thread.

    Attributes:
        closes: Shut its epoch for late attempts.
        ends: With ``closes``: a turn that waits for somebody is cut by the next open.
        slice_version: The state that must be archived, or a later one.
        head: Up to which the caller knows the thread: if neither store holds it, that is an error.
    """

    thread_id: Id
    epoch: Epoch
    closes: bool = False
    ends: bool = True
    slice_version: int = 0
    head: Head | None = None


class FlushThreadResult(WireModel):
    """What the flush did; ``status`` is ``archived``, ``no_cold_tier`` or ``unavailable``."""

    status: str
    head: Head = EMPTY
    committed: int = 0
    version: int = 0
    puts: int = 0
    gets: int = 0
    uploaded: int = 0
    pending_bytes: int = 0
    reason: str = ""


class EvictThreadResult(WireModel):
    """What became of the hot thread: ``dropped``, ``kept_warm``, ``absent``, ``newer``, ``no_cold_tier``."""

    outcome: str


class HydrateThreadResult(WireModel):
    """Whether the thread is hot now."""

    hot: bool
    head: Head = EMPTY


class DeleteThreadInput(WireModel):
    """Remove a thread for good."""

    thread_id: Id


class Done(WireModel):
    """It is done."""
