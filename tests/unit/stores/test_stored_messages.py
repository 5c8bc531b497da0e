"""Messages as the bytes that both tiers copy."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.errors import ArchiveCorruptError
from helix_temporal.models.stored_messages import SUMS, StoredMessage, pack_messages, size_of, unpack_messages

MESSAGES = st.lists(
    st.builds(
        StoredMessage,
        kind=st.sampled_from("uacto"),
        id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256),
        body=st.binary(max_size=300),
    ),
    max_size=5,
)


def in_bytes(message: StoredMessage, position: int) -> bytes:
    """The format of one record: length, kind, length of the id, id, its checksum, body, checksum of all."""
    identity = message.id.encode()
    before = message.kind.encode() + len(identity).to_bytes(2, "big")
    id_sum = crc32(identity, position)
    whole = crc32(message.body, id_sum ^ int.from_bytes(before, "big"))
    data = before + identity + (id_sum & 0xFFFF).to_bytes(2, "big") + message.body + whole.to_bytes(4, "big")
    return len(data).to_bytes(4, "big") + data


@given(MESSAGES, st.integers(0, 2**40))
def test_what_is_packed_is_unpacked(messages: list[StoredMessage], first: int) -> None:
    """Bytes in, bytes out; and the size is known without packing."""
    data = pack_messages(messages, first)
    assert unpack_messages(data) == messages
    assert len(data) == size_of(messages) + SUMS * len(messages)
    assert data == b"".join(in_bytes(one, first + at & 0xFFFFFFFF) for at, one in enumerate(messages))


@given(MESSAGES.filter(bool), st.data())
def test_packed_messages_that_are_cut_are_refused(messages: list[StoredMessage], data: st.DataObject) -> None:
    """A truncated object never passes for a shorter thread, unless it ends exactly between two messages."""
    packed = pack_messages(messages)
    edges = {len(pack_messages(messages[:count])) for count in range(len(messages) + 1)}
    cut = data.draw(st.integers(1, len(packed)).filter(lambda at: at not in edges))
    with pytest.raises(ArchiveCorruptError):
        unpack_messages(packed[:cut])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0\0\0\3u\0\5", id="id longer than the message"),
        pytest.param(b"\0\0\0\4u\0\1\xff", id="id that is not text"),
        pytest.param(b"\0\0\0\4\xff\0\1a", id="kind that is not text"),
        pytest.param(b"\xff\xff\xff\xffu\0\1a", id="length past the end"),
        pytest.param(b"\0\0\0\0u\0\0", id="no room for a kind"),
    ],
)
def test_damaged_messages_are_refused(data: bytes) -> None:
    """Nothing of a damaged object is used."""
    with pytest.raises(ArchiveCorruptError):
        unpack_messages(data)
