"""How a LangGraph thread lies in the records of a session: what they are named, and what is in them.

A checkpoint, a value of a channel in one version, and a pending write are a record each.  What LangGraph
made of them is opaque here: a type and bytes, as its serializer gave them.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.ids import encode_id
from helix_temporal.stores.protocols.records import Record, RecordName

SESSION_KIND: Final = "langgraph"
CHECKPOINT: Final = "langgraph.checkpoint"
VALUE: Final = "langgraph.value"
WRITE: Final = "langgraph.write"
RUN: Final = "langgraph.run"

Typed: TypeAlias = tuple[str, bytes]
"""What a serializer of LangGraph makes of a value: the name of a form, and bytes."""
Version: TypeAlias = str | int | float

_LONGEST: Final = 1_000


def name_session(thread_id: str) -> str:
    """The id of a thread's session."""
    return f"{SESSION_KIND}/{encode_id(thread_id)}"


@dataclass(frozen=True, slots=True)
class CheckpointHead:
    """A checkpoint without the values of its channels and without pending writes.

    Attributes:
        namespace: ``checkpoint_ns``: of which graph within the run; empty for the outermost.
        checkpoint, metadata: As the serializer gave them.
        versions: Of each channel that has a value in this checkpoint.
        replayed: Channels that have no value of their own here: theirs is made of the writes of ancestors.
        run_id: Of the run that made it, where it has one.
    """

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: Typed
    metadata: Typed
    versions: Mapping[str, Version]
    replayed: tuple[str, ...] = ()
    run_id: str | None = None

    @property
    def name(self) -> RecordName:
        """Of its record."""
        return RecordName(CHECKPOINT, fit_name(self.checkpoint_id), fit_name(self.namespace))

    @property
    def writes_group(self) -> tuple[str, str]:
        """Kind and group of its pending writes."""
        return name_writes(self.namespace, self.checkpoint_id)

    @property
    def run_name(self) -> RecordName | None:
        """Of the record by which its run finds it."""
        if self.run_id is None:
            return None
        return RecordName(RUN, fit_name(f"{self.checkpoint_id}/{self.namespace}"), fit_name(self.run_id))

    def name_values(self) -> dict[str, RecordName]:
        """The records of the values, by channel."""
        return {channel: name_value(self.namespace, channel, at) for channel, at in self.versions.items()}

    def make_records(self) -> tuple[Record, ...]:
        """The checkpoint, and the entry in the index of runs."""
        fields: dict[str, Any] = {
            "ns": self.namespace,
            "id": self.checkpoint_id,
            "parent": self.parent_id,
            "versions": dict(self.versions),
            "replayed": self.replayed,
            "run": self.run_id,
        }
        body = _pack_parts(fields, (self.checkpoint, self.metadata))
        made = [Record(self.name.kind, self.name.key, body, self.name.group)]
        if (run := self.run_name) is not None:
            place = json.dumps([self.namespace, self.checkpoint_id]).encode()
            made.append(Record(run.kind, run.key, place, run.group))
        return tuple(made)


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write of a task to a channel, which the next checkpoint may use up.

    Attributes:
        index: Its place among the writes of the task; negative for the channels that LangGraph keeps for
            itself (error, scheduled, interrupt, resume).
        path: Of the task.  LangGraph applies writes in the order of path, task and index.
    """

    task_id: str
    index: int
    channel: str
    path: str
    value: Typed

    @property
    def replaces(self) -> bool:
        """Whether it takes the place of an earlier one, instead of leaving that as it is."""
        return self.index < 0

    @property
    def order(self) -> tuple[str, str, int]:
        """Sorts writes as LangGraph applies them."""
        return self.path, self.task_id, self.index

    def make_record(self, namespace: str, checkpoint_id: str) -> Record:
        """The write as a record of its checkpoint."""
        kind, group = name_writes(namespace, checkpoint_id)
        fields = {"task": self.task_id, "at": self.index, "channel": self.channel, "path": self.path}
        return Record(
            kind, fit_name(f"{self.task_id}/{self.index}"), _pack_parts(fields, (self.value,)), group
        )


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint with the values of its channels, and its pending writes in the order of LangGraph.

    Attributes:
        epoch: The thread's fence when this was read.  Who writes under it is refused once somebody has taken
            the thread over since.
    """

    head: CheckpointHead
    values: Mapping[str, Typed]
    writes: tuple[PendingWrite, ...]
    epoch: int


def read_head(record: Record) -> CheckpointHead:
    """Inverse of `CheckpointHead.make_records`."""
    fields, (checkpoint, metadata) = _unpack_parts(record)
    return CheckpointHead(
        fields["ns"],
        fields["id"],
        fields["parent"],
        checkpoint,
        metadata,
        fields["versions"],
        tuple(fields["replayed"]),
        fields["run"],
    )


def read_write(record: Record) -> PendingWrite:
    """Inverse of `PendingWrite.make_record`."""
    fields, (value,) = _unpack_parts(record)
    return PendingWrite(fields["task"], fields["at"], fields["channel"], fields["path"], value)


def make_value(name: RecordName, value: Typed) -> Record:
    """A channel's value as a record."""
    return Record(name.kind, name.key, _pack_parts({}, (value,)), name.group)


def read_value(record: Record) -> Typed:
    """Inverse of `make_value`."""
    (value,) = _unpack_parts(record)[1]
    return value


def name_value(namespace: str, channel: str, version: Version) -> RecordName:
    """A channel's value in one version.  Keys begin with the version: older ones come first."""
    # 1, 1.0 and "1" are equal for Python, or look alike, and are versions of their own.
    padded = f"{version:032}" if isinstance(version, int) else str(version)
    key = f"{type(version).__name__[0]}{padded}/{json.dumps(channel)[1:-1]}"
    return RecordName(VALUE, fit_name(key), fit_name(namespace))


def name_writes(namespace: str, checkpoint_id: str) -> tuple[str, str]:
    """Kind and group of a checkpoint's pending writes."""
    return WRITE, fit_name(f"{checkpoint_id}/{namespace}")


def fit_name(text: str) -> str:
    """The text as a key or group: as it is, or in a form that every store can keep."""
    plain = "\x00" not in text and not any("\ud800" <= each <= "\udfff" for each in text)
    fitted = text if plain else f"~{json.dumps(text)[1:-1]}"
    if len(fitted.encode()) <= _LONGEST:
        return fitted
    # The head keeps the order of most keys; what it stands for is in the record.
    return f"{fitted[:200]}~{hashlib.sha256(fitted.encode()).hexdigest()}"


def split_batches(names: Iterable[RecordName], size: int) -> list[tuple[RecordName, ...]]:
    """Each name once, ``size`` at a time."""
    each = list(dict.fromkeys(names))
    return [tuple(each[at : at + size]) for at in range(0, len(each), size)]


def _pack_parts(fields: Mapping[str, Any], parts: tuple[Typed, ...]) -> bytes:
    """A line of JSON that says what follows it, and then the bytes themselves."""
    told = {**fields, "parts": [[form, len(data)] for form, data in parts]}
    line = json.dumps(told, separators=(",", ":")).encode()
    return b"\n".join((line, b"".join(data for _, data in parts)))


def _unpack_parts(record: Record) -> tuple[dict[str, Any], tuple[Typed, ...]]:
    line, _, rest = record.body.partition(b"\n")
    try:
        fields = json.loads(line)
        parts, at = [], 0
        for form, size in fields["parts"]:
            parts.append((form, rest[at : at + size]))
            at += size
    except (KeyError, TypeError, ValueError):
        raise StoreCorruptError(f"a record of kind {record.kind!r} is none of a LangGraph thread") from None
    if at != len(rest):
        raise StoreCorruptError(f"a record of kind {record.kind!r}: {at} bytes expected, {len(rest)} found")
    return fields, tuple(parts)
