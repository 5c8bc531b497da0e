"""What a workflow and its worker tell each other of LangGraph threads: JSON with bytes as base64."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from helix_temporal.frameworks.langgraph_records import (
    CHECKPOINT,
    WRITE,
    CheckpointHead,
    PendingWrite,
    StoredCheckpoint,
    Typed,
    read_head,
    read_write,
)
from helix_temporal.stores.protocols.records import Record

OPEN = "helix.langgraph.open"
LOAD = "helix.langgraph.load"
LIST = "helix.langgraph.list"
HISTORY = "helix.langgraph.history"
SAVE = "helix.langgraph.save"
DELETE = "helix.langgraph.delete"


@dataclass
class WireCheckpoint:
    """A checkpoint with values and pending writes, or with those that are new with it."""

    head: str
    values: dict[str, list[str]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)


@dataclass
class OpenGraphThread:
    """Take a thread over for this execution of a workflow, and tell where it stands."""

    thread_id: str


@dataclass
class OpenedGraphThread:
    """Where a thread stands.

    Attributes:
        epoch: Under which the execution writes.
        namespaces: That have checkpoints.
        newest: The newest checkpoint of the outermost graph.
    """

    epoch: int
    namespaces: list[str]
    newest: WireCheckpoint | None = None


@dataclass
class LoadCheckpoint:
    """Read one checkpoint, or the newest of a namespace."""

    thread_id: str
    namespace: str
    checkpoint_id: str | None = None


@dataclass
class LoadedCheckpoint:
    """It, if it is there."""

    checkpoint: WireCheckpoint | None = None


@dataclass
class ListCheckpoints:
    """Read a page of a namespace, newest first, before a checkpoint."""

    thread_id: str
    namespace: str
    before: str | None = None
    limit: int = 20


@dataclass
class ListedCheckpoints:
    """The page; a short one is the last."""

    checkpoints: list[WireCheckpoint]


@dataclass
class ReadHistory:
    """Read what delta channels are made of."""

    thread_id: str
    namespace: str
    checkpoint_id: str | None
    channels: list[str]


@dataclass
class ChannelHistory:
    """The nearest ancestor's value, if it has one, and the writes since."""

    writes: list[str]
    seed: list[str] | None = None


@dataclass
class ReadHistories:
    """By channel."""

    channels: dict[str, ChannelHistory]


@dataclass
class SavedChange:
    """A checkpoint that is put, or pending writes of one task to one that was put before.

    Attributes:
        put: With the values that are new with it.
        namespace, checkpoint_id, writes: Pending writes, and of which checkpoint.
    """

    put: WireCheckpoint | None = None
    namespace: str = ""
    checkpoint_id: str = ""
    writes: list[str] = field(default_factory=list)


@dataclass
class SaveThread:
    """Store what a turn has made, in this order; again, it stands once."""

    thread_id: str
    epoch: int
    changes: list[SavedChange]


@dataclass
class SavedThread:
    """It is stored.

    Attributes:
        checkpoint_ids: Of the checkpoints that were put.  A replay makes others, and goes on with these.
    """

    checkpoint_ids: list[str]


@dataclass
class DeleteThread:
    """Delete a thread."""

    thread_id: str


def pack_checkpoint(found: StoredCheckpoint) -> WireCheckpoint:
    """A checkpoint for the wire."""
    return WireCheckpoint(
        _pack(found.head.make_records()[0].body),
        {channel: pack_typed(value) for channel, value in found.values.items()},
        pack_writes(found.writes),
    )


def unpack_checkpoint(found: WireCheckpoint, epoch: int) -> StoredCheckpoint:
    """Inverse of `pack_checkpoint`."""
    return StoredCheckpoint(
        unpack_head(found),
        unpack_values(found.values),
        tuple(map(unpack_write, found.writes)),
        epoch,
    )


def unpack_head(found: WireCheckpoint) -> CheckpointHead:
    """The checkpoint alone."""
    return read_head(Record(CHECKPOINT, "", b64decode(found.head)))


def unpack_values(values: Mapping[str, Sequence[str]]) -> dict[str, Typed]:
    """Values by channel."""
    return {channel: unpack_typed(value) for channel, value in values.items()}


def pack_writes(writes: Sequence[PendingWrite]) -> list[str]:
    """Pending writes for the wire."""
    return [_pack(each.make_record("", "").body) for each in writes]


def unpack_write(body: str) -> PendingWrite:
    """One of `pack_writes`."""
    return read_write(Record(WRITE, "", b64decode(body)))


def pack_typed(value: Typed) -> list[str]:
    """A serialized value for the wire."""
    form, data = value
    return [form, _pack(data)]


def unpack_typed(value: Sequence[str]) -> Typed:
    """Inverse of `pack_typed`."""
    form, data = value
    return form, b64decode(data)


def _pack(data: bytes) -> str:
    return b64encode(data).decode()
