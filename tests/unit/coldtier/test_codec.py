"""Bytes of the archive: nothing damaged, foreign or forged is ever taken for a thread."""

from dataclasses import asdict, replace
from typing import Any

import orjson
import pytest

from helix_temporal.coldtier.format import (
    FORMAT,
    Legacy,
    Manifest,
    SegmentRef,
    _compute_checksum,
    decode_index,
    decode_manifest,
    decode_segment,
    encode_index,
    encode_manifest,
    encode_segment,
)
from helix_temporal.errors import ArchiveCorruptError, ArchiveError, UnsupportedFormatError
from helix_temporal.models.stored_messages import Head, head_after, size_of
from helix_temporal.testing.builders import a_message, messages

MESSAGES = messages(3, size=4)
SEGMENT, SEGMENT_DATA = encode_segment(messages(5), 0, 7)
MANIFEST = Manifest(
    thread_id="t",
    version=3,
    nonce="00ff",
    epoch=9,
    owner="run-1",
    born=9,
    head=Head(position=8, last_id="m2"),
    committed=6,
    segments=(SEGMENT,),
    inline=MESSAGES,
    gen=7,
    size=SEGMENT.raw_size + size_of(MESSAGES),
    slice=b'{"a":1}',
    slice_version=2,
    adapter="plain",
    legacy=Legacy("threads/messages/t.json.gz", "etag"),
)
DATA = encode_manifest(MANIFEST)


def forged(data: bytes = DATA, key: bytes | None = None, **changes: Any) -> bytes:
    """The manifest with other fields, and a checksum that fits them."""
    line, _, frames = data.partition(b"\n")
    fields = {**orjson.loads(line), **changes}
    del fields["checksum"]
    changed = orjson.dumps(fields)
    return b"".join(
        (changed[:-1], b',"checksum":"', _compute_checksum(changed + frames, key), b'"}\n', frames)
    )


def row(**changes: Any) -> dict[str, Any]:
    """The one segment as the manifest names it, with other fields."""
    return {**asdict(SEGMENT), **changes}


class TestRoundTrips:
    """What goes in comes out."""

    def test_a_manifest_comes_back(self) -> None:
        """Every field of it."""
        assert decode_manifest("t", DATA) == MANIFEST

    def test_an_empty_manifest_comes_back(self) -> None:
        """A thread in which nothing was said."""
        empty = Manifest("t", version=1, nonce="n")
        assert decode_manifest("t", encode_manifest(empty)) == empty

    def test_a_segment_comes_back(self) -> None:
        """Messages of any bytes."""
        stored = (a_message(bytes(range(256))), a_message(b""), *messages(2))
        ref, data = encode_segment(stored, 4, 0)
        assert (ref.first, ref.last, decode_segment(ref, data)) == (4, 7, stored)

    def test_an_index_comes_back(self) -> None:
        """Its raw size is that of the messages behind it."""
        refs = tuple(SegmentRef(n * 2, n * 2 + 1, 10, 20, "0" * 64, 1) for n in range(50))
        ref, data = encode_index(refs, 1)
        assert (ref.first, ref.last, ref.raw_size, decode_index(ref, data)) == (0, 99, 1000, refs)

    def test_two_manifests_never_have_the_same_bytes(self) -> None:
        """An etag that repeats would let an old writer win."""
        assert encode_manifest(replace(MANIFEST, nonce="other")) != DATA

    def test_fields_of_a_newer_release_are_ignored(self) -> None:
        """Optional additions don't need a new format."""
        assert decode_manifest("t", forged(future={"x": 1})) == MANIFEST


class TestDamage:
    """Every single flipped bit, every cut, everything too many: found."""

    def test_every_flipped_bit_of_a_manifest_is_found(self) -> None:
        """One hundred per cent, as typed errors."""
        assert undetected(DATA, lambda data: decode_manifest("t", data)) == []

    def test_every_flipped_bit_of_a_signed_manifest_is_found(self) -> None:
        """The same with a key."""
        data = encode_manifest(MANIFEST, b"secret")
        assert undetected(data, lambda changed: decode_manifest("t", changed, b"secret")) == []

    def test_every_flipped_bit_of_a_segment_is_found(self) -> None:
        """Its name carries its checksum."""
        assert undetected(SEGMENT_DATA, lambda data: decode_segment(SEGMENT, data)) == []

    def test_every_flipped_bit_of_an_index_is_found(self) -> None:
        """The same for what lists segments."""
        ref, data = encode_index([SEGMENT], 0)
        assert undetected(data, lambda changed: decode_index(ref, changed)) == []

    def test_every_cut_of_a_manifest_is_found(self) -> None:
        """A body that ended early."""
        assert uncut(DATA, lambda data: decode_manifest("t", data)) == []

    def test_every_cut_of_a_segment_is_found(self) -> None:
        """A body that ended early."""
        assert uncut(SEGMENT_DATA, lambda data: decode_segment(SEGMENT, data)) == []

    @pytest.mark.parametrize("tail", [b"\n", b"\x00", b"}", SEGMENT_DATA], ids=repr)
    def test_trailing_bytes_are_found(self, tail: bytes) -> None:
        """Also a whole second frame."""
        with pytest.raises(ArchiveCorruptError):
            decode_manifest("t", DATA + tail)
        with pytest.raises(ArchiveCorruptError):
            decode_segment(SEGMENT, SEGMENT_DATA + tail)


def undetected(data: bytes, decode: Any) -> list[int]:
    """Bits whose flip is not answered by a typed error."""
    found = []
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            decode(bytes(changed))
        except ArchiveError:
            continue
        found.append(bit)
    return found


def uncut(data: bytes, decode: Any) -> list[int]:
    """Lengths at which a cut is not answered by a typed error."""
    found = []
    for length in range(len(data)):
        try:
            decode(data[:length])
        except ArchiveError:
            continue
        found.append(length)
    return found


class TestForeignObjects:
    """What lies at the key but is no manifest of ours."""

    @pytest.mark.parametrize(
        "data",
        [
            DATA.decode("latin-1").encode("utf-16"),
            b"\xef\xbb\xbf" + DATA,
            b"",
            b"{}\n",
            b"null\n",
            b"[]\n",
            b"1\n",
            b"<html><body>502 Bad Gateway</body></html>\n",
            b"\x1f\x8b\x08\x00" + DATA,
            b'{"format":"2"}\n',
            b"[" * 100_000 + b"\n",
        ],
        ids=lambda data: repr(data[:12]),
    )
    def test_it_is_not_taken_for_a_manifest(self, data: bytes) -> None:
        """Row 38: it is damage, never an empty thread."""
        with pytest.raises(ArchiveCorruptError, match=r"not a helix manifest|not JSON"):
            decode_manifest("t", data)

    def test_a_newer_format_says_to_upgrade(self) -> None:
        """Row 40."""
        with pytest.raises(UnsupportedFormatError, match="4 > 3, upgrade the library"):
            decode_manifest("t", forged(format=FORMAT + 1))

    def test_an_older_format_is_not_guessed_at(self) -> None:
        """Its messages are packed otherwise: read as these they would be other messages."""
        with pytest.raises(UnsupportedFormatError, match="first release"):
            decode_manifest("t", forged(format=FORMAT - 1))

    def test_a_newer_format_is_told_before_its_checksum(self) -> None:
        """It may be computed otherwise."""
        with pytest.raises(UnsupportedFormatError):
            decode_manifest("t", b'{"format":4,"whatever":true}\nframes')

    def test_another_thread_s_manifest_is_refused(self) -> None:
        """Row 39: somebody copied objects about."""
        with pytest.raises(ArchiveCorruptError, match="belongs to another thread"):
            decode_manifest("other", DATA)


class TestForgedFields:
    """Right checksum, wrong content: nothing of it reaches a key, a buffer or a comparison."""

    @pytest.mark.parametrize(
        ("segments", "why"),
        [
            ([row(first=1)], "overlap, leave a gap"),
            ([row(last=5), row(first=5, last=7)], "overlap, leave a gap"),
            ([row(first=0, last=1), row(first=3, last=4)], "overlap, leave a gap"),
            ([row(first=3, last=4), row(first=0, last=2)], "overlap, leave a gap"),
            ([row(last=3)], "segments end at 4"),
            ([], "segments end at 0"),
            ([row(last=-1)], "no numbers"),
            ([row(raw_size=2**40)], "too large"),
            ([row(gen="../../../other")], "no numbers"),
            ([row(sha256="../" * 21 + "x")], "no proper name"),
            ([row(sha256="0" * 63)], "no proper name"),
            ([row(sha256=7)], "no proper name"),
            ([row(first="0")], "no numbers"),
            ([row(first=True)], "no numbers"),
            ([row(last=2**63)], "no numbers"),
            ([{}], "lacks a field"),
            ([None], "lacks a field"),
            ([[1, 2]], "lacks a field"),
            ({}, "no list"),
            (10**9, "no list"),
            ([row()] * 5000, "no list of at most 4096"),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_segments_that_cannot_be_are_refused(self, segments: Any, why: str) -> None:
        """Row 39: overlapping, unordered, missing, huge, or with paths for names."""
        with pytest.raises(ArchiveCorruptError, match=why):
            decode_manifest("t", forged(segments=segments))

    def test_a_billion_segments_are_refused_before_they_are_built(self) -> None:
        """Row 39: the index states its size, and it is bounded."""
        ref, data = encode_index([SEGMENT], 0)
        huge = (10**9 * 150).to_bytes(8, "big") + data[8:]
        changed = replace(ref, sha256=encode_segment_digest(huge))
        with pytest.raises(ArchiveCorruptError, match="announces"):
            decode_index(changed, huge)

    @pytest.mark.parametrize(
        "change",
        [
            {"committed": 9},
            {"committed": -1},
            {"committed": "6"},
            {"committed": 2**63},
            {"epoch": 1.5},
            {"epoch": True},
            {"version": None},
            {"gen": "../x"},
            {"position": 9},
            {"position": -8},
            {"last_id": "other"},
            {"last_id": 5},
            {"thread_id": None},
            {"owner": {}},
            {"closed": 0},
            {"deleted": "no"},
            {"slice": {"size": 0, "raw_size": 0, "object": "../../manifest"}},
            {"slice": {"size": 0, "raw_size": 0, "object": "g1.x.2"}},
            {"slice": {"size": -1, "raw_size": 0, "object": ""}},
            {"slice": None},
            {"inline": {"count": 3, "size": 10**9, "raw_size": 10}},
            {"inline": {"count": 3, "size": 0, "raw_size": 0}},
            {"inline": []},
            {"index": {"first": 0}},
            {"index": 3},
            {"legacy": {"key": "x"}},
        ],
        ids=str,
    )
    def test_fields_that_cannot_be_are_refused(self, change: dict[str, Any]) -> None:
        """Row 39: whatever the checksum says."""
        with pytest.raises(ArchiveCorruptError):
            decode_manifest("t", forged(**change))

    def test_a_segment_with_more_messages_than_it_says_is_refused(self) -> None:
        """Positions would shift."""
        with pytest.raises(ArchiveCorruptError, match="holds 5 messages"):
            decode_segment(replace(SEGMENT, last=3), SEGMENT_DATA)

    def test_a_segment_of_another_length_is_refused(self) -> None:
        """The name of one, the body of another."""
        with pytest.raises(ArchiveCorruptError, match="bytes"):
            decode_segment(SEGMENT, SEGMENT_DATA + b"x")

    def test_a_frame_that_unpacks_to_more_than_it_says_is_refused(self) -> None:
        """A small object must not fill the memory."""
        ref, data = encode_segment([a_message(b"x" * 1_000_000)], 0, 0)
        with pytest.raises(ArchiveCorruptError, match="announces"):
            decode_segment(replace(ref, raw_size=10), data)


def encode_segment_digest(data: bytes) -> str:
    """What names these bytes."""
    return _compute_checksum(data, None).decode()


class TestSignatures:
    """With a key nobody without it can write a manifest."""

    KEY = b"secret"

    def test_a_signed_manifest_is_read_with_its_key(self) -> None:
        """The owner of the bucket's objects."""
        assert decode_manifest("t", encode_manifest(MANIFEST, self.KEY), self.KEY) == MANIFEST

    @pytest.mark.parametrize("key", [None, b"", b"other"], ids=repr)
    def test_another_key_is_refused(self, key: bytes | None) -> None:
        """Whether it is wrong or none."""
        with pytest.raises(ArchiveCorruptError, match="checksum"):
            decode_manifest("t", encode_manifest(MANIFEST, self.KEY), key)

    def test_an_unsigned_manifest_is_refused(self) -> None:
        """Else leaving the signature away would do."""
        with pytest.raises(ArchiveCorruptError, match="checksum"):
            decode_manifest("t", DATA, self.KEY)

    def test_no_message_of_an_error_holds_the_key(self) -> None:
        """Errors are logged."""
        with pytest.raises(ArchiveCorruptError) as caught:
            decode_manifest("t", DATA, self.KEY)
        assert "secret" not in str(caught.value)


def test_heads_and_messages_agree() -> None:
    """The builder of these tests is sound itself."""
    assert head_after(Head(position=5, last_id="m4"), MESSAGES) == MANIFEST.head
