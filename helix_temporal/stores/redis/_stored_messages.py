"""Messages as they stand in a record, each with its checksums; the scripts know where they lie.

A message is its length in 4 bytes, kind, length of the id in 2 bytes, id, checksum of the id in 2 bytes,
body, and in 4 bytes the checksum of the whole.  Both are also of the position: a message of another place is
damage.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final
from zlib import crc32

from helix_temporal.models.records import Packed, Record
from helix_temporal.stores._checksums import damaged

ID_SUM: Final = 2
SUMS: Final = ID_SUM + 4
"""Bytes that the checksums add to a message."""

_PREFIX: Final = Struct(">IcH")
_SUM: Final = Struct(">I")
_LOW: Final = 0xFFFFFFFF


def stored_pieces(start: int, records: Sequence[Record]) -> list[bytes]:
    """What is stored of each record, the first of them at position ``start``."""
    if isinstance(records, Packed):
        return [_stored_from_packed(start + at, piece) for at, piece in enumerate(records.pieces)]
    return [
        _stored(start + at, kind.encode("ascii"), message_id.encode(), body)
        for at, (kind, message_id, body) in enumerate(records)
    ]


def _stored_from_packed(position: int, piece: bytes) -> bytes:
    body = 7 + int.from_bytes(piece[5:7], "big")
    return _stored(position, piece[4:5], piece[7:body], piece[body:])


def _stored(position: int, kind: bytes, identity: bytes, body: bytes) -> bytes:
    id_size = len(identity)
    size = 3 + id_size + len(body) + SUMS
    before = _PREFIX.pack(size, kind, id_size) + identity + _id_sum(identity, position)
    # In two parts, since joining them first would copy the body once more.
    checksum = crc32(body, crc32(before[4:], position & _LOW))
    return b"".join((before, body, _SUM.pack(checksum)))


def read_messages(data: bytes, first: int, where: str) -> tuple[Record, ...]:
    """The records in stored bytes.

    Args:
        data: Messages one after the other, large ones whole.
        first: Position of the first.
        where: Store and key, for the error.

    Raises:
        StoreCorruptError: A message is not what was stored there.
    """
    records: list[Record] = []
    at, end, position, view = 0, len(data), first, memoryview(data)
    while at < end:
        if at + _PREFIX.size > end:
            raise _damaged(where, position)
        size, kind, id_size = _PREFIX.unpack_from(data, at)
        start, tail = at + _PREFIX.size, at + size
        identity = start + id_size
        body = identity + ID_SUM
        if (
            body > tail
            or tail + 4 > end
            or _SUM.unpack_from(data, tail)[0] != crc32(view[at + 4 : tail], position & _LOW)
        ):
            raise _damaged(where, position)
        records.append(Record(kind.decode("ascii"), data[start:identity].decode(), data[body:tail]))
        at, position = tail + 4, position + 1
    return tuple(records)


def read_ids(data: bytes, first: int, where: str) -> tuple[str, ...]:
    """Ids, each with its length in two bytes before it and its checksum behind; ``first`` as above.

    Raises:
        StoreCorruptError: An id is not what was stored there.
    """
    found: list[str] = []
    at = 0
    while at < len(data):
        stop = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if data[stop : stop + ID_SUM] != _id_sum(data[at + 2 : stop], first + len(found)):
            raise _damaged(where, first + len(found))
        found.append(data[at + 2 : stop].decode())
        at = stop + ID_SUM
    return tuple(found)


def _id_sum(identity: bytes, position: int) -> bytes:
    return (crc32(identity, position & _LOW) & 0xFFFF).to_bytes(ID_SUM, "big")


def _damaged(where: str, position: int) -> Exception:
    return damaged(
        where, f"the message at position {position} is not the one that was stored", position=position
    )
