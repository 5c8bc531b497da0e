"""Heads, and records: messages as the opaque bytes that stores keep."""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Annotated, Final, NamedTuple, overload
from zlib import crc32

from pydantic import Field

from helix_temporal.errors import ArchiveCorruptError
from helix_temporal.models.base import WireModel

Position = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
"""A place in a thread: messages are numbered from 0."""

Epoch = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
"""Microseconds since 1970 at which the open of a thread was scheduled; higher fences lower."""


class Head(WireModel):
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
"""Length, kind and length of the id, before the id."""
_KIND_AND_ID: Final = Struct(">cH")

ID_SUM: Final = 2
"""Bytes of the checksum behind an id, which is read without its message, too."""
SUMS: Final = ID_SUM + 4
"""Bytes that the checksums add to a packed record."""
_LOW: Final = 0xFFFFFFFF


class Record(NamedTuple):
    """One message as a store sees it."""

    kind: str
    id: str
    body: bytes


def pack_each(records: Sequence["Record"], first: int) -> list[bytes]:
    """Each record as the stores and the archive keep it; see `pack_records`."""
    if isinstance(records, Packed):
        return list(records.pieces)
    pieces: list[bytes] = []
    for position, (kind, message_id, body) in enumerate(records, first):
        identity = message_id.encode()
        before = _KIND_AND_ID.pack(kind.encode("ascii"), len(identity))
        checksum = checksum_of_id(identity, position)
        pieces.append(
            b"".join(
                (
                    (3 + len(identity) + len(body) + SUMS).to_bytes(4, "big"),
                    before,
                    identity,
                    (checksum & 0xFFFF).to_bytes(ID_SUM, "big"),
                    body,
                    checksum_of_message(before, checksum, body).to_bytes(4, "big"),
                )
            )
        )
    return pieces


def pack_records(records: Sequence["Record"], first: int = 0) -> bytes:
    """Records one after the other, as the stores and the archive keep them.

    Each has its length (4 bytes, without itself), kind (1), length of its id (2), id, checksum of the id (2),
    body, and checksum of the whole (4).  Both checksums count the position: a record that is read elsewhere
    is not the one that was stored there.

    Args:
        records: To be packed.
        first: Position of the first in its thread.
    """
    return b"".join(pack_each(records, first))


def checksum_of_id(identity: bytes, position: int) -> int:
    """CRC-32 of a message's id at its position; its lower 16 bits are stored behind the id."""
    return crc32(identity, position & _LOW)


def checksum_of_message(kind_and_size: bytes, id_checksum: int, body: bytes) -> int:
    """CRC-32 of a whole message, which goes on from that of its id."""
    return crc32(body, id_checksum ^ int.from_bytes(kind_and_size, "big"))


def unpack_records(data: bytes) -> list["Record"]:
    """Inverse of `pack_records`.  The checksums are not looked at: what holds the records has one of its own.

    Raises:
        ArchiveCorruptError: A length points past the end, or a record is damaged.
    """
    return [_record_at(data, start, stop) for start, stop in _record_bounds(data)]


def split_records(data: bytes) -> list[bytes]:
    """What `pack_records` made of each record, for `Packed`.

    Raises:
        ArchiveCorruptError: A length points past the end.
    """
    return [data[start:stop] for start, stop in _record_bounds(data)]


def _record_bounds(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each record begins and ends.

    Raises:
        ArchiveCorruptError: A length points past the end.
    """
    at, end = 0, len(data)
    while at < end:
        if at + _PREFIX.size > end:
            raise ArchiveCorruptError(f"records are cut: {end - at} bytes left at {at}")
        size, _, id_size = _PREFIX.unpack_from(data, at)
        start, at = at, at + 4 + size
        if at > end:
            raise ArchiveCorruptError(f"records are cut: {at} bytes announced, {end} there")
        if id_size + 3 + SUMS > size:
            raise ArchiveCorruptError(f"record of {size} bytes is cut inside its id")
        yield start, at


def _record_at(data: bytes, start: int, stop: int) -> "Record":
    _, kind, id_size = _PREFIX.unpack_from(data, start)
    identity = start + _PREFIX.size
    behind = identity + id_size
    try:
        return Record(kind.decode("ascii"), data[identity:behind].decode(), data[behind + ID_SUM : stop - 4])
    except UnicodeDecodeError as error:
        raise ArchiveCorruptError("record has a kind or an id that is not text") from error


class Packed(Sequence[Record]):
    """Records as `pack_records` makes them: copied from tier to tier, decoded where one is asked for."""

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
        return _record_at(self.pieces[at], 0, len(self.pieces[at]))

    def __len__(self) -> int:
        """How many records."""
        return len(self.pieces)

    @property
    def message_bytes(self) -> int:
        """`size_of` the records."""
        return sum(map(len, self.pieces)) - SUMS * len(self.pieces)


def size_of(records: Iterable[Record]) -> int:
    """Bytes of these records, with their lengths and without checksums."""
    return sum(7 + len(record.id.encode()) + len(record.body) for record in records)


def head_after(head: Head, records: Sequence[Record]) -> Head:
    """Where a thread stands once ``records`` follow ``head``."""
    if not records:
        return head
    return Head(position=head.position + len(records), last_id=records[-1].id)
