"""Heads, and records: messages as the opaque bytes that stores keep."""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Annotated, Final, NamedTuple, overload

from pydantic import Field

from helix_temporal.errors import ArchiveCorruptError
from helix_temporal.models.base import Model

Position = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
"""A place in a thread: messages are numbered from 0."""

Epoch = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
"""Microseconds since 1970 at which the open of a thread was scheduled; higher fences lower."""


class Head(Model):
    """A place in a thread: the next position, and the id of the message before it (empty at 0)."""

    position: Position
    last_id: str


EMPTY: Final = Head(position=0, last_id="")
"""The head of a thread without messages."""


class Kind:
    """What a record is to the store: all it needs to know to keep call and result together."""

    USER: Final = "u"
    ANSWER: Final = "a"
    CALLS: Final = "c"
    """An answer that asks for tools; its results follow it."""
    RESULT: Final = "t"
    OTHER: Final = "o"


_PREFIX: Final = Struct(">IcH")
"""Length, kind and length of the id, before the id and the body: `pack` writes all records in one go."""


class Record(NamedTuple):
    """One message as a store sees it."""

    kind: str
    id: str
    body: bytes


def decode_record(data: bytes) -> Record:
    """A record from its bytes, without the length before them.

    Raises:
        ArchiveCorruptError: The bytes are no record.
    """
    size = int.from_bytes(data[1:3], "big")
    if len(data) < 3 + size:
        raise ArchiveCorruptError(f"record of {len(data)} bytes is cut inside its id")
    try:
        return Record(data[:1].decode("ascii"), data[3 : 3 + size].decode(), data[3 + size :])
    except UnicodeDecodeError as error:
        raise ArchiveCorruptError("record has a kind or an id that is not text") from error


def pack(records: Iterable[Record]) -> bytes:
    """Records one after the other, each with its length before it."""
    parts: list[bytes] = []
    for kind, message_id, body in records:
        identity = message_id.encode()
        size = len(identity)
        parts += (_PREFIX.pack(3 + size + len(body), kind.encode("ascii"), size), identity, body)
    return b"".join(parts)


def unpack(data: bytes) -> list[Record]:
    """Inverse of `pack`.

    Raises:
        ArchiveCorruptError: A length points past the end, or a record is damaged.
    """
    records: list[Record] = []
    at, end = 0, len(data)
    while at < end:
        if at + _PREFIX.size > end:
            raise ArchiveCorruptError(f"records are cut: {end - at} bytes left at {at}")
        size, kind, id_size = _PREFIX.unpack_from(data, at)
        start = at + _PREFIX.size
        body, at = start + id_size, at + 4 + size
        if at > end:
            raise ArchiveCorruptError(f"records are cut: {at} bytes announced, {end} there")
        if body > at:
            raise ArchiveCorruptError(f"record of {size} bytes is cut inside its id")
        try:
            records.append(Record(kind.decode("ascii"), data[start:body].decode(), data[body:at]))
        except UnicodeDecodeError as error:
            raise ArchiveCorruptError("record has a kind or an id that is not text") from error
    return records


class Packed(Sequence[Record]):
    """Records as what `pack` makes of each: copied from tier to tier, decoded where one is asked for."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> "Packed": ...
    def __getitem__(self, at: int | slice) -> "Record | Packed":
        """A record, or some of them as they are."""
        if isinstance(at, slice):
            return Packed(self.pieces[at])
        return decode_record(self.pieces[at][4:])

    def __len__(self) -> int:
        """How many records."""
        return len(self.pieces)


def split(data: bytes) -> list[bytes]:
    """What `pack` made of each record, for `Packed`.

    Raises:
        ArchiveCorruptError: A length points past the end.
    """
    pieces: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        if at + _PREFIX.size > end:
            raise ArchiveCorruptError(f"records are cut: {end - at} bytes left at {at}")
        size, _, id_size = _PREFIX.unpack_from(data, at)
        start, at = at, at + 4 + size
        if at > end:
            raise ArchiveCorruptError(f"records are cut: {at} bytes announced, {end} there")
        if id_size + 3 > size:
            raise ArchiveCorruptError(f"record of {size} bytes is cut inside its id")
        pieces.append(data[start:at])
    return pieces


def size_of(records: Iterable[Record]) -> int:
    """Bytes that these records take when packed."""
    return sum(7 + len(record.id.encode()) + len(record.body) for record in records)


def head_after(head: Head, records: Sequence[Record]) -> Head:
    """Where a thread stands once ``records`` follow ``head``."""
    if not records:
        return head
    return Head(position=head.position + len(records), last_id=records[-1].id)
