"""Two stores over one place, used in turn: what one process wrote, the other must know at once."""

import itertools
from typing import Any, TypeVar, cast

T = TypeVar("T")


def alternating(first: T, second: T) -> T:
    """A store whose every call goes to the other of two than the call before."""
    return cast("T", _Alternating(first, second))


class _Alternating:
    def __init__(self, first: object, second: object) -> None:
        self._next = itertools.cycle((first, second))

    def __getattr__(self, name: str) -> Any:
        return getattr(next(self._next), name)
