"""Answers of a server, made of the bytes as they come.

The driver's parser waits anew for every value of an answer.  Of a chunk that somebody waits for, or of a
page of messages, that is most of what reading it costs.
"""

from collections.abc import Callable
from typing import Any, Final

from redis.exceptions import InvalidResponse

MORE: Final = object()
"""The answer has not come whole yet."""

_INTEGER, _TEXT, _BYTES, _ERROR = b":+$-"
_SIZED: Final = b"$*"
_END: Final = b"\r\n"


class Answers:
    """Reads one answer, in the second version of the protocol, from pieces that end anywhere.

    No value is read twice, however many pieces there are.

    Args:
        error: Makes an exception of the text of a server's error.
    """

    def __init__(self, error: Callable[[str], Exception]) -> None:
        self._error = error
        self._pieces: list[bytes] = []
        self._missing = 0
        self._open: list[tuple[list[Any], int]] = []

    def take(self, piece: bytes) -> Any:
        """Add what came; the answer, or `MORE`.  A server's error is given back, not raised.

        Raises:
            InvalidResponse: It is no answer, or something follows it.
        """
        self._pieces.append(piece)
        self._missing -= len(piece)
        if self._missing > 0:
            return MORE
        data = b"".join(self._pieces)
        try:
            answer, at = self._read(data)
        except ValueError as error:
            raise InvalidResponse("a number was expected in a server's answer") from error
        self._pieces = [data[at:]]
        if answer is not MORE and at < len(data):
            raise InvalidResponse("a server's answer was longer than expected")
        return answer

    def _read(self, data: bytes) -> tuple[Any, int]:
        """The answer or `MORE`, and up to where all is read."""
        at = 0
        while (end := data.find(_END, at)) >= 0:
            kind, after = data[at], end + 2
            value: Any = data[at + 1 : end]
            if kind in _SIZED:
                size = int(value)
                value = None if size < 0 else []
                if kind == _BYTES and size >= 0:
                    after += size + 2
                    if after > len(data):
                        self._missing = after - len(data)
                        break
                    value = data[end + 2 : after - 2]
                elif size > 0:
                    self._open.append((value, size))
                    at = after
                    continue
            elif kind != _TEXT:
                value = self._other(kind, value)
            at = after
            value = self._placed(value)
            if value is not MORE:
                return value, at
        return MORE, at

    def _other(self, kind: int, text: bytes) -> Any:
        if kind == _INTEGER:
            return int(text)
        if kind == _ERROR:
            return self._error(text.decode("utf-8", "replace"))
        raise InvalidResponse("a server's answer is not in the protocol")

    def _placed(self, value: Any) -> Any:
        """Put a value where it belongs; the answer, if it was the last one."""
        while self._open:
            items, size = self._open[-1]
            items.append(value)
            if len(items) < size:
                return MORE
            self._open.pop()
            value = items
        return value
