"""Threads in PostgreSQL: a hot tier of two tables, headers and messages.

A step is appended alone, or inside the transaction of a session's commit.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace as changed
from typing import Final, NamedTuple, TypeVar

from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.stored_messages import Head, StoredMessage, head_after, size_of
from helix_temporal.stores.checksums import with_checksum
from helix_temporal.stores.postgres.database import (
    TRIES,
    DatabaseOrPool,
    PostgresExecutor,
    as_database,
    run_in_transaction,
)
from helix_temporal.stores.postgres.migrations import check_database
from helix_temporal.stores.postgres.queries import (
    DEFAULT_PREFIX,
    Queries,
    check_none_is_missing,
    header_of,
    header_values,
    message_columns,
    read_messages,
)
from helix_temporal.stores.protocols.hot import (
    Appended,
    Archived,
    Eviction,
    HotHeader,
    HotSnapshot,
    PageRange,
    Rebase,
    ScannedPage,
    ScannedThread,
    StepAppend,
    StepView,
    place_of,
)
from helix_temporal.stores.threads import operations as ops
from helix_temporal.stores.threads.fences import Fence
from helix_temporal.stores.threads.standing_step import ends_turn, is_repeated_step


async def append_step(on: PostgresExecutor, queries: Queries, step: StepAppend) -> Appended | None:
    """`HotTier.append` on a connection or in a transaction: None if the thread is not here.

    One statement where the thread stands at the step's head; a second and third only to say why not.
    """
    ops.check_step(step)
    for _ in range(TRIES):
        moved = await try_append(on, queries, step)
        if moved is not None:
            return moved
        row = await on.fetchrow(queries["thread_at"], step.thread_id, step.head.position, len(step.messages))
        if row is None:
            return None
        header = header_of(step.thread_id, row)
        # Where the place is not held, what follows it does not begin there.
        is_held = row["id_before"] is not None
        stored = read_messages(row, step.thread_id, step.head.position) if is_held else ()
        if is_held:
            expected = min(len(step.messages), header.head.position - step.head.position)
            check_none_is_missing(step.thread_id, step.head.position, expected, len(stored))
        if is_repeated_step(header, row["id_before"], stored, step):
            stands = Appended(stored, head_after(step.head, stored), True, header)
            committed = await _commit_standing_step(on, queries, step, stands)
            if committed is not None:
                return committed
        elif step.slice is not None:
            ops.check_slice_version(header, step.slice_version)
        # Neither refused nor there: it changed between the two looks.
    raise StoreUnavailableError(f"thread {step.thread_id!r}: it keeps changing; repeat the call")


async def try_append(on: PostgresExecutor, queries: Queries, step: StepAppend) -> Appended | None:
    """Add the step if the thread stands exactly at its head, in one statement; None if it does not."""
    messages = step.messages
    end = head_after(step.head, messages)
    row = await on.fetchrow(queries["thread_append"], *append_values(step, end))
    if row is None:
        return None
    return Appended(messages, end, False, header_of(step.thread_id, row))


def append_values(step: StepAppend, end: Head) -> tuple[object, ...]:
    """The arguments of ``_thread_moved.sql``, for statements that include it."""
    messages = step.messages
    archived, archived_size = _archive_hint(step.archived, end.position)
    return (
        step.thread_id,
        step.epoch,
        step.head.position,
        step.head.last_id,
        end.position,
        end.last_id,
        *message_columns(step.head.position, messages),
        size_of(messages),
        ends_turn(step, messages),
        None if step.slice is None else with_checksum(step.slice, step.slice_version + 1),
        step.slice_version,
        archived,
        archived_size,
    )


async def _commit_standing_step(
    on: PostgresExecutor, queries: Queries, step: StepAppend, stands: Appended
) -> Appended | None:
    """What still takes effect of a step that stands: None if it was cut meanwhile."""
    header = stands.header
    commits = ends_turn(step, stands.messages)
    archived, archived_size = _archive_hint(step.archived, header.head.position)
    if archived <= header.archived and not (commits and stands.head.position > header.committed):
        return stands
    row = await on.fetchrow(
        queries["thread_settle"],
        step.thread_id,
        step.epoch,
        stands.head.position,
        stands.head.last_id,
        commits,
        archived,
        archived_size,
    )
    if row is None:
        return None
    return Appended(stands.messages, stands.head, True, header_of(step.thread_id, row))


# rule: stores.threads.operations.moved_hint
def _archive_hint(archived: Archived | None, head: int) -> tuple[int, int]:
    """Position and size that the archive has, where they say something of a thread that ends at ``head``."""
    if archived is None or archived.head.position > head:
        return -1, 0
    return archived.head.position, archived.size


T = TypeVar("T")

_STATEMENT_MESSAGES: Final = 2000
_STATEMENT_BYTES: Final = 4 * 1024 * 1024
_PLACE: Final = ("epoch", "head", "last_id", "committed", "slice_version", "closed")
_PURGE_ROWS: Final = 500


class _Locked(NamedTuple):
    """A header that is locked until the transaction ends; ``found``: its row is there, expired or not."""

    header: HotHeader | None
    found: bool
    now: int


class PostgresThreads:
    """`HotTier` on PostgreSQL.  Made by `PostgresBackend`, or over your own `PostgresDatabase` or pool.

    Args:
        database: A `PostgresDatabase`, or an asyncpg pool; whoever made it closes it.
        table_prefix: What the names of all tables begin with; see `PostgresMigrations`.

    Raises:
        InvalidConfigError: The prefix is not acceptable.
    """

    def __init__(self, database: DatabaseOrPool, *, table_prefix: str = DEFAULT_PREFIX) -> None:
        self._database, self._queries = as_database(database), Queries(table_prefix)

    # -- reads

    async def read_header(self, thread_id: str) -> HotHeader | None:
        """See `HotTier.read_header`."""
        row = await self._database.fetchrow(self._queries["thread_header"], thread_id)
        return None if row is None else header_of(thread_id, row)

    async def read_snapshot(self, thread_id: str, since: int) -> HotSnapshot | None:
        """See `HotTier.read_snapshot`."""
        row = await self._database.fetchrow(self._queries["thread_snapshot"], thread_id, since)
        if row is None:
            return None
        header, first = header_of(thread_id, row), row["first"]
        messages = read_messages(row, thread_id, first)
        check_none_is_missing(thread_id, first, header.head.position - first, len(messages))
        return HotSnapshot(header, first, messages)

    async def read_page(self, thread_id: str, wanted: PageRange) -> HotSnapshot | None:
        """See `HotTier.read_page`."""
        row = await self._database.fetchrow(
            self._queries["thread_page_backward" if wanted.backward else "thread_page_forward"],
            thread_id,
            wanted.start,
            wanted.stop,
            wanted.limit,
            wanted.max_bytes,
        )
        if row is None:
            return None
        header = header_of(thread_id, row)
        base, head, most = header.base.position, header.head.position, max(wanted.limit, 1)
        # rule: stores.threads.operations.select_page
        first = min(max(wanted.start, base), head)
        stop = max(min(wanted.stop, head), first)
        check_none_is_missing(thread_id, first, min(stop - first, most), row["there"])
        if wanted.backward:
            first = stop - len(row["kinds"] or ())
        return HotSnapshot(header, first, read_messages(row, thread_id, first))

    async def step_view(
        self, thread_id: str, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView | None:
        """See `HotTier.step_view`."""
        row = await self._database.fetchrow(
            self._queries["thread_step_view"], thread_id, head.position, after, limit, max_bytes, ids
        )
        if row is None:
            return None
        header = header_of(thread_id, row)
        base, end = header.base.position, header.head.position
        # rule: stores.threads.operations.step_view
        at = min(max(head.position, base), end)
        first = at - len(row["before_kinds"] or ())
        view = StepView(
            header=header,
            after=read_messages(row, thread_id, head.position, "after_"),
            before=read_messages(row, thread_id, first, "before_"),
            earlier_ids=tuple(row["earlier_ids"] or ()),
            last_id_at_head=row["id_before"],
        )
        check_none_is_missing(thread_id, base, min(max(limit, 1), at - base), row["before_there"])
        earlier = min(max(ids - len(view.before), 0), first - base)
        check_none_is_missing(thread_id, base, earlier, len(view.earlier_ids))
        if at == head.position:
            check_none_is_missing(thread_id, at, min(after, end - at), len(view.after))
        return view

    async def scan_page(self, cursor: str | None = None, count: int = 500) -> ScannedPage:
        """See `HotTier.scan_page`.  The first page removes what has expired: no other process does."""
        if cursor is None:
            while await self._database.fetchval(self._queries["thread_purge"], _PURGE_ROWS) == _PURGE_ROWS:
                pass
        rows = await self._database.fetch(self._queries["thread_scan"], cursor or "", count)
        threads = tuple(
            ScannedThread(row["thread_id"], place_of(*(row[name] for name in _PLACE)), row["archived_place"])
            for row in rows
        )
        return ScannedPage(threads, threads[-1].thread_id if len(threads) == count else None)

    # -- writes

    async def mark_archived(self, thread_id: str, place: str) -> None:
        """See `HotTier.mark_archived`."""
        await self._database.execute(self._queries["thread_mark_archived"], thread_id, place)

    async def append(self, step: StepAppend) -> Appended | None:
        """See `HotTier.append`.  One round trip where the thread stands at the step's head."""
        return await append_step(self._database, self._queries, step)

    async def rebase(self, change: Rebase) -> HotHeader | None:
        """See `HotTier.rebase`."""
        ops.check_rebase(change)
        header = change.header

        async def work(on: PostgresExecutor) -> HotHeader | None:
            locked = await self._lock_header(on, header.thread_id)
            if not ops.may_rebase(locked.header, change):
                return None
            return await self._store_thread(on, locked, header, change.keep, change.messages)

        return await run_in_transaction(self._database, work)

    async def install(
        self, header: HotHeader, messages: Sequence[StoredMessage], *, replace: bool
    ) -> HotHeader:
        """See `HotTier.install`."""
        ops.check_install(header, messages)

        async def work(on: PostgresExecutor) -> HotHeader | None:
            locked = await self._lock_header(on, header.thread_id)
            there = locked.header
            id_before = None
            if there is not None and replace:
                id_before = await self._id_before(on, there, header.head.position)
            made = ops.header_to_install(there, id_before, header, replace=replace)
            if made is None:
                return there
            return await self._store_thread(on, locked, made, header.base.position, messages)

        for _ in range(TRIES):
            if (installed := await run_in_transaction(self._database, work)) is not None:
                return installed
        raise StoreUnavailableError(
            f"thread {header.thread_id!r}: others keep installing it; repeat the call"
        )

    async def evict(
        self, thread_id: str, epoch: int, archived: Archived, *, warm_ttl: float | None = None
    ) -> Eviction:
        """See `HotTier.evict`."""

        async def work(on: PostgresExecutor, header: HotHeader) -> Eviction:
            if not ops.archived_all(header, epoch, archived):
                return Eviction.NEWER
            # rule: stores.threads.operations.evict_thread
            if warm_ttl is None:
                await on.execute(self._queries["thread_delete"], thread_id)
                return Eviction.DROPPED
            milliseconds = max(int(warm_ttl * 1000), 1)
            await on.execute(
                self._queries["thread_keep_warm"],
                thread_id,
                archived.head.position,
                archived.size,
                milliseconds,
            )
            return Eviction.KEPT_WARM

        return await self._with_locked(thread_id, work) or Eviction.ABSENT

    async def trim(self, thread_id: str, epoch: int, archived: Head, keep_from: int) -> HotHeader | None:
        """See `HotTier.trim`."""

        async def work(on: PostgresExecutor, header: HotHeader) -> HotHeader:
            id_before = await self._id_before(on, header, archived.position)
            start = ops.trimmed_base(header, id_before, epoch, archived, keep_from)
            if start == header.base.position:
                return header
            row = await on.fetchrow(self._queries["thread_trim"], thread_id, start)
            assert row is not None
            return header_of(thread_id, row)

        return await self._with_locked(thread_id, work)

    async def close_epoch(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.close_epoch`."""
        await self._database.execute(self._queries["thread_close_epoch"], thread_id, epoch)

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int | None:
        """See `HotTier.save_slice`."""
        stored = with_checksum(data, expected_version + 1)
        for _ in range(TRIES):
            version: int | None = await self._database.fetchval(
                self._queries["thread_save_slice"], thread_id, epoch, stored, expected_version
            )
            if version is not None or (header := await self.read_header(thread_id)) is None:
                return version
            Fence.of(header).check_writer(epoch)
            ops.check_slice_version(header, expected_version)
        raise StoreUnavailableError(f"thread {thread_id!r}: it keeps changing; repeat the call")

    async def drop(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.drop`."""

        async def work(on: PostgresExecutor, header: HotHeader) -> None:
            Fence.of(header).check_not_replaced(epoch)
            await on.execute(self._queries["thread_delete"], thread_id)

        await self._with_locked(thread_id, work)

    async def drop_damaged(self, thread_id: str, archived: Archived, slice_: bytes) -> bool:
        """See `HotTier.drop_damaged`."""
        return bool(
            await self._database.fetchval(
                self._queries["thread_drop_damaged"],
                thread_id,
                archived.head.position,
                with_checksum(slice_, archived.slice_version),
            )
        )

    async def check(self) -> None:
        """Refuse a server or tables that would not do.

        Raises:
            UnsupportedServerError: Older than PostgreSQL 13, read-only, or not in UTF-8.
            SchemaVersionError: The tables are older or newer than this package needs.
            InvalidConfigError: The user lacks rights on tables.
        """
        await check_database(self._database, self._queries.prefix)

    async def close(self) -> None:
        """See `HotTier.close`; whoever made the database closes it."""

    # -- inside

    async def _lock_header(self, on: PostgresExecutor, thread_id: str) -> _Locked:
        row = await on.fetchrow(self._queries["thread_lock"], thread_id)
        if row is None:
            return _Locked(None, False, await on.fetchval(self._queries["thread_now"]))
        return _Locked(header_of(thread_id, row) if row["alive"] else None, True, row["now"])

    async def _with_locked(
        self, thread_id: str, work: Callable[[PostgresExecutor, HotHeader], Awaitable[T]]
    ) -> T | None:
        """Run ``work`` in a transaction that holds the header; None if there is no thread."""

        async def locked(on: PostgresExecutor) -> T | None:
            header = (await self._lock_header(on, thread_id)).header
            return None if header is None else await work(on, header)

        return await run_in_transaction(self._database, locked)

    async def _store_thread(
        self,
        on: PostgresExecutor,
        locked: _Locked,
        header: HotHeader,
        keep: int,
        messages: Sequence[StoredMessage],
    ) -> HotHeader | None:
        """Put the header there, keep its messages up to ``keep`` and let ``messages`` follow."""
        head = header.head.position
        since = ops.unarchived_since(header.unarchived_since, header.archived, head, head, locked.now)
        header = changed(header, unarchived_since=since)
        if locked.found:
            await on.execute(self._queries["thread_replace"], *header_values(header))
        elif not await on.fetchval(self._queries["thread_insert"], *header_values(header)):
            return None
        thread_id = header.thread_id
        await on.execute(self._queries["thread_cut_messages"], thread_id, header.base.position, keep)
        for first, part in _split_into_parts(messages):
            await on.execute(
                self._queries["thread_put_messages"],
                thread_id,
                keep + first,
                *message_columns(keep + first, part),
            )
        return header

    async def _id_before(self, on: PostgresExecutor, header: HotHeader, position: int) -> str | None:
        row = await on.fetchrow(self._queries["thread_at"], header.thread_id, position, 0)
        return None if row is None else row["id_before"]


def _split_into_parts(messages: Sequence[StoredMessage]) -> list[tuple[int, list[StoredMessage]]]:
    """The messages in parts for one statement each, with the number of those before."""
    parts: list[tuple[int, list[StoredMessage]]] = []
    room = 0
    for at, message in enumerate(messages):
        size = len(message.body)
        if not parts or size > room or len(parts[-1][1]) == _STATEMENT_MESSAGES:
            parts.append((at, []))
            room = _STATEMENT_BYTES
        parts[-1][1].append(message)
        room -= size
    return parts
