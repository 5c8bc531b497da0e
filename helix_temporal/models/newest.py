"""A dict that keeps its newest entries: what a process or an execution remembers, within a bound."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Newest(OrderedDict[K, V]):
    """Keeps the entries that were set last.

    Args:
        limit: So many; where there are more, those that were set longest ago go.
        entries: The first ones, oldest first.
    """

    def __init__(self, limit: int, entries: Iterable[tuple[K, V]] = ()) -> None:
        super().__init__()
        self._limit = limit
        self.update(entries)

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._limit:
            self.popitem(last=False)
