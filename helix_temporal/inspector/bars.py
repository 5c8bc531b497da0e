"""Bars of tokens and of messages: how wide each piece is."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from helix_temporal.inspector.labels import PART_NAMES
from helix_temporal.views.models import (
    ContextPart,
    ModelContext,
    SegmentPlace,
    ThreadPlace,
)

BAR: Final = 1000
"""Units in the width of a bar."""


class Slice(NamedTuple):
    """A piece of a bar: from ``start``, ``width`` wide, in units of which the bar has `BAR`."""

    name: str
    start: float
    width: float
    amount: int


def slice_context(context: ModelContext) -> tuple[Slice, ...]:
    """The bar of a context: tokens by kind of part, in the order in which the model gets them."""
    sums = {kind: sum_part_tokens(context.parts, kind) for kind in PART_NAMES}
    return slice_bar(sums.items())


def sum_part_tokens(parts: Iterable[ContextPart], kind: str | None = None) -> int:
    """Tokens of all parts, or of those of one kind."""
    return sum(each.tokens for each in parts if kind is None or each.kind == kind)


def slice_bar(amounts: Iterable[tuple[str, int]]) -> tuple[Slice, ...]:
    """Amounts as pieces of one bar, side by side; what is nothing has none."""
    given = [(name, amount) for name, amount in amounts if amount > 0]
    whole = sum(amount for _, amount in given)
    pieces: list[Slice] = []
    start = 0.0
    for name, amount in given:
        width = BAR * amount / whole
        pieces.append(Slice(name, round(start, 2), round(width, 2), amount))
        start += width
    return tuple(pieces)


def slice_thread(place: ThreadPlace, segments: Sequence[SegmentPlace]) -> tuple[Slice, ...]:
    """A thread as a strip: its segments, what only the hot store has, and the turn under way.

    Where there is no archive, nothing waits for it: all is in the store.
    """
    if place.messages is None:
        return ()
    archived = min(place.archived or 0, place.messages)
    older = segments[0].first if segments else archived
    inside = [(each.name, min(each.stop, archived) - each.first) for each in segments]
    hot = place.messages - archived if place.hot else 0
    only_hot = "hot" if place.archived is not None else "store"
    return slice_bar([("older", older), *inside, (only_hot, hot), ("unfinished", place.unfinished or 0)])


def merge_segments(segments: Sequence[SegmentPlace], most: int = 60) -> tuple[SegmentPlace, ...]:
    """At most so many segments: neighbours are drawn as one where there are more."""
    if len(segments) <= most:
        return tuple(segments)
    step = -(-len(segments) // most)
    groups = [segments[at : at + step] for at in range(0, len(segments), step)]
    return tuple(
        SegmentPlace(
            name=f"{group[0].name} … {group[-1].name}" if len(group) > 1 else group[0].name,
            first=group[0].first,
            stop=group[-1].stop,
            bytes=sum(each.bytes for each in group),
        )
        for group in groups
    )
