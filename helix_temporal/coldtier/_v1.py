"""Pure: bytes of version 1 snapshots (zeitlich's), read strictly and written as it writes them.

::

    {"v":1,"messages":["<a row as text>",…],"state":{"tasks":[…],"custom":{…}} or null,"dedupIds":["<id>",…]}

A row is JSON in a provider's envelope, and each says which by its shape.  It becomes an opaque message of
format ``zeitlich-v1/<adapter>`` whose content is the row's text, byte for byte, and whose kind keeps a call
and its results together.  Our own messages are written in the envelope of the thread's adapter (see
`_v1_rows`).  The state is the session's ``values``, ``{"tasks": …, "custom": …}``; what no store of ours can
hold (half a surrogate pair, U+0000, integers over 64 bits, more than 64 levels) is replaced there, and is
written as it was as long as the session does not change it.
"""

import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from helix_temporal.coldtier._v1_json import (
    as_before,
    fit_for_stores,
    is_too_deep,
    member_text,
    shallow,
    stringify,
)
from helix_temporal.coldtier._v1_rows import RowWriter
from helix_temporal.errors import (
    ArchiveCorruptError,
    HelixError,
    InvalidRequestError,
    TooLargeError,
    UnsupportedFormatError,
)
from helix_temporal.models._json import MAX_DEPTH, canonical
from helix_temporal.models.ids import validate_id
from helix_temporal.models.messages import Message, from_record
from helix_temporal.models.records import Record
from helix_temporal.models.rows import V1_FORMAT, records_of, shape_of

ADAPTERS: Final = ("anthropic", "googleGenAI", "langChain")
"""Zeitlich's, whose rows we can tell by their shape."""

_OURS: Final = {"google": "googleGenAI", "langchain": "langChain"}

_GZIP: Final = 31
_LEVEL: Final = 6


@dataclass(frozen=True, slots=True)
class V1Content:
    """What a snapshot holds, as records and as the bytes of a slice."""

    records: tuple[Record, ...]
    slice: bytes
    adapter: str


def envelope_of(adapter: str) -> str:
    """The adapter of zeitlich's whose rows this one has, or one of ours would have; empty if none."""
    named = _OURS.get(adapter.partition("/")[0], adapter)
    return named if named in ADAPTERS else ""


# ---- reading ----------------------------------------------------------------------------------------


def inflate_gzip(data: bytes, limit: int, what: str) -> bytes:
    """The content of exactly one gzip member, never more than ``limit`` bytes of it in memory.

    Raises:
        ArchiveCorruptError: It is cut, damaged, or has bytes after its end.
        TooLargeError: It expands past the limit.
    """
    member = zlib.decompressobj(_GZIP)
    try:
        raw = member.decompress(data, limit + 1)
    except zlib.error as error:
        raise ArchiveCorruptError(f"{what}: no gzip, or its checksum does not match") from error
    if len(raw) > limit:
        raise TooLargeError(f"{what}: expands past {limit} bytes; raise the limit if it is genuine")
    if not member.eof:
        raise ArchiveCorruptError(f"{what}: gzip is truncated")
    if member.unused_data:
        raise ArchiveCorruptError(f"{what}: trailing data after the gzip member")
    return raw


def decode(data: bytes, adapter: str, what: str) -> V1Content:
    """The content of a snapshot's JSON.

    Raises:
        ArchiveCorruptError: It is not what a snapshot is; the message says where.
        UnsupportedFormatError: ``v`` is not 1.
        InvalidRequestError: ``adapter`` contradicts the rows.
    """
    fields = _checked_fields(_strict(_text(data, what), what), what)
    rows = [_row(text, f"{what}: row {at}") for at, text in enumerate(fields["messages"])]
    shapes = [shape_of(row) for row in rows]
    _check_adapter(shapes, adapter, what)
    ids = _ids(rows, fields["messages"], fields["dedupIds"])
    try:
        records = records_of(
            [
                Message(id=own, role="foreign", content=text, format=_format(shape, adapter))
                for own, text, shape in zip(ids, fields["messages"], shapes, strict=True)
            ]
        )
    except (HelixError, ValueError) as error:
        raise ArchiveCorruptError(f"{what}: a row is no text that can be kept") from error
    newest = next((shape for shape in reversed(shapes) if shape), "")
    return V1Content(records, _slice(fields["state"]), adapter or newest)


def _text(data: bytes, what: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ArchiveCorruptError(f"{what}: not UTF-8, so no version 1 snapshot") from error
    if text.startswith("\ufeff"):
        raise ArchiveCorruptError(f"{what}: begins with a byte order mark, so no version 1 snapshot")
    return text


def _strict(text: str, what: str, levels: int = MAX_DEPTH + 1) -> Any:
    """JSON as the standard has it: no NaN, no doubled keys; what is nested too deep to read, as text."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) != len(found):
            keys = [key for key, _ in found]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ArchiveCorruptError(f"{what}: duplicate key {twice[:40]!r}")
        return made

    def number(found: str) -> float:
        value = float(found)
        if value in {float("inf"), float("-inf")}:
            raise ArchiveCorruptError(f"{what}: non-finite number")
        return value

    def constant(found: str) -> None:
        raise ArchiveCorruptError(f"{what}: non-finite number {found}")

    def read(given: str) -> Any:
        return json.loads(given, object_pairs_hook=pairs, parse_float=number, parse_constant=constant)

    try:
        return read(shallow(text, levels) if is_too_deep(text) else text)
    except RecursionError as error:
        # What is never closed is no value that could be kept as its text.
        raise ArchiveCorruptError(f"{what}: nesting over {MAX_DEPTH} levels that never ends") from error
    except ValueError as error:
        raise ArchiveCorruptError(f"{what}: not JSON, so no version 1 snapshot") from error


def _checked_fields(fields: Any, what: str) -> dict[str, Any]:
    if not isinstance(fields, dict) or "v" not in fields:
        raise ArchiveCorruptError(f"{what}: no version 1 snapshot (no field v)")
    version = fields["v"]
    if type(version) is not int:
        raise ArchiveCorruptError(f"{what}: v is no number")
    if version != 1:
        raise UnsupportedFormatError(f"{what}: v {version} found, 1 expected; read it with what wrote it")
    for name in ("messages", "dedupIds"):
        found = fields.get(name)
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise ArchiveCorruptError(f"{what}: {name} is no list of texts")
    if not isinstance(fields.get("state", 0), dict | None):
        raise ArchiveCorruptError(f"{what}: state is neither an object nor null")
    return fields


def _row(text: str, what: str) -> dict[str, Any]:
    row = _strict(text, what)
    if not isinstance(row, dict):
        raise ArchiveCorruptError(f"{what}: no JSON object")
    return row


def _check_adapter(shapes: Sequence[str], named: str, what: str) -> None:
    found = set(shapes)
    if named in ADAPTERS and len(found) == 1 and not found <= {"", named}:
        raise InvalidRequestError(f"{what}: its rows are of adapter {found.pop()!r}, not {named!r}")


def _format(shape: str, named: str) -> str:
    """Of one row: by its shape, unless the session has an adapter of its own that reads such rows."""
    known = envelope_of(named)
    adapter = named if named and not known else shape or known
    return f"{V1_FORMAT}/{adapter}" if adapter else V1_FORMAT


def _ids(rows: Sequence[dict[str, Any]], texts: Sequence[str], dedup_ids: Sequence[str]) -> list[str]:
    """An id for each row: its own, that of its dedup entry, or one made of its place and content."""
    spare = dedup_ids if len(dedup_ids) == len(rows) else [""] * len(rows)
    found: list[str] = []
    taken: set[str] = set()
    for at, (row, text, dedup_id) in enumerate(zip(rows, texts, spare, strict=True)):
        made = f"v1-{at}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]}"
        own = (row.get("data") or row).get("id") if shape_of(row) == "langChain" else row.get("id")
        chosen = next((str(name) for name in (own, dedup_id) if _is_id(name) and name not in taken), made)
        taken.add(chosen)
        found.append(chosen)
    return found


def _is_id(value: object) -> bool:
    try:
        validate_id(value)
    except HelixError:
        return False
    return True


def _slice(state: dict[str, Any] | None) -> bytes:
    return b"" if state is None else canonical({"values": fit_for_stores(state)})


# ---- writing ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class V1Written:
    """A snapshot that is there already, as it was written."""

    messages: tuple[str, ...]
    state: str
    dedup_ids: tuple[str, ...]


def written(data: bytes, what: str) -> V1Written:
    """The members of a snapshot's JSON, the state as its text.

    Raises:
        ArchiveCorruptError: It is not what a snapshot is.
        UnsupportedFormatError: ``v`` is not 1.
    """
    text = _text(data, what)
    fields = _checked_fields(_strict(text, what), what)
    return V1Written(tuple(fields["messages"]), member_text(text, "state"), tuple(fields["dedupIds"]))


def encode(
    records: Sequence[Record],
    state: bytes,
    instructions: str | None = None,
    *,
    adapter: str = "",
    old: V1Written | None = None,
) -> bytes | None:
    """The JSON of a snapshot of these messages; None if it says what ``old`` says.

    Args:
        records: All of the thread.
        state: Its slice.
        instructions: Become the first row.
        adapter: In whose envelope messages of ours are written; where zeitlich has none such, in that of
            the newest row that came from there, and in the generic one where none did.
        old: What was there before: its state and its ids stay, as far as nobody changed them.

    Raises:
        ArchiveCorruptError: A body is not a message of ours.
    """
    messages = [from_record(record) for record in records]
    if instructions:
        messages.insert(0, Message(id="instructions", role="system", content=instructions))
    writer = RowWriter(envelope_of(adapter) or _newest_adapter(messages))
    rows = [_as_row(message, writer) for message in messages]
    new = V1Written(tuple(rows), _state_text(state, old), _dedup_ids(messages, rows, old))
    if new == old:
        return None
    members = (
        f'"messages":{stringify(list(rows))},"state":{new.state},"dedupIds":{stringify(list(new.dedup_ids))}'
    )
    return f'{{"v":1,{members}}}'.encode()


def deflate_gzip(data: bytes) -> bytes:
    """One gzip member without a time, so that the same snapshot always has the same bytes."""
    member = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return member.compress(data) + member.flush()


def _as_row(message: Message, writer: RowWriter) -> str:
    if message.role == "foreign" and isinstance(message.content, str):
        return message.content
    return stringify(writer.write(message))


def _newest_adapter(messages: Sequence[Message]) -> str:
    formats = (each.format or "" for each in reversed(messages) if each.role == "foreign")
    named = (form.removeprefix(f"{V1_FORMAT}/") for form in formats)
    return next((name for name in named if name in ADAPTERS), "")


def _dedup_ids(messages: Sequence[Message], rows: Sequence[str], old: V1Written | None) -> tuple[str, ...]:
    """As zeitlich makes them: the row's own id, but of LangChain's results that of the call."""
    if old is not None and tuple(rows) == old.messages:
        return old.dedup_ids
    known = dict(zip(old.messages, old.dedup_ids, strict=False)) if old is not None else {}
    return tuple(
        known.get(row) or _dedup_id(row) or message.id for message, row in zip(messages, rows, strict=True)
    )


def _dedup_id(text: str) -> str:
    try:
        row = _strict(text, "row")
        if shape_of(row) != "langChain":
            found = row.get("id")
        else:
            data = row["data"]
            found = (data.get("tool_call_id") if row["type"] == "tool" else None) or data.get("id")
    except (HelixError, KeyError, TypeError, AttributeError):
        return ""
    return found if isinstance(found, str) else ""


def _state_text(data: bytes, old: V1Written | None) -> str:
    fields = orjson.loads(data) if data else {}
    values = fields.get("values", {}) if isinstance(fields, dict) else {}
    before = _strict(old.state, "state", MAX_DEPTH) if old is not None else None
    if old is not None and values == (fit_for_stores(before) if before is not None else {}):
        return old.state
    if not data:
        return "null"
    shaped = values if values and values.keys() <= {"tasks", "custom"} else {"custom": values}
    return stringify(as_before({"tasks": [], "custom": {}, **shaped}, before))
