"""One stream on the disk: a file that is appended to under its lock; blocking calls.

Each line is one write: ``H``, a token and the head, or ``W`` and what a batch brought, each with the checksum
of what follows before it; chunks follow the JSON after a tab.  A line without its end is what a killed writer
left: nobody reads it, and the next writer cuts it off.  Nothing is synced: a power cut may take the last
chunks of a stream, or all of it.
"""

import contextlib
import fcntl
import itertools
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from zlib import crc32

import orjson

from helix_temporal.errors import InvalidIdError, StoreCorruptError, StoreUnavailableError
from helix_temporal.models.base import dumps
from helix_temporal.models.ids import encode_id
from helix_temporal.models.states import is_past
from helix_temporal.models.streams import StoredChunk
from helix_temporal.stores.file._disk import TEMPORARY, Disk
from helix_temporal.stores.streams.rules import (
    Batch,
    Change,
    Head,
    Refused,
    StreamLog,
    View,
    Written,
    facts_from,
)

SUFFIX: Final = ".stream"

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TOKEN: Final = 8
_START: Final = 1 + _TOKEN
_SUM: Final = 8
_SMALL: Final = 256 * 1024
_PATIENCE: Final = 10.0
_PAUSE: Final = 0.002


class StreamFile:
    """A stream's file, and what this process has read of it.  Safe to use from several threads."""

    def __init__(self, disk: Disk, stream_id: str) -> None:
        self._disk, self._stream_id = disk, stream_id
        self._name = encode_id(stream_id)
        self.path = disk.directory / (self._name + SUFFIX)
        self._guard = threading.Lock()
        self._compact_at = _SMALL
        self._forget()

    @property
    def size(self) -> int:
        """Bytes that are known of it."""
        return self._offset

    def version(self) -> tuple[int, int]:
        """Different after every write; zeros if there is no file."""
        with self._disk.reporting("reading", self._name):
            try:
                found = self.path.stat()
            except FileNotFoundError:
                return (0, 0)
            return (found.st_ino, found.st_size)

    def view(self, after: int, limit: int, now: int, ttl: float | None) -> View | None:
        """See `Streams._view`."""
        with self._guard, self._disk.reporting("reading", self._name):
            try:
                handle = os.open(self.path, _READ)
            except FileNotFoundError:
                self._forget()
                return None
            try:
                self._catch_up(handle)
            finally:
                os.close(handle)
            head = self._log.head
            if head is None or self._expired(now, ttl):
                return None
            return View(head, now, self._log.after(after, limit))

    def append(self, batch: Batch, now: int, ttl: float | None, max_chunks: int) -> Written | Refused:
        """See `Streams._append`."""
        with self._changing(create=batch.create) as handle:
            if handle is None:
                return Refused("absent")
            if self._expired(now, ttl):
                if not batch.create:
                    return Refused("absent")
                os.ftruncate(handle, 0)
                self._forget()
            before = self._log.head
            answer = self._log.append(batch, now, max_chunks)
            if isinstance(answer, Written):
                made = Head(batch.stream_id, batch.made, created_at=now, updated_at=now)
                start = self._head_line(made) if before is None else b""
                self._write(handle, start + self._batch_line(batch, 0 if before is None else before.last))
                self._compact()
            return answer

    def change(self, change: Change, now: int) -> int | None:
        """See `Streams._change`."""
        with self._changing(create=False) as handle:
            last = None if handle is None else self._log.change(change, now)
            if handle is not None and last is not None and self._log.head is not None:
                chunk = None if change.chunk is None else self._log.chunks[-1]
                self._write(handle, self._head_line(self._log.head, chunk))
            return last

    def drop(self, now: int, ttl: float | None) -> bool:
        """See `Streams._drop`."""
        with self._changing(create=False) as handle:
            there = handle is not None and self._log.head is not None and not self._expired(now, ttl)
            if handle is not None:
                self.path.unlink()
            self._forget()
            return there

    def drop_expired(self, now: int, ttl: float | None) -> None:
        """Remove it if it has expired."""
        with self._changing(create=False) as handle:
            if handle is not None and self._expired(now, ttl):
                self.path.unlink()
                self._forget()

    # -- what was read

    def _expired(self, now: int, ttl: float | None) -> bool:
        head = self._log.head
        return head is not None and ttl is not None and is_past(head.updated_at + ttl * 1000, now)

    def _forget(self) -> None:
        self._log = StreamLog()
        self._start = b""
        self._offset = 0

    def _catch_up(self, handle: int) -> bool:
        """Read what was written since, all of it if it is another file; whether it ends with a whole line."""
        size = os.fstat(handle).st_size
        start = os.pread(handle, _START, 0)
        if start != self._start or size < self._offset:
            self._forget()
        data = _pread(handle, size - self._offset, self._offset)
        end = data.rfind(b"\n") + 1
        if end:
            self._start = start
        for line in data[:end].split(b"\n")[:-1]:
            self._apply(line)
        self._offset += end
        return end == len(data)

    def _apply(self, line: bytes) -> None:
        try:
            start = _START if line[:1] == b"H" else 1
            data = line[start + _SUM :]
            if _sum(data) != line[start : start + _SUM]:
                raise ValueError
            fields, _, bodies = data.partition(b"\t")
            found = orjson.loads(fields)
            if line[:1] == b"H":
                self._apply_head(found, bodies)
            else:
                self._apply_batch(found, bodies)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self._forget()
            where = str(self.path)
            raise StoreCorruptError(f"stream file {where!r} is damaged; delete it") from error

    def _apply_head(self, found: dict[str, Any], bodies: bytes) -> None:
        keys, written_at = found.pop("keys"), found.pop("written_at")
        facts = facts_from(dumps(found.pop("facts")), self._stream_id)
        head = Head(**found, facts=facts)
        if head.stream_id != self._stream_id:
            raise InvalidIdError(
                f"stream id {self._stream_id!r}: its file is that of another with the same hashed form; "
                "use another id"
            )
        self._log.head = head
        self._log.keys.update(keys)
        if bodies:
            self._log.chunks.clear()
            self._log.keys.clear()
            self._log.chunks.append(StoredChunk(head.last, "", written_at, bodies))

    def _apply_batch(self, found: dict[str, Any], bodies: bytes) -> None:
        log, at = self._log, 0
        if log.head is None:
            raise ValueError
        for sequence, size in found["chunks"]:
            log.chunks.append(StoredChunk(sequence, found["run"], found["at"], bodies[at : at + size]))
            at += size
        log.keys.update(found["keys"])
        while log.chunks and log.chunks[0].sequence < found["first"]:
            log.chunks.popleft()
        log.head = replace(
            log.head, first=found["first"], last=found["last"], fence=found["fence"], updated_at=found["at"]
        )

    # -- what is written

    @contextlib.contextmanager
    def _changing(self, *, create: bool) -> Iterator[int | None]:
        """A handle on the file, locked and read to its end; None if there is none."""
        with self._guard, self._disk.reporting("writing", self._name), contextlib.ExitStack() as stack:
            handle = self._locked(stack, create=create)
            if handle is None:
                self._forget()
            elif not self._catch_up(handle):
                os.ftruncate(handle, self._offset)
            yield handle

    def _locked(self, stack: contextlib.ExitStack, *, create: bool) -> int | None:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            try:
                handle = os.open(self.path, _WRITE | (os.O_CREAT if create else 0), 0o600)
            except FileNotFoundError:
                if not create:
                    return None
                self._disk.make_directory()
                continue
            if _lock(handle, os.fspath(self.path)):
                stack.callback(os.close, handle)
                return handle
            os.close(handle)
            time.sleep(_PAUSE)
        raise StoreUnavailableError(
            f"stream file {str(self.path)!r} is locked by another process for {_PATIENCE:.0f} s; repeat later"
        )

    def _write(self, handle: int, data: bytes) -> None:
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(handle, data[written:], self._offset + written)
        except BaseException:
            self._forget()
            raise
        self._start = self._start or data[:_START]
        self._offset += len(data)

    def _head_line(self, head: Head, chunk: StoredChunk | None = None, *, keys: bool = False) -> bytes:
        fields = {name: getattr(head, name) for name in head.__slots__}
        fields["facts"] = orjson.Fragment(head.facts.to_bytes())
        fields["keys"] = self._log.keys if keys else {}
        fields["written_at"] = head.updated_at
        body = b"" if chunk is None else chunk.body
        return _line(b"H" + secrets.token_hex(_TOKEN // 2).encode(), dumps(fields), body)

    def _batch_line(self, batch: Batch, before: int) -> bytes:
        newest = itertools.islice(reversed(self._log.chunks), len(batch.entries))
        new = [chunk for chunk in newest if chunk.sequence > before][::-1]
        places = {key: self._log.keys[key] for key, _ in batch.entries if key}
        return self._chunks_line(new, {key: at for key, at in places.items() if at > before})

    def _chunks_line(self, chunks: Sequence[StoredChunk], keys: Mapping[str, int]) -> bytes:
        head = self._log.head
        assert head is not None
        fields = {
            "at": chunks[0].written_at if chunks else head.updated_at,
            "run": chunks[0].run_id if chunks else "",
            "fence": head.fence,
            "first": head.first,
            "last": head.last,
            "keys": keys,
            "chunks": [(each.sequence, len(each.body)) for each in chunks],
        }
        return _line(b"W", dumps(fields), b"".join(each.body for each in chunks))

    def _compact(self) -> None:
        """Write the file anew where most of it is trimmed."""
        head = self._log.head
        if self._offset < self._compact_at or head is None:
            return
        live = sum(len(chunk.body) + 128 for chunk in self._log.chunks)
        self._compact_at = max(_SMALL, self._offset + live)
        if self._offset < 2 * live:
            return
        lines = [self._head_line(head, keys=True)]
        lines += [self._chunks_line([chunk], {}) for chunk in self._log.chunks]
        lines.append(self._chunks_line([], {}))
        temporary = self.path.with_name(self._name + TEMPORARY)
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, _NEW, 0o600), "wb") as file:
            file.writelines(lines)
        temporary.replace(self.path)
        self._start, self._offset = lines[0][:_START], sum(map(len, lines))
        self._compact_at = max(_SMALL, 3 * self._offset)


def _line(start: bytes, fields: bytes, bodies: bytes) -> bytes:
    data = b"%b\t%b" % (fields, bodies)
    return b"%b%b%b\n" % (start, _sum(data), data)


def _sum(data: bytes) -> bytes:
    return b"%08x" % crc32(data)


def _lock(handle: int, path: str) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last holder may have removed or replaced it since it was opened: then this locks nothing.
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def _pread(handle: int, size: int, offset: int) -> bytes:
    """Up to ``size`` bytes; fewer only at the end of the file."""
    pieces: list[bytes] = []
    while size > 0 and (piece := os.pread(handle, min(size, 1 << 24), offset)):
        pieces.append(piece)
        size -= len(piece)
        offset += len(piece)
    return b"".join(pieces)
