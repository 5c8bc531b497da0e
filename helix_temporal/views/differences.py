"""Where two JSON values differ: pure, by JSON pointers (RFC 6901)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from helix_temporal.models.base import canonical_json
from helix_temporal.views.models import Difference

MAX_DIFFERENCES: Final = 500


@dataclass(frozen=True, slots=True)
class Differences:
    """Places at which two values differ, in the order of the first one; ``cut``: how many more there are."""

    found: tuple[Difference, ...] = ()
    cut: int = 0


def compare_values(before: JsonValue, after: JsonValue, *, most: int = MAX_DIFFERENCES) -> Differences:
    """The differences between two values.

    Objects are compared by key.  Lists are compared item by item between their common begin and their
    common end, so that one item put in between is one difference.  ``true`` and ``1`` differ, as ``1`` and
    ``1.0`` do.  The index of an item that was removed is that before, of one that was added that after.
    """
    found: list[Difference] = []
    cut = 0
    for each in _compare(before, after):
        if len(found) < most:
            found.append(each)
        else:
            cut += 1
    return Differences(tuple(found), cut)


def _compare(before: JsonValue, after: JsonValue) -> Iterator[Difference]:
    """All differences; a stack instead of recursion, as values may lie deep."""
    waiting: list[tuple[str, JsonValue, JsonValue]] = [("", before, after)]
    while waiting:
        path, old, new = waiting.pop()
        if isinstance(old, dict) and isinstance(new, dict):
            single, pairs = _compare_objects(path, old, new)
        elif isinstance(old, list) and isinstance(new, list):
            single, pairs = _compare_lists(path, old, new)
        elif _is_same(old, new):
            continue
        else:
            single, pairs = [Difference(path=path, change="changed", before=old, after=new)], []
        yield from single
        waiting += reversed(pairs)


_Compared = tuple[list[Difference], list[tuple[str, JsonValue, JsonValue]]]
"""Places that only one of two values has, and those that both have and are still to be compared."""


def _compare_objects(path: str, old: Mapping[str, JsonValue], new: Mapping[str, JsonValue]) -> _Compared:
    removed = [
        Difference(path=_extend_path(path, name), change="removed", before=value)
        for name, value in old.items()
        if name not in new
    ]
    added = [
        Difference(path=_extend_path(path, name), change="added", after=value)
        for name, value in new.items()
        if name not in old
    ]
    both = [(_extend_path(path, name), value, new[name]) for name, value in old.items() if name in new]
    return [*removed, *added], both


def _compare_lists(path: str, old: Sequence[JsonValue], new: Sequence[JsonValue]) -> _Compared:
    start = _count_same(old, new)
    end = _count_same(old[start:][::-1], new[start:][::-1])
    old_stop, new_stop = len(old) - end, len(new) - end
    stop = min(old_stop, new_stop)
    both = [(_extend_path(path, at), old[at], new[at]) for at in range(start, stop)]
    removed = [
        Difference(path=_extend_path(path, at), change="removed", before=old[at])
        for at in range(stop, old_stop)
    ]
    added = [
        Difference(path=_extend_path(path, at), change="added", after=new[at]) for at in range(stop, new_stop)
    ]
    return [*removed, *added], both


def _count_same(one: Sequence[JsonValue], other: Sequence[JsonValue]) -> int:
    """How many items at the begin are the same."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if not _is_same(left, right):
            break
        count += 1
    return count


def _is_same(one: JsonValue, other: JsonValue) -> bool:
    """Whether both are the same JSON; Python takes True for 1."""
    return one == other and canonical_json(one) == canonical_json(other)


def _extend_path(path: str, name: str | int) -> str:
    """A pointer to a part of what a pointer names."""
    return f"{path}/{str(name).replace('~', '~0').replace('/', '~1')}"
