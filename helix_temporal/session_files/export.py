"""Sessions to files: `export_session`, and `open_output` for a file that is whole or not there."""

import asyncio
import codecs
import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, cast

from helix_temporal.errors import InvalidRequestError, StoreUnavailableError
from helix_temporal.models.messages import encode_message
from helix_temporal.models.states import SubSessionRef
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.models.visible import make_visible
from helix_temporal.session_files.contents import ContentsReader, SessionContents
from helix_temporal.session_files.file import FORMAT, Header
from helix_temporal.session_files.foreign_messages import ForeignMessages
from helix_temporal.session_files.formats import JSON_LINES, FileFormat
from helix_temporal.session_files.redaction import Redaction
from helix_temporal.stores.protocols.readable import ReadableStores
from helix_temporal.views.models import View

_TRIES: Final = 10
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
Progress = Callable[[int, int], None]
"""Told of messages written of a session, and of all that it has."""


class Exported(View):
    """What was written.

    Attributes:
        bytes: Of the whole file.
        sha256: Of the whole file; in ``jsonl`` of all lines behind the header, as the header has it.
    """

    session_id: str
    format: str
    sessions: int
    messages: int
    bytes: int
    sha256: str
    redacted: bool


def ignore_progress(*_: object) -> None:
    """Nobody listens to how far an export or an import is."""


async def export_session(
    stores: ReadableStores,
    session_id: str,
    output: BinaryIO | Path,
    *,
    file_format: FileFormat = JSON_LINES,
    children: bool = False,
    redaction: Redaction | None = None,
    progress: Progress = ignore_progress,
) -> Exported:
    """Write a session up to the end of its finished turns; it may be in use.

    All of it is of one moment: turns that end meanwhile are not in it.  Nothing comes to ``output`` before
    everything was read.

    Args:
        stores: Where it is.
        session_id: Which one.
        output: Where the file goes: a path, where it appears once all of it is on the disk, or a stream.
        file_format: Of `helix_temporal.session_files.FORMATS`.
        children: With the sessions of its sub-agents, and of theirs.
        redaction: What to take out of it.
        progress: Told how far it is.

    Raises:
        SessionNotFoundError: There is no such session.
        InvalidRequestError: The format holds one session alone; no store of sessions tells the children; or a
            pattern matches what the format needs.
        StoreCorruptError, ArchiveError: A part of it is damaged; it is left as it is.
        StoreUnavailableError: A store does not answer, or the session's thread was cut again and again.
    """
    if children and not file_format.holds_several:
        raise InvalidRequestError(f"format {file_format.name} holds one session: leave the children out")
    if children and not stores.keeps_sessions:
        raise InvalidRequestError(
            "sub-agents' sessions are found in the store of sessions, and none is named: name that of the "
            "workers, or leave the children out"
        )
    with open_spool() as body:
        writing = _Writing(ContentsReader(stores), _Spool(body), file_format, redaction, progress)
        await writing.write_tree(session_id, children=children)
        return await asyncio.to_thread(writing.write_to, output)


def open_spool() -> BinaryIO:
    """A file without a name, which is gone once it is closed.

    Raises:
        InvalidRequestError: There is no directory that takes it.
    """
    try:
        return cast("BinaryIO", tempfile.TemporaryFile())
    except OSError as error:
        raise InvalidRequestError(
            f"no directory takes temporary files ({error.strerror}), and a session is put into one before "
            "it is written: set TMPDIR to one that does"
        ) from None


@dataclass(slots=True)
class _Spool:
    """Takes what follows the header, which is known last; can go back to where it was."""

    body: BinaryIO
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    lines: int = 0
    size: int = 0

    def write(self, data: bytes) -> None:
        self.body.write(data)
        self.digest.update(data)
        self.lines += data.count(b"\n")
        self.size += len(data)

    def mark(self) -> tuple["hashlib._Hash", int, int]:
        return self.digest.copy(), self.lines, self.size

    def go_back(self, mark: tuple["hashlib._Hash", int, int]) -> None:
        digest, self.lines, self.size = mark
        self.digest = digest.copy()
        self.body.seek(self.size)
        self.body.truncate()


@dataclass(slots=True)
class _MessageWriting:
    """The messages of one session, on their way into a file."""

    spool: _Spool
    format: FileFormat
    redaction: Redaction | None
    session: int
    written: int = 0
    foreign: ForeignMessages = field(default_factory=ForeignMessages)

    def write_message(self, stored: StoredMessage) -> None:
        self._write_all([stored] if self.format.keeps_rows else self.foreign.translate(stored))

    def finish(self) -> None:
        self._write_all(self.foreign.finish())

    def _write_all(self, messages: Iterable[StoredMessage]) -> None:
        for each in messages:
            self.write_redacted(each if self.redaction is None else self.redaction.redact_message(each))

    def write_redacted(self, message: StoredMessage) -> None:
        self.spool.write(self.format.encode_message(self.written, message, self.session))
        self.written += 1


@dataclass(slots=True)
class _Writing:
    """A file that is being written."""

    reader: ContentsReader
    spool: _Spool
    format: FileFormat
    redaction: Redaction | None
    progress: Progress
    first: SessionContents | None = None
    sessions: int = 0
    messages: int = 0

    async def write_tree(self, session_id: str, *, children: bool) -> None:
        """A session, then its children, each before its own."""
        known = {session_id}
        left: list[tuple[str, str | None]] = [(session_id, None)]
        while left:
            name, parent = left.pop()
            refs = await self.reader.list_children(name, known) if children else []
            known.update(ref.sub_session_id for ref in refs)
            above = (None, None) if name == session_id else (parent, session_id)
            await self._write_session(name, above, refs)
            left += [(ref.sub_session_id, name) for ref in reversed(refs)]

    async def _write_session(
        self, session_id: str, above: tuple[str | None, str | None], refs: list[SubSessionRef]
    ) -> None:
        mark, (parent, top) = self.spool.mark(), above
        for _ in range(_TRIES):
            contents = await self.reader.read_contents(session_id, parent=parent, top=top, children=refs)
            written = await self._try_write(contents)
            if written is not None:
                self.first = self.first or written
                self.sessions += 1
                self.messages += contents.head.position
                return
            self.spool.go_back(mark)
        raise StoreUnavailableError(
            f"session {session_id!r}: its thread was cut during each of {_TRIES} reads; export it again",
            session_id=session_id,
        )

    async def _try_write(self, contents: SessionContents) -> SessionContents | None:
        """What was written of the session; None if its thread may have been cut while it was read.

        A thread that was opened meanwhile is read a second time: if it reads the same, nothing was cut.
        """
        shown = contents if self.redaction is None else self.redaction.redact_contents(contents)
        mark, before = self.spool.mark(), b""
        for _ in range(2):
            whole = await self._write_once(contents, shown)
            if whole and await self.reader.is_same_thread(contents):
                return shown
            digest = self.spool.digest.digest()
            if whole and digest == before:
                return shown
            if not whole:
                return None
            before = digest
            self.spool.go_back(mark)
        return None

    async def _write_once(self, contents: SessionContents, shown: SessionContents) -> bool:
        """Write the session; False if its thread ended early."""
        for chunk in self.format.begin_session(shown, self.sessions):
            self.spool.write(chunk)
        messages = _MessageWriting(self.spool, self.format, self.redaction, self.sessions)
        for first in self.format.list_first_messages(shown):
            messages.write_redacted(encode_message(first))
        count, last_id, head = 0, "", contents.head
        async for position, message in self.reader.read_messages(contents):
            count, last_id = position + 1, message.id
            messages.write_message(message)
            self.progress(count, head.position)
        messages.finish()
        self.spool.write(self.format.end_session(shown, messages.written, self.sessions))
        return (count, last_id) == (head.position, head.last_id)

    def write_to(self, output: BinaryIO | Path) -> Exported:
        """Write the file."""
        if not isinstance(output, Path):
            return self._copy_to(_for_terminal(output))
        # Devices and pipes are written to; in their place a file would be a mistake.
        with output.open("wb") if _is_special(output) else open_output(output) as file:
            return self._copy_to(_for_terminal(file))

    def _copy_to(self, output: "BinaryIO | _Terminal") -> Exported:
        """Write the header, all that was kept, and the end."""
        assert self.first is not None  # a tree has its root
        header = Header(
            session_id=self.first.part.session_id,
            head=self.first.head,
            sessions=self.sessions,
            messages=self.messages,
            lines=self.spool.lines,
            bytes=self.spool.size,
            sha256=self.spool.digest.hexdigest(),
            redacted=self.redaction is not None,
        )
        begin, end = self.format.begin_file(header), self.format.end_file(header)
        whole = hashlib.sha256(begin)
        output.write(begin)
        self.spool.body.seek(0)
        while chunk := self.spool.body.read(1024 * 1024):
            whole.update(chunk)
            output.write(chunk)
        whole.update(end)
        output.write(end)
        output.flush()
        return Exported(
            session_id=header.session_id,
            format=FORMAT if self.format is JSON_LINES else self.format.name,
            sessions=header.sessions,
            messages=header.messages,
            bytes=len(begin) + header.bytes + len(end),
            sha256=header.sha256 if self.format.keeps_rows else whole.hexdigest(),
            redacted=header.redacted,
        )


class _Terminal:
    """A terminal, on which texts of strangers are shown and cannot act."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes) -> None:
        self._output.write(make_visible(self._decoder.decode(data), lines=True).encode())

    def flush(self) -> None:
        self._output.flush()


def _for_terminal(output: BinaryIO) -> BinaryIO | _Terminal:
    return _Terminal(output) if output.isatty() else output


def check_output(path: Path) -> None:
    """Make sure, before anything is read, that a file can be written.

    Raises:
        InvalidRequestError: Its directory is not there, or takes no file; or it is a directory itself.
    """
    directory = path.resolve().parent
    if not directory.is_dir():
        raise InvalidRequestError(f"{path}: the directory {directory} is not there; create it")
    if path.is_dir():
        raise InvalidRequestError(f"{path}: it is a directory; a file's name was expected")
    if not _is_special(path) and not os.access(directory, os.W_OK):
        raise InvalidRequestError(f"{path}: the directory {directory} may not be written to")


def _is_special(path: Path) -> bool:
    """Whether a path is there, and is no file: ``/dev/stdout``, ``/dev/null``, a named pipe."""
    return path.exists() and not path.is_file()


@contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """A file to write that appears under its name once all of it is on the disk, or never.

    Nobody but its owner may read it: it holds conversations.

    It is written beside its place, under a name that begins with a dot and ends with ``.part``; a failure and
    Ctrl-C remove that.  A link stays, and what it names is replaced.

    Raises:
        InvalidRequestError: Nothing can be written there.
    """
    # ``/dev/stdout`` is a link: where output goes to a file, a file in its place breaks the machine.
    place = path.resolve()
    beside = place.with_name(f".{place.name[:80]}.{secrets.token_hex(4)}.part")
    try:
        file = os.fdopen(os.open(beside, _NEW, 0o600), "wb")
    except OSError as error:
        raise InvalidRequestError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
    _sync_directory(place.parent)


def _sync_directory(directory: Path) -> None:
    if os.name == "nt":
        return  # A directory cannot be opened there.
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
