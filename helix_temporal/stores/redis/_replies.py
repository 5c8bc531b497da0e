"""Bytes on the wire to and from the scripts: messages in fields, headers in one string."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from helix_temporal.models.records import EMPTY, Head, Record, size_of
from helix_temporal.stores._checksums import SIZE, checked, with_checksum
from helix_temporal.stores._decide import answer_kinds
from helix_temporal.stores.protocols.hot import HotHeader, StepAppend
from helix_temporal.stores.redis._stored_messages import ID_SUM, stored_pieces

MAX_PER_FIELD: Final = 64
"""More messages in a field would make finding a position dearer; the scripts know this number."""

LARGE: Final = 2048
"""The body of a larger message is a field of its own; the scripts learn from the stub that it is."""

_STUB: Final = 0x80000000

APPEND_FIELD_BYTES: Final = 256 * 1024
INSTALL_FIELD_BYTES: Final = 32 * 1024


def fields(start: int, records: Sequence[Record], max_bytes: int) -> list[str | bytes]:
    """Names and values of the fields that hold ``records`` from position ``start`` on."""
    return _fields(start, *_stubbed(start, stored_pieces(start, records)), max_bytes)


def step_args(step: StepAppend, end: int) -> tuple[str, list[str | bytes]]:
    """The numbers of a step as ``append.lua`` reads them, ``-`` standing for none, and its fields."""
    answer, archived = step.answer, step.archived
    stubbed, bodies = _stubbed(step.head.position, stored_pieces(step.head.position, step.records))
    inputs_size = sum(map(len, stubbed[: len(step.inputs)]))
    kinds = "-" if answer is None else answer_kinds(answer.kind)
    version = "-" if step.slice is None else step.slice_version
    known = "- -" if archived is None else f"{archived.head.position} {archived.size}"
    numbers = (
        f"{step.epoch} {step.head.position} {end} {size_of(step.records)} {inputs_size} {int(step.commits)} "
        f"{step.records[-1].kind} {kinds} {version} {known}"
    )
    return numbers, _fields(step.head.position, stubbed, bodies, APPEND_FIELD_BYTES)


def slice_value(data: bytes, version: int) -> bytes:
    """A slice as it is stored."""
    return with_checksum(data, version)


def _stubbed(start: int, pieces: list[bytes]) -> tuple[list[bytes], list[str | bytes]]:
    """The pieces with stubs in place of large ones, and the fields of those ones' bodies."""
    bodies: list[str | bytes] = []
    for at, piece in enumerate(pieces):
        if len(piece) > LARGE:
            body = 7 + int.from_bytes(piece[5:7], "big") + ID_SUM
            if len(piece) > body + SIZE:
                size = int.from_bytes(piece[:4], "big")
                pieces[at] = (_STUB | size).to_bytes(4, "big") + piece[4:body]
                bodies += (f"{start + at}b", piece[body:])
    return pieces, bodies


def _fields(
    start: int, pieces: Sequence[bytes], bodies: list[str | bytes], max_bytes: int
) -> list[str | bytes]:
    made: list[str | bytes] = []
    first = total = 0
    for at, piece in enumerate(pieces):
        size = len(piece)
        if at - first == MAX_PER_FIELD or (at > first and total + size > max_bytes):
            made += (str(start + first), b"".join(pieces[first:at]))
            first, total = at, 0
        total += size
    if pieces:
        made += (str(start + first), b"".join(pieces[first:]))
    return made + bodies


def header_args(header: HotHeader) -> tuple[str | bytes | int, ...]:
    """A header as the scripts' arguments, in their order of fields."""
    return (
        header.epoch,
        header.head.position,
        header.committed,
        header.base.position,
        header.slice_version,
        header.size,
        header.base_size,
        header.archived,
        header.archived_size,
        header.unarchived_since,
        int(header.closed),
        int(header.deleted),
        header.born,
        header.cut,
        header.owner,
        header.head.last_id,
        header.base.last_id,
        header.adapter,
        header.origin,
        slice_value(header.slice, header.slice_version),
    )


class Reply(NamedTuple):
    """A script's answer: what became of the call, header, what follows, the record's place, and messages."""

    status: str
    header: HotHeader
    rest: bytes
    where: str
    packed: Sequence[bytes] = ()


def read(answer: bytes | list[bytes], thread_id: str, where: str) -> Reply:
    """Read what ``reply()`` in ``_record.lua`` wrote, alone or followed by stored messages.

    Raises:
        StoreCorruptError: The slice is not what was stored; ``where`` says in which record.
    """
    reply, *packed = [answer] if isinstance(answer, bytes) else answer
    end = reply.index(b"\n")
    numbers = [*map(int, reply[1:end].split())]
    epoch, head, committed, base, version, size, base_size, archived, archived_size, since, *flags = numbers[
        :14
    ]
    texts, at = [], end + 1
    for length in numbers[14:]:
        texts.append(reply[at : at + length])
        at += length
    owner, last_id, before, adapter, origin, data = texts
    header = HotHeader(
        thread_id=thread_id,
        epoch=epoch,
        owner=owner.decode(),
        head=_head(head, last_id),
        committed=committed,
        base=_head(base, before),
        closed=flags[0] == 1,
        slice=checked(data, f"slice {version} of {where}", version),
        slice_version=version,
        adapter=adapter.decode(),
        size=size,
        base_size=base_size,
        archived=archived,
        archived_size=archived_size,
        unarchived_since=since,
        deleted=flags[1] == 1,
        born=flags[2],
        cut=flags[3],
        origin=origin.decode(),
    )
    return Reply(chr(reply[0]), header, reply[at:], where, packed)


def numbered(rest: bytes) -> tuple[Sequence[int], bytes]:
    """The line of numbers that ``rest`` begins with, and what follows it."""
    line, _, data = rest.partition(b"\n")
    return [*map(int, line.split())], data


def _head(position: int, last_id: bytes) -> Head:
    return Head(position=position, last_id=last_id.decode()) if position or last_id else EMPTY
