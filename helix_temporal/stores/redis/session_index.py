"""The index of sessions: what lists are made of, in a slot of its own, kept up with each commit."""

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from helix_temporal.errors import HelixError, InvalidIdError, StoreCorruptError, StoreUnavailableError
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import (
    DueSession,
    ExpiredSession,
    SessionPage,
    SessionQuery,
    SessionSummary,
    Unset,
)
from helix_temporal.stores.checksums import damaged_error, verify_checksum, with_checksum
from helix_temporal.stores.paging import decode_cursor, encode_cursor
from helix_temporal.stores.protocols.session_rows import (
    RowKey,
    RowKind,
    SessionCommit,
    SessionRow,
    SessionView,
    StoredState,
    WantedRows,
)
from helix_temporal.stores.redis import threads
from helix_temporal.stores.redis.connection import Answer, RedisConnection, Value
from helix_temporal.stores.redis.scripts import Script, assemble_script
from helix_temporal.stores.sessions.decisions import decode_model
from helix_temporal.stores.sessions.operations import matches_query

_LETTERS: Final = {
    RowKind.CHECKPOINT: b"c",
    RowKind.CHECKPOINT_STATE: b"h",
    RowKind.STEP: b"s",
    RowKind.STAGED: b"t",
    RowKind.RUN: b"r",
    RowKind.STOP: b"p",
    RowKind.REF: b"f",
    RowKind.OPERATION: b"o",
    RowKind.THREAD: b"l",
    RowKind.RECORD: b"e",
    RowKind.PACK: b"k",
}
"""Stored: never changed, never used again for another kind."""

_KINDS: Final = {letter[0]: kind for kind, letter in _LETTERS.items()}
_MIDDLE: Final = 2**63


class IndexUpdate(NamedTuple):
    """What the index is told of a session.

    Attributes:
        birth: When the session was created, in µs; with ``revision`` it says which of two is the later.
        ends: When it expires in Redis, in ms since 1970; None if never.
        operation: The place of its oldest operation; empty if it has none.
        document: What lists show of it; empty if there is no session.
    """

    birth: int
    revision: int
    ends: int | None
    operation: bytes
    document: bytes


def field_of(name: RowKey) -> bytes:
    """The field of a row."""
    return b"%b%b\0%b" % (_LETTERS[name.kind], name.group.encode(), name.key.encode())


def order_bytes(order: int) -> bytes:
    """An order so that bytes sort as the numbers do."""
    return (max(-_MIDDLE, min(order, _MIDDLE - 1)) + _MIDDLE).to_bytes(8, "big")


def time_bytes(time: int) -> bytes:
    """A time in ms so that bytes sort as the numbers do, and Lua can read it."""
    return max(0, min(time, _MIDDLE - 1)).to_bytes(8, "big")


def view_args(wanted: WantedRows) -> tuple[Value, ...]:
    """The arguments of ``session_view.lua`` after the id."""
    return (
        f"{int(wanted.thread)} {len(wanted.keys)} {len(wanted.groups)} {len(wanted.newest)}",
        *(field_of(name) for name in wanted.keys),
        *(_LETTERS[kind] + group.encode() for kind, group in wanted.groups),
        *(_LETTERS[kind] for kind in wanted.newest),
        *(_places_of_group(kind, group) for kind, group in wanted.newest_in),
    )


def read_view(session_id: str, answer: Sequence[bytes], where: str) -> SessionView:
    """What ``session_view.lua`` answered.

    Raises:
        StoreCorruptError: State or a row is not what was stored.
    """
    numbers, state, thread, *pairs = answer
    revision, max_epoch, now, there, birth = map(int, numbers.split())
    return SessionView(
        revision=revision,
        max_epoch=max_epoch,
        now=now,
        state=verify_checksum(state, f"the state in {where}", session_id, "state") if there else None,
        rows=tuple({each.name: each for each in read_rows(pairs, session_id, where)}.values()),
        thread=threads.read_reply(thread, session_id, where).header if thread else None,
        birth=birth,
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
        change.birth,
        change.max_epoch,
        int(change.state is not None),
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
        b"" if change.state is None else with_checksum(change.state.body, change.session_id, "state"),
        document,
        mark,
        *(field_of(name) for name in change.unless.keys),
        *(_LETTERS[kind] + group.encode() for kind, group in change.unless.groups),
        *(field_of(name) for name in change.removes),
        *(_LETTERS[kind] + group.encode() for kind, group in change.clears),
        *(part for each in puts.values() for part in _encode_row(change.session_id, each)),
        *step,
    )


def page_args(
    kind: RowKind, limit: int, after: tuple[int, str] | None, descending: bool
) -> tuple[Value, ...]:
    """The arguments of ``session_page.lua`` after the id."""
    letter = _LETTERS[kind]
    lowest, highest = b"[%bo" % letter, b"(%bp" % letter
    if after is not None:
        place = b"%bo%b%b" % (letter, order_bytes(after[0]), after[1].encode())
        # What follows a place is NUL and the group: beyond all groups of it, or before the first.
        lowest, highest = (lowest, b"(%b\0" % place) if descending else (b"[%b\1" % place, highest)
    return letter, lowest, highest, int(descending), limit


def group_page_args(
    kind: RowKind, group: str, limit: int, after: str | None, descending: bool
) -> tuple[Value, ...]:
    """The arguments of ``session_page.lua`` after the id, for one group of rows of order 0."""
    places = _places_of_group(kind, group)
    lowest, highest = b"[%b\0" % places, b"(%b\1" % places
    if after is not None:
        place = b"(%b\0%b%b" % (places, order_bytes(0), after.encode())
        lowest, highest = (lowest, place) if descending else (place, highest)
    return _LETTERS[kind], lowest, highest, int(descending), limit


def groups_args(kind: RowKind, first: str, stop: str, limit: int) -> tuple[Value, ...]:
    """The arguments of ``session_groups.lua`` after the id."""
    return _places_of_group(kind, first), _places_of_group(kind, stop), limit


def _places_of_group(kind: RowKind, group: str) -> bytes:
    """What the places of a group's rows begin with, before a NUL."""
    return b"%bg%b" % (_LETTERS[kind], group.encode())


def read_rows(pairs: Sequence[bytes], session_id: str, where: str) -> Iterable[SessionRow]:
    """Rows out of fields and values.

    Raises:
        StoreCorruptError: One is not what was stored there.
    """
    for field, value in zip(pairs[::2], pairs[1::2], strict=True):
        group, _, key = field[1:].partition(b"\0")
        if len(value) < 8 or field[0] not in _KINDS:
            raise damaged_error(where, f"it has a row of a session that is none, of {len(value)} bytes")
        order = int.from_bytes(value[:8], "big") - _MIDDLE
        kind, body = _KINDS[field[0]], f"a row ({_KINDS[field[0]].value}) in {where}"
        data = verify_checksum(value[8:], body, session_id, order, field.decode())
        yield SessionRow(kind, key.decode(), data, group.decode(), order)


def read_index_entry(numbers: bytes, operation: bytes, document: bytes) -> IndexUpdate:
    """What ``session_commit.lua`` and ``session_known.lua`` tell for the index."""
    _, birth, revision, ends = numbers.split()
    return IndexUpdate(int(birth), int(revision), None if ends == b"-" else int(ends), operation, document)


def _encode_row(session_id: str, row: SessionRow) -> tuple[bytes, bytes, bytes]:
    field, order = field_of(row.name), order_bytes(row.order)
    kept = int.from_bytes(order, "big") - _MIDDLE
    return field, order, with_checksum(row.body, session_id, kept, field.decode())


_HEAD: Final = Struct(">8s8sB8s8sI")
_SIZES: Final = re.compile(rb"\d+ \d+ ([08]) ([08])")
_FACET: Final = 16
_EXPIRES, _DUE, _CLEANUP = 1, 2, 4
_NEVER: Final = bytes(8)
_EVERY: Final = 2**53
"""More than there can be, and a number that Lua knows."""

_ENTRY: Final = 1 + _FACET + 1
"""Bytes before the time in an entry of a facet: its letter, the facet, the order's letter."""


def encode_index_document(stored: StoredState) -> bytes:
    """What the index must know of a state: times, facets, and what a list shows of it."""
    state, due = stored.state, stored.due_at
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
    return with_checksum(b"".join((head, *facets, SessionSummary.bytes_of(state))))


class IndexRow(NamedTuple):
    """A row of the index, as far as lists show it."""

    summary: SessionSummary
    cleanup_pending: bool


def read_row(row: bytes, where: str) -> IndexRow | None:
    """The session in a row of the index; None if there is none any more.

    Raises:
        StoreCorruptError: It is no row, or not the one that was stored; ``where`` is the index.
    """
    line, _, rest = row.partition(b"\n")
    if not (sizes := _SIZES.fullmatch(line)):
        raise damaged_error(where, f"a row of {len(row)} bytes has no beginning")
    document = rest[int(sizes[1]) + int(sizes[2]) :]
    if not document:
        return None
    document = verify_checksum(document, f"a row of {where}")
    *_, flags, _, _, facets = _HEAD.unpack_from(document)
    summary = SessionSummary.model_validate_json(document[_HEAD.size + _FACET * facets :])
    return IndexRow(summary, flags >= _CLEANUP)


@lru_cache(1024)
def encode_facet(*names: str) -> bytes:
    """Something that can be filtered by, as 16 bytes that begin no other."""
    digest = blake2b(digest_size=_FACET)
    for name in names:
        data = name.encode()
        digest.update(b"%d:%b" % (len(data), data))
    return digest.digest()


_ALL: Final = encode_facet("all")
_ROOT: Final = encode_facet("root")


def _facets_of(state: SessionState) -> Iterable[bytes]:
    yield _ALL
    yield encode_facet("agent_type", state.agent_type)
    yield encode_facet("status", state.status)
    if state.user_id is not None:
        yield encode_facet("user", state.user_id)
    yield _ROOT if state.parent_session_id is None else encode_facet("parent", state.parent_session_id)
    yield from (encode_facet("tag", tag) for tag in state.tags)
    yield from (
        encode_facet("meta", key, text) for key, text in state.metadata.items() if isinstance(text, str)
    )


@dataclass(frozen=True, slots=True)
class Span:
    """A range of entries: from ``lowest`` to ``highest``, as the server wants its bounds."""

    lowest: bytes
    highest: bytes


@dataclass(frozen=True, slots=True)
class QueryPlan:
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
    def of(query: SessionQuery) -> "QueryPlan":
        """The plan for a query."""
        ordered = _order_letter(query.order_by.field)
        has_range = query.date_from is not None or query.date_to is not None
        ranged = _order_letter(query.date_field) if has_range else ordered
        return QueryPlan(query, tuple(_groups_of(query)) or ((_ALL,),), ordered, ranged)

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

    def span_of(self, facet: bytes) -> Span:
        """All entries of a facet within the range of dates."""
        start, end = self.query.date_from, self.query.date_to
        before = b"f%b%b" % (facet, self.ranged)
        lowest = b"[" + before + (b"" if start is None else time_bytes(start))
        return Span(lowest, b"(" + before + (b"\xff" if end is None else time_bytes(end)))

    def span_beyond(self, facet: bytes, place: bytes) -> Span:
        """Those of them that come after a place, which is a time and an id."""
        return self.span_after(self.span_of(facet), b"f%b%b%b" % (facet, self.ordered, place))

    def span_after(self, span: Span, entry: bytes) -> Span:
        """What comes after an entry, be it in the span or not."""
        if self.descending:
            return Span(span.lowest, b"(" + entry if entry <= span.highest[1:] else span.highest)
        return Span(b"(" + entry if entry >= span.lowest[1:] else span.lowest, span.highest)

    def spans_to_count(self, facet: bytes, after: bytes | None, skip: int) -> Sequence[tuple[Span, int]]:
        """Spans in which what matches is looked for, and counted if asked; and how much must be known."""
        whole, most = self.span_of(facet), skip + self.query.limit + 1
        if not self.in_order:
            return ((whole, _EVERY),)
        if after is None:
            return ((whole, most),)
        beyond = self.span_beyond(facet, after)
        if not self.query.count:
            return ((beyond, most),)
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


def read_id(stored: bytes) -> str:
    """An id as text; one that was damaged, and is no UTF-8 any more, is that of no session."""
    return stored.decode("utf-8", "replace")


def is_readable(stored: bytes) -> bool:
    """Whether bytes of an entry are still an id."""
    try:
        return validate_id(read_id(stored)).encode() == stored
    except InvalidIdError:
        return False


def time_at(place: bytes) -> int:
    """The time at a place, ms since 1970."""
    return int.from_bytes(place[:8], "big")


# rule: stores.sessions.operations.list_sessions
def select_places(
    plan: QueryPlan, places: Iterable[bytes], after: bytes | None, skip: int
) -> Sequence[bytes]:
    """The places of a page out of all that match, and one more if there is one."""
    found = sorted(places, reverse=plan.descending)
    if after is not None:
        found = [each for each in found if (each < after if plan.descending else each > after)]
    return found[skip : skip + plan.query.limit + 1]


def _order_letter(field: str) -> bytes:
    return b"c" if field == "created_at" else b"u"


# rule: stores.sessions.operations.matches_query
def _groups_of(query: SessionQuery) -> Iterable[tuple[bytes, ...]]:
    if query.user_id is not None:
        yield (encode_facet("user", query.user_id),)
    if query.agent_type is not None:
        yield (encode_facet("agent_type", query.agent_type),)
    if query.status:
        yield tuple({encode_facet("status", each) for each in query.status})
    if query.parent_session_id is None:
        yield (_ROOT,)
    elif not isinstance(query.parent_session_id, Unset):
        yield (encode_facet("parent", query.parent_session_id),)
    for tag in {*query.tags}:
        yield (encode_facet("tag", tag),)
    for key, text in query.metadata.items():
        yield (encode_facet("meta", key, text),)


_PAGE: Final = assemble_script("session_list", "_index")
_SIFT: Final = assemble_script("session_list_sift", "_index")

_SIFTED: Final = 1_000
"""Entries looked at in one script, so that nobody else waits long."""


logger = logging.getLogger(__name__)


def _leave_out(session_id: str, why: object, damaged: list[str]) -> None:
    logger.warning("session %r is left out of a list: %s", session_id, why)
    damaged.append(session_id)


Remake = Callable[[bytes, bytes], Awaitable[None]]
"""Makes the row of a session anew, unless it is another one than this by now."""


class SessionLists:
    """Reads the index.  Made by `SessionIndex`.

    Args:
        remake: How a damaged row is made anew.
    """

    def __init__(self, connection: RedisConnection, rows: str, entries: str, remake: Remake) -> None:
        self._connection, self._rows, self._entries = connection, rows, entries
        self._remake = remake

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """See `SessionRows.list_sessions`."""
        scope = query.order_by.cursor_scope
        after = None
        if query.cursor is not None:
            time, session_id = decode_cursor(scope, query.cursor)
            after = time_bytes(time) + session_id.encode()
        skip = query.offset if after is None else 0
        plan = QueryPlan.of(query)
        total, found = await (self._list_directly if plan.direct else self._list_by_sifting)(
            plan, after, skip
        )
        places = [each for each in found if is_readable(id_of(each))]
        shown = [id_of(each) for each in places[: query.limit]]
        damaged: list[str] = []
        if query.whole:
            summaries = await self._read_whole(query, [read_id(each) for each in shown], damaged)
        else:
            summaries = [row.summary for row in await self.read_rows(shown, damaged)]
        more = len(found) > query.limit
        last = places[: query.limit][-1] if more and places else b""
        return SessionPage(
            sessions=tuple(summaries),
            damaged=len(damaged),
            total=total if query.count else None,
            offset=query.offset,
            limit=query.limit,
            has_more=bool(last),
            next_cursor=encode_cursor(scope, time_at(last), read_id(id_of(last))) if last else None,
        )

    async def read_rows(self, ids: Sequence[bytes], damaged: list[str] | None = None) -> list[IndexRow]:
        """The sessions of these ids that are there.

        A damaged row is made anew from its session.  If the session is damaged as well, it is left out and
        named in the log, and in ``damaged``: one must not keep all others from the lists.
        """
        damaged = [] if damaged is None else damaged
        if not ids:
            return []
        held = await self._connection.send_command("HMGET", self._rows, *ids)
        found = [await self._read_or_remake(*each, damaged) for each in zip(ids, held, strict=True)]
        return [row for row in found if row is not None]

    # -- inside

    async def _read_whole(
        self, query: SessionQuery, ids: Sequence[str], damaged: list[str]
    ) -> list[SessionSummary]:
        """What the sessions themselves say, asked all at once; the index has no custom state.

        One that was changed since, so that it does not match any more, is left out; so is a damaged one.
        """
        keys = [f"{self._connection.key_of(each)}:session" for each in ids]
        try:
            held = await self._connection.send_pipeline([("HGET", key, "s") for key in keys])
        except StoreUnavailableError:
            raise
        except HelixError:
            # One of the keys holds something else; the others are asked without it.
            held = [None] * len(keys)
            if len(keys) > 1:
                return [each for one in ids for each in await self._read_whole(query, [one], damaged)]
            _leave_out(ids[0], "its key is no session's", damaged)
        states = [self._decode_state(*each, damaged) for each in zip(ids, keys, held, strict=True)]
        matching = (each for each in states if each is not None and matches_query(each, query))
        return [SessionSummary.of(state, query.include) for state in matching]

    def _decode_state(
        self, session_id: str, key: str, body: bytes | None, damaged: list[str]
    ) -> SessionState | None:
        if body is None:
            return None
        where = f"the state in {self._connection.place_of(key)}"
        try:
            return decode_model(SessionState, verify_checksum(body, where, session_id, "state"), where)
        except HelixError as error:
            _leave_out(session_id, error, damaged)
            return None

    async def _read_or_remake(
        self, session_id: bytes, held: bytes | None, damaged: list[str]
    ) -> IndexRow | None:
        if held is None:
            return None
        where = self._connection.place_of(self._rows)
        try:
            return read_row(held, where)
        except StoreCorruptError as error:
            logger.warning("session %r: its row is made anew (%s)", read_id(session_id), error)
        try:
            await self._remake(session_id, held)
            again = await self._connection.send_command("HGET", self._rows, session_id)
            return None if again is None else read_row(again, where)
        except StoreUnavailableError:
            raise
        except HelixError as error:
            _leave_out(read_id(session_id), error, damaged)
            return None

    async def _list_directly(
        self, plan: QueryPlan, after: bytes | None, skip: int
    ) -> tuple[int, Sequence[bytes]]:
        """Read only what is shown: each facet's own entries are in the order asked for."""
        [facets] = plan.groups
        alone, most = len(facets) == 1, plan.query.limit + 1
        ranges: list[Value] = []
        for facet in facets:
            whole = plan.span_of(facet)
            part = whole if after is None else plan.span_beyond(facet, after)
            ranges += (whole.lowest, whole.highest, part.lowest, part.highest)
        answer = await self._run_script(
            _PAGE,
            [self._entries],
            int(plan.descending),
            skip if alone else 0,
            most if alone else skip + most,
            *ranges,
        )
        return int(answer[0]), select_places(plan, map(place_of, answer[1:]), None, 0 if alone else skip)

    async def _list_by_sifting(
        self, plan: QueryPlan, after: bytes | None, skip: int
    ) -> tuple[int, Sequence[bytes]]:
        """Read the smallest group, some at a time so that nobody waits long, and keep what matches all."""
        counts = await self._connection.send_pipeline(
            [
                ("ZLEXCOUNT", self._entries, plan.span_of(facet).lowest, plan.span_of(facet).highest)
                for group in plan.groups
                for facet in group
            ]
        )
        size = dict(zip((facet for group in plan.groups for facet in group), counts, strict=True))
        smallest = min(plan.groups, key=lambda group: sum(size[facet] for facet in group))
        others = [b"".join(group) for group in plan.groups if group != smallest]
        total, found = 0, list[bytes]()
        for facet in smallest:
            for span, most in plan.spans_to_count(facet, after, skip):
                count, places = await self._sift_span(plan, span, most, others)
                total += count
                found += places
        # Read in another order than asked for, all that match are here, else only those beyond.
        return total, select_places(plan, found, None if plan.in_order else after, skip)

    async def _sift_span(
        self, plan: QueryPlan, span: Span, most: int, groups: Sequence[bytes]
    ) -> tuple[int, Sequence[bytes]]:
        """How many of a span match, and the first ``most`` of them; it is read to the end only to count."""
        total, found, last = 0, list[bytes](), b""
        while True:
            rest = span if not last else plan.span_after(span, last)
            last, count, *places = await self._run_script(
                _SIFT,
                [self._rows, self._entries],
                rest.lowest,
                rest.highest,
                int(plan.descending),
                _SIFTED,
                most - len(found),
                b"" if plan.in_order else plan.ordered,
                *groups,
            )
            total += int(count)
            found += places
            if not last or (len(found) >= most and not plan.query.count):
                return total, found

    async def _run_script(self, script: Script, keys: Sequence[str], *args: Value) -> list[bytes]:
        answer = await self._connection.run_script(script, keys, *args)
        assert isinstance(answer, list)
        return answer


_UPDATE: Final = assemble_script("index_update", "_index")
_REMAKE: Final = assemble_script("index_remake", "_index")
_SETTLE: Final = assemble_script("index_settle", "_index")
_MARK: Final = assemble_script("index_mark", "_index")
_STALE: Final = assemble_script("index_stale", "_index")

_MOMENT: Final = 1_000
"""Milliseconds after which a reader does not wait for a commit to arrive."""

COMMIT_BY: Final = 30_000
"""A commit that comes to its session later than so many milliseconds after its mark is refused."""

_SETTLED: Final = 60_000
"""The commit of an older mark has happened or never will, even if the clocks of two servers differ."""

_MENDED: Final = 100
_PURGED: Final = 100

_ID_AT: Final = {b"f": 26, b"x": 9, b"w": 9, b"k": 1, b"o": 9, b"d": 9}
"""Where in an entry the session's id begins, by the entry's letter."""

Ask = Callable[[str], Awaitable[IndexUpdate | None]]
"""Asks a session itself what the index must know."""


class SessionIndex:
    """The index of all sessions under one prefix.

    Args:
        ask: How to ask a session.
    """

    def __init__(self, connection: RedisConnection, ask: Ask) -> None:
        self._connection, self._ask = connection, ask
        # No id's form has a colon: this is no session's slot.
        start = f"{connection.prefix}{{:sessions}}:"
        self._rows, self._entries, self.marks = f"{start}rows", f"{start}entries", f"{start}marks"
        self._lists = SessionLists(connection, self._rows, self._entries, self._remake_row)

    # -- writing

    @staticmethod
    def new_mark(session_id: str) -> bytes:
        """A mark that no other commit has."""
        return f"{session_id}\0{secrets.token_hex(8)}".encode()

    async def announce_commit(self, mark: bytes) -> int:
        """Leave a mark; the time until which its commit may come, ms since 1970."""
        answer = await self._connection.run_script(_MARK, [self.marks], mark)
        assert isinstance(answer, bytes)
        return int(answer) + COMMIT_BY

    async def withdraw_mark(self, mark: bytes) -> None:
        """Take out the mark of a commit that did not happen."""
        await self._connection.send_command("ZREM", self.marks, mark)

    async def update_row(self, session_id: str, entry: IndexUpdate | None, mark: bytes = b"") -> None:
        """Let the index know, and take out the mark; with None: forget what has reached its end of life."""
        keys = [self._rows, self._entries, self.marks]
        await self._connection.run_script(_UPDATE, keys, session_id, mark, *_update_args(entry))

    async def update_after_commit(self, session_id: str, entry: IndexUpdate, mark: bytes) -> None:
        """`update_row` after a commit that has happened: if it fails, readers mend it."""
        try:
            await self.update_row(session_id, entry, mark)
        except StoreUnavailableError as error:
            logger.warning("session %r: the index is behind until it is next read (%s)", session_id, error)

    async def remake_rows(self) -> None:
        """Make all rows anew from the sessions, whatever is in them, and take out entries of none.

        What commits write meanwhile stays.
        """
        async for name, row in self._scan_pairs("HSCAN", self._rows):
            await self._remake_row(name, row)
        async for entry, _ in self._scan_pairs("ZSCAN", self._entries):
            if (start := _ID_AT.get(entry[:1])) is not None:
                await self._connection.run_script(_SETTLE, [self._rows, self._entries], entry[start:], entry)

    async def _remake_row(self, name: bytes, row: bytes) -> None:
        entry = await self._ask(read_id(name))
        await self._connection.run_script(
            _REMAKE, [self._rows, self._entries], name, row, *_update_args(entry)
        )

    async def _scan_pairs(self, command: str, key: str) -> AsyncIterator[tuple[bytes, bytes]]:
        cursor = b"0"
        while True:
            cursor, found = await self._connection.send_command(command, key, cursor, "COUNT", _MENDED)
            for pair in found.items() if isinstance(found, dict) else found:
                yield pair
            if not int(cursor):
                return

    # -- reading

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """See `SessionRows.list_sessions`."""
        await self.mend_rows()
        return await self._lists.list_sessions(query)

    # rule: stores.sessions.operations.list_expired
    async def list_expired(
        self, before: int, *, limit: int, after: tuple[int, str] | None
    ) -> tuple[ExpiredSession, ...]:
        """See `SessionRows.list_expired`."""
        found = await self._list_by_time(b"x", before, limit, after)
        rows = await self._lists.read_rows([session_id.encode() for _, session_id in found])
        pending = {row.summary.session_id for row in rows if row.cleanup_pending}
        return tuple(
            ExpiredSession(session_id=session_id, expires_at=at, cleanup_pending=session_id in pending)
            for at, session_id in found
        )

    # rule: stores.sessions.operations.list_due
    async def list_due(
        self, before: int, *, limit: int, after: tuple[int, str] | None
    ) -> tuple[DueSession, ...]:
        """See `SessionRows.list_due`."""
        found = await self._list_by_time(b"w", before, limit, after)
        return tuple(DueSession(session_id=session_id, due_at=at) for at, session_id in found)

    async def list_cleanup_pending(self, *, limit: int, after: str | None) -> tuple[str, ...]:
        """See `SessionRows.list_cleanup_pending`."""
        await self.mend_rows()
        lowest = b"[k" if after is None else b"(k" + after.encode()
        found = await self._entries_in(lowest, b"(l", limit)
        return tuple(entry[1:].decode() for entry in found)

    async def with_operations(self, before: int, *, after: bytes) -> list[tuple[bytes, str]]:
        """Some entries, and ids, of sessions that may have operations older than ``before`` (ms)."""
        lowest = b"(" + after if after else b"[o"
        found = await self._entries_in(lowest, b"(o" + order_bytes(before), _PURGED)
        return [(entry, entry[9:].decode()) for entry in found]

    async def mend_rows(self) -> None:
        """Ask the sessions of commits that should have arrived, and those that should have ended."""
        skip_marks = skip_ended = 0
        while True:
            number, *found = await self._run_script(
                _STALE, [self._entries, self.marks], _MOMENT, _SETTLED, skip_marks, skip_ended, _MENDED
            )
            marks, ended = found[: int(number)], found[int(number) :]
            outcomes = await asyncio.gather(
                *(self._mend_session(read_id(each[1:].rpartition(b"\0")[0]), each) for each in marks),
                *(self._mend_session(read_id(each), b"") for each in ended),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            skip_marks += sum(each.startswith(b"M") for each in marks)
            skip_ended += sum(outcome is False for outcome in outcomes[len(marks) :])
            if max(len(marks), len(ended)) < _MENDED:
                return

    # -- inside

    async def _mend_session(self, session_id: str, late: bytes) -> bool:
        """Whether the session could be asked; one that is damaged must not keep all others from lists."""
        mark = late[1:] if late.startswith(b"S") else b""
        try:
            entry = await self._ask(session_id)
        except StoreUnavailableError:
            raise
        except HelixError:
            logger.exception("session %r can't be read: lists may be wrong about it", session_id)
            await self.withdraw_mark(mark)
            return False
        await self.update_row(session_id, entry, mark)
        return True

    async def _list_by_time(
        self, letter: bytes, before: int, limit: int, after: tuple[int, str] | None
    ) -> tuple[tuple[int, str], ...]:
        await self.mend_rows()
        lowest = b"[" + letter
        if after is not None:
            lowest = b"(%b%b%b" % (letter, time_bytes(after[0]), after[1].encode())
        found = await self._entries_in(lowest, b"(" + letter + time_bytes(before), limit)
        return tuple((int.from_bytes(entry[1:9], "big"), entry[9:].decode()) for entry in found)

    async def _entries_in(self, lowest: bytes, highest: bytes, limit: int) -> list[bytes]:
        """Entries of a range; damaged ones, whose id is none any more, are taken out."""
        while True:
            found: list[bytes] = await self._connection.send_command(
                "ZRANGEBYLEX", self._entries, lowest, highest, "LIMIT", 0, limit
            )
            damaged = [each for each in found if not is_readable(each[_ID_AT[each[:1]] :])]
            if not damaged:
                return found
            logger.error(
                "%s: %d damaged entries are taken out of the index of sessions; make it anew: rebuild_index",
                self._connection.place_of(self._entries),
                len(damaged),
            )
            await self._connection.send_command("ZREM", self._entries, *damaged)

    async def _run_script(self, script: Script, keys: Sequence[str], *args: Value) -> list[bytes]:
        answer: Answer = await self._connection.run_script(script, keys, *args)
        assert isinstance(answer, list)
        return answer


def _update_args(entry: IndexUpdate | None) -> Sequence[Value]:
    """What scripts are told of a session; empty texts if there is none."""
    if entry is None:
        return ("", "", "", "", "")
    ends = b"" if entry.ends is None else time_bytes(entry.ends)
    return (entry.birth, entry.revision, entry.operation, ends, entry.document)
