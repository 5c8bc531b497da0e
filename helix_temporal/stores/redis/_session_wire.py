"""Bytes on the wire to and from the scripts of sessions."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from helix_temporal.stores._checksums import checked, damaged, with_checksum
from helix_temporal.stores.protocols.session_records import (
    RecordKey,
    RecordKind,
    SessionCommit,
    SessionRecord,
    SessionView,
    Wanted,
)
from helix_temporal.stores.redis import _replies
from helix_temporal.stores.redis._connection import Value

_LETTERS: Final = {
    RecordKind.CHECKPOINT: b"c",
    RecordKind.CHECKPOINT_STATE: b"h",
    RecordKind.STEP: b"s",
    RecordKind.STAGED: b"t",
    RecordKind.RUN: b"r",
    RecordKind.STOP: b"p",
    RecordKind.REF: b"f",
    RecordKind.OPERATION: b"o",
    RecordKind.THREAD: b"l",
}
"""Stored: never changed, never used again for another kind."""

_KINDS: Final = {letter[0]: kind for kind, letter in _LETTERS.items()}
_MIDDLE: Final = 2**63


class Known(NamedTuple):
    """What the index is told of a session.

    Attributes:
        birth: When its record was made, in µs; with ``revision`` it says which of two is the later.
        ends: When the record ends its life, in ms since 1970; None if never.
        operation: The place of its oldest operation; empty if it has none.
        document: See `_session_rows`; empty if there is no session.
    """

    birth: int
    revision: int
    ends: int | None
    operation: bytes
    document: bytes


def field_of(name: RecordKey) -> bytes:
    """The field of a record."""
    return b"%b%b\0%b" % (_LETTERS[name.kind], name.group.encode(), name.key.encode())


def order_bytes(order: int) -> bytes:
    """An order so that bytes sort as the numbers do."""
    return (max(-_MIDDLE, min(order, _MIDDLE - 1)) + _MIDDLE).to_bytes(8, "big")


def time_bytes(time: int) -> bytes:
    """A time in ms so that bytes sort as the numbers do, and Lua can read it."""
    return max(0, min(time, _MIDDLE - 1)).to_bytes(8, "big")


def view_args(wanted: Wanted) -> tuple[Value, ...]:
    """The arguments of ``session_view.lua`` after the id."""
    return (
        f"{int(wanted.thread)} {len(wanted.keys)} {len(wanted.groups)}",
        *(field_of(name) for name in wanted.keys),
        *(_LETTERS[kind] + group.encode() for kind, group in wanted.groups),
        *(_LETTERS[kind] for kind in wanted.newest),
    )


def read_view(session_id: str, answer: Sequence[bytes], where: str) -> SessionView:
    """What ``session_view.lua`` answered.

    Raises:
        StoreCorruptError: State or a record is not what was stored.
    """
    numbers, state, thread, *pairs = answer
    revision, max_epoch, now, there = map(int, numbers.split())
    return SessionView(
        revision=revision,
        max_epoch=max_epoch,
        now=now,
        state=checked(state, f"the state in {where}", session_id, "state") if there else None,
        records=tuple({each.name: each for each in read_records(pairs, session_id, where)}.values()),
        thread=_replies.read(thread, session_id, where).header if thread else None,
    )


def commit_args(
    change: SessionCommit,
    *,
    indexed: bool,
    lives: int | None,
    limit: int | None,
    document: bytes,
    mark: bytes,
    step: Sequence[Value],
) -> tuple[Value, ...]:
    """The arguments of ``session_commit.lua`` after the id."""
    puts = {each.name: each for each in change.puts}
    numbers = (
        change.revision,
        change.max_epoch,
        int(change.row is not None),
        int(change.deletes),
        int(indexed),
        "-" if lives is None else lives,
        "-" if limit is None else limit,
        len(change.removes),
        len(change.clears),
        len(puts),
        len(change.unless.keys),
        len(change.unless.groups),
    )
    return (
        " ".join(map(str, numbers)),
        b"" if change.row is None else with_checksum(change.row.body, change.session_id, "state"),
        document,
        mark,
        *(field_of(name) for name in change.unless.keys),
        *(_LETTERS[kind] + group.encode() for kind, group in change.unless.groups),
        *(field_of(name) for name in change.removes),
        *(_LETTERS[kind] + group.encode() for kind, group in change.clears),
        *(part for each in puts.values() for part in _put(change.session_id, each)),
        *step,
    )


def page_args(
    kind: RecordKind, limit: int, after: tuple[int, str] | None, descending: bool
) -> tuple[Value, ...]:
    """The arguments of ``session_page.lua`` after the id."""
    letter = _LETTERS[kind]
    lowest, highest = b"[%bo" % letter, b"(%bp" % letter
    if after is not None:
        place = b"%bo%b%b" % (letter, order_bytes(after[0]), after[1].encode())
        # What follows a place is NUL and the group: beyond all groups of it, or before the first.
        lowest, highest = (lowest, b"(%b\0" % place) if descending else (b"[%b\1" % place, highest)
    return letter, lowest, highest, int(descending), limit


def read_records(pairs: Sequence[bytes], session_id: str, where: str) -> Iterable[SessionRecord]:
    """Records out of fields and values.

    Raises:
        StoreCorruptError: One is not what was stored there.
    """
    for field, value in zip(pairs[::2], pairs[1::2], strict=True):
        group, _, key = field[1:].partition(b"\0")
        if len(value) < 8 or field[0] not in _KINDS:
            raise damaged(where, f"it has a record of a session that is none, of {len(value)} bytes")
        order = int.from_bytes(value[:8], "big") - _MIDDLE
        kind, body = _KINDS[field[0]], f"a record ({_KINDS[field[0]].value}) in {where}"
        data = checked(value[8:], body, session_id, order, field.decode())
        yield SessionRecord(kind, key.decode(), data, group.decode(), order)


def read_known(numbers: bytes, operation: bytes, document: bytes) -> Known:
    """What ``session_commit.lua`` and ``session_known.lua`` tell for the index."""
    _, birth, revision, ends = numbers.split()
    return Known(int(birth), int(revision), None if ends == b"-" else int(ends), operation, document)


def _put(session_id: str, record: SessionRecord) -> tuple[bytes, bytes, bytes]:
    field, order = field_of(record.name), order_bytes(record.order)
    kept = int.from_bytes(order, "big") - _MIDDLE
    return field, order, with_checksum(record.body, session_id, kept, field.decode())
