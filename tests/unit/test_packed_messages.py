"""Messages that are copied from tier to tier as bytes."""

import pytest

from helix_temporal.errors import ArchiveCorruptError
from helix_temporal.models.stored_messages import Packed, pack_messages, split_packed
from helix_temporal.stores.redis.threads import INSTALL_FIELD_BYTES, message_fields
from helix_temporal.testing.builders import messages


def test_packed_messages_read_as_the_messages_they_are() -> None:
    """Whoever takes messages need not know that nobody decoded them."""
    stored = messages(5)
    packed = Packed(split_packed(pack_messages(stored, 3)))

    assert tuple(packed) == stored
    assert packed[-1] == stored[-1]
    assert tuple(packed[1:3]) == stored[1:3]


def test_packed_messages_make_the_same_fields() -> None:
    """What hydrate puts into Redis is what appends would have put there."""
    stored = messages(200, size=700)

    packed = message_fields(3, Packed(split_packed(pack_messages(stored, 3))), INSTALL_FIELD_BYTES)

    assert packed == message_fields(3, stored, INSTALL_FIELD_BYTES)


@pytest.mark.parametrize("cut", [1, 5, 8])
def test_bytes_that_are_cut_are_refused(cut: int) -> None:
    """Half a message must not become a message."""
    with pytest.raises(ArchiveCorruptError):
        split_packed(pack_messages(messages(2))[:-cut])
