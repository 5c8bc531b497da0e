"""Between what LangGraph hands to a saver and what is stored of it, in a program or in a workflow."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from helix_temporal.frameworks.langgraph_records import CheckpointHead, PendingWrite, StoredCheckpoint, Typed

if TYPE_CHECKING:
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        RunnableConfig,
        SerializerProtocol,
    )

EPOCH: Final = "__helix_epoch"
"""In a config: the fence of the thread when its checkpoint was read.  The run hands it to what it writes."""
_COUNTERS: Final = "counters_since_delta_snapshot"


def encode_checkpoint(
    serde: "SerializerProtocol",
    config: "RunnableConfig",
    checkpoint: "Checkpoint",
    metadata: "CheckpointMetadata",
    new_versions: "ChannelVersions",
) -> tuple[CheckpointHead, dict[str, Typed]]:
    """A checkpoint behind the one that the config names, and the values that are new with it."""
    rest: dict[str, Any] = dict(checkpoint)
    values: dict[str, Any] = rest.pop("channel_values")
    versions = checkpoint["channel_versions"]
    told: dict[str, Any] = dict(get_checkpoint_metadata(config, metadata))
    # LangGraph counts here what a delta channel was given since it was last stored whole.
    counted = told.get(_COUNTERS) or {}
    head = CheckpointHead(
        read_place(config)[1],
        checkpoint["id"],
        get_checkpoint_id(config),
        serde.dumps_typed(rest),
        serde.dumps_typed(told),
        {channel: versions[channel] for channel in values if channel in versions},
        tuple(channel for channel in counted if channel in versions and channel not in values),
        str(told["run_id"]) if told.get("run_id") is not None else None,
    )
    fresh = {
        channel: serde.dumps_typed(values[channel]) for channel in new_versions if channel in head.versions
    }
    return head, fresh


def encode_writes(
    serde: "SerializerProtocol", writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> list[PendingWrite]:
    """The pending writes of a task."""
    return [
        PendingWrite(task_id, WRITES_IDX_MAP.get(channel, at), channel, task_path, serde.dumps_typed(value))
        for at, (channel, value) in enumerate(writes)
    ]


def decode_write(serde: "SerializerProtocol", write: PendingWrite) -> tuple[str, str, Any]:
    """A pending write as LangGraph has it."""
    return write.task_id, write.channel, serde.loads_typed(write.value)


def decode_checkpoint(
    serde: "SerializerProtocol", thread_id: str, found: StoredCheckpoint
) -> CheckpointTuple:
    """A checkpoint as LangGraph has it; its config says under which fence it was read."""
    head = found.head
    checkpoint: dict[str, Any] = serde.loads_typed(head.checkpoint)
    values = {channel: serde.loads_typed(value) for channel, value in found.values.items()}
    parent = head.parent_id
    return CheckpointTuple(
        make_config(thread_id, head.namespace, head.checkpoint_id, epoch=found.epoch),
        {**checkpoint, "id": head.checkpoint_id, "channel_values": values},
        serde.loads_typed(head.metadata),
        None if parent is None else make_config(thread_id, head.namespace, parent),
        [decode_write(serde, each) for each in found.writes],
    )


def decode_history(
    serde: "SerializerProtocol", history: Mapping[str, tuple[Sequence[PendingWrite], Typed | None]]
) -> dict[str, Any]:
    """What channels are made of, as LangGraph has it."""
    return {
        channel: {
            "writes": [decode_write(serde, each) for each in writes],
            **({} if seed is None else {"seed": serde.loads_typed(seed)}),
        }
        for channel, (writes, seed) in history.items()
    }


def next_version(current: str | float | None, random: float) -> str:
    """The next version of a channel: two branches of a thread never come to the same one."""
    # As the savers of LangGraph write it, so that a thread which is copied from one of them goes on.
    before = int(str(current).split(".")[0]) if current is not None else 0
    return f"{before + 1:032}.{random:016}"


def read_place(config: "RunnableConfig") -> tuple[str, str]:
    """The thread and the namespace that a config names."""
    place = config["configurable"]
    return str(place["thread_id"]), place.get("checkpoint_ns") or ""


def read_epoch(config: "RunnableConfig") -> int | None:
    """The fence under which the run began."""
    epoch: int | None = config["configurable"].get(EPOCH)
    return epoch


def make_config(
    thread_id: str, namespace: str, checkpoint_id: str, *, epoch: int | None = None
) -> "RunnableConfig":
    """A config that names a checkpoint."""
    place: dict[str, Any] = {
        "thread_id": thread_id,
        "checkpoint_ns": namespace,
        "checkpoint_id": checkpoint_id,
    }
    return {"configurable": place if epoch is None else {**place, EPOCH: epoch}}
