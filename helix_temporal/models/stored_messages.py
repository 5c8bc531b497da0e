"""Heads, and messages as the opaque bytes that stores keep."""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Annotated, Final, NamedTuple, overload
from zlib import crc32

from pydantic import Field

from helix_temporal.errors import ArchiveCorruptError
from helix_temporal.models.base import WireModel

Position = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
"""A place in a thread: messages are numbered from 0."""

Epoch = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
"""Microseconds since 1970 at which the open of a thread was scheduled; higher fences lower."""


class Head(WireModel):
    """A place in a thread: the next position, and the id of the message before it (empty at 0)."""

    position: Position
    last_id: str


EMPTY: Final = Head(position=0, last_id="")
"""The head of a thread without messages."""


class Kind:
    """What a message is to the store: all it needs to know to keep call and result together."""

    USER: Final = "u"
    ANSWER: Final = "a"
    CALLS: Final = "c"
    """An answer that asks for tools, whose results follow it; or a foreign row that the next continues."""
    ANSWERS: Final = ANSWER + CALLS
    """A model's answers, the ends of steps: ``message.kind in Kind.ANSWERS``."""
    RESULT: Final = "t"
    """A tool's result, or a foreign row that joins the one before it."""
    OTHER: Final = "o"


MESSAGE_PREFIX: Final = Struct(">IcH")
"""Length, kind and length of the id, before the id."""
_KIND_AND_ID: Final = Struct(">cH")

ID_SUM: Final = 2
"""Bytes of the checksum behind an id, which is read without its message, too."""
SUMS: Final = ID_SUM + 4
"""Bytes that the checksums add to a packed message."""
_LOW: Final = 0xFFFFFFFF


class StoredMessage(NamedTuple):
    """One message as a store sees it."""

    kind: str
    id: str
    body: bytes


def pack_each(messages: Sequence["StoredMessage"], first: int) -> list[bytes]:
    """Each message as the stores and the archive keep it; see `pack_messages`."""
    if isinstance(messages, Packed):
        return list(messages.pieces)
    pieces: list[bytes] = []
    for position, (kind, message_id, body) in enumerate(messages, first):
        identity = message_id.encode()
        before = _KIND_AND_ID.pack(kind.encode("ascii"), len(identity))
        checksum = checksum_of_id(identity, position)
        pieces.append(
            b"".join(
                (
                    (3 + len(identity) + len(body) + SUMS).to_bytes(4, "big"),
                    before,
                    identity,
                    (checksum & 0xFFFF).to_bytes(ID_SUM, "big"),
                    body,
                    checksum_of_message(before, checksum, body).to_bytes(4, "big"),
                )
            )
        )
    return pieces


def pack_messages(messages: Sequence["StoredMessage"], first: int = 0) -> bytes:
    """Messages one after the other, as the stores and the archive keep them.

    Each has its length (4 bytes, without itself), kind (1), length of its id (2), id, checksum of the id (2),
    body, and checksum of the whole (4).  Both checksums count the position: a message that is read elsewhere
    is not the one that was stored there.

    Args:
        messages: To be packed.
        first: Position of the first in its thread.
    """
    return b"".join(pack_each(messages, first))


def checksum_of_id(identity: bytes, position: int) -> int:
    """CRC-32 of a message's id at its position; its lower 16 bits are stored behind the id."""
    return crc32(identity, position & _LOW)


def checksum_of_message(kind_and_size: bytes, id_checksum: int, body: bytes) -> int:
    """CRC-32 of a whole message, which goes on from that of its id."""
    return crc32(body, id_checksum ^ int.from_bytes(kind_and_size, "big"))


def unpack_messages(data: bytes) -> list["StoredMessage"]:
    """Inverse of `pack_messages`.  The checksums are not looked at: what holds them has one of its own.

    Raises:
        ArchiveCorruptError: A length points past the end, or a message is damaged.
    """
    return [_message_at(data, start, stop) for start, stop in _message_bounds(data)]


def split_packed(data: bytes) -> list[bytes]:
    """What `pack_messages` made of each message, for `Packed`.

    Raises:
        ArchiveCorruptError: A length points past the end.
    """
    return [data[start:stop] for start, stop in _message_bounds(data)]


def _message_bounds(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each message begins and ends.

    Raises:
        ArchiveCorruptError: A length points past the end.
    """
    at, end = 0, len(data)
    while at < end:
        if at + MESSAGE_PREFIX.size > end:
            raise ArchiveCorruptError(f"messages are cut: {end - at} bytes left at {at}")
        size, _, id_size = MESSAGE_PREFIX.unpack_from(data, at)
        start, at = at, at + 4 + size
        if at > end:
            raise ArchiveCorruptError(f"messages are cut: {at} bytes announced, {end} there")
        if id_size + 3 + SUMS > size:
            raise ArchiveCorruptError(f"message of {size} bytes is cut inside its id")
        yield start, at


def _message_at(data: bytes, start: int, stop: int) -> "StoredMessage":
    _, kind, id_size = MESSAGE_PREFIX.unpack_from(data, start)
    identity = start + MESSAGE_PREFIX.size
    behind = identity + id_size
    try:
        return StoredMessage(
            kind.decode("ascii"), data[identity:behind].decode(), data[behind + ID_SUM : stop - 4]
        )
    except UnicodeDecodeError as error:
        raise ArchiveCorruptError("message has a kind or an id that is not text") from error


class Packed(Sequence[StoredMessage]):
    """Messages as `pack_messages` makes them: copied from tier to tier, decoded where one is asked for."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    @overload
    def __getitem__(self, at: int) -> StoredMessage: ...
    @overload
    def __getitem__(self, at: slice) -> "Packed": ...
    def __getitem__(self, at: int | slice) -> "StoredMessage | Packed":
        """A message, or some of them as they are."""
        if isinstance(at, slice):
            return Packed(self.pieces[at])
        return _message_at(self.pieces[at], 0, len(self.pieces[at]))

    def __len__(self) -> int:
        """How many messages."""
        return len(self.pieces)

    @property
    def message_bytes(self) -> int:
        """`size_of` the messages."""
        return sum(map(len, self.pieces)) - SUMS * len(self.pieces)


# copies: redis, postgres
def size_of(messages: Iterable[StoredMessage]) -> int:
    """Bytes of these messages, with their lengths and without checksums."""
    return sum(7 + len(message.id.encode()) + len(message.body) for message in messages)


def head_after(head: Head, messages: Sequence[StoredMessage]) -> Head:
    """Where a thread stands once ``messages`` follow ``head``."""
    if not messages:
        return head
    return Head(position=head.position + len(messages), last_id=messages[-1].id)
