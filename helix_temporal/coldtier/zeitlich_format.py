"""Pure: version 1 snapshots (zeitlich's), read strictly and written as it writes them."""

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from helix_temporal.models.base import MAX_DEPTH, JsonObject, canonical_json, storable_text
from helix_temporal.models.foreign_rows.zeitlich import EXTRAS, V1_FORMAT, digest_of, shape_of
from helix_temporal.models.ids import validate_id
from helix_temporal.models.messages import Message, decode_message
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.models.turns import encode_messages

_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]')
_READABLE: Final = 600
"""So many levels leave the interpreter, which allows a thousand calls, enough for those around it."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def stringify_json(value: Any) -> str:
    """As ``JSON.stringify``: no spaces, nothing escaped but controls and halves of surrogate pairs."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def fit_for_stores(value: Any, depth: int = 0) -> Any:
    """The value as every store can hold it.

    U+0000 and halves of surrogate pairs become U+FFFD, integers over 64 bits the floats that they are in
    JavaScript, and what is nested deeper than 64 levels its JSON text.
    """
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value)
    if isinstance(value, dict | list) and depth >= MAX_DEPTH:
        return storable_text(stringify_json(value))
    if isinstance(value, dict):
        return {storable_text(key): fit_for_stores(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [fit_for_stores(each, depth + 1) for each in value]
    return value


def as_before(value: Any, before: Any, depth: int = 0) -> Any:
    """The value, with what nobody changed since as it was before it was made fit for stores."""
    if value == fit_for_stores(before, depth):
        return before
    if not isinstance(value, dict) or not isinstance(before, dict):
        return value
    keys = {storable_text(key): key for key in before}
    return {
        keys.get(key, key): as_before(each, before.get(keys.get(key)), depth + 1)
        for key, each in value.items()
    }


def is_too_deep(text: str) -> bool:
    """Whether the JSON text is nested too deep to be read and written by what calls itself for each level."""
    if text.count("[") + text.count("{") <= _READABLE:
        return False
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > _READABLE:
                return True
        elif token[0] in "]}":
            depth -= 1
    return False


def flatten_deep_json(text: str, levels: int) -> str:
    """The JSON text with what is nested deeper than this as texts."""
    found: list[str] = []
    depth, done, begun = 0, 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == levels + 1:
                begun = token.start()
                found.append(text[done:begun])
        elif token[0] in "]}":
            depth -= 1
            if depth == levels:
                done = token.end()
                found.append(stringify_json(text[begun:done]))
    return "".join([*found, text[done:]])


def member_text(text: str, name: str) -> str:
    """The text of a member of the JSON object that this is; ``null`` if it has none."""
    depth, begun, last = 0, None, ""
    for token in _TOKEN.finditer(text):
        if token[0][0] == '"':
            if depth == 1 and begun is None and _is_member_name(token[0], name) and last in "{,":
                begun = text.index(":", token.end()) + 1
        elif token[0] in "[{":
            depth += 1
        else:
            if depth == 1 and begun is not None:
                return text[begun : token.start()].strip()
            depth -= token[0] in "]}"
        last = token[0][0]
    return "null"


def _is_member_name(token: str, name: str) -> bool:
    return len(token) < 100 and json.loads(token) == name


Row = dict[str, Any]

_FIELDS: Final = ("name", "usage", "summary_usage", "cost_usd", "finish", "given", "provider", "metadata")
_SIGNATURE: Final = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""Stands for the signature of a call that another provider's model made: Gemini refuses calls without."""


class RowWriter:
    """Writes a thread's messages in order: results of Gemini's repeat the names of their calls.

    Args:
        adapter: ``anthropic``, ``googleGenAI`` or ``langChain``; any other gives the generic envelope.
    """

    def __init__(self, adapter: str) -> None:
        self._adapter = adapter
        self._names: dict[str, str] = {}

    def write_row(self, message: Message) -> Row:
        """The row of one message of ours."""
        self._names |= {call.id: call.name for call in message.tool_calls}
        make = _ENVELOPES.get(self._adapter)
        if make is None:
            return _generic_row(message)
        row = make(message, self._names)
        extras = _build_extras(message)
        return row | {EXTRAS: {"of": digest_of(row), **extras}} if extras else row


def _build_extras(message: Message) -> JsonObject:
    fields = message.model_dump(mode="json", exclude_defaults=True)
    extras: JsonObject = {name: fields[name] for name in _FIELDS if name in fields}
    if not _is_read_back(message):
        extras["content"] = fields.get("content", "")
    return extras


def _is_read_back(message: Message) -> bool:
    """Whether the content is read back as it was, from any envelope."""
    if isinstance(message.content, str):
        return not message.content or bool(message.content.strip())
    return message.role != "tool" and len(message.content) > 1 and all(map(_is_plain, message.content))


def _is_plain(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    if kind == "text":
        return part.keys() == {"type", "text"} and bool(str(part["text"]).strip())
    return kind == "image" and part.keys() == {"type", "media_type", "data"}


def _generic_row(message: Message) -> Row:
    fields = message.model_dump(mode="json", exclude={"id"}, exclude_defaults=True)
    body = {"role": message.role, "content": fields.pop("content", ""), **fields}
    return {"id": message.id, "message": body}


def _parts_of_message(message: Message) -> Iterator[Mapping[str, Any]]:
    if isinstance(message.content, str):
        if message.content:
            yield {"type": "text", "text": message.content}
    else:
        yield from message.content


def _source_of_part(part: Mapping[str, Any]) -> Row | None:
    if part.get("data"):
        return {"type": "base64", "media_type": part.get("media_type") or "", "data": part["data"]}
    if part.get("url"):
        return {"type": "url", "url": part["url"]}
    return {"type": "file", "file_id": part["file_id"]} if part.get("file_id") else None


# -- Anthropic


def _anthropic_row(message: Message, names: Mapping[str, str]) -> Row:  # noqa: ARG001 (of one shape with the others)
    if message.role == "system":
        return {"id": message.id, "message": {"role": "user", "content": message.text}, "isSystem": True}
    blocks = [block for part in _parts_of_message(message) if (block := _anthropic_block(part)) is not None]
    role = "assistant" if message.role == "assistant" else "user"
    if message.role == "tool":
        result: Row = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": blocks}
        if isinstance(message.content, str):
            result["content"] = message.content
        blocks = [result | {"is_error": True} if message.is_error else result]
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in message.tool_calls
    ]
    return {"id": message.id, "message": {"role": role, "content": blocks}}


def _anthropic_block(part: Mapping[str, Any]) -> Row | None:
    kind, source = part.get("type"), _source_of_part(part)
    if kind == "text" and str(part.get("text", "")).strip():
        block: Row = {"type": "text", "text": part["text"]}
        return block | {"cache_control": {"type": "ephemeral"}} if part.get("cache") is True else block
    if source is None or kind not in {"image", "file"}:
        return None
    return {"type": "image" if kind == "image" else "document", "source": source}


# -- Google


def _google_row(message: Message, names: Mapping[str, str]) -> Row:
    role = {"system": "system", "assistant": "model"}.get(message.role, "user")
    given = [made for part in _parts_of_message(message) if (made := _google_part(part)) is not None]
    if message.role == "tool":
        name = names.get(message.tool_call_id or "") or message.name or "unnamed"
        told = {"error" if message.is_error else "result": message.text}
        result = {"id": message.tool_call_id, "name": name, "response": told}
        given = [{"functionResponse": result}, *(part for part in given if "text" not in part)]
    for at, call in enumerate(message.tool_calls):
        part: Row = {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}
        given.append(part if at else part | {"thoughtSignature": _SIGNATURE})
    return {"id": message.id, "content": {"role": role, "parts": given or [{"text": ""}]}}


def _google_part(part: Mapping[str, Any]) -> Row | None:
    kind, media_type = part.get("type"), part.get("media_type")
    if kind == "text":
        return {"text": part["text"]} if part.get("text") else None
    if kind not in {"image", "file"}:
        return None
    if part.get("data"):
        return {"inlineData": {"mimeType": media_type or "application/octet-stream", "data": part["data"]}}
    place = part.get("url") or part.get("file_id")
    file = {"fileUri": place}
    return {"fileData": file | {"mimeType": media_type} if media_type else file} if place else None


# -- LangChain

_TYPES: Final = {"system": "system", "user": "human", "assistant": "ai", "tool": "tool"}


def _langchain_row(message: Message, names: Mapping[str, str]) -> Row:
    content: Any = message.content
    if not isinstance(content, str):
        content = [made for part in content if (made := _langchain_part(part)) is not None]
    data: Row = {"id": message.id, "content": content, "additional_kwargs": {}, "response_metadata": {}}
    if message.role == "assistant":
        calls = [
            {"name": call.name, "args": call.arguments, "id": call.id, "type": "tool_call"}
            for call in message.tool_calls
        ]
        data |= {"tool_calls": calls, "invalid_tool_calls": []}
    elif message.role == "tool":
        name = message.name or names.get(message.tool_call_id or "")
        data |= {"tool_call_id": message.tool_call_id, "status": "error" if message.is_error else "success"}
        data |= {"name": name} if name else {}
    return {"type": _TYPES[message.role], "data": data}


def _langchain_part(part: Mapping[str, Any]) -> Row | None:
    kind, media_type = part.get("type"), part.get("media_type") or ""
    if kind == "text":
        return {"type": "text", "text": part.get("text", "")}
    if kind not in {"image", "file"}:
        return None
    data, url = part.get("data"), part.get("url")
    if kind == "image" and (data or url):
        address = f"data:{media_type};base64,{data}" if data else url
        return {"type": "image_url", "image_url": {"url": address}}
    if data:
        return {"type": "file", "source_type": "base64", "mime_type": media_type, "data": data}
    if url:
        return {"type": "file", "source_type": "url", "url": url}
    return {"type": "file", "source_type": "id", "id": part["file_id"]} if part.get("file_id") else None


_ENVELOPES: Final[dict[str, Callable[[Message, Mapping[str, str]], Row]]] = {
    "anthropic": _anthropic_row,
    "googleGenAI": _google_row,
    "langChain": _langchain_row,
}


ADAPTERS: Final = ("anthropic", "googleGenAI", "langChain")
"""Zeitlich's, whose rows we can tell by their shape."""

_OURS: Final = {"google": "googleGenAI", "langchain": "langChain"}

_GZIP: Final = 31
_LEVEL: Final = 6


@dataclass(frozen=True, slots=True)
class V1Content:
    """What a snapshot holds, as messages and as the bytes of a slice."""

    messages: tuple[StoredMessage, ...]
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


def decode_snapshot(data: bytes, adapter: str, what: str) -> V1Content:
    """The content of a snapshot's JSON.

    Raises:
        ArchiveCorruptError: It is not what a snapshot is; the message says where.
        UnsupportedFormatError: ``v`` is not 1.
        InvalidRequestError: ``adapter`` contradicts the rows.
    """
    fields = _checked_fields(_parse_strict_json(_decode_text(data, what), what), what)
    rows = [_parse_row(text, f"{what}: row {at}") for at, text in enumerate(fields["messages"])]
    shapes = [shape_of(row) for row in rows]
    _check_adapter(shapes, adapter, what)
    ids = _assign_ids(rows, fields["messages"], fields["dedupIds"])
    try:
        messages = encode_messages(
            [
                Message(id=own, role="foreign", content=text, format=_row_format(shape, adapter))
                for own, text, shape in zip(ids, fields["messages"], shapes, strict=True)
            ]
        )
    except (HelixError, ValueError) as error:
        raise ArchiveCorruptError(f"{what}: a row is no text that can be kept") from error
    newest = next((shape for shape in reversed(shapes) if shape), "")
    return V1Content(messages, _encode_slice(fields["state"]), adapter or newest)


def _decode_text(data: bytes, what: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ArchiveCorruptError(f"{what}: not UTF-8, so no version 1 snapshot") from error
    if text.startswith("\ufeff"):
        raise ArchiveCorruptError(f"{what}: begins with a byte order mark, so no version 1 snapshot")
    return text


def _parse_strict_json(text: str, what: str, levels: int = MAX_DEPTH + 1) -> Any:
    """JSON as the standard has it: no NaN, no doubled keys; what is nested too deep to read, as text."""

    def join_pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) != len(found):
            keys = [key for key, _ in found]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ArchiveCorruptError(f"{what}: duplicate key {twice[:40]!r}")
        return made

    def parse_number(found: str) -> float:
        value = float(found)
        if value in {float("inf"), float("-inf")}:
            raise ArchiveCorruptError(f"{what}: non-finite number")
        return value

    def refuse_constant(found: str) -> None:
        raise ArchiveCorruptError(f"{what}: non-finite number {found}")

    def parse_json(given: str) -> Any:
        return json.loads(
            given, object_pairs_hook=join_pairs, parse_float=parse_number, parse_constant=refuse_constant
        )

    try:
        return parse_json(flatten_deep_json(text, levels) if is_too_deep(text) else text)
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


def _parse_row(text: str, what: str) -> dict[str, Any]:
    row = _parse_strict_json(text, what)
    if not isinstance(row, dict):
        raise ArchiveCorruptError(f"{what}: no JSON object")
    return row


def _check_adapter(shapes: Sequence[str], named: str, what: str) -> None:
    found = set(shapes)
    if named in ADAPTERS and len(found) == 1 and not found <= {"", named}:
        raise InvalidRequestError(f"{what}: its rows are of adapter {found.pop()!r}, not {named!r}")


def _row_format(shape: str, named: str) -> str:
    """Of one row: by its shape, unless the session has an adapter of its own that reads such rows."""
    envelope = envelope_of(named)
    adapter = named if named and not envelope else shape or envelope
    return f"{V1_FORMAT}/{adapter}" if adapter else V1_FORMAT


def _assign_ids(rows: Sequence[dict[str, Any]], texts: Sequence[str], dedup_ids: Sequence[str]) -> list[str]:
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


def _encode_slice(state: dict[str, Any] | None) -> bytes:
    return b"" if state is None else canonical_json({"values": fit_for_stores(state)})


# ---- writing ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class V1Written:
    """A snapshot that is there already, as it was written."""

    messages: tuple[str, ...]
    state: str
    dedup_ids: tuple[str, ...]


def parse_written_snapshot(data: bytes, what: str) -> V1Written:
    """The members of a snapshot's JSON, the state as its text.

    Raises:
        ArchiveCorruptError: It is not what a snapshot is.
        UnsupportedFormatError: ``v`` is not 1.
    """
    text = _decode_text(data, what)
    fields = _checked_fields(_parse_strict_json(text, what), what)
    return V1Written(tuple(fields["messages"]), member_text(text, "state"), tuple(fields["dedupIds"]))


def encode_snapshot(
    stored: Sequence[StoredMessage],
    state: bytes,
    instructions: str | None = None,
    *,
    adapter: str = "",
    old: V1Written | None = None,
) -> bytes | None:
    """The JSON of a snapshot of these messages; None if it says what ``old`` says.

    Args:
        stored: All messages of the thread.
        state: Its slice.
        instructions: Become the first row.
        adapter: In whose envelope messages of ours are written; where zeitlich has none such, in that of
            the newest row that came from there, and in the generic one where none did.
        old: What was there before: its state and its ids stay, as far as nobody changed them.

    Raises:
        ArchiveCorruptError: A body is not a message of ours.
    """
    messages = [decode_message(each) for each in stored]
    if instructions:
        messages.insert(0, Message(id="instructions", role="system", content=instructions))
    writer = RowWriter(envelope_of(adapter) or _newest_adapter(messages))
    rows = [_as_row(message, writer) for message in messages]
    new = V1Written(tuple(rows), _state_text(state, old), _dedup_ids(messages, rows, old))
    if new == old:
        return None
    found, ids = stringify_json(list(rows)), stringify_json(list(new.dedup_ids))
    members = f'"messages":{found},"state":{new.state},"dedupIds":{ids}'
    return f'{{"v":1,{members}}}'.encode()


def deflate_gzip(data: bytes) -> bytes:
    """One gzip member without a time, so that the same snapshot always has the same bytes."""
    member = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return member.compress(data) + member.flush()


def _as_row(message: Message, writer: RowWriter) -> str:
    if message.role == "foreign" and isinstance(message.content, str):
        return message.content
    return stringify_json(writer.write_row(message))


def _newest_adapter(messages: Sequence[Message]) -> str:
    formats = (each.format or "" for each in reversed(messages) if each.role == "foreign")
    named = (form.removeprefix(f"{V1_FORMAT}/") for form in formats)
    return next((name for name in named if name in ADAPTERS), "")


def _dedup_ids(messages: Sequence[Message], rows: Sequence[str], old: V1Written | None) -> tuple[str, ...]:
    """As zeitlich makes them: the row's own id, but of LangChain's results that of the call."""
    if old is not None and tuple(rows) == old.messages:
        return old.dedup_ids
    stored_ids = dict(zip(old.messages, old.dedup_ids, strict=False)) if old is not None else {}
    return tuple(
        stored_ids.get(row) or _dedup_id(row) or message.id
        for message, row in zip(messages, rows, strict=True)
    )


def _dedup_id(text: str) -> str:
    try:
        row = _parse_strict_json(text, "row")
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
    before = _parse_strict_json(old.state, "state", MAX_DEPTH) if old is not None else None
    if old is not None and values == (fit_for_stores(before) if before is not None else {}):
        return old.state
    if not data:
        return "null"
    shaped = values if values and values.keys() <= {"tasks", "custom"} else {"custom": values}
    return stringify_json(as_before({"tasks": [], "custom": {}, **shaped}, before))
