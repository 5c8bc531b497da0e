"""Checksums that are stored with what they belong to, so that damage is found and never read as content."""

from typing import Final
from zlib import crc32

from helix_temporal.errors import StoreCorruptError

SIZE: Final = 4
"""Bytes that a checksum adds."""


def with_checksum(data: bytes, *place: str | int) -> bytes:
    """The data with a checksum behind it, of the data and of the place where they are stored."""
    return data + crc32(data, _checksum_seed(place)).to_bytes(SIZE, "big")


def verify_checksum(stored: bytes, where: str, *place: str | int) -> bytes:
    """Inverse of `with_checksum`.

    Args:
        stored: What the store gave back.
        where: Store and key, for the error.
        place: As it was given to `with_checksum`.

    Raises:
        StoreCorruptError: The data are not those that were stored there.
    """
    data = stored[:-SIZE]
    if len(stored) < SIZE or crc32(data, _checksum_seed(place)).to_bytes(SIZE, "big") != stored[-SIZE:]:
        raise damaged_error(where, f"the checksum of its {len(stored)} bytes is wrong")
    return data


def damaged_error(where: str, what: str, **facts: str | int) -> StoreCorruptError:
    """The error for something stored that is not what was written."""
    return StoreCorruptError(f"{where} is damaged: {what}", place=where, **facts)


def _checksum_seed(place: tuple[str | int, ...]) -> int:
    return crc32("\0".join(map(str, place)).encode()) if place else 0
