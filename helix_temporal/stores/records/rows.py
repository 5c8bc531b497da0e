"""Records as rows of a session: names, and bodies with the time of writing.  Pure."""

import re
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from helix_temporal.errors import InvalidRequestError, StoreCorruptError, TooLargeError
from helix_temporal.models.limits import MAX_STATE
from helix_temporal.stores.protocols.records import (
    Record,
    RecordChange,
    RecordName,
    WantedRecords,
)
from helix_temporal.stores.protocols.session_rows import RowKey, RowKind, SessionRow, WantedRows
from helix_temporal.stores.record_packs import PackRef, compute_checksum
from helix_temporal.stores.sessions.checks import checked_text

MAX_NAME: Final = 1024
"""Bytes of a key or a group.  With a session's id, both must fit into an entry of PostgreSQL's index."""
MAX_PAGE: Final = 1000

_KIND: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PART: Final = "/"
"""Between kind and group: no kind has it, so the first one ends the kind."""
_LAST: Final = chr(0x10FFFF)
_INLINE: Final = b"\x01"
_ARCHIVED: Final = b"\x02"
_HEADER: Final = 9
"""Bytes before the body: its form, and the time of writing."""
_STUB: Final = struct.Struct(">16sQII")
"""In place of an archived body: pack, offset, size and checksum."""
WORTH: Final = 4 * _STUB.size
"""Shorter bodies are not archived: a row would be about as long."""


def group_of(kind: str, group: str) -> str:
    """The row's group of a record's kind and group.

    Raises:
        InvalidRequestError, InvalidMessageError, TooLargeError: They are not what `RecordName` says.
    """
    if _KIND.fullmatch(checked_text(kind, "kind of a record", MAX_NAME)) is None:
        raise InvalidRequestError("kind of a record: 1 to 64 of A-Z a-z 0-9 _ . - expected")
    return f"{kind}{_PART}{checked_text(group, 'group of a record', MAX_NAME)}"


def groups_with_prefix(kind: str, prefix: str) -> tuple[str, str]:
    """The first group of a kind that can begin so, and what comes after all of them."""
    first = group_of(kind, prefix)
    # No text sorts between the last character that there is and the end of what begins so.
    last = ord(first[-1])
    if last < 0xD7FF:
        return first, f"{first[:-1]}{chr(last + 1)}"
    return first, f"{first}{_LAST * MAX_NAME}"


def group_in(row_group: str) -> str:
    """The group in a row's group."""
    return row_group.partition(_PART)[2]


def checked_key(key: str) -> str:
    """A record's key.

    Raises:
        InvalidRequestError, InvalidMessageError, TooLargeError: It is not what `RecordName` says.
    """
    if key == "":
        raise InvalidRequestError("key of a record: empty")
    return checked_text(key, "key of a record", MAX_NAME)


def checked_page(limit: object) -> int:
    """The size of a page of records.

    Raises:
        InvalidRequestError: It is not 1-1,000.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise InvalidRequestError(f"limit: 1 to {MAX_PAGE} expected")
    return limit


def row_key(name: RecordName) -> RowKey:
    """The row of a record."""
    return RowKey(RowKind.RECORD, checked_key(name.key), group_of(name.kind, name.group))


def wanted_rows(wanted: WantedRecords) -> WantedRows:
    """The rows of the records that are wanted."""
    return WantedRows(
        keys=tuple(row_key(RecordName(*name)) for name in wanted.names),
        groups=tuple((RowKind.RECORD, group_of(*each)) for each in wanted.groups),
        newest_in=tuple((RowKind.RECORD, group_of(*each)) for each in wanted.newest),
    )


def check_record(record: Record) -> None:
    """Refuse a record that no store can keep.

    Raises:
        TooLargeError: The body exceeds 16 MiB.
        InvalidRequestError: The body is not bytes, or the name is none.
    """
    row_key(record.name)
    if not isinstance(record.body, bytes):
        raise InvalidRequestError(f"body of a record: bytes expected, got {type(record.body).__name__}")
    if len(record.body) > MAX_STATE:
        raise TooLargeError(f"body of a record: {len(record.body)} > {MAX_STATE} bytes")


def encode_record(record: Record, written_at: int) -> SessionRow:
    """A record as it is stored, with the time of writing in ms since 1970."""
    name = row_key(record.name)
    body = b"".join((_INLINE, written_at.to_bytes(8, "big"), record.body))
    return SessionRow(name.kind, name.key, body, name.group)


class DecodedRecord(NamedTuple):
    """A record as its row has it.

    Attributes:
        written_at: When it was written, in ms since 1970.
        body: Its bytes, or where they are.
    """

    name: RecordName
    written_at: int
    body: bytes | PackRef


def decode_record(row: SessionRow) -> DecodedRecord:
    """Inverse of `encode_record` and `encode_stub`.

    Raises:
        StoreCorruptError: The row holds no record.
    """
    kind, part, group = row.group.partition(_PART)
    form, written_at, body = row.body[:1], int.from_bytes(row.body[1:_HEADER], "big"), row.body[_HEADER:]
    name = RecordName(kind, row.key, group)
    if part and form == _INLINE and len(row.body) >= _HEADER:
        return DecodedRecord(name, written_at, body)
    if part and form == _ARCHIVED and len(body) == _STUB.size:
        pack, *place = _STUB.unpack(body)
        return DecodedRecord(name, written_at, PackRef(pack.hex(), *place))
    raise StoreCorruptError(f"a record of kind {kind!r}: the stored bytes are none")


def encode_stub(stored: DecodedRecord, ref: PackRef) -> SessionRow:
    """The row of a record whose body is in a pack; the time of writing stays."""
    name = row_key(stored.name)
    place = _STUB.pack(bytes.fromhex(ref.pack), ref.offset, ref.size, ref.checksum)
    body = b"".join((_ARCHIVED, stored.written_at.to_bytes(8, "big"), place))
    return SessionRow(name.kind, name.key, body, name.group)


def cut_from_pack(session_id: str, stored: DecodedRecord, ref: PackRef, whole: bytes) -> Record:
    """An archived record, out of the bodies of its pack.

    Raises:
        StoreCorruptError: What is there is not this record's body.
    """
    kind, key, group = stored.name
    body = whole[ref.offset : ref.offset + ref.size]
    if len(body) != ref.size or checksum_of(session_id, stored.name, body) != ref.checksum:
        raise StoreCorruptError(f"a record of kind {kind!r} of session {session_id!r} is not in its pack")
    return Record(kind, key, body, group)


def checksum_of(session_id: str, name: RecordName, body: bytes) -> int:
    """The checksum of an archived body."""
    return compute_checksum(body, session_id, name.kind, name.group, name.key)


def in_order(records: Iterable[Record]) -> tuple[Record, ...]:
    """By kind, group and key: text sorts by code points as UTF-8 does by bytes."""
    return tuple(sorted(records, key=lambda each: (each.kind, each.group, each.key)))


def plain_parts(change: RecordChange) -> tuple[object, ...]:
    """A change for the digest of a request."""
    return (
        [(*each.name, each.body) for each in change.puts],
        [tuple(name) for name in change.removes],
        [tuple(each) for each in change.clears],
    )
