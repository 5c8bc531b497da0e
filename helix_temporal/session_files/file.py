"""The format ``helix-session/1``: a file of JSON lines that holds sessions.

The first line is a `Header` with the SHA-256 of all that follows.  Then come the sessions, a parent before
its children; of each a `FileSession`, its children, its runs, its usage and its messages, one a line.  A line
is an object with one field that says what it is: ``{"message": {...}}``.  All of it is canonical JSON (sorted
keys, no spaces), so that the same sessions give the same bytes.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, BinaryIO, Final, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from helix_temporal.errors import (
    HelixError,
    InvalidMessageError,
    SessionFileError,
    TooLargeError,
    UnsupportedFormatError,
)
from helix_temporal.models.base import MAX_DEPTH, JsonObject, canonical_json
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.ids import Id
from helix_temporal.models.limits import MAX_MESSAGE_BYTES
from helix_temporal.models.messages import decode_message
from helix_temporal.models.states import SCHEMA_VERSION, SessionState, SubSessionRef
from helix_temporal.models.stored_messages import EMPTY, Head, Position, StoredMessage
from helix_temporal.models.usage import UsageEntry
from helix_temporal.session.record import SessionRecord
from helix_temporal.session_files.portable import (
    list_differences,
    make_portable_record,
    make_portable_state,
)
from helix_temporal.stores.sessions.loop import encode_state

FORMAT: Final = "helix-session/1"
"""The format that is written, and that can be imported."""
_FAMILY: Final = "helix-session/"
MAX_LINE: Final = 2 * MAX_MESSAGE_BYTES
"""Bytes of one line: the largest message in base64, with what stands around it."""

RUN_LEFT_OUT: Final = frozenset({"session_id", "start_sequence", "trace"})
"""Fields of a run: its session has the line before, and no stream and no trace is in a file."""

LineKind = Literal["session", "child", "run", "usage", "message"]
KINDS: Final[tuple[LineKind, ...]] = ("session", "child", "run", "usage", "message")
"""What lines there are behind the header, in the order in which those of a session come."""

_ENTRY: Final[TypeAdapter[UsageEntry]] = TypeAdapter(UsageEntry)
_ENCODINGS: Final = {
    b"\x1f\x8b": "the file is packed by gzip: unpack it",
    b"\x28\xb5\x2f\xfd": "the file is packed by zstd: unpack it",
    b"PK\x03\x04": "the file is packed by zip: unpack it",
    b"\xef\xbb\xbf": "the file begins with a byte order mark, which a program has added: remove it",
    b"\xff\xfe": "the file is in UTF-16, as PowerShell's > writes: let session export write it by --output",
    b"\xfe\xff": "the file is in UTF-16; UTF-8 without a byte order mark was expected",
}
T = TypeVar("T")
_PLACE: Final = re.compile(r" (?:at|in) \$")
"""Before the place in a value, in what `check_json` says."""


class FilePart(BaseModel):
    """Base of what stands in a line; a field that is not known is damage, or of a newer format."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Header(FilePart):
    """The first line.

    Attributes:
        session_id: Of the first session; the others are its sub-agents'.
        head: Where its messages end.
        sessions, messages: How many there are in the file.
        lines, bytes, sha256: Of all that follows this line, with the ends of lines.
        redacted: Texts were replaced when it was written: it is no copy of its session.
    """

    format: str = FORMAT
    session_id: Id
    head: Head
    sessions: Annotated[int, Field(ge=1)]
    messages: Annotated[int, Field(ge=0)]
    lines: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    redacted: bool = False


class FileThread(FilePart):
    """A session's thread.

    Attributes:
        adapter: Format of the messages that no adapter has converted; mostly empty.
        record: What a session workflow keeps with the thread; None where none has had it.
    """

    adapter: str = ""
    head: Head = EMPTY
    record: dict[str, Any] | None = None


class FileSession(FilePart):
    """A session without its messages; the numbers say how many lines of each kind follow.

    Attributes:
        parent: The session in this file whose child it is; None of the first.
        state: A `SessionState` without its id; None where there is no session store.
        thread: None where there is none.
    """

    session_id: Id
    parent: Id | None = None
    state: dict[str, Any] | None = None
    thread: FileThread | None = None
    children: Annotated[int, Field(ge=0)] = 0
    runs: Annotated[int, Field(ge=0)] = 0
    usage: Annotated[int, Field(ge=0)] = 0

    @property
    def head(self) -> Head:
        """Where its messages end."""
        return EMPTY if self.thread is None else self.thread.head

    @property
    def messages(self) -> int:
        """How many messages follow."""
        return self.head.position

    def count_lines(self, kind: LineKind) -> int:
        """How many lines of a kind this session has."""
        counts = {"session": 1, "child": self.children, "run": self.runs, "usage": self.usage}
        return counts.get(kind, self.messages)

    def read_state(self) -> SessionState | None:
        """The state."""
        if self.state is None:
            return None
        return SessionState.model_validate({**self.state, "session_id": self.session_id})

    def read_record(self) -> SessionRecord | None:
        """What a session workflow keeps with the thread."""
        if self.thread is None or self.thread.record is None:
            return None
        return SessionRecord.model_validate(self.thread.record)


class FileMessage(FilePart):
    """A message as it is stored: its body as JSON, or in base64 where it is none that we would write so."""

    position: Position
    kind: Literal["u", "a", "c", "t", "o"]
    id: Annotated[str, Field(max_length=4096)]
    body: dict[str, Any] | None = None
    base64: str | None = None


# ---- to lines ---------------------------------------------------------------------------------------


def encode_line(kind: LineKind, part: JsonObject) -> bytes:
    """A line with its end."""
    return canonical_json({kind: part}) + b"\n"


def dump_message(position: int, message: StoredMessage) -> JsonObject:
    """A message as its line has it."""
    plain: JsonObject = {"position": position, "kind": message.kind, "id": message.id}
    body = read_body(message)
    if body is None:
        return plain | {"base64": base64.b64encode(message.body).decode("ascii")}
    return {**plain, "body": body}


def read_body(message: StoredMessage) -> JsonObject | None:
    """The body as JSON; None where writing it again would give other bytes, or nobody could read it."""
    try:
        body: JsonObject = orjson.loads(message.body)
        if canonical_json(body) != message.body:
            return None
        decode_message(message)
    except (ValueError, TypeError, HelixError):
        return None
    return body


def dump_part(part: FileSession) -> JsonObject:
    """A session as its line has it."""
    return part.model_dump(mode="json", exclude_defaults=True)


def dump_state(state: SessionState) -> JsonObject:
    """A state as a session's line has it."""
    return state.model_dump(mode="json", exclude={"session_id"}, exclude_defaults=True)


def dump_record(record: SessionRecord) -> JsonObject:
    """A session workflow's record as a session's line has it."""
    return record.model_dump(mode="json", exclude_defaults=True)


def dump_run(run: Run) -> JsonObject:
    """A run as its line has it."""
    return run.model_dump(mode="json", by_alias=True, exclude=set(RUN_LEFT_OUT), exclude_defaults=True)


def dump_usage(entry: UsageEntry) -> JsonObject:
    """An entry as its line has it: without the session."""
    plain = entry.model_dump(mode="json", exclude={"session_id"}, exclude_defaults=True)
    return {**plain, "kind": entry.kind}


def dump_child(ref: SubSessionRef) -> JsonObject:
    """A reference to a child as its line has it."""
    return ref.model_dump(mode="json", exclude_defaults=True)


def encode_header(header: Header) -> bytes:
    """The first line, with its end."""
    plain = header.model_dump(mode="json")
    if not header.redacted:
        del plain["redacted"]
    return canonical_json(plain) + b"\n"


# ---- from lines -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Section:
    """A session in a file, and where the lines behind its own begin.

    Attributes:
        offset: In bytes.
        line: Number of its own line, from 1.
    """

    part: FileSession
    offset: int
    line: int


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """A file that was read to its end and is sound."""

    header: Header
    sections: tuple[Section, ...]
    runs: int
    usage: int

    @property
    def first(self) -> FileSession:
        """The session whose file it is."""
        return self.sections[0].part


def damage(line: int, what: str) -> SessionFileError:
    """The error for a line that is not what it must be."""
    return SessionFileError(f"line {line}: {what}", line=line)


def verify_file(file: BinaryIO, progress: Callable[[int, int], None] | None = None) -> VerifiedFile:
    """Read a file to its end, and make sure that all of it is sound; its contents are not kept.

    Args:
        file: At its beginning; it must be one that can be read again.
        progress: Told of bytes read, and of all there are, after each message.

    Raises:
        SessionFileError: It is cut, damaged, or no session file; the message names the line.
        UnsupportedFormatError: It is of a newer format.
    """
    first = _read_line(file, 1)
    header = decode_header(first)
    check, digest, count, size = _FileCheck(header), hashlib.sha256(), 1, 0
    while line := _read_line(file, count + 1):
        count += 1
        size += len(line)
        digest.update(line)
        check.take_line(count, line, len(first) + size)
        if progress is not None:
            progress(size, header.bytes)
    check.finish(count)
    if (size, digest.hexdigest()) != (header.bytes, header.sha256):
        raise SessionFileError(
            f"the lines behind the header have {size} bytes and SHA-256 {digest.hexdigest()}; by the header "
            f"it is {header.bytes} bytes and {header.sha256}: the file was changed after it was written"
        )
    return VerifiedFile(header, tuple(check.sections), check.runs, check.usage)


def _read_line(file: BinaryIO, number: int) -> bytes:
    line = file.readline(MAX_LINE + 1)
    if number == 1:
        _check_encoding(line)
    if len(line) > MAX_LINE:
        raise damage(number, f"longer than {MAX_LINE} bytes")
    if line and not line.endswith(b"\n"):
        raise damage(number, "it has no end: the file was cut, or its end was changed")
    if line.endswith(b"\r\n"):
        raise damage(
            number, "it ends with CR LF, not LF: ends of lines were changed; copy the file byte by byte"
        )
    return line


def _check_encoding(line: bytes) -> None:
    """Say what has become of a file on its way, where its first bytes tell.

    Raises:
        SessionFileError: It is packed, or in another encoding than UTF-8 without a mark.
    """
    for begin, what in _ENCODINGS.items():
        if line.startswith(begin):
            raise damage(1, what)


def decode_header(line: bytes) -> Header:
    """The first line.

    Raises:
        SessionFileError: It is no header.
        UnsupportedFormatError: It is of a newer format.
    """
    if not line:
        raise damage(1, f"the file is empty; a header of {FORMAT} was expected")
    try:
        plain = orjson.loads(line)
    except ValueError:
        plain = None
    found = plain.get("format") if isinstance(plain, dict) else None
    if not isinstance(found, str) or not found.startswith(_FAMILY):
        raise damage(1, f"no header of {FORMAT}: this is no session file")
    if found != FORMAT:
        raise UnsupportedFormatError(f"line 1: format {found[:40]!r}; this version reads {FORMAT}: upgrade")
    return _validated(1, "header", lambda: Header.model_validate(plain))


def _validated(number: int, kind: str, read: Callable[[], T]) -> T:
    """What a line holds, without its contents in an error."""
    try:
        return read()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(each) for each in first["loc"][:3]) or kind
        raise damage(number, f"no {kind}: {place[:80]}: {first['type']}") from None
    except (HelixError, TypeError, ValueError) as error:
        raise damage(number, f"no {kind}: {_describe_cause(error)}") from None


def _describe_cause(error: BaseException) -> str:
    """What is wrong, without the contents: no value, and none of the keys that lead to it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, InvalidMessageError):
            return _PLACE.split(str(cause))[0]
        if isinstance(cause, TooLargeError):
            return f"TooLargeError: {cause}"
        if isinstance(cause, TypeError) and "ecursion" in str(cause):
            return f"nesting over {MAX_DEPTH} levels"
        cause = cause.__cause__
    return type(error).__name__


def decode_line(number: int, line: bytes) -> tuple[LineKind, JsonObject]:
    """The kind and the contents of a line behind the header.

    Raises:
        SessionFileError: It is none.
    """
    try:
        plain = orjson.loads(line)
    except ValueError:
        raise damage(number, "not JSON") from None
    if isinstance(plain, dict) and len(plain) == 1:
        [(kind, part)] = plain.items()
        if kind in KINDS and isinstance(part, dict):
            return kind, part
    raise damage(number, f"an object with one field of {', '.join(KINDS)} expected")


def decode_message_part(number: int, plain: JsonObject) -> tuple[int, StoredMessage]:
    """The position and the message of a line.

    Raises:
        SessionFileError: It holds none.
    """
    part = _validated(number, "message", lambda: FileMessage.model_validate(plain))
    if (part.body is None) == (part.base64 is None):
        raise damage(number, "no message: either body or base64 expected")
    if part.body is not None:
        body = part.body
        message = StoredMessage(
            part.kind, part.id, _validated(number, "message", lambda: canonical_json(body))
        )
        _validated(number, "message", lambda: decode_message(message))
    else:
        message = StoredMessage(part.kind, part.id, _decode_base64(number, part.base64 or ""))
    if len(message.body) > MAX_MESSAGE_BYTES:
        raise damage(number, f"message of {len(message.body)} bytes, at most {MAX_MESSAGE_BYTES} allowed")
    return part.position, message


def _decode_base64(number: int, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise damage(number, "no message: not base64") from None


def decode_run(number: int, plain: JsonObject, session_id: str) -> Run:
    """The run of a line, of the session given.

    Raises:
        SessionFileError: It holds none.
    """
    return _validated(number, "run", lambda: Run.model_validate({**plain, "session_id": session_id}))


def decode_usage(number: int, plain: JsonObject, session_id: str) -> UsageEntry:
    """The entry of a line, of the session given.

    Raises:
        SessionFileError: It holds none.
    """
    return _validated(number, "usage", lambda: _ENTRY.validate_python({**plain, "session_id": session_id}))


def decode_child(number: int, plain: JsonObject) -> SubSessionRef:
    """The reference of a line.

    Raises:
        SessionFileError: It holds none.
    """
    return _validated(number, "child", lambda: SubSessionRef.model_validate(plain))


def iterate_lines(file: BinaryIO, section: Section) -> Iterator[tuple[int, LineKind, JsonObject]]:
    """The lines of a session behind its own, with their numbers, of a file that was verified."""
    file.seek(section.offset)
    part = section.part
    count = part.children + part.runs + part.usage + part.messages
    for number in range(section.line + 1, section.line + 1 + count):
        yield (number, *decode_line(number, _read_line(file, number)))


@dataclass(slots=True)
class _FileCheck:
    """Whether lines come in their order and in their numbers, and hold what they must.

    Attributes:
        kind, left: Which lines of the present session come next, and how many.
        last_id: Of its last message so far.
        names: Of all sessions so far, also of those that are promised.
        promised: Children whose sessions are still to come, and whose they are.
    """

    header: Header
    sections: list[Section] = field(default_factory=list)
    kind: LineKind = "session"
    left: int = 0
    position: int = 0
    last_id: str = ""
    turn: int = 0
    run_ids: set[str] = field(default_factory=set)
    usage_place: tuple[int, str] = (-1, "")
    runs: int = 0
    usage: int = 0
    messages: int = 0
    promised: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    @property
    def part(self) -> FileSession:
        return self.sections[-1].part

    def take_line(self, number: int, line: bytes, end: int) -> None:
        """The next line; ``end`` is the offset behind it."""
        kind, plain = decode_line(number, line)
        self._advance(number)
        if kind != self.kind:
            raise damage(number, f"a {self.kind} line was expected, this is a {kind} line")
        if kind == "session":
            self._take_session(number, plain, end)
            return
        self.left -= 1
        takes = {"child": self._take_child, "run": self._take_run, "usage": self._take_usage}
        takes.get(kind, self._take_message)(number, plain)

    def _advance(self, number: int) -> None:
        """Go on to the next kind of which there are lines to come."""
        while self.kind != "session" and not self.left:
            at = KINDS.index(self.kind) + 1
            if at == len(KINDS):
                self._end_session(number)
                self.kind = "session"
            else:
                self.kind, self.left = KINDS[at], self.part.count_lines(KINDS[at])

    def _take_session(self, number: int, plain: JsonObject, end: int) -> None:
        part = _validated(number, "session", lambda: FileSession.model_validate(plain))
        state = _validated(number, "session", part.read_state)
        record = _validated(number, "session", part.read_record)
        self._check_place(number, part)
        if state is not None:
            if state.schema_version > SCHEMA_VERSION:
                raise UnsupportedFormatError(
                    f"line {number}: a state of schema_version {state.schema_version}, {SCHEMA_VERSION} or "
                    "lower expected: a newer version wrote it; upgrade helix_temporal"
                )
            _validated(number, "session that a store takes", lambda: encode_state(state))
            _check_state_head(number, part, state)
            self._check_state(number, part, state)
        if record is not None:
            _check_portable(number, record, make_portable_record(record, part.head))
        self.sections.append(Section(part, end, number))
        self.kind, self.left = "child", part.children
        self.position, self.last_id, self.turn, self.usage_place = 0, "", 0, (-1, "")
        self.run_ids = set()

    def _check_place(self, number: int, part: FileSession) -> None:
        if not self.sections:
            if (part.session_id, part.parent, part.head) != (self.header.session_id, None, self.header.head):
                raise damage(number, "the first session is not the one that the header names")
            self.names.add(part.session_id)
            return
        if self.promised.pop(part.session_id, None) != part.parent or part.parent is None:
            raise damage(number, f"session {part.session_id!r} is no child of {part.parent!r} by this file")

    def _check_state(self, number: int, part: FileSession, state: SessionState) -> None:
        """The state names no thread and no session that is not its own or above it in this file."""
        first = None if part.parent is None else self.header.session_id
        portable = make_portable_state(state, part.head, first)
        own = {"thread_id": state.thread_id if state.thread_id == state.session_id else None}
        above = {"parent_session_id": part.parent}
        _check_portable(number, state, portable.model_copy(update=own | above))

    def _take_child(self, number: int, plain: JsonObject) -> None:
        ref = decode_child(number, plain)
        if ref.sub_session_id in self.names:
            raise damage(number, f"session {ref.sub_session_id!r} comes twice")
        self.names.add(ref.sub_session_id)
        self.promised[ref.sub_session_id] = self.part.session_id

    def _take_run(self, number: int, plain: JsonObject) -> None:
        run = decode_run(number, plain, self.part.session_id)
        if run.turn <= self.turn or run.run_id in self.run_ids or run.status.live:
            raise damage(number, f"run of turn {run.turn}: a later one that has ended was expected")
        self.turn = run.turn
        self.run_ids.add(run.run_id)
        self.runs += 1

    def _take_usage(self, number: int, plain: JsonObject) -> None:
        entry = decode_usage(number, plain, self.part.session_id)
        place = (entry.timestamp, entry.id)
        if place <= self.usage_place:
            raise damage(number, "usage is not in the order of its times")
        self.usage_place = place
        self.usage += 1

    def _take_message(self, number: int, plain: JsonObject) -> None:
        position, message = decode_message_part(number, plain)
        if position != self.position:
            raise damage(number, f"message {position}, where {self.position} was expected")
        self.position += 1
        self.messages += 1
        self.last_id = message.id
        state_head = (self.part.state or {}).get("head", {})
        if state_head.get("position") == self.position and state_head.get("last_id") != message.id:
            raise damage(number, "the state names another message at this position")

    def _end_session(self, number: int) -> None:
        thread = self.part.thread
        if thread is not None and thread.head.last_id != self.last_id:
            raise damage(number - 1, "the last message is not the one that the session's line names")

    def finish(self, count: int) -> None:
        """The file is at its end.

        Raises:
            SessionFileError: Something is missing.
        """
        if count - 1 != self.header.lines:
            raise damage(
                count,
                f"the file ends here; the header says {self.header.lines + 1} lines: it was cut or changed",
            )
        self._advance(count + 1)
        missing = bool(self.promised) or self.left > 0
        if missing or (len(self.sections), self.messages) != (self.header.sessions, self.header.messages):
            raise damage(
                count,
                f"the file ends after {len(self.sections)} sessions and {self.messages} messages; the header "
                f"says {self.header.sessions} and {self.header.messages}",
            )


def _check_portable(number: int, found: SessionState | SessionRecord, portable: object) -> None:
    """Refuse what no export writes: another's thread or session, and what would run or wait here."""
    assert isinstance(portable, SessionState | SessionRecord)
    if wrong := list_differences(found, portable):
        raise damage(
            number,
            f"no session of a file: {', '.join(wrong)[:200]}: a session in a file has its own thread, "
            "belongs to none outside the file, and neither runs nor waits",
        )


def _check_state_head(number: int, part: FileSession, state: SessionState) -> None:
    if state.head.position > part.messages:
        raise damage(number, f"the state ends at {state.head.position}, the messages at {part.messages}")
    if state.head.position == 0 and state.head.last_id:
        raise damage(number, "the state names a message in front of the first")
