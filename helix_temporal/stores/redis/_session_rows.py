"""Pure: what the index keeps of a session, and what queries look for.  The layout is in ``_index.lua``."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from helix_temporal.models.queries import SessionQuery, SessionSummary, Unset
from helix_temporal.models.states import SessionState
from helix_temporal.stores._checksums import checked, damaged, with_checksum
from helix_temporal.stores.protocols.session_records import SessionRow
from helix_temporal.stores.redis._session_wire import time_bytes

_HEAD: Final = Struct(">8s8sB8s8sI")
_SIZES: Final = re.compile(rb"\d+ \d+ ([08]) ([08])")
_FACET: Final = 16
_EXPIRES, _DUE, _CLEANUP = 1, 2, 4
_NEVER: Final = bytes(8)
_SHOWN: Final = {*SessionSummary.model_fields}
_EVERY: Final = 2**53
"""More than there can be, and a number that Lua knows."""

_ENTRY: Final = 1 + _FACET + 1
"""Bytes before the time in an entry of a facet: its letter, the facet, the order's letter."""


def document(row: SessionRow) -> bytes:
    """What the index must know of a state: times, facets, and what a list shows of it."""
    state, due = row.state, row.due_at
    flags = (
        (state.expires_at is not None) * _EXPIRES
        + (due is not None) * _DUE
        + bool(state.cleanup_pending) * _CLEANUP
    )
    facets = {*_facets_of(state)}
    head = _HEAD.pack(
        time_bytes(state.created_at),
        time_bytes(state.updated_at),
        flags,
        _NEVER if state.expires_at is None else time_bytes(state.expires_at),
        _NEVER if due is None else time_bytes(due),
        len(facets),
    )
    return with_checksum(b"".join((head, *facets, state.model_dump_json(include=_SHOWN).encode())))


class Row(NamedTuple):
    """A row of the index, as far as lists show it."""

    summary: SessionSummary
    cleanup_pending: bool


def read_row(row: bytes, where: str) -> Row | None:
    """The session in a row of the index; None if there is none any more.

    Raises:
        StoreCorruptError: It is no row, or not the one that was stored; ``where`` is the index.
    """
    line, _, rest = row.partition(b"\n")
    if not (sizes := _SIZES.fullmatch(line)):
        raise damaged(where, f"a row of {len(row)} bytes has no beginning")
    document = rest[int(sizes[1]) + int(sizes[2]) :]
    if not document:
        return None
    document = checked(document, f"a row of {where}")
    *_, flags, _, _, facets = _HEAD.unpack_from(document)
    summary = SessionSummary.model_validate_json(document[_HEAD.size + _FACET * facets :])
    return Row(summary, flags >= _CLEANUP)


@lru_cache(1024)
def facet(*names: str) -> bytes:
    """Something that can be filtered by, as 16 bytes that begin no other."""
    digest = blake2b(digest_size=_FACET)
    for name in names:
        data = name.encode()
        digest.update(b"%d:%b" % (len(data), data))
    return digest.digest()


_ALL: Final = facet("all")
_ROOT: Final = facet("root")


def _facets_of(state: SessionState) -> Iterable[bytes]:
    yield _ALL
    yield facet("agent_type", state.agent_type)
    yield facet("status", state.status)
    if state.user_id is not None:
        yield facet("user", state.user_id)
    yield _ROOT if state.parent_session_id is None else facet("parent", state.parent_session_id)
    yield from (facet("tag", tag) for tag in state.tags)
    yield from (facet("meta", key, text) for key, text in state.metadata.items() if isinstance(text, str))


@dataclass(frozen=True, slots=True)
class Span:
    """A range of entries: from ``lowest`` to ``highest``, as the server wants its bounds."""

    lowest: bytes
    highest: bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """What a query looks for.

    Attributes:
        groups: Of each at least one facet must be there.
        ordered: The letter of the order asked for.
        ranged: That of the order by which entries are read: the one that a range of dates is given for.
    """

    query: SessionQuery
    groups: tuple[tuple[bytes, ...], ...]
    ordered: bytes
    ranged: bytes

    @staticmethod
    def of(query: SessionQuery) -> "Plan":
        """The plan for a query."""
        ordered = _letter(query.order_by.field)
        has_range = query.date_from is not None or query.date_to is not None
        ranged = _letter(query.date_field) if has_range else ordered
        return Plan(query, tuple(_groups_of(query)) or ((_ALL,),), ordered, ranged)

    @property
    def in_order(self) -> bool:
        """Entries are read in the order asked for."""
        return self.ordered == self.ranged

    @property
    def direct(self) -> bool:
        """One range of each facet of one group holds exactly what is looked for, in its order."""
        return len(self.groups) == 1 and self.in_order

    @property
    def descending(self) -> bool:
        """The latest come first."""
        return self.query.order_by.direction == "desc"

    def span(self, facet: bytes) -> Span:
        """All entries of a facet within the range of dates."""
        start, end = self.query.date_from, self.query.date_to
        before = b"f%b%b" % (facet, self.ranged)
        lowest = b"[" + before + (b"" if start is None else time_bytes(start))
        return Span(lowest, b"(" + before + (b"\xff" if end is None else time_bytes(end)))

    def beyond(self, facet: bytes, place: bytes) -> Span:
        """Those of them that come after a place, which is a time and an id."""
        return self.after(self.span(facet), b"f%b%b%b" % (facet, self.ordered, place))

    def after(self, span: Span, entry: bytes) -> Span:
        """What comes after an entry, be it in the span or not."""
        if self.descending:
            return Span(span.lowest, b"(" + entry if entry <= span.highest[1:] else span.highest)
        return Span(b"(" + entry if entry >= span.lowest[1:] else span.lowest, span.highest)

    def parts(self, facet: bytes, after: bytes | None, skip: int) -> Sequence[tuple[Span, int]]:
        """Spans in which what matches is counted, and how much of it must be known."""
        whole, most = self.span(facet), skip + self.query.limit + 1
        if not self.in_order:
            return ((whole, _EVERY),)
        if after is None:
            return ((whole, most),)
        beyond = self.beyond(facet, after)
        if self.descending:
            before = Span(_other_side(beyond.highest), whole.highest)
        else:
            before = Span(whole.lowest, _other_side(beyond.lowest))
        return ((before, 0), (beyond, most))


def _other_side(bound: bytes) -> bytes:
    """The bound of what ends or begins just where this bound begins or ends."""
    return (b"(" if bound.startswith(b"[") else b"[") + bound[1:]


def place_of(entry: bytes) -> bytes:
    """Time and id of an entry of a facet."""
    return entry[_ENTRY:]


def id_of(place: bytes) -> bytes:
    """The id at a place."""
    return place[8:]


def time_at(place: bytes) -> int:
    """The time at a place, ms since 1970."""
    return int.from_bytes(place[:8], "big")


def shown(plan: Plan, places: Iterable[bytes], after: bytes | None, skip: int) -> Sequence[bytes]:
    """The places of a page out of all that match, and one more if there is one."""
    found = sorted(places, reverse=plan.descending)
    if after is not None:
        found = [each for each in found if (each < after if plan.descending else each > after)]
    return found[skip : skip + plan.query.limit + 1]


def _letter(field: str) -> bytes:
    return b"c" if field == "created_at" else b"u"


def _groups_of(query: SessionQuery) -> Iterable[tuple[bytes, ...]]:
    if query.user_id is not None:
        yield (facet("user", query.user_id),)
    if query.agent_type is not None:
        yield (facet("agent_type", query.agent_type),)
    if query.status:
        yield tuple({facet("status", each) for each in query.status})
    if query.parent_session_id is None:
        yield (_ROOT,)
    elif not isinstance(query.parent_session_id, Unset):
        yield (facet("parent", query.parent_session_id),)
    for tag in {*query.tags}:
        yield (facet("tag", tag),)
    for key, text in query.metadata.items():
        yield (facet("meta", key, text),)
