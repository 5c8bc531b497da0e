"""Bytes that are not what was written any more."""

from collections.abc import Awaitable, Callable
from typing import Any

from helix_temporal.errors import StoreCorruptError


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "first bit": lambda data: _flipped(data, 0),
    "a bit in the middle": lambda data: _flipped(data, len(data) // 2),
    "a bit near the end": lambda data: _flipped(data, -2 % len(data)),
    "last bit": lambda data: _flipped(data, len(data) - 1),
    "not text": lambda data: b"\xff" + data[1:],
    "end cut off": lambda data: data[:-1],
    "half cut off": lambda data: data[: len(data) // 2],
    "emptied": lambda _: b"",
}


async def told(look: Callable[[], Awaitable[Any]]) -> Any:
    """What a look finds; that something is damaged counts as an answer."""
    try:
        return await look()
    except StoreCorruptError as error:
        return error


def is_told(found: Any, sound: Any, where: str) -> bool:
    """Whether a look found what had been there, or said that it is damaged and where."""
    return bool(found == sound) or (isinstance(found, StoreCorruptError) and where in str(found))
