"""Bars: their pieces, and the order in which they stand."""

from helix_temporal.inspector import bars
from helix_temporal.views.models import (
    ContextPart,
    ModelContext,
    SegmentPlace,
    ThreadPlace,
)


def test_a_bar_is_as_wide_as_its_pieces_together() -> None:
    """Each has its share, none overlaps, and what is nothing has no piece."""
    pieces = bars.slice_bar([("a", 30), ("b", 0), ("c", 10)])
    assert [(each.name, each.start, each.width) for each in pieces] == [("a", 0, 750), ("c", 750, 250)]
    assert bars.slice_bar([("a", 0)]) == ()


def test_a_context_is_drawn_by_kinds_in_the_order_of_the_model() -> None:
    """Not in that of their sizes: the picture is of what the model reads first."""
    parts = [("message", 5), ("tools", 20), ("message", 15), ("instructions", 60)]
    context = ModelContext(
        session_id="s",
        step=1,
        answer=3,
        parts=tuple(ContextPart.model_validate({"kind": kind, "tokens": tokens}) for kind, tokens in parts),
    )
    drawn = [(each.name, each.amount) for each in bars.slice_context(context)]
    assert drawn == [("instructions", 60), ("tools", 20), ("message", 20)]


def test_hundreds_of_segments_are_drawn_as_few() -> None:
    """A strip of a thousand pieces shows nothing; all their messages are in it all the same."""
    segments = [SegmentPlace(name=f"{n}", first=n, stop=n + 1, bytes=10) for n in range(1_000)]
    merged = bars.merge_segments(segments)
    assert len(merged) <= 60
    assert (merged[0].first, merged[-1].stop) == (0, 1_000)
    assert sum(each.bytes for each in merged) == 10_000


def test_a_thread_is_drawn_with_what_only_the_hot_store_has() -> None:
    """What would be lost with it."""
    place = ThreadPlace(thread_id="t", messages=18, hot=True, archived=14, unfinished=2)
    strip = bars.slice_thread(place, [SegmentPlace(name="x", first=0, stop=14, bytes=1)])
    assert [(each.name, each.amount) for each in strip] == [("x", 14), ("hot", 4), ("unfinished", 2)]


def test_a_turn_under_way_that_is_archived_is_drawn_once() -> None:
    """The archive may have messages of a turn that waits for people."""
    place = ThreadPlace(thread_id="t", messages=14, archived=16, unfinished=2)
    strip = bars.slice_thread(place, [SegmentPlace(name="x", first=0, stop=16, bytes=1)])
    assert [(each.name, each.amount) for each in strip] == [("x", 14), ("unfinished", 2)]
