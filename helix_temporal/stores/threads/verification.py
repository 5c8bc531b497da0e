"""Verifies threads: those that are named, or all that are archived or hot, one after the other.

A pass may be begun anywhere: archived threads go by the parts of the archive and their keys' names, hot ones
come last.
"""

import asyncio
import hashlib
import itertools
import re
import secrets
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from helix_temporal.errors import (
    ArchiveCorruptError,
    ColdRegressedError,
    InvalidCursorError,
    StoreCorruptError,
    ThreadNotFoundError,
    UnsupportedFormatError,
)
from helix_temporal.models.ids import encode_id
from helix_temporal.models.maintenance import ARCHIVE_PARTS
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.threads import (
    ArchivedThread,
    ArchiveUpkeep,
    Audit,
    ReadPage,
    ThreadPage,
    ThreadStore,
)
from helix_temporal.stores.threads.log_check import LogCheck
from helix_temporal.stores.threads.visits import Visits

Outcome = Literal["sound", "damaged", "unread"]
"""``unread``: a store did not answer for it."""

_AT_ONCE: Final = 8
"""Threads whose structure is looked at side by side."""
_BATCH: Final = 32
_LISTED_AHEAD: Final = 8
"""Parts of the archive, of 256: a listing takes as long as dozens of threads."""
_THREAD_SECONDS: Final = 1800.0
LOOKS: Final = 6
"""So often a thread that changes all the time is looked at before what seems wrong is taken for damage."""
_PAGE: Final = 500
_CURSOR: Final = re.compile(r"([0-9a-f]{2})/([A-Za-z0-9_~-]*)|hot")
_BITS: Final = 53
_NOBODY: Final = "asked-by-helix-verification"
"""An id that no thread has."""
DAMAGE: Final = (ArchiveCorruptError, ColdRegressedError, StoreCorruptError, UnsupportedFormatError)
"""Errors that say something of a thread; any other one says that it could not be read."""


@dataclass(frozen=True, slots=True)
class VerifiedThread:
    """What was found of one thread.

    Attributes:
        messages: In the thread.
        unarchived: Of these, those that the hot store alone has.
        bytes_read: Of its data; 0 also of a short thread whose messages stand in its manifest.
        data_read: Its messages were read, as far as damage lets them; else its structure alone.
        problems: What is wrong, or why it could not be read.
        place: Where a later pass goes on behind it; empty for one that was named.
    """

    thread_id: str
    outcome: Outcome
    messages: int = 0
    unarchived: int = 0
    bytes_read: int = 0
    problems: tuple[str, ...] = ()
    place: str = ""
    data_read: bool = False


@dataclass(frozen=True, slots=True)
class DataSubset:
    """Whose data is read: the threads in a share of all, by the hash of their ids.

    Attributes:
        first, stop: The share, of 0 to 1; ``stop`` is not in it.
        seed: Another one gives other threads.
        most: Bytes after which nothing more is read.
    """

    first: float = 0.0
    stop: float = 1.0
    seed: str = ""
    most: int | None = None

    def includes(self, thread_id: str) -> bool:
        """Whether the data of a thread is read."""
        digest = hashlib.sha256(f"{self.seed}/{thread_id}".encode("utf-8", "surrogatepass")).digest()
        place = (int.from_bytes(digest[:8], "big") >> (64 - _BITS)) / 2**_BITS
        return bool(self.first <= place < self.stop)

    def of_total(self, size: int) -> "DataSubset":
        """With as large a share of so many bytes as may be read."""
        if self.most is None or size <= self.most:
            return self
        return replace(self, stop=self.most / size)


_UNITS: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_PART: Final = re.compile(r"(\d{1,6})/(\d{1,6})")
_PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d+)?)%")
_SIZE: Final = re.compile(r"(\d{1,15})([KMGT]?)", re.IGNORECASE)


def parse_data_subset(text: str) -> DataSubset:
    """A subset as it is written: ``3/30`` the third of thirty parts, ``2.5%`` or ``500M`` by chance.

    Raises:
        ValueError: It is none of these.
    """
    if part := _PART.fullmatch(text):
        number, of = int(part[1]), int(part[2])
        if 1 <= number <= of:
            return DataSubset((number - 1) / of, number / of)
    elif percent := _PERCENT.fullmatch(text):
        if float(percent[1]) <= 100:
            return DataSubset(0.0, float(percent[1]) / 100, secrets.token_hex(8))
    elif size := _SIZE.fullmatch(text):
        return DataSubset(seed=secrets.token_hex(8), most=int(size[1]) * _UNITS[size[2].upper()])
    raise ValueError(
        f"{text!r}; a part such as 1/30, a percentage such as 5%, or a size such as 500M is expected"
    )


class _Task(NamedTuple):
    """A thread to be verified; ``listed`` is what the archive's listing shows of it."""

    thread_id: str
    place: str
    listed: ArchivedThread | None = None


class ThreadVerification:
    """Verifies threads beside sessions and maintenance; changes nothing.

    Args:
        hot: The hot store.
        threads: Reads threads, wherever they are.
        upkeep: Of the archive; None where there is none.
        subset: Whose data is read; of the others only the structure is looked at.
        parallel: Threads whose data is read at once: one object of each is in memory.
    """

    def __init__(
        self,
        hot: HotTier,
        threads: ThreadStore,
        upkeep: ArchiveUpkeep | None,
        *,
        subset: DataSubset = DataSubset(),
        parallel: int = 1,
    ) -> None:
        self._hot, self._threads, self._upkeep, self._subset = hot, threads, upkeep, subset
        self._reading, self._read = asyncio.Semaphore(parallel), 0

    async def verify_thread(self, thread_id: str) -> VerifiedThread:
        """Verify one thread, with its data.

        Raises:
            ThreadNotFoundError: There is none.
            StoreUnavailableError: A store does not answer.
        """
        if self._upkeep is not None:
            found = await self._upkeep.audit(thread_id)
            if found.is_archived or found.problems:
                return _judge_audit(found, "", data_read=True)
        return await self._read_pages(_Task(thread_id, ""), reads_data=True)

    async def verify_all(self, place: str | None = None) -> AsyncIterator[VerifiedThread]:
        """Verify all threads, from a place on; those that come meanwhile may be missed.

        Raises:
            InvalidCursorError: The place is none.
            StoreUnavailableError: A store does not answer; what was yielded before stands.
            HelixError: Nothing can be read: access is denied, or these threads go to another archive.
        """
        part, after = _parse_place(place)
        # What keeps all threads from being read is an error, and not one of each thread.
        await self._hot.scan_page(count=1)
        if self._upkeep is not None:
            await self._upkeep.audit(_NOBODY)
        await self._settle_subset()
        visits = Visits[_Task, VerifiedThread | None](
            self._visit, _fail, parallel=_AT_ONCE, seconds=_THREAD_SECONDS
        )
        damaged = set[str]()
        async for batch in _in_batches(self._list_tasks(part, after)):
            for each in await visits.visit_all([task for task in batch if task.thread_id not in damaged]):
                if each is not None:
                    damaged |= {each.thread_id} if each.problems else set()
                    yield each
        visits.check_answered()

    async def _settle_subset(self) -> None:
        """Turn a size into a share of the archive."""
        if self._upkeep is None or self._subset.most is None:
            return
        size = 0
        for part in range(ARCHIVE_PARTS):
            async for each in self._upkeep.list_archived(part):
                size += sum(info.size for info in each.objects)
        self._subset = self._subset.of_total(size)

    async def _list_tasks(self, first: int, after: str) -> AsyncIterator[_Task]:
        if self._upkeep is not None:
            async for tasks in self._list_parts(self._upkeep, first, after):
                for task in tasks:
                    yield task
        cursor: str | None = None
        while True:
            page = await self._hot.scan_page(cursor)
            for each in page.threads:
                yield _Task(each.thread_id, "hot")
            cursor = page.cursor
            if cursor is None:
                return

    async def _list_parts(self, upkeep: ArchiveUpkeep, first: int, after: str) -> AsyncIterator[list[_Task]]:
        """The parts in their order; the next ones are listed while one is looked at."""
        parts = iter(range(first, ARCHIVE_PARTS))
        begun = deque[asyncio.Task[list[_Task]]]()

        def begin(count: int) -> None:
            for part in itertools.islice(parts, count):
                listing = self._list_part(upkeep, part, after if part == first else "")
                begun.append(asyncio.create_task(listing))

        try:
            begin(_LISTED_AHEAD)
            while begun:
                yield await begun.popleft()
                begin(1)
        finally:
            for each in begun:
                each.cancel()
            await asyncio.gather(*begun, return_exceptions=True)

    async def _list_part(self, upkeep: ArchiveUpkeep, part: int, after: str) -> list[_Task]:
        """The threads of one part, by their names in keys; with ``after`` those behind it."""
        named = [
            (each.thread_id if each.damage else encode_id(each.thread_id), each)
            async for each in upkeep.list_archived(part)
        ]
        named.sort(key=lambda each: each[0])
        return [_Task(each.thread_id, f"{part:02x}/{name}", each) for name, each in named if name > after]

    async def _visit(self, task: _Task) -> VerifiedThread | None:
        """What was found; None of what is no thread, and of one that this pass has met before."""
        listed = task.listed
        if listed is not None and listed.damage:
            return VerifiedThread(task.thread_id, "damaged", problems=(listed.damage,), place=task.place)
        # Hot threads come with the archived ones before: here it is only asked whether there is an archive.
        reads_data = listed is not None and self._is_read(task.thread_id)
        found = await self._audit(task, reads_data=reads_data)
        if found is not None and listed is not None:
            # If it is not archived: a tombstone, a fork that was given up, or a thread that is hot alone.
            is_thread = found.is_archived or found.problems
            return _judge_audit(found, task.place, data_read=reads_data) if is_thread else None
        if found is not None and (found.is_archived or found.problems):
            return None if found.is_archived else _judge_audit(found, task.place, data_read=reads_data)
        try:
            return await self._read_pages(task, reads_data=self._is_read(task.thread_id))
        except ThreadNotFoundError:
            return None

    async def _audit(self, task: _Task, *, reads_data: bool) -> Audit | None:
        """What the audit of an archive says; None where there is no archive."""
        if self._upkeep is None:
            return None
        objects = None if task.listed is None else task.listed.objects
        if not reads_data:
            return await self._upkeep.audit(task.thread_id, objects=objects, reads_data=False)
        async with self._reading:
            found = await self._upkeep.audit(task.thread_id, objects=objects)
        self._read += found.bytes_read
        return found

    def _is_read(self, thread_id: str) -> bool:
        most = self._subset.most
        return self._subset.includes(thread_id) and (most is None or self._read < most)

    async def _read_pages(self, task: _Task, *, reads_data: bool) -> VerifiedThread:
        """Verify a thread that no archive has, by reading its finished turns.

        Raises:
            ThreadNotFoundError: There is none.
        """
        found, before = await self._look(task, reads_data=reads_data), None
        for _ in range(LOOKS - 1):
            if not found.verified.problems or found.head == before:
                break
            before = found.head
            found = await self._look(task, reads_data=reads_data)
        self._read += found.verified.bytes_read
        return found.verified

    async def _look(self, task: _Task, *, reads_data: bool) -> "_Look":
        try:
            page, problems, size = await self._read_turns(task.thread_id, reads_data=reads_data)
        except DAMAGE as error:
            said = f"{type(error).__name__}: {error}"
            found = VerifiedThread(
                task.thread_id, "damaged", problems=(said,), place=task.place, data_read=reads_data
            )
            return _Look(found)
        outcome: Outcome = "damaged" if problems else "sound"
        count = page.head.position
        verified = VerifiedThread(
            task.thread_id, outcome, count, count, size, problems, task.place, reads_data
        )
        return _Look(verified, page.head)

    async def _read_turns(
        self, thread_id: str, *, reads_data: bool
    ) -> tuple[ThreadPage, tuple[str, ...], int]:
        """The last page of the finished turns, what is wrong with them, and how many bytes they have."""
        page = await self._threads.read(ReadPage(thread_id, limit=_PAGE, whole=False))
        log, size = LogCheck(page.committed), 0
        while reads_data:
            log.add_messages(page.messages)
            size += sum(len(each.body) for each in page.messages)
            if page.after is None:
                break
            page = await self._threads.read(ReadPage(thread_id, page.after, limit=_PAGE, whole=False))
        return page, log.find_problems(), size


class _Look(NamedTuple):
    """What one look has found, and where the thread ended then; damage that hides it is at no place."""

    verified: VerifiedThread
    head: Head = EMPTY


async def _in_batches(tasks: AsyncIterator[_Task]) -> AsyncIterator[list[_Task]]:
    batch: list[_Task] = []
    async for each in tasks:
        batch.append(each)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch


def _judge_audit(found: Audit, place: str, *, data_read: bool) -> VerifiedThread:
    outcome: Outcome = "damaged" if found.problems else "sound"
    return VerifiedThread(
        found.thread_id,
        outcome,
        found.messages + found.unarchived,
        found.unarchived,
        found.bytes_read,
        found.problems,
        place,
        data_read,
    )


def _fail(task: _Task, why: str) -> VerifiedThread:
    return VerifiedThread(task.thread_id, "unread", problems=(why,), place=task.place)


def _parse_place(place: str | None) -> tuple[int, str]:
    """The part of the archive and the name in it behind which a pass goes on.

    Raises:
        InvalidCursorError: It is no place.
    """
    if place is None:
        return 0, ""
    found = _CURSOR.fullmatch(place)
    if found is None:
        raise InvalidCursorError(
            f"{place[:80]!r} is no place to go on from; give the one that `thread verify --all` has printed"
        )
    return (ARCHIVE_PARTS, "") if place == "hot" else (int(found[1], 16), found[2])
