"""Old records in packs: moving bodies there, reading them back, and freeing packs that nothing is in.

A row names a pack before its object is written, and a record refers to a pack only by a commit that finds
this row.  So whoever removes the row first may delete the object, whatever else is under way.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from pydantic import ValidationError

from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    SessionNotFoundError,
    StoreCorruptError,
    StoreUnavailableError,
)
from helix_temporal.models.maintenance import RecordsKept
from helix_temporal.models.states import StoredModel
from helix_temporal.stores.protocols.records import Record
from helix_temporal.stores.protocols.session_rows import RowKey, RowKind, SessionRow, WantedRows
from helix_temporal.stores.protocols.threads import Progress, no_progress
from helix_temporal.stores.record_packs import (
    PARTS,
    PackGoneError,
    PackRef,
    RecordPacks,
    delete_unnamed_packs,
    make_pack_id,
    read_pack_rows,
)
from helix_temporal.stores.records.rows import (
    MAX_PAGE,
    WORTH,
    DecodedRecord,
    checksum_of,
    cut_from_pack,
    decode_record,
    encode_stub,
)
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.decisions import Call, Decision, SeenSession

T = TypeVar("T")
logger = logging.getLogger(__name__)

PACK_BYTES: Final = 8 * 1024 * 1024
PACK_RECORDS: Final = 100
"""A pack is closed with the record that reaches one of these; as many are read at once."""
ABANDONED_AFTER: Final = 24 * 3600 * 1000
"""Milliseconds after which a pack that was begun and not finished is given up.  Younger ones may be under
way; one that is given up too early is made again."""
_LOOKS: Final = 5
_PARALLEL: Final = 8
_FAILED: Final = 20
_LAST_GROUP: Final = "\U0010ffff"
_ALL: Final = 2**63


# ---- reading


async def unless_gone(session_id: str, read: Callable[[], Awaitable[T]]) -> T:
    """What ``read`` gives; again where a pack was freed between its look at the rows and the pack.

    Raises:
        StoreCorruptError: A record refers to a pack that is not there.
    """
    for _ in range(_LOOKS):
        try:
            return await read()
        except PackGoneError:
            continue
    raise StoreCorruptError(f"session {session_id!r}: a record is in a pack that is not in the archive")


async def read_bodies(
    store: SessionStoreBase, session_id: str, rows: Iterable[SessionRow]
) -> Sequence[Record]:
    """The records of some rows; each pack that they are in is read once.

    Raises:
        PackGoneError: One is not there (any more).
        StoreCorruptError: A row or a pack is damaged, or there is no archive to read it from.
    """
    stored = [decode_record(row) for row in rows]
    names = sorted({each.body.pack for each in stored if isinstance(each.body, PackRef)})
    wholes: dict[str, bytes] = {}
    if names:
        if store.packs is None:
            raise StoreCorruptError(f"session {session_id!r}: records are archived, and there is no archive")
        packs, slots = store.packs, asyncio.Semaphore(_PARALLEL)

        async def read(name: str) -> bytes:
            async with slots:
                return await packs.read(session_id, name)

        wholes = dict(zip(names, await asyncio.gather(*map(read, names)), strict=True))
    return [_record_of(session_id, each, wholes) for each in stored]


def _record_of(session_id: str, stored: DecodedRecord, wholes: dict[str, bytes]) -> Record:
    if isinstance(stored.body, PackRef):
        return cut_from_pack(session_id, stored, stored.body, wholes[stored.body.pack])
    return Record(stored.name.kind, stored.name.key, stored.body, stored.name.group)


# ---- archiving


class Chosen(NamedTuple):
    """Which records of a group are archived; see `Records.archive`.

    Attributes:
        group: The group of the rows.
    """

    group: str
    before: str | None
    written_before: int | None
    limit: int


class PackContent(StoredModel):
    """The body of a row that names a pack.

    Attributes:
        keys: Of the records that are in it; empty while it is being made.
    """

    group: str
    keys: tuple[str, ...] = ()


class _Candidate(NamedTuple):
    """A record that is to be archived: its row as it was seen, and what this holds."""

    row: SessionRow
    stored: DecodedRecord
    body: bytes


async def archive_group(store: SessionStoreBase, session_id: str, chosen: Chosen) -> int:
    """See `Records.archive`."""
    packs = _require_packs(store)
    # Raises where there is no session: nobody would look for the packs of one.
    _ = (await store.view_session(session_id)).present
    moved, left, after = 0, chosen.limit, None
    while left > 0:
        rows = await store.loop.rows.read_group(
            session_id, RowKind.RECORD, chosen.group, limit=PACK_RECORDS, after=after
        )
        found = _choose(rows, chosen)[:left]
        for batch in _split(found):
            moved += await _archive_batch(store, packs, session_id, chosen.group, batch)
        left -= len(found)
        if len(rows) < PACK_RECORDS or (chosen.before is not None and rows[-1].key >= chosen.before):
            break
        after = rows[-1].key
    return moved


def _choose(rows: Sequence[SessionRow], chosen: Chosen) -> list[_Candidate]:
    """Those of a page that are to be archived."""
    found: list[_Candidate] = []
    for row in rows:
        if chosen.before is not None and row.key >= chosen.before:
            break
        stored = decode_record(row)
        if not isinstance(stored.body, bytes) or len(stored.body) < WORTH:
            continue
        if chosen.written_before is None or stored.written_at < chosen.written_before:
            found.append(_Candidate(row, stored, stored.body))
    return found


def _split(found: Sequence[_Candidate]) -> Iterable[Sequence[_Candidate]]:
    """Parts of which each fits into a pack."""
    first = size = 0
    for number, each in enumerate(found, 1):
        size += len(each.body)
        if size >= PACK_BYTES or number == len(found):
            yield found[first:number]
            first, size = number, 0


async def _archive_batch(
    store: SessionStoreBase, packs: RecordPacks, session_id: str, group: str, batch: Sequence[_Candidate]
) -> int:
    """Move some records into a new pack; how many still were what had been seen."""
    pack = make_pack_id()
    name = await _begin_pack(store, session_id, pack, group)
    await packs.put(session_id, pack, [each.body for each in batch])
    moved = await _finish_pack(store, session_id, name, group, batch)
    if not moved:
        # No row names it any more.
        await packs.delete(session_id, pack)
    return moved


async def _begin_pack(store: SessionStoreBase, session_id: str, pack: str, group: str) -> SessionRow:
    """Name a pack that is going to be written."""

    def decide(seen: SeenSession) -> Decision[int]:
        _ = seen.present
        return Decision(seen.now, puts=(_pack_row(pack, PackContent(group=group), seen.now),))

    call = Call("begin_pack", session_id, fenced=False)
    begun = (await store.loop.make_change(call, WantedRows(), decide, int)).answer
    return _pack_row(pack, PackContent(group=group), begun)


def _make_stubs(session_id: str, pack: str, batch: Sequence[_Candidate]) -> tuple[SessionRow, ...]:
    stubs: list[SessionRow] = []
    offset = 0
    for _, stored, body in batch:
        checksum = checksum_of(session_id, stored.name, body)
        stubs.append(encode_stub(stored, PackRef(pack, offset, len(body), checksum)))
        offset += len(body)
    return tuple(stubs)


async def _finish_pack(
    store: SessionStoreBase, session_id: str, named: SessionRow, group: str, batch: Sequence[_Candidate]
) -> int:
    """Put stubs in the place of the records that are still what was seen; how many.

    None of them where the row that names the pack is gone: the session was deleted, or upkeep took this for
    given up.
    """
    before = {each.row.name: each.row for each in batch}
    stubs = _make_stubs(session_id, named.key, batch)
    wanted = WantedRows(keys=(*before, named.name))

    def decide(seen: SeenSession) -> Decision[int]:
        there = {row.name: row for row in seen.view.rows}
        if seen.state is None or named.name not in there:
            return Decision(0)
        same = tuple(stub for stub in stubs if there.get(stub.name) == before[stub.name])
        if not same:
            return Decision(0, removes=(named.name,))
        content = PackContent(group=group, keys=tuple(stub.key for stub in same))
        return Decision(len(same), puts=(*same, _pack_row(named.key, content, named.order)))

    call = Call("finish_pack", session_id, fenced=False)
    return (await store.loop.make_change(call, wanted, decide, int)).answer


def _pack_row(pack: str, content: PackContent, begun: int) -> SessionRow:
    return SessionRow(RowKind.PACK, pack, content.model_dump_json().encode(), order=begun)


def _require_packs(store: SessionStoreBase) -> RecordPacks:
    if store.packs is None:
        raise InvalidConfigError(
            "records can't be archived: there is no archive; set HELIX_S3_BUCKET or HELIX_COLD_DIRECTORY"
        )
    return store.packs


# ---- upkeep


class RecordUpkeep:
    """Archives old records of all sessions, and frees packs.

    Args:
        store: The session store.
        after: Milliseconds since it was written after which a record is archived.
        abandoned_after: Milliseconds after which a pack that was begun is given up.

    Raises:
        InvalidConfigError: The store has no archive.
    """

    def __init__(
        self, store: SessionStoreBase, *, after: int, abandoned_after: int = ABANDONED_AFTER
    ) -> None:
        self._store, self._after, self._abandoned_after = store, after, abandoned_after
        self._packs = _require_packs(store)

    async def run(self, progress: Progress = no_progress) -> RecordsKept:
        """Go through all sessions, then through all packs; a session that fails stops no other one.

        Raises:
            StoreUnavailableError: Store or archive do not answer; repeat it.
        """
        rows, kept = self._store.loop.rows, RecordsKept()
        # With 0, what was written in this very millisecond is old enough, too.
        before = await rows.now() - self._after + 1
        async for session_id in rows.scan():
            archived = await self._try(session_id, self.archive_session(session_id, before))
            freed = await self._try(session_id, self._release_packs(session_id))
            kept = _plus(kept, session_id, archived, freed)
            progress("archive", kept.seen, kept.archived)
        for part in range(PARTS):
            # Also of sessions that are deleted, and are in no scan.
            for session_id in await self._packs.list_sessions(part):
                done = await self._try(session_id, delete_unnamed_packs(rows, self._packs, session_id))
                kept = _plus(kept, session_id, 0, done, seen=0)
            progress("free", part, kept.packs_deleted)
        return kept

    async def _try(self, session_id: str, work: Awaitable[int]) -> int | None:
        try:
            return await work
        except StoreUnavailableError:
            raise
        except SessionNotFoundError:
            return 0
        except HelixError as error:
            logger.warning("records of session %r are not looked after: %s", session_id, error)
            return None
        except Exception as error:
            logger.warning("records of session %r are not looked after", session_id, exc_info=error)
            return None

    async def archive_session(self, session_id: str, written_before: int) -> int:
        """Archive the records of a session that were written before a time, in ms; how many."""
        moved, first = 0, ""
        rows = self._store.loop.rows
        while groups := await rows.list_groups(
            session_id, RowKind.RECORD, first=first, stop=_LAST_GROUP, limit=MAX_PAGE
        ):
            for group in groups:
                moved += await archive_group(
                    self._store, session_id, Chosen(group, None, written_before, _ALL)
                )
            first = f"{groups[-1]}\x01"
        return moved

    async def free_packs(self, session_id: str) -> int:
        """Delete the packs of a session that no record refers to, and that nobody is making; how many."""
        freed = await self._release_packs(session_id)
        return freed + await delete_unnamed_packs(self._store.loop.rows, self._packs, session_id)

    async def _release_packs(self, session_id: str) -> int:
        freed = 0
        for row in await read_pack_rows(self._store.loop.rows, session_id):
            if await self._release_pack(session_id, row):
                await self._packs.delete(session_id, row.key)
                freed += 1
        return freed

    async def _release_pack(self, session_id: str, row: SessionRow) -> bool:
        """Remove the row that names a pack, if nothing refers to the pack; True if it was removed."""
        content = _content_of(session_id, row)
        names = tuple(RowKey(RowKind.RECORD, key, content.group) for key in content.keys)
        view = await self._store.loop.rows.view(session_id, WantedRows(keys=names))
        if any(_is_in_pack(each, row.key) for each in view.rows):
            return False

        def decide(seen: SeenSession) -> Decision[bool]:
            # No other commit than the one that finishes a pack refers to it: what is free stays so.
            if seen.view.rows != (row,) or (not names and seen.now - row.order < self._abandoned_after):
                return Decision(False)
            return Decision(True, removes=(row.name,))

        call = Call("release_pack", session_id, fenced=False)
        return (await self._store.loop.make_change(call, WantedRows(keys=(row.name,)), decide, bool)).answer


def _is_in_pack(row: SessionRow, pack: str) -> bool:
    body = decode_record(row).body
    return isinstance(body, PackRef) and body.pack == pack


def _content_of(session_id: str, row: SessionRow) -> PackContent:
    try:
        return PackContent.model_validate_json(row.body)
    except ValidationError:
        raise StoreCorruptError(f"session {session_id!r}: a row that names a pack is damaged") from None


def _plus(
    kept: RecordsKept, session_id: str, archived: int | None, freed: int | None, *, seen: int = 1
) -> RecordsKept:
    failed = archived is None or freed is None
    return RecordsKept(
        seen=kept.seen + seen,
        archived=kept.archived + (archived or 0),
        packs_deleted=kept.packs_deleted + (freed or 0),
        failed=(*kept.failed, session_id)[:_FAILED] if failed else kept.failed,
        failures=kept.failures + failed,
    )
