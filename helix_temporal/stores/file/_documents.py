"""Documents of a directory, one atomically replaced file each: read, decide, write, between processes."""

import asyncio
import contextlib
import random
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from helix_temporal.errors import (
    HelixError,
    InvalidIdError,
    StoreCorruptError,
    StoreUnavailableError,
    UnsupportedFormatError,
    UnsupportedServerError,
)
from helix_temporal.stores.file._disk import Disk
from helix_temporal.stores.file._format import (
    Facts,
    Part,
    Parts,
    decode_document,
    decode_heading,
    encode_document,
    id_of,
    name_of,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_BATCH: Final = 200
_LONGEST_PAUSE: Final = 0.02
_NOTHING: Final[Parts] = {}
_TOLD: Final = (StoreCorruptError, UnsupportedFormatError, UnsupportedServerError)
_PROBE: Final = "\x00check"
"""No id that stores accept."""


class DocumentChange(NamedTuple, Generic[T_co]):
    """What to answer, and all parts of the document from now on: None for no change, none to remove it."""

    answer: T_co
    parts: Parts | None = None


class ListedDocument(NamedTuple):
    """A document as a listing sees it: the headers of its parts, or why they cannot be read.

    Attributes:
        id: Of a damaged document as far as its file's name tells.
    """

    id: str
    headers: Mapping[str, Facts]
    problem: HelixError | None = None


@dataclass(frozen=True, slots=True)
class _Stored:
    id: str
    first: bytes
    parts: Parts

    @property
    def size(self) -> int:
        return sum(len(part.body) for part in self.parts.values())


class _Busy:
    """Another one holds the lock."""


_BUSY: Final = _Busy()


class Documents:
    """Documents by id, for all processes of one machine that share ``directory`` (a local file system).

    A document is on the disk when `change` returns, and so is whatever `read` returned.  A reader sees
    the old or the new document, never a part.  The directory is made by the first write; until then
    there is nothing in it.  All methods work in threads; a cancel is passed on once the thread has ended,
    and then nothing is locked.

    Args:
        patience: Seconds to wait for another process that holds a document's lock.
        cache_bytes: Bodies of so many bytes are kept, to be used again while the file is unchanged.
        after: See `Disk`.

    Raises (every method):
        StoreUnavailableError: The file system failed or is full, or the lock was not to be had.
        UnsupportedServerError: Access is denied, or something else is where a file of ours belongs.
        StoreCorruptError: The document is damaged; it is left as it is.
        UnsupportedFormatError: A newer version wrote it.
        InvalidIdError: The file belongs to another id with the same hashed name.
    """

    def __init__(
        self,
        directory: Path,
        *,
        patience: float = 10.0,
        cache_bytes: int = 32 << 20,
        after: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._disk = Disk(directory, after)
        self._patience = patience
        self._cache = _Cache(cache_bytes)
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = (
            WeakKeyDictionary()
        )

    async def read(self, document_id: str) -> Parts:
        """All parts as of one instant; none if there is no document."""
        stored = await in_thread(partial(self._read, name_of(document_id), document_id))
        return stored.parts if stored else _NOTHING

    async def change(self, document_id: str, decide: Callable[[Parts], DocumentChange[T]]) -> T:
        """Replace the document by what ``decide`` makes of it, in one step.

        ``decide`` is pure: it may be asked more than once, of what is there at that moment.  What it
        raises is raised, and nothing changes.
        """
        name = name_of(document_id)
        attempt = partial(self._attempt, name, document_id, decide)
        async with self._first_in_line(name):
            for pause in _pauses(self._patience):
                answer = await in_thread(attempt)
                if not isinstance(answer, _Busy):
                    return answer
                await asyncio.sleep(pause)
        raise self._locked_for_long(name)

    async def entries(self) -> AsyncIterator[ListedDocument]:
        """Every document, in no order that means anything; damaged ones too.

        One that comes or goes meanwhile may be missed.
        """
        names = await in_thread(self._disk.names)
        for start in range(0, len(names), _BATCH):
            batch = names[start : start + _BATCH]
            for listed in await in_thread(partial(self._headings, batch)):
                yield listed

    async def check(self) -> None:
        """Prove that the directory takes writes and locks.

        Raises:
            UnsupportedServerError: It is read-only, or no directory.
        """
        await self.change(_PROBE, lambda _: DocumentChange(None, {"check": Part({}, b"")}))
        await self.change(_PROBE, lambda _: DocumentChange(None, {}))

    def _attempt(
        self, name: str, document_id: str, decide: Callable[[Parts], DocumentChange[T]]
    ) -> T | _Busy:
        # What changes nothing needs no lock: it is true of the document that was read.
        stored = self._read(name, document_id)
        change = decide(stored.parts if stored else _NOTHING)
        if change.parts is None:
            if stored is None:
                self._disk.settle()  # that it is gone is on the disk, too
            return change.answer
        self._disk.make_directory()
        with self._disk.locked(name) as mine:
            if not mine:
                return _BUSY
            found = self._read(name, document_id)
            if found is not stored:
                change = decide(found.parts if found else _NOTHING)
            if change.parts is not None:
                self._write(name, document_id, change.parts)
            return change.answer

    def _read(self, name: str, document_id: str) -> _Stored | None:
        with self._disk.opened(name) as handle:
            if handle is None:
                return None
            first = self._disk.start(handle)
            if (known := self._cache.get(name, first)) is None:
                heading, parts = decode_document(first + self._disk.rest(handle), self._disk.where(name))
                known = _Stored(heading.id, first, parts)
                # Its writer may have been killed between renaming and syncing; whoever is told of this
                # document may rely on it.
                self._disk.settle()
                self._cache.put(name, known)
        if known.id != document_id:
            raise InvalidIdError(
                f"{document_id!r}: its file {name!r} holds the document of another id with the same hashed "
                "name; use another id"
            )
        return known

    def _write(self, name: str, document_id: str, parts: Parts) -> None:
        self._cache.forget(name)
        if not parts:
            self._disk.remove(name)
            return
        pieces = encode_document(document_id, parts)
        self._disk.replace(name, pieces)
        self._cache.put(name, _Stored(document_id, pieces[0], parts))

    def _headings(self, names: list[str]) -> list[ListedDocument]:
        found: list[ListedDocument] = []
        for name in names:
            try:
                lines = self._disk.heading(name)
                if lines is not None:
                    heading = decode_heading(lines, self._disk.where(name))
                    found.append(ListedDocument(heading.id, heading.headers))
            except _TOLD as error:
                found.append(ListedDocument(id_of(name) or name, {}, error))
        return found

    @contextlib.asynccontextmanager
    async def _first_in_line(self, name: str) -> AsyncIterator[None]:
        """Tasks of one loop stand in line here, so that one of them at a time asks for the file's lock."""
        queues = self._queues.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
        line = queues.setdefault(name, asyncio.Lock())
        try:
            async with asyncio.timeout(self._patience):
                await line.acquire()
        except TimeoutError:
            raise self._locked_for_long(name) from None
        try:
            yield
        finally:
            line.release()

    def _locked_for_long(self, name: str) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"{self._disk.where(name)} was locked by others for {self._patience} s; try again"
        )


class _Cache:
    """Verified documents by name, the least recently used ones dropped; for several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[str, _Stored] = OrderedDict()
        self._mutex = threading.Lock()

    def get(self, name: str, first: bytes) -> _Stored | None:
        """The document with this very first line, hence content."""
        with self._mutex:
            kept = self._kept.get(name)
            if kept is None or kept.first != first:
                return None
            self._kept.move_to_end(name)
            return kept

    def put(self, name: str, stored: _Stored) -> None:
        """Keep it instead of what was there."""
        self.forget(name)
        with self._mutex:
            self._kept[name] = stored
            self._size += stored.size
            while self._size > self._limit:
                self._size -= self._kept.popitem(last=False)[1].size

    def forget(self, name: str) -> None:
        """Keep nothing of it."""
        with self._mutex:
            if (kept := self._kept.pop(name, None)) is not None:
                self._size -= kept.size


async def in_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread; a cancel is passed on once it has ended, so that nothing goes on unseen."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:  # the first one is passed on
                continue
        if not running.cancelled():
            running.exception()  # told to nobody: who cancelled asked for no answer
        raise


def _pauses(patience: float) -> Iterator[float]:
    """Pauses between two tries, about ``patience`` seconds together."""
    longest, total = 0.001, 0.0
    while total < patience:
        pause = random.uniform(longest / 2, longest)  # noqa: S311  # no secret
        yield pause
        total += pause
        longest = min(longest * 2, _LONGEST_PAUSE)
