"""Messages as the bytes that both tiers copy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.errors import ArchiveCorruptError
from helix_temporal.models.records import Record, pack, size_of, unpack

RECORDS = st.lists(
    st.builds(
        Record,
        kind=st.sampled_from("uacto"),
        id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256),
        body=st.binary(max_size=300),
    ),
    max_size=5,
)


def in_bytes(record: Record) -> bytes:
    """The format of one record: kind, length of the id, id, body."""
    identity = record.id.encode()
    return record.kind.encode() + len(identity).to_bytes(2, "big") + identity + record.body


@given(RECORDS)
def test_what_is_packed_is_unpacked(records: list[Record]) -> None:
    """Bytes in, bytes out; and the size is known without packing."""
    data = pack(records)
    assert unpack(data) == records
    assert len(data) == size_of(records)
    assert data == b"".join(len(one).to_bytes(4, "big") + one for one in map(in_bytes, records))


@given(RECORDS.filter(bool), st.data())
def test_packed_records_that_are_cut_are_refused(records: list[Record], data: st.DataObject) -> None:
    """A truncated object never passes for a shorter thread, unless it ends exactly between two messages."""
    packed = pack(records)
    edges = {len(pack(records[:count])) for count in range(len(records) + 1)}
    cut = data.draw(st.integers(1, len(packed)).filter(lambda at: at not in edges))
    with pytest.raises(ArchiveCorruptError):
        unpack(packed[:cut])


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
        unpack(data)
