"""Between rows and what the protocols speak of."""

from collections.abc import Sequence
from typing import Any

from helix_temporal.models.records import Head, Record
from helix_temporal.stores.postgres._protocol import Row
from helix_temporal.stores.protocols.hot import HotHeader


def header_of(thread_id: str, row: Row) -> HotHeader:
    """The header in a row that has its columns."""
    return HotHeader(
        thread_id,
        epoch=row["epoch"],
        owner=row["owner"],
        head=Head(position=row["head"], last_id=row["last_id"]),
        committed=row["committed"],
        base=Head(position=row["base"], last_id=row["base_id"]),
        closed=row["closed"],
        slice=row["slice"],
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
        header.slice,
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


def records_of(row: Row, side: str = "") -> tuple[Record, ...]:
    """The messages in a row's columns ``kinds``, ``ids`` and ``bodies``; aggregates of nothing are null."""
    kinds = row[f"{side}kinds"]
    if kinds is None:
        return ()
    return tuple(map(Record, kinds, row[f"{side}ids"], row[f"{side}bodies"]))


def columns(records: Sequence[Record]) -> tuple[list[str], list[str], list[bytes]]:
    """Kinds, ids and bodies."""
    kinds: list[str] = []
    ids: list[str] = []
    bodies: list[bytes] = []
    for kind, message_id, body in records:
        kinds.append(kind)
        ids.append(message_id)
        bodies.append(body)
    return kinds, ids, bodies
