"""Hot threads in SQLite: a row a thread, and a row a message."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace as changed
from math import ceil
from typing import Any, Final, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from helix_temporal.errors import StoreCorruptError, UnsupportedFormatError
from helix_temporal.models.base import dump_json
from helix_temporal.models.states import is_past
from helix_temporal.models.stored_messages import Head, StoredMessage
from helix_temporal.stores.checksums import damaged_error, verify_checksum, with_checksum
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
from helix_temporal.stores.sqlite.connection import Database, Statements
from helix_temporal.stores.threads import operations as ops
from helix_temporal.stores.threads.operations import HotThread, OperationOutcome

T = TypeVar("T")

_PURGE_ROWS: Final = 500
_HEADER: Final = TypeAdapter(HotHeader)
_UNREAD: Final = StoredMessage("", "", b"")
_FIELDS: Final = tuple(name for name in HotHeader.__dataclass_fields__ if name != "slice")


class SqliteThreads:
    """`HotTier` on SQLite.  Made by `SqliteBackend`.

    An append reads and writes its own messages and the header; what replaces or trims a thread reads all
    of it.

    Args:
        database: Shared with the sessions of the same ids.
        clock: Seconds since 1970; what expires and what is stamped goes by it.

    Raises (every method): what `Database` raises.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def expires_in(self, thread_id: str) -> float | None:
        """Seconds until the hot thread expires, None if it never does or is not there."""
        thread = await self._find_thread(self._database, thread_id)
        return None if thread is None or thread.expires_at is None else thread.expires_at - self._clock()

    # -- reads

    async def read_header(self, thread_id: str) -> HotHeader | None:
        """See `HotTier.read_header`."""
        thread = await self._find_thread(self._database, thread_id)
        return None if thread is None else thread.header

    async def header_on(self, on: Statements, thread_id: str) -> HotHeader | None:
        """The header, inside a transaction."""
        thread = await self._find_thread(on, thread_id)
        return None if thread is None else thread.header

    async def read_snapshot(self, thread_id: str, since: int) -> HotSnapshot | None:
        """See `HotTier.read_snapshot`."""
        async with self._database.read() as on:
            if (thread := await self._find_thread(on, thread_id)) is None:
                return None
            first = ops.snapshot_start(thread.header, since)
            messages = await _read_messages(on, thread_id, first, thread.header.head.position)
            return HotSnapshot(thread.header, first, messages)

    async def read_page(self, thread_id: str, wanted: PageRange) -> HotSnapshot | None:
        """See `HotTier.read_page`."""
        async with self._database.read() as on:
            if (thread := await self._find_thread(on, thread_id)) is None:
                return None
            base, head = thread.header.base.position, thread.header.head.position
            start = min(max(wanted.start, base), head)
            stop = max(min(wanted.stop, head), start)
            if wanted.backward:
                start = max(start, stop - max(wanted.limit, 1))
            else:
                stop = min(stop, start + max(wanted.limit, 1))
            first, messages = ops.select_page(await _read_messages(on, thread_id, start, stop), start, wanted)
            return HotSnapshot(thread.header, first, messages)

    async def step_view(
        self, thread_id: str, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView | None:
        """See `HotTier.step_view`."""
        async with self._database.read() as on:
            if (thread := await self._find_thread(on, thread_id)) is None:
                return None
            base, end = thread.header.base.position, thread.header.head.position
            at = min(max(head.position, base), end)
            held = await _with_messages(on, thread, max(at - max(limit, ids, 1), base), min(at + after, end))
            return ops.step_view(held, head, after=after, limit=limit, max_bytes=max_bytes, ids=ids)

    async def scan_page(self, cursor: str | None = None, count: int = 500) -> ScannedPage:
        """See `HotTier.scan_page`.  The first page removes what has expired."""
        if cursor is None:
            while await self._purge_expired() == _PURGE_ROWS:
                pass
        rows = await self._database.fetch("thread_scan", {"after": cursor or "", "limit": count})
        threads = tuple(
            ScannedThread(
                row["thread_id"], _place_of_body(row["header"], row["thread_id"]), row["archived_place"]
            )
            for row in rows
        )
        return ScannedPage(threads, threads[-1].thread_id if len(threads) == count else None)

    # -- writes

    async def mark_archived(self, thread_id: str, place: str) -> None:
        """See `HotTier.mark_archived`."""
        async with self._database.write() as on:
            await on.fetch("thread_mark_archived", {"thread_id": thread_id, "place": place})

    async def append(self, step: StepAppend) -> Appended | None:
        """See `HotTier.append`."""
        async with self._database.write() as on:
            return await self.append_on(on, step)

    async def append_on(self, on: Statements, step: StepAppend) -> Appended | None:
        """The same inside a transaction."""
        now = self._clock()
        thread = await self._find_thread(on, step.thread_id)
        if thread is None:
            return ops.append_to_thread(None, step, now).answer
        base, end = thread.header.base.position, thread.header.head.position
        start = min(max(step.head.position - 1, base), end)
        held = await _with_messages(on, thread, start, min(start + 1 + max(len(step.messages), 1), end))
        appended, after = ops.append_to_thread(held, step, now)
        if after is not None and after is not held:
            await _store_changes(on, held, after)
        return appended

    async def rebase(self, change: Rebase) -> HotHeader | None:
        """See `HotTier.rebase`."""
        return await self._change_thread(
            change.header.thread_id, lambda held, now: ops.rebase_thread(held, change, now), whole=True
        )

    async def install(
        self, header: HotHeader, messages: Sequence[StoredMessage], *, replace: bool
    ) -> HotHeader:
        """See `HotTier.install`."""
        return await self._change_thread(
            header.thread_id,
            lambda held, now: ops.install_thread(held, header, messages, replace=replace, now=now),
            whole=True,
        )

    async def evict(
        self, thread_id: str, epoch: int, archived: Archived, *, warm_ttl: float | None = None
    ) -> Eviction:
        """See `HotTier.evict`."""
        return await self._change_thread(
            thread_id, lambda held, now: ops.evict_thread(held, epoch, archived, warm_ttl=warm_ttl, now=now)
        )

    async def trim(self, thread_id: str, epoch: int, archived: Head, keep_from: int) -> HotHeader | None:
        """See `HotTier.trim`."""
        return await self._change_thread(
            thread_id, lambda held, _: ops.trim_thread(held, epoch, archived, keep_from), whole=True
        )

    async def close_epoch(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.close_epoch`."""
        await self._change_thread(thread_id, lambda held, _: ops.close_epoch(held, epoch))

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int | None:
        """See `HotTier.save_slice`."""
        return await self._change_thread(
            thread_id, lambda held, _: ops.save_slice(held, epoch, data, expected_version)
        )

    async def drop(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.drop`."""
        await self._change_thread(thread_id, lambda held, _: ops.drop_thread(held, epoch), erases=True)

    async def drop_damaged(self, thread_id: str, archived: Archived, slice_: bytes, /) -> bool:
        """See `HotTier.drop_damaged`."""
        key = {"thread_id": thread_id}
        async with self._database.write() as on:
            row = await on.fetch_one("thread_header", key)
            if row is None or _is_sound(row["header"], thread_id):
                return False
            newest = await on.fetch_one("thread_last_message", key)
            last = None if newest is None else newest["position"]
            stored = with_checksum(slice_, thread_id, archived.slice_version)
            if not ops.may_drop_damaged(last, row["slice"], archived.head, stored):
                return False
            await _delete_thread(on, thread_id)
            return True

    async def check(self) -> None:
        """Prove that the file takes writes; see `Database.check`."""
        await self._database.check()

    async def close(self) -> None:
        """See `Database.close`."""
        await self._database.close()

    # -- inside

    async def _find_thread(self, on: Statements | Database, thread_id: str) -> HotThread | None:
        """The thread without its messages; None if there is none or it has expired."""
        row = await on.fetch_one("thread_header", {"thread_id": thread_id})
        if row is None:
            return None
        thread = _thread_of(thread_id, row["header"], row["slice"])
        return None if thread.expired(self._clock()) else thread

    async def _change_thread(
        self,
        thread_id: str,
        operation: Callable[[HotThread | None, float], OperationOutcome[T]],
        *,
        whole: bool = False,
        erases: bool = False,
    ) -> T:
        """Apply an operation; ``whole``: it looks at the messages; ``erases``: see `Database.write`."""
        async with self._database.write(erases=erases) as on:
            held = await self._find_thread(on, thread_id)
            if held is not None and whole:
                held = await _with_messages(on, held, held.header.base.position, held.header.head.position)
            answer, after = operation(held, self._clock())
            if after is not None and after is not held:
                await _store_changes(on, held, after)
            elif after is None and held is not None:
                await _delete_thread(on, thread_id)
            return answer

    async def _purge_expired(self) -> int:
        """Remove some of the threads that have expired; how many were looked at."""
        now = self._clock()
        async with self._database.write() as on:
            rows = await on.fetch("thread_expired", {"now": int(now * 1000), "limit": _PURGE_ROWS})
            found = 0
            for thread_id in [row["thread_id"] for row in rows]:
                # The column is for the search; what counts is in the header, which has a checksum.
                row = await on.fetch_one("thread_header", {"thread_id": thread_id})
                if row is not None and _is_over(row["header"], thread_id, now):
                    found += 1
                    await _delete_thread(on, thread_id)
            return found


async def _with_messages(on: Statements, thread: HotThread, start: int, stop: int) -> HotThread:
    """The thread with the messages of a range; before them stand such that nobody looks at."""
    messages = await _read_messages(on, thread.header.thread_id, start, stop)
    unread = (_UNREAD,) * (start - thread.header.base.position)
    return changed(thread, messages=unread + messages)


async def _read_messages(on: Statements, thread_id: str, start: int, stop: int) -> tuple[StoredMessage, ...]:
    """The messages of a range that is held.

    Raises:
        StoreCorruptError: One is missing, or is not what was stored at its position.
    """
    if start >= stop:
        return ()
    rows = await on.fetch("thread_messages", {"thread_id": thread_id, "start": start, "stop": stop})
    where = f"thread {thread_id!r} in SQLite"
    found: list[StoredMessage] = []
    for position, row in enumerate(rows, start):
        place = f"the message at position {position} of {where}"
        body = verify_checksum(row["body"], place, thread_id, position, row["kind"], row["id"])
        found.append(StoredMessage(row["kind"], row["id"], body))
    if len(found) != stop - start:
        raise damaged_error(where, f"it lacks messages between {start} and {stop}")
    return tuple(found)


async def _store_changes(on: Statements, before: HotThread | None, after: HotThread) -> None:
    """Write what differs."""
    header = after.header
    thread_id = header.thread_id
    row = {
        "thread_id": thread_id,
        "expires_at": None if after.expires_at is None else ceil(after.expires_at * 1000),
        "header": _header_body(header, after.expires_at),
    }
    slice_ = (header.slice, header.slice_version)
    if before is not None and (before.header.slice, before.header.slice_version) == slice_:
        await on.fetch("thread_put_header", row)
    else:
        stored = with_checksum(header.slice, thread_id, header.slice_version)
        await on.fetch("thread_put", row | {"slice": stored})
    if before is None:
        # One that has expired may have left some.
        await on.fetch("thread_delete_messages", {"thread_id": thread_id})
        await _put_messages(on, after, header.base.position)
    elif after.messages is not before.messages:
        start = _first_difference(before, after)
        if start < before.header.head.position or header.base != before.header.base:
            cut = {"thread_id": thread_id, "first": header.base.position, "stop": start}
            await on.fetch("thread_cut_messages", cut)
        await _put_messages(on, after, start)


def _first_difference(before: HotThread, after: HotThread) -> int:
    """The first position at which another message stands than before; the end where there is none."""
    start = after.header.base.position
    if start < before.header.base.position:
        return start
    pairs = zip(before.messages_from(start), after.messages, strict=False)
    same = itertools.takewhile(lambda pair: pair[0] is pair[1], pairs)
    return start + sum(1 for _ in same)


async def _put_messages(on: Statements, thread: HotThread, start: int) -> None:
    thread_id = thread.header.thread_id
    rows = [
        {
            "thread_id": thread_id,
            "position": position,
            "kind": message.kind,
            "id": message.id,
            "body": with_checksum(message.body, thread_id, position, message.kind, message.id),
        }
        for position, message in enumerate(thread.messages_from(start), start)
    ]
    await on.execute_many("thread_put_message", rows)


async def _delete_thread(on: Statements, thread_id: str) -> None:
    await on.fetch("thread_delete", {"thread_id": thread_id})
    await on.fetch("thread_delete_messages", {"thread_id": thread_id})


def _header_body(header: HotHeader, expires_at: float | None) -> bytes:
    fields = {name: _plain_value(getattr(header, name)) for name in _FIELDS}
    return with_checksum(dump_json({"header": fields, "expires_at": expires_at}), header.thread_id)


def _place_of_body(body: bytes, thread_id: str) -> str:
    """`HotHeader.place` of a stored header; empty if that is damaged."""
    if not _is_sound(body, thread_id):
        return ""
    header = orjson.loads(verify_checksum(body, "", thread_id))["header"]
    head = header["head"]
    return place_of(
        header["epoch"],
        head["position"],
        head["last_id"],
        header["committed"],
        header["slice_version"],
        header["closed"],
    )


def _plain_value(value: Any) -> Any:
    return value.model_dump() if isinstance(value, Head) else value


def _is_over(body: bytes, thread_id: str, now: float) -> bool:
    if not _is_sound(body, thread_id):
        return False
    found = orjson.loads(verify_checksum(body, "", thread_id))
    return is_past(found["expires_at"], now)


def _is_sound(body: bytes, thread_id: str) -> bool:
    try:
        verify_checksum(body, "", thread_id)
    except StoreCorruptError:
        return False
    return True


def _thread_of(thread_id: str, body: bytes, slice_: bytes) -> HotThread:
    """A thread's row, without messages.

    Raises:
        StoreCorruptError: Header or slice is not what was stored.
        UnsupportedFormatError: It has fields that this version does not know.
    """
    where = f"thread {thread_id!r} in SQLite"
    found = orjson.loads(verify_checksum(body, f"the header of {where}", thread_id))
    if unknown := set(found["header"]) - set(_FIELDS):
        raise UnsupportedFormatError(
            f"{where} has fields {sorted(unknown)} that this version does not know; upgrade helix_temporal"
        )
    version = found["header"]["slice_version"]
    data = verify_checksum(slice_, f"the slice of {where}", thread_id, version)
    try:
        header = _HEADER.validate_python({**found["header"], "slice": data})
    except ValidationError as error:
        raise damaged_error(where, "its header is whole but none of ours") from error
    return HotThread(header, (), found["expires_at"])
