"""Between rows and what the protocols speak of."""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from helix_temporal.models.records import Head, Record
from helix_temporal.stores._checksums import SIZE, checked, damaged, with_checksum
from helix_temporal.stores.postgres._protocol import Row
from helix_temporal.stores.protocols.hot import HotHeader


def header_of(thread_id: str, row: Row) -> HotHeader:
    """The header in a row that has its columns.

    Raises:
        StoreCorruptError: Header or slice is not what was stored.
    """
    where = f"thread {thread_id!r} in PostgreSQL"
    if not row["sound"]:
        raise damaged(where, "the checksum of its header is wrong")
    return HotHeader(
        thread_id,
        epoch=row["epoch"],
        owner=row["owner"],
        head=Head(position=row["head"], last_id=row["last_id"]),
        committed=row["committed"],
        base=Head(position=row["base"], last_id=row["base_id"]),
        closed=row["closed"],
        slice=checked(row["slice"], f"the slice of {where}", row["slice_version"]),
        slice_version=row["slice_version"],
        adapter=row["adapter"],
        size=row["size"],
        base_size=row["base_size"],
        archived=row["archived"],
        archived_size=row["archived_size"],
        unarchived_since=row["unarchived_since"],
        deleted=row["deleted"],
        born=row["born"],
        cut=row["cut"],
        origin=row["origin"],
    )


def header_values(header: HotHeader) -> tuple[Any, ...]:
    """The thread's id and its header, in the order of the columns that ``thread_insert`` names."""
    return (
        header.thread_id,
        header.epoch,
        header.owner,
        header.closed,
        header.head.position,
        header.head.last_id,
        header.committed,
        header.base.position,
        header.base.last_id,
        slice_value(header.slice, header.slice_version),
        header.slice_version,
        header.adapter,
        header.size,
        header.base_size,
        header.archived,
        header.archived_size,
        header.unarchived_since,
        header.deleted,
        header.born,
        header.cut,
        header.origin,
    )


def slice_value(data: bytes, version: int) -> bytes:
    """A slice as it is stored."""
    return with_checksum(data, version)


def records_of(row: Row, thread_id: str, first: int, side: str = "") -> tuple[Record, ...]:
    """The messages in a row's columns ``kinds``, ``ids`` and ``bodies``; aggregates of nothing are null.

    Args:
        row: It has these columns.
        thread_id: For the error.
        first: Position of the first message.
        side: What stands before the columns' names.

    Raises:
        StoreCorruptError: A message is not what was stored at its position.
    """
    kinds: list[str] | None = row[f"{side}kinds"]
    if kinds is None:
        return ()
    found: list[Record] = []
    for position, (kind, message_id, stored) in enumerate(
        zip(kinds, row[f"{side}ids"], row[f"{side}bodies"], strict=True), first
    ):
        body = stored[:-SIZE]
        if _sum(position, kind, message_id, body) != stored[-SIZE:]:
            what = f"the message at position {position} is not the one that was stored"
            raise damaged(f"thread {thread_id!r} in PostgreSQL", what, position=position)
        found.append(Record(kind, message_id, body))
    return tuple(found)


def columns(first: int, records: Sequence[Record]) -> tuple[list[str], list[str], list[bytes]]:
    """Kinds, ids and bodies with their checksums, from position ``first`` on."""
    kinds: list[str] = []
    ids: list[str] = []
    bodies: list[bytes] = []
    for position, (kind, message_id, body) in enumerate(records, first):
        kinds.append(kind)
        ids.append(message_id)
        bodies.append(body + _sum(position, kind, message_id, body))
    return kinds, ids, bodies


def _sum(position: int, kind: str, message_id: str, body: bytes) -> bytes:
    start = f"{position} {kind} {message_id}"
    return crc32(body, crc32(start.encode())).to_bytes(SIZE, "big")
