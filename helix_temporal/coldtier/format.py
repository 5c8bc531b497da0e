"""Objects of the cold tier: their keys, the manifest, bytes and every check on the way back in."""

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TypeVar

import orjson
import zstandard

from helix_temporal.errors import ArchiveCorruptError, InvalidConfigError, UnsupportedFormatError
from helix_temporal.models.base import dump_json
from helix_temporal.models.ids import decode_id, encode_id
from helix_temporal.models.stored_messages import (
    EMPTY,
    SUMS,
    Head,
    StoredMessage,
    pack_messages,
    size_of,
    split_packed,
    unpack_messages,
)
from helix_temporal.stores.protocols.hot import Archived

FORMAT: Final = 3


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """One immutable object of the archive: messages ``first`` to ``last``, both included.

    Attributes:
        size: Bytes of the object.
        raw_size: Bytes of its packed messages.
        sha256: Hex digest of the object.
        gen: Generation of the manifest that it was written for; part of its name.
    """

    first: int
    last: int
    size: int
    raw_size: int
    sha256: str
    gen: int

    @property
    def stop(self) -> int:
        """One past the last position."""
        return self.last + 1

    @property
    def message_bytes(self) -> int:
        """`size_of` its messages."""
        return self.raw_size - SUMS * (self.stop - self.first)


@dataclass(frozen=True, slots=True)
class Legacy:
    """The version 1 snapshot that became the beginning of this thread."""

    key: str
    etag: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive holds.

    Attributes:
        version: One higher with each commit.
        nonce: Random with each commit, so that no two manifests have the same bytes (and etag).
        epoch, owner, closed: As in the hot header; this copy decides.
        ended: Closed by the end of its execution, rather than by an open that looks on.
        born: The epoch that created the thread.
        head, committed: As in the hot header.
        index: An object that lists the oldest segments; it holds no messages itself.
        segments: The newer ones, oldest first, without a gap after ``index``.
        inline: The newest messages, in the manifest itself.
        gen: Raised by garbage collection; segments are named by the generation they commit on.
        size: `size_of` all messages.
        slice: State bytes; ``slice_object`` names the object that holds them when they are large.
        origin: As in the hot header.
        cut: Messages that the last open cut because their turn had not ended.
    """

    thread_id: str
    version: int = 0
    nonce: str = ""
    epoch: int = 0
    owner: str = ""
    closed: bool = False
    ended: bool = False
    born: int = 0
    head: Head = EMPTY
    committed: int = 0
    index: SegmentRef | None = None
    segments: tuple[SegmentRef, ...] = ()
    inline: tuple[StoredMessage, ...] = ()
    gen: int = 0
    size: int = 0
    slice: bytes = b""
    slice_object: str = ""
    slice_version: int = 0
    adapter: str = ""
    deleted: bool = False
    origin: str = ""
    legacy: Legacy | None = None
    cut: int = 0

    @property
    def inline_first(self) -> int:
        """Position of the first inline message: where the segments end."""
        return self.head.position - len(self.inline)

    @property
    def archived(self) -> Archived:
        """What the hot tier may drop."""
        return Archived(self.head, self.committed, self.slice_version, self.size)

    @property
    def end(self) -> int:
        """Up to which position it has the thread; 0 where there is none."""
        return 0 if self.is_absent else self.head.position

    @property
    def is_absent(self) -> bool:
        """No thread: never written, or a tombstone."""
        return self.version == 0 or self.deleted

    def make_next(self, nonce: str, **changes: object) -> "Manifest":
        """The manifest of the next commit."""
        return replace(self, version=self.version + 1, nonce=nonce, **changes)  # type: ignore[arg-type]

    def message_at(self, position: int) -> StoredMessage | None:
        """The message at a position if it is inline."""
        at = position - self.inline_first
        return self.inline[at] if 0 <= at < len(self.inline) else None


def size_before(manifest: Manifest, kept: tuple[SegmentRef, ...], inline: tuple[StoredMessage, ...]) -> int:
    """`size_of` the messages of a log made of these parts of ``manifest``."""
    indexed = manifest.index.message_bytes if manifest.index is not None else 0
    return indexed + sum(segment.message_bytes for segment in kept) + size_of(inline)


T = TypeVar("T")

LEVEL: Final = 3
MAX_SEGMENT_RAW: Final = 64 * 1024 * 1024
MAX_SEGMENTS_READ: Final = 4096
"""More direct segments than this in one manifest is damage, not data."""
MAX_INDEXED: Final = 1_000_000
"""The same for an index."""

_LIMIT: Final = 2**63
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_SLICE_NAME: Final = re.compile(r"(g[0-9]{1,19}\.[0-9a-f]{64}\.[0-9]{1,10})?")
_NUMBERS: Final = ("version", "epoch", "born", "committed", "gen", "size", "slice_version", "cut")
_TEXTS: Final = ("thread_id", "nonce", "owner", "adapter", "origin")
_FLAGS: Final = ("closed", "deleted")

_CHECKSUM_TAIL: Final = len(',"checksum":""}') + 64


def compress_frame(raw: bytes) -> bytes:
    """One zstd frame that states its content size."""
    return zstandard.ZstdCompressor(level=LEVEL).compress(raw)


def decompress_frame(data: bytes, raw_size: int, what: str) -> bytes:
    """The content of one frame, bounded by what was announced.

    Raises:
        ArchiveCorruptError: No frame, another size, or bytes after it.
    """
    if raw_size > MAX_SEGMENT_RAW + 1024:
        raise ArchiveCorruptError(f"{what} announces {raw_size} bytes, over {MAX_SEGMENT_RAW}")
    try:
        if zstandard.frame_content_size(data) != raw_size:
            raise ArchiveCorruptError(f"{what} does not hold the {raw_size} bytes it announces")
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ArchiveCorruptError(f"{what} is no whole zstd frame, or has bytes after it") from error


def encode_segment(messages: Sequence[StoredMessage], first: int, gen: int) -> tuple[SegmentRef, bytes]:
    """An object of these messages, and the reference that will name and check it."""
    raw = pack_messages(messages, first)
    return segment_of(compress_frame(raw), len(raw), first, first + len(messages) - 1, gen)


def segment_of(data: bytes, raw_size: int, first: int, last: int, gen: int) -> tuple[SegmentRef, bytes]:
    """The reference to an object that is encoded already."""
    return SegmentRef(first, last, len(data), raw_size, hashlib.sha256(data).hexdigest(), gen), data


def decode_segment(ref: SegmentRef, data: bytes) -> tuple[StoredMessage, ...]:
    """Inverse of `encode_segment`.

    Raises:
        ArchiveCorruptError: Size, checksum, frame or number of messages are not the announced ones.
    """
    return tuple(_check_message_count(ref, unpack_messages(_decompress_segment(ref, data))))


def split_segment(ref: SegmentRef, data: bytes) -> list[bytes]:
    """As `decode_segment`, each message as packed bytes.

    Raises:
        ArchiveCorruptError: As there.
    """
    return _check_message_count(ref, split_packed(_decompress_segment(ref, data)))


def _decompress_segment(ref: SegmentRef, data: bytes) -> bytes:
    what = f"segment {ref.first}-{ref.last}"
    _check_object(ref, data, what)
    return decompress_frame(data, ref.raw_size, what)


def _check_message_count(ref: SegmentRef, messages: list[T]) -> list[T]:
    if len(messages) != ref.stop - ref.first:
        raise ArchiveCorruptError(f"segment {ref.first}-{ref.last} holds {len(messages)} messages")
    return messages


def encode_index(refs: Sequence[SegmentRef], gen: int) -> tuple[SegmentRef, bytes]:
    """An object that lists segments; its reference counts their raw bytes as its own."""
    raw = dump_json([asdict(ref) for ref in refs])
    data = len(raw).to_bytes(8, "big") + compress_frame(raw)
    raw_size = sum(ref.raw_size for ref in refs)
    return segment_of(data, raw_size, refs[0].first, refs[-1].last, gen)


def decode_index(ref: SegmentRef, data: bytes) -> tuple[SegmentRef, ...]:
    """Inverse of `encode_index`.

    Raises:
        ArchiveCorruptError: As for a segment.
    """
    what = f"index {ref.first}-{ref.last}"
    _check_object(ref, data, what)
    rows = _parse_json(decompress_frame(data[8:], int.from_bytes(data[:8], "big"), what), what)
    refs = _parse_segments(rows, ref.first, what, MAX_INDEXED)
    if not refs or refs[-1].last != ref.last:
        raise ArchiveCorruptError(f"{what} does not list its range")
    return refs


def encode_manifest(manifest: Manifest, key: bytes | None = None, frame: bytes | None = None) -> bytes:
    """The manifest as an object; ``frame`` is the inline frame if it was made already."""
    inline = compress_frame(pack_messages(manifest.inline, manifest.inline_first)) if frame is None else frame
    state = compress_frame(manifest.slice) if manifest.slice else b""
    fields: dict[str, Any] = {
        "format": FORMAT,
        "thread_id": manifest.thread_id,
        "version": manifest.version,
        "nonce": manifest.nonce,
        "epoch": manifest.epoch,
        "owner": manifest.owner,
        "closed": manifest.closed,
        "born": manifest.born,
        "position": manifest.head.position,
        "last_id": manifest.head.last_id,
        "committed": manifest.committed,
        "index": asdict(manifest.index) if manifest.index else None,
        "segments": [asdict(ref) for ref in manifest.segments],
        "inline": {
            "count": len(manifest.inline),
            "size": len(inline),
            "raw_size": size_of(manifest.inline) + SUMS * len(manifest.inline),
        },
        "gen": manifest.gen,
        "size": manifest.size,
        "slice": {"size": len(state), "raw_size": len(manifest.slice), "object": manifest.slice_object},
        "slice_version": manifest.slice_version,
        "adapter": manifest.adapter,
        "deleted": manifest.deleted,
        "origin": manifest.origin,
        "legacy": asdict(manifest.legacy) if manifest.legacy else None,
        "cut": manifest.cut,
        "mac": "sha256" if key is None else "hmac-sha256",
    }
    if manifest.ended:
        fields["ended"] = True
    line, frames = dump_json(fields), inline + state
    return b"".join((line[:-1], b',"checksum":"', _compute_checksum(line + frames, key), b'"}\n', frames))


def thread_id_of(data: bytes) -> str | None:
    """The thread that a manifest object says it belongs to, unverified; None if it says none."""
    try:
        fields = orjson.loads(data[: max(data.find(b"\n"), 0)])
    except orjson.JSONDecodeError:
        return None
    found = fields.get("thread_id") if isinstance(fields, dict) else None
    return found if isinstance(found, str) else None


def decode_manifest(thread_id: str, data: bytes, key: bytes | None = None) -> Manifest:
    """Inverse of `encode_manifest`.

    Raises:
        ArchiveCorruptError: Not a manifest, damaged, of another thread, or its parts do not fit.
        UnsupportedFormatError: Written by a newer version, or before the first release.
    """
    what = f"manifest of thread {thread_id!r}"
    end = data.find(b"\n")
    line, frames = data[: max(end, 0)], data[end + 1 :]
    fields = _parse_json(line, what)
    if not isinstance(fields, dict) or not isinstance(fields.get("format"), int):
        raise ArchiveCorruptError(f"{what}: not a helix manifest (no format field)")
    if fields["format"] > FORMAT:
        raise UnsupportedFormatError(f"{what}: format {fields['format']} > {FORMAT}, upgrade the library")
    if fields["format"] < FORMAT:
        raise UnsupportedFormatError(
            f"{what}: format {fields['format']}, {FORMAT} expected; it was written before the first release"
        )
    signed = line[:-_CHECKSUM_TAIL] + b"}"
    if not hmac.compare_digest(_compute_checksum(signed + frames, key), str(fields.get("checksum")).encode()):
        raise ArchiveCorruptError(f"{what}: checksum does not match{' (keyed)' if key else ''}")
    try:
        manifest = _parse_manifest(fields, frames, what)
    except (KeyError, TypeError, ValueError) as error:
        raise ArchiveCorruptError(f"{what}: {type(error).__name__} in its fields") from error
    if manifest.thread_id != thread_id:
        raise ArchiveCorruptError(f"{what}: it belongs to another thread")
    _check_ranges(manifest, what)
    return manifest


def _check_fields(fields: dict[str, Any], what: str) -> None:
    """Names and numbers are used to build keys and to compare: nothing else may be in their place."""
    sound = (
        all(_is_number(fields[name]) for name in _NUMBERS)
        and all(isinstance(fields[name], str) for name in _TEXTS)
        and all(isinstance(fields[name], bool) for name in _FLAGS)
        and _SLICE_NAME.fullmatch(fields["slice"]["object"])
    )
    if not sound:
        raise ArchiveCorruptError(f"{what}: a field is not of its type or out of range")


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < _LIMIT


def _parse_manifest(fields: dict[str, Any], frames: bytes, what: str) -> Manifest:
    _check_fields(fields, what)
    inline, state = fields["inline"], fields["slice"]
    if len(frames) != inline["size"] + state["size"]:
        raise ArchiveCorruptError(f"{what}: frames are cut")
    legacy = fields["legacy"]
    index = fields["index"]
    return Manifest(
        thread_id=fields["thread_id"],
        version=fields["version"],
        nonce=fields["nonce"],
        epoch=fields["epoch"],
        owner=fields["owner"],
        closed=fields["closed"],
        ended=fields.get("ended") is True,
        born=fields["born"],
        head=Head(position=fields["position"], last_id=fields["last_id"]),
        committed=fields["committed"],
        index=_parse_ref(index, what) if index else None,
        segments=_parse_segments(fields["segments"], index["last"] + 1 if index else 0, what),
        inline=tuple(unpack_messages(decompress_frame(frames[: inline["size"]], inline["raw_size"], what))),
        gen=fields["gen"],
        size=fields["size"],
        slice=decompress_frame(frames[inline["size"] :], state["raw_size"], what) if state["size"] else b"",
        slice_object=state["object"],
        slice_version=fields["slice_version"],
        adapter=fields["adapter"],
        deleted=fields["deleted"],
        origin=fields["origin"],
        legacy=Legacy(**legacy) if legacy else None,
        cut=fields["cut"],
    )


def _parse_ref(row: Any, what: str) -> SegmentRef:
    try:
        ref = SegmentRef(**{name: row[name] for name in SegmentRef.__slots__})
    except (KeyError, TypeError) as error:
        raise ArchiveCorruptError(f"{what}: a segment lacks a field") from error
    if not all(map(_is_number, (ref.first, ref.last, ref.size, ref.raw_size, ref.gen))):
        raise ArchiveCorruptError(f"{what}: a segment has fields that are no numbers")
    if not _DIGEST.fullmatch(str(row["sha256"])):
        raise ArchiveCorruptError(f"{what}: a segment has no proper name")
    return ref


def _parse_segments(
    rows: Any, start: int, what: str, limit: int = MAX_SEGMENTS_READ
) -> tuple[SegmentRef, ...]:
    if not isinstance(rows, list) or len(rows) > limit:
        raise ArchiveCorruptError(f"{what}: segments are no list of at most {limit}")
    refs = tuple(_parse_ref(row, what) for row in rows)
    for ref in refs:
        if ref.first != start or ref.last < ref.first or ref.raw_size > MAX_SEGMENT_RAW + 1024:
            raise ArchiveCorruptError(
                f"{what}: segments overlap, leave a gap or are too large at {ref.first}"
            )
        start = ref.stop
    return refs


def _check_ranges(manifest: Manifest, what: str) -> None:
    ends = manifest.segments[-1].stop if manifest.segments else 0
    if not manifest.segments and manifest.index is not None:
        ends = manifest.index.stop
    if ends != manifest.inline_first:
        raise ArchiveCorruptError(f"{what}: segments end at {ends}, the inline part begins elsewhere")
    if manifest.committed > manifest.head.position:
        raise ArchiveCorruptError(f"{what}: committed lies beyond the head")
    if manifest.inline and manifest.inline[-1].id != manifest.head.last_id:
        raise ArchiveCorruptError(f"{what}: the last message is not the one the head names")


def _check_object(ref: SegmentRef, data: bytes, what: str) -> None:
    if len(data) != ref.size:
        raise ArchiveCorruptError(f"{what} has {len(data)} bytes, {ref.size} expected")
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise ArchiveCorruptError(f"{what}: checksum does not match")


def _parse_json(data: bytes, what: str) -> Any:
    try:
        return orjson.loads(data)
    except ValueError as error:
        raise ArchiveCorruptError(f"{what}: not JSON, so nothing of ours") from error


def _compute_checksum(data: bytes, key: bytes | None) -> bytes:
    if key is None:
        return hashlib.sha256(data).hexdigest().encode()
    return hmac.new(key, data, hashlib.sha256).hexdigest().encode()


_POSITION_DIGITS = 20


class Layout:
    """Names every object below one prefix.

    Raises:
        InvalidConfigError: The prefix has an empty, ``.`` or ``..`` segment or a control character.
    """

    def __init__(self, prefix: str = "") -> None:
        parts = prefix.split("/") if prefix else []
        if any(part in {"", ".", ".."} for part in parts) or re.search(r"[\x00-\x1f\x7f]", prefix):
            raise InvalidConfigError(
                f"object prefix {prefix[:80]!r}: no empty, '.' or '..' segments or control characters"
            )
        self._root = "/".join([*parts, "v2"])

    def thread_prefix(self, thread_id: str) -> str:
        """The common prefix of a thread's objects, ending in a slash."""
        spread = hashlib.sha256(thread_id.encode()).hexdigest()[:2]
        return f"{self._root}/{spread}/{encode_id(thread_id)}/"

    @staticmethod
    def keys_name_thread(thread_id: str) -> bool:
        """Whether a thread's keys say whose they are; those of a long id hold a hash."""
        return decode_id(encode_id(thread_id)) is not None

    def part_prefix(self, number: int) -> str:
        """The common prefix of the threads in one of `ARCHIVE_PARTS` parts of the archive."""
        return f"{self._root}/{number:02x}/"

    def manifest_key(self, thread_id: str) -> str:
        """The one object that is ever replaced."""
        return f"{self.thread_prefix(thread_id)}manifest"

    def segment_key(self, thread_id: str, ref: SegmentRef) -> str:
        """An immutable run of messages."""
        return f"{self.thread_prefix(thread_id)}seg/{_object_name(ref)}"

    def index_key(self, thread_id: str, ref: SegmentRef) -> str:
        """An immutable list of the oldest segments."""
        return f"{self.thread_prefix(thread_id)}idx/{_object_name(ref)}"

    def slice_key(self, thread_id: str, name: str) -> str:
        """A state slice too large for the manifest; ``name`` is its generation, size and SHA-256."""
        return f"{self.thread_prefix(thread_id)}state/{name}"

    def payload_prefix(self, thread_id: str) -> str:
        """The common prefix of a thread's payloads on their way."""
        return f"{self.thread_prefix(thread_id)}payload/"

    def probe_prefix(self) -> str:
        """Prefix of the objects that the start-up probe writes."""
        return f"{self._root}/probe/"


def payload_position(key: str) -> int | None:
    """The position of a payload key, or None if it is none."""
    found = re.search(r"/payload/(\d{20})/[^/]+$", key)
    return int(found[1]) if found else None


def _object_name(ref: SegmentRef) -> str:
    return f"{ref.first:0{_POSITION_DIGITS}}-{ref.last:0{_POSITION_DIGITS}}.g{ref.gen}.{ref.sha256[:32]}"
