"""What a commit writes, a cut leaves and a compaction merges, decided without any store."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_temporal.coldtier.format import (
    Manifest,
    SegmentRef,
    decode_index,
    decode_manifest,
    decode_segment,
    encode_manifest,
)
from helix_temporal.coldtier.plan import (
    DIRECT_LIMIT,
    DIRECT_MAX,
    INLINE_MAX,
    TAIL_MESSAGES,
    TAIL_SEGMENT_MESSAGES,
    CommitPlan,
    Log,
    cut_log,
    find_mergeable_run,
    find_straddled_segment,
    plan_commit,
    plan_index,
    plan_merge,
    split_direct_segments,
    tail_start,
    whole_log,
)
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage, size_of
from helix_temporal.testing.builders import a_message

MIB = 1 << 20


class Archive:
    """An archive made of plans alone: a dict of objects and a manifest."""

    def __init__(self) -> None:
        self.manifest = Manifest("t")
        self.objects: dict[SegmentRef, bytes] = {}
        self.uploaded = self.puts = 0

    def apply(self, plan: CommitPlan) -> None:
        """Commit, as bytes that are read again."""
        self.objects.update({draft.ref: draft.data for draft in plan.objects})
        self.uploaded += len(plan.body) + sum(len(draft.data) for draft in plan.objects)
        self.puts += 1 + len(plan.objects)
        self.manifest = decode_manifest("t", plan.body)
        assert self.manifest == plan.manifest

    def append(self, messages: Sequence[StoredMessage]) -> None:
        """What a flush does."""
        plan = plan_commit(
            self.manifest, whole_log(self.manifest), messages, nonce="", head_before=self.manifest.head
        )
        self.apply(plan)

    def cut(self, position: int) -> None:
        """What a rewind does."""
        last = self.log()[position - 1].id if position else ""
        log = whole_log(self.manifest)
        if log.index is not None and position < log.index.stop:
            log = Log(None, (*self.indexed(), *log.segments), log.inline)
        ref = find_straddled_segment(log.segments, position)
        split = decode_segment(ref, self.objects[ref]) if ref else ()
        head = Head(position=position, last_id=last)
        self.apply(plan_commit(self.manifest, cut_log(log, position, split), (), nonce="", head_before=head))

    def compact(self, max_raw: int = 64 * MIB) -> int:
        """Merge and index until nothing is left to do; returns the number of steps."""
        steps, listing = 0, False
        while (plan := self.next(max_raw, listing=listing)) is not None:
            listing = listing or plan.manifest.index != self.manifest.index
            self.apply(plan)
            steps += 1
        return steps

    def next(self, max_raw: int, *, listing: bool) -> CommitPlan | None:
        """As the upkeep of the real store decides."""
        run = find_mergeable_run(self.manifest.segments, self.manifest.head.position, max_raw)
        if run is not None:
            messages = self.messages(self.manifest.segments[slice(*run)])
            return plan_merge(self.manifest, run, messages, nonce="")
        moved, kept = split_direct_segments(self.manifest)
        listed = (*self.indexed(), *moved)
        run = find_mergeable_run(listed, self.manifest.head.position, max_raw) if moved or listing else None
        if run is None and not moved:
            return None
        messages = self.messages(listed[slice(*run)]) if run else []
        return plan_index(self.manifest, listed, kept, run=run, messages=messages, nonce="")

    def messages(self, refs: Sequence[SegmentRef]) -> list[StoredMessage]:
        """The messages of these segments."""
        return [message for ref in refs for message in decode_segment(ref, self.objects[ref])]

    def collect(self) -> None:
        """Forget what is not named, as garbage collection does."""
        named = {*self.indexed(), *self.manifest.segments, self.manifest.index}
        self.objects = {ref: data for ref, data in self.objects.items() if ref in named}

    def indexed(self) -> tuple[SegmentRef, ...]:
        """What the index lists."""
        index = self.manifest.index
        return () if index is None else decode_index(index, self.objects[index])

    def segments(self) -> tuple[SegmentRef, ...]:
        """All segments, oldest first."""
        return (*self.indexed(), *self.manifest.segments)

    def log(self) -> list[StoredMessage]:
        """Every message."""
        return [*self.messages(self.segments()), *self.manifest.inline]


def some(count: int, size: int = 300, *, start: int = 0) -> list[StoredMessage]:
    """Messages that don't compress."""
    chance = random.Random(f"{start} {count} {size}")
    return [a_message(chance.randbytes(size), message_id=f"m{start + n}") for n in range(count)]


class TestSpill:
    """Small threads are one object; larger ones get segments."""

    def test_a_short_thread_is_its_manifest(self) -> None:
        """One GET to hydrate, one PUT to flush."""
        archive = Archive()
        archive.append(some(40))
        assert (archive.manifest.segments, len(archive.manifest.inline), archive.puts) == ((), 40, 1)

    def test_what_does_not_fit_inline_becomes_a_segment(self) -> None:
        """And the inline part starts anew."""
        archive = Archive()
        archive.append(some(40))
        archive.append(some(40, start=40))
        assert ([(ref.first, ref.last) for ref in archive.manifest.segments], archive.manifest.inline) == (
            [(0, 79)],
            (),
        )

    def test_a_bulk_gets_large_old_segments_and_small_new_ones(self) -> None:
        """So that opening the thread reads little."""
        archive = Archive()
        archive.append(some(10_000))
        newest = [ref for ref in archive.manifest.segments if ref.stop > 10_000 - TAIL_MESSAGES]
        assert all(ref.stop - ref.first <= TAIL_SEGMENT_MESSAGES for ref in newest)
        assert len(archive.manifest.segments) <= DIRECT_MAX
        assert len(archive.log()) == 10_000

    def test_segments_of_a_bulk_stay_below_eight_mebibytes(self) -> None:
        """So that they can be moved in parallel."""
        archive = Archive()
        archive.append(some(60, MIB))
        assert max(ref.raw_size for ref in archive.manifest.segments) <= 8 * MIB

    def test_a_message_larger_than_that_has_a_segment_of_its_own(self) -> None:
        """It can't be split."""
        archive = Archive()
        archive.append([*some(3), a_message(b"\x00" * 20 * MIB, message_id="large"), *some(3, start=3)])
        assert [message.id for message in archive.log()] == ["m0", "m1", "m2", "large", "m3", "m4", "m5"]

    def test_a_manifest_never_holds_more_than_it_should(self) -> None:
        """The bound of what each flush uploads again."""
        archive, largest = Archive(), 0
        for number in range(300):
            archive.append(some(2, start=2 * number))
            largest = max(largest, len(encode_manifest(archive.manifest)))
        assert largest <= INLINE_MAX + 16 * 250

    def test_sizes_add_up(self) -> None:
        """The manifest tells the packed bytes of all messages."""
        archive = Archive()
        for number in range(30):
            archive.append(some(50, start=50 * number))
            archive.compact()
        assert archive.manifest.size == size_of(archive.log())


class TestCut:
    """A cut leaves exactly what is below it, wherever it falls."""

    @pytest.fixture
    def long(self) -> Archive:
        """An index, direct segments and an inline part."""
        archive = Archive()
        for number in range(DIRECT_LIMIT + 4):
            archive.append(some(5, 4000, start=5 * number))
        archive.append(some(2, start=5 * (DIRECT_LIMIT + 4)))
        assert archive.manifest.index is not None
        assert archive.manifest.inline
        return archive

    def test_at_every_place_that_matters(self, long: Archive) -> None:
        """Around each border of a segment, of the index and of the inline part, and in between."""
        everything, wrong = long.log(), []
        borders = {0, len(everything), *(ref.first for ref in long.segments()), long.manifest.inline_first}
        for at in sorted({at + near for at in borders for near in (-1, 0, 1)}):
            if 0 <= at <= len(everything):
                cut = Archive()
                cut.manifest, cut.objects = long.manifest, dict(long.objects)
                cut.cut(at)
                if cut.log() != everything[:at] or len(cut.manifest.segments) > DIRECT_LIMIT:
                    wrong.append(at)
        assert wrong == []

    def test_a_cut_thread_grows_again(self, long: Archive) -> None:
        """Also from the middle of a segment."""
        cut = Archive()
        cut.manifest, cut.objects = long.manifest, dict(long.objects)
        cut.cut(102)
        cut.append(some(3, start=9000))
        assert [message.id for message in cut.log()[101:]] == ["m101", "m9000", "m9001", "m9002"]
        assert cut.manifest.size == size_of(cut.log())


class TestCompaction:
    """Merging keeps the messages, the bounds, and the cost."""

    def test_five_thousand_flushes_keep_within_bounds(self) -> None:
        """At most 16 direct segments, small new ones, and each byte written a few times only."""
        archive, new, worst, steps = Archive(), 0, 0, 0
        for number in range(5000):
            messages = some(2, 500, start=2 * number)
            new += size_of(messages)
            archive.append(messages)
            if len(archive.manifest.segments) > DIRECT_MAX:
                before = archive.uploaded
                archive.compact(4 * MIB)
                steps += archive.uploaded - before
                archive.collect()
            worst = max(worst, len(archive.manifest.segments))
        newest = [ref for ref in archive.segments() if ref.first >= 10_000 - TAIL_MESSAGES]
        assert worst <= DIRECT_MAX + 1
        assert all(ref.stop - ref.first <= TAIL_SEGMENT_MESSAGES for ref in newest)
        assert [message.id for message in archive.log()] == [f"m{n}" for n in range(10_000)]
        # Merging writes each byte again once a size class: log4 of 5 MB over 16 KiB.
        assert steps / new < 5, steps / new
        assert len(archive.segments()) < 40

    def test_what_is_merged_once_is_not_merged_again_at_once(self) -> None:
        """Compaction comes to rest."""
        archive = Archive()
        for number in range(100):
            archive.append(some(60, start=60 * number))
        assert archive.compact() > 0
        assert archive.compact() == 0

    def test_the_newest_messages_are_not_merged_into_large_segments(self) -> None:
        """They are what every open reads."""
        archive = Archive()
        for number in range(40):
            archive.append(some(60, start=60 * number))
        archive.compact()
        start = tail_start(archive.manifest, TAIL_MESSAGES, 8 * MIB)
        assert 2400 - start <= TAIL_MESSAGES + TAIL_SEGMENT_MESSAGES

    def test_a_bound_is_kept_by_merging_fewer(self) -> None:
        """A step may not merge as much as the maintenance worker may."""
        segments = [SegmentRef(n, n, 900_000, 900_000, "0" * 64, 0) for n in range(8)]
        assert find_mergeable_run(segments, 10_000, 4 * MIB) == (0, 4)
        assert find_mergeable_run(segments, 10_000) == (0, 8)
        assert find_mergeable_run(segments, 10_000, MIB) is None

    def test_no_merge_exceeds_what_a_segment_may_hold(self) -> None:
        """A single PUT."""
        segments = [SegmentRef(n, n, 1, 20 * MIB, "0" * 64, 0) for n in range(8)]
        assert find_mergeable_run(segments, 10_000) is None


class TestTail:
    """Where a hydrate begins to read."""

    def test_a_short_thread_is_read_whole(self) -> None:
        """There is nothing but the manifest."""
        archive = Archive()
        archive.append(some(10))
        assert tail_start(archive.manifest, TAIL_MESSAGES, 8 * MIB) == 0

    def test_large_messages_are_read_by_bytes(self) -> None:
        """Four hundred messages of a mebibyte are too much to open with."""
        archive = Archive()
        archive.append(some(60, MIB))
        assert 60 - tail_start(archive.manifest, TAIL_MESSAGES, 8 * MIB) <= 8

    def test_an_empty_thread_has_an_empty_tail(self) -> None:
        """Nothing is read."""
        assert tail_start(Manifest("t"), TAIL_MESSAGES, 8 * MIB) == 0


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 200), st.sampled_from([10, 300, 3000])),
        st.tuples(st.just("cut"), st.floats(0, 1), st.just(0)),
        st.tuples(st.just("merge"), st.sampled_from([MIB // 8, 64 * MIB]), st.just(0)),
        st.tuples(st.just("index"), st.just(0), st.just(0)),
        st.tuples(st.just("collect"), st.just(0), st.just(0)),
        st.tuples(st.just("many"), st.integers(1, 30), st.sampled_from([300, 3000])),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(ACTIONS)
def test_an_archive_is_a_list(actions: list[tuple[str, float, int]]) -> None:
    """Whatever is appended, cut, merged, indexed and collected in whatever order."""
    archive, model, count = Archive(), list[StoredMessage](), 0
    for what, amount, size in actions:
        if what == "append":
            model += (new := some(int(amount), size, start=count))
            count += len(new)
            archive.append(new)
        elif what == "many":
            for _ in range(int(amount)):
                model += (new := some(40, size, start=count))
                count += len(new)
                archive.append(new)
        elif what == "cut":
            at = int(len(model) * amount)
            archive.cut(at)
            del model[at:]
        elif what == "merge":
            archive.compact(int(amount))
        elif what == "index":
            index_now(archive)
        else:
            archive.collect()
    assert archive.log() == model
    expected = Head(position=len(model), last_id=model[-1].id) if model else EMPTY
    assert (archive.manifest.head, archive.manifest.size) == (expected, size_of(model))


def index_now(archive: Archive) -> None:
    """Move the oldest direct segments into the index if there are enough of them."""
    moved, kept = split_direct_segments(archive.manifest)
    if moved:
        archive.apply(plan_index(archive.manifest, (*archive.indexed(), *moved), kept, nonce=""))


def test_an_index_needs_no_merge() -> None:
    """Where nothing can be merged the oldest segments are listed elsewhere."""
    archive = Archive()
    for number in range(DIRECT_MAX + 4):
        archive.append(some(1, 20 * MIB, start=number))
    archive.compact()
    assert archive.manifest.index is not None
    assert len(archive.manifest.segments) <= DIRECT_MAX
    assert len(archive.segments()) == DIRECT_MAX + 4


def test_a_manifest_is_never_changed_in_place() -> None:
    """Plans are made of what was read; a lost swap leaves it as it was."""
    archive = Archive()
    archive.append(some(10))
    before = replace(archive.manifest)
    plan_commit(archive.manifest, whole_log(archive.manifest), some(10, start=10), nonce="x")
    assert archive.manifest == before
