"""Messages as the bytes that both tiers copy."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.errors import ArchiveCorruptError
from helix_temporal.models.records import SUMS, Record, pack_records, size_of, unpack_records

RECORDS = st.lists(
    st.builds(
        Record,
        kind=st.sampled_from("uacto"),
        id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256),
        body=st.binary(max_size=300),
    ),
    max_size=5,
)


def in_bytes(record: Record, position: int) -> bytes:
    """The format of one record: length, kind, length of the id, id, its checksum, body, checksum of all."""
    identity = record.id.encode()
    before = record.kind.encode() + len(identity).to_bytes(2, "big")
    id_sum = crc32(identity, position)
    whole = crc32(record.body, id_sum ^ int.from_bytes(before, "big"))
    data = before + identity + (id_sum & 0xFFFF).to_bytes(2, "big") + record.body + whole.to_bytes(4, "big")
    return len(data).to_bytes(4, "big") + data


@given(RECORDS, st.integers(0, 2**40))
def test_what_is_packed_is_unpacked(records: list[Record], first: int) -> None:
    """Bytes in, bytes out; and the size is known without packing."""
    data = pack_records(records, first)
    assert unpack_records(data) == records
    assert len(data) == size_of(records) + SUMS * len(records)
    assert data == b"".join(in_bytes(one, first + at & 0xFFFFFFFF) for at, one in enumerate(records))


@given(RECORDS.filter(bool), st.data())
def test_packed_records_that_are_cut_are_refused(records: list[Record], data: st.DataObject) -> None:
    """A truncated object never passes for a shorter thread, unless it ends exactly between two messages."""
    packed = pack_records(records)
    edges = {len(pack_records(records[:count])) for count in range(len(records) + 1)}
    cut = data.draw(st.integers(1, len(packed)).filter(lambda at: at not in edges))
    with pytest.raises(ArchiveCorruptError):
        unpack_records(packed[:cut])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0\0\0\3u\0\5", id="id longer than the record"),
        pytest.param(b"\0\0\0\4u\0\1\xff", id="id that is not text"),
        pytest.param(b"\0\0\0\4\xff\0\1a", id="kind that is not text"),
        pytest.param(b"\xff\xff\xff\xffu\0\1a", id="length past the end"),
        pytest.param(b"\0\0\0\0u\0\0", id="no room for a kind"),
    ],
)
def test_damaged_records_are_refused(data: bytes) -> None:
    """Nothing of a damaged object is used."""
    with pytest.raises(ArchiveCorruptError):
        unpack_records(data)
