"""Records that are copied from tier to tier as bytes."""

import pytest

from helix_temporal.errors import ArchiveCorruptError
from helix_temporal.models.records import Packed, pack_records, split_records
from helix_temporal.stores.redis.threads import INSTALL_FIELD_BYTES, record_fields
from helix_temporal.testing.builders import messages


def test_packed_records_read_as_the_records_they_are() -> None:
    """Whoever takes records need not know that nobody decoded them."""
    records = messages(5)
    packed = Packed(split_records(pack_records(records, 3)))

    assert tuple(packed) == records
    assert packed[-1] == records[-1]
    assert tuple(packed[1:3]) == records[1:3]


def test_packed_records_make_the_same_fields() -> None:
    """What hydrate puts into Redis is what appends would have put there."""
    records = messages(200, size=700)

    packed = record_fields(3, Packed(split_records(pack_records(records, 3))), INSTALL_FIELD_BYTES)

    assert packed == record_fields(3, records, INSTALL_FIELD_BYTES)


@pytest.mark.parametrize("cut", [1, 5, 8])
def test_bytes_that_are_cut_are_refused(cut: int) -> None:
    """Half a message must not become a message."""
    with pytest.raises(ArchiveCorruptError):
        split_records(pack_records(messages(2))[:-cut])
