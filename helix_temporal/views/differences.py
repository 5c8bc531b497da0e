"""Where two JSON values differ: pure, by JSON pointers (RFC 6901)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, NamedTuple

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
    found = _compare(before, after)
    shown = tuple(Difference(**each._asdict()) for each in islice(found, most))
    return Differences(shown, sum(1 for _ in found))


class _Place(NamedTuple):
    """A place at which two values differ."""

    path: str
    change: Literal["added", "removed", "changed"]
    before: JsonValue = None
    after: JsonValue = None


def _compare(before: JsonValue, after: JsonValue) -> Iterator[_Place]:
    """All differences; a stack instead of recursion, as values may lie deep."""
    waiting: list[tuple[str, JsonValue, JsonValue]] = [("", before, after)]
    while waiting:
        path, old, new = waiting.pop()
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _compare_names(path, old, new)
            both = [
                (_extend_path(path, name), value, new[name]) for name, value in old.items() if name in new
            ]
        elif isinstance(old, list) and isinstance(new, list):
            same = _find_same_ends(old, new)
            yield from _compare_lengths(path, old, new, same)
            stop = min(len(old), len(new)) - same.end
            both = [(_extend_path(path, at), old[at], new[at]) for at in range(same.start, stop)]
        else:
            if not _is_same(old, new):
                yield _Place(path, "changed", old, new)
            continue
        waiting += reversed(both)


def _compare_names(path: str, old: Mapping[str, JsonValue], new: Mapping[str, JsonValue]) -> Iterator[_Place]:
    """What only one of two objects has."""
    for name in old:
        if name not in new:
            yield _Place(_extend_path(path, name), "removed", before=old[name])
    for name in new:
        if name not in old:
            yield _Place(_extend_path(path, name), "added", after=new[name])


class _SameEnds(NamedTuple):
    """How many items two lists have in common at their begin, and how many at their end."""

    start: int
    end: int


def _find_same_ends(old: Sequence[JsonValue], new: Sequence[JsonValue]) -> _SameEnds:
    start = _count_same(old, new)
    return _SameEnds(start, _count_same(old[start:][::-1], new[start:][::-1]))


def _compare_lengths(
    path: str, old: Sequence[JsonValue], new: Sequence[JsonValue], same: _SameEnds
) -> Iterator[_Place]:
    """What only the longer one of two lists has, before their common end."""
    old_stop, new_stop = len(old) - same.end, len(new) - same.end
    for at in range(new_stop, old_stop):
        yield _Place(_extend_path(path, at), "removed", before=old[at])
    for at in range(old_stop, new_stop):
        yield _Place(_extend_path(path, at), "added", after=new[at])


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
