"""Pure: bytes of version 1 snapshots (zeitlich's), read strictly and written as it writes them.

::

    {"v":1,"messages":["<a row as text>",…],"state":{"tasks":[…],"custom":{…}} or null,"dedupIds":["<id>",…]}

A row is JSON in a provider's envelope.  It becomes an opaque message of format ``zeitlich-v1/<adapter>``
whose content is the row's text, byte for byte, and whose kind keeps a call and its results together.  Our own
messages are written in the generic envelope ``{"id","message":{"role","content",…}}``, where ``message`` also
has the other fields that are set, such as ``tool_calls``.  The state is the session's ``values``,
``{"tasks": …, "custom": …}``.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from helix_temporal.errors import (
    ArchiveCorruptError,
    HelixError,
    InvalidRequestError,
    TooLargeError,
    UnsupportedFormatError,
)
from helix_temporal.models._json import MAX_DEPTH, canonical, check_json
from helix_temporal.models.ids import validate_id
from helix_temporal.models.messages import Message, from_record
from helix_temporal.models.records import Record
from helix_temporal.models.rows import V1_FORMAT, records_of, shape_of

_GZIP: Final = 31
_LEVEL: Final = 6


@dataclass(frozen=True, slots=True)
class V1Content:
    """What a snapshot holds, as records and as the bytes of a slice."""

    records: tuple[Record, ...]
    slice: bytes
    adapter: str


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
    adapter = _adapter(rows, adapter, what)
    ids = _ids(rows, fields["messages"], fields["dedupIds"])
    name = f"{V1_FORMAT}/{adapter}" if adapter else V1_FORMAT
    try:
        records = records_of(
            [
                Message(id=own, role="foreign", content=text, format=name)
                for own, text in zip(ids, fields["messages"], strict=True)
            ]
        )
    except (HelixError, ValueError) as error:
        raise ArchiveCorruptError(f"{what}: a row is no text that can be kept") from error
    return V1Content(records, _slice(fields["state"], what), adapter)


def _text(data: bytes, what: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ArchiveCorruptError(f"{what}: not UTF-8, so no version 1 snapshot") from error
    if text.startswith("\ufeff"):
        raise ArchiveCorruptError(f"{what}: begins with a byte order mark, so no version 1 snapshot")
    return text


def _strict(text: str, what: str) -> Any:
    """JSON as the standard has it: no NaN, no doubled keys, not too deep."""

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

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_float=number, parse_constant=constant)
        _check_depth(value)
    except RecursionError as error:
        raise ArchiveCorruptError(f"{what}: nesting over {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise ArchiveCorruptError(f"{what}: not JSON, so no version 1 snapshot") from error
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [item for outer in level for item in _items(outer)]
        if not level:
            return
    raise RecursionError


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return [item for item in value.values() if isinstance(item, dict | list)]
    return [item for item in value if isinstance(item, dict | list)] if isinstance(value, list) else ()


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


def _adapter(rows: Sequence[dict[str, Any]], named: str, what: str) -> str:
    shapes = {shape_of(row) for row in rows}
    found = shapes.pop() if len(shapes) == 1 else ""
    if named in {"anthropic", "googleGenAI", "langChain"} and found not in {"", named}:
        raise InvalidRequestError(f"{what}: its rows are of adapter {found!r}, not {named!r}")
    return named or found


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


def _slice(state: dict[str, Any] | None, what: str) -> bytes:
    if state is None:
        return b""
    try:
        check_json(state)
    except HelixError as error:
        raise ArchiveCorruptError(f"{what}: the state cannot be kept: {error}") from error
    return canonical({"values": state})


# ---- writing ----------------------------------------------------------------------------------------


def encode(records: Sequence[Record], state: bytes, instructions: str | None = None) -> bytes:
    """The JSON of a snapshot of these messages; ``instructions`` become its first row.

    Raises:
        ArchiveCorruptError: A body is not a message of ours.
    """
    messages = [from_record(record) for record in records]
    if instructions:
        messages.insert(0, Message(id="instructions", role="system", content=instructions))
    fields = {
        "v": 1,
        "messages": [_as_row(message) for message in messages],
        "state": _as_state(state),
        "dedupIds": [message.id for message in messages],
    }
    return orjson.dumps(fields)


def deflate_gzip(data: bytes) -> bytes:
    """One gzip member without a time, so that the same snapshot always has the same bytes."""
    member = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return member.compress(data) + member.flush()


def _as_row(message: Message) -> str:
    if message.role == "foreign" and isinstance(message.content, str):
        return message.content
    fields = message.model_dump(mode="json", exclude={"id"}, exclude_defaults=True)
    body = {"role": message.role, "content": fields.pop("content", ""), **fields}
    return orjson.dumps({"id": message.id, "message": body}).decode()


def _as_state(data: bytes) -> dict[str, Any] | None:
    if not data:
        return None
    fields = orjson.loads(data)
    values = fields.get("values", {}) if isinstance(fields, dict) else {}
    if values and values.keys() <= {"tasks", "custom"}:
        return {"tasks": [], "custom": {}, **values}
    return {"tasks": [], "custom": values}
