"""What else an append carries: commit, slice, hint; and what a step may hold."""

import asyncio
import os
from dataclasses import replace

import pytest

from helix_temporal.errors import (
    StaleStateError,
)
from helix_temporal.models.stored_messages import Head, Kind, StoredMessage, size_of
from helix_temporal.stores.protocols.hot import Archived, HotTier
from helix_temporal.testing.builders import (
    a_header,
    a_message,
    a_step,
    all_of,
    an_answer,
    archived,
    grown,
    messages,
    opened,
)
from helix_temporal.testing.contracts._hot_base import HotTierFixtures, at, image, stored


class AppendExtrasContract(HotTierFixtures):
    """What else an append carries: commit, slice, hint, size."""

    async def test_a_step_that_ends_its_turn_commits(self, store: HotTier, thread_id: str) -> None:
        """Readers outside the session stop at the committed position."""
        await opened(store, thread_id)
        done = await store.append(replace(a_step(thread_id), commits=True))
        assert done is not None
        assert done.header.committed == 2

    async def test_a_repeat_raises_the_committed_position(self, store: HotTier, thread_id: str) -> None:
        """The attempt that found the answer also ends the turn."""
        await opened(store, thread_id)
        step = a_step(thread_id)
        await store.append(step)
        again = await store.append(replace(step, commits=True))
        header = await store.read_header(thread_id)
        assert again is not None
        assert header == again.header
        assert again.header.committed == 2

    async def test_an_answer_that_asks_for_tools_is_not_committed_by_a_repeat(
        self, store: HotTier, thread_id: str
    ) -> None:
        """Attempts of a model call may differ: the turn ends only if the answer that stands ends it."""
        await opened(store, thread_id)
        step = a_step(thread_id)
        asks = a_message("look it up", kind=Kind.CALLS)
        await store.append(replace(step, answer=asks))
        again = await store.append(replace(step, commits=True))
        assert again is not None
        assert again.messages[-1] == asks
        assert again.header.committed == 0

    async def test_a_late_repeat_does_not_lower_the_committed_position(
        self, store: HotTier, thread_id: str
    ) -> None:
        """Committed only ever grows under one epoch."""
        await opened(store, thread_id)
        step = replace(a_step(thread_id), commits=True)
        first = await store.append(step)
        assert first is not None
        await store.append(replace(a_step(thread_id, first.head), commits=True))
        again = await store.append(step)
        assert again is not None
        assert again.header.committed == 4

    async def test_a_slice_is_saved_with_the_step(self, store: HotTier, thread_id: str) -> None:
        """Messages and state change in one instant."""
        await opened(store, thread_id)
        done = await store.append(replace(a_step(thread_id), slice=b"\x00tasks\xff"))
        assert done is not None
        assert (done.header.slice, done.header.slice_version) == (b"\x00tasks\xff", 1)
        assert await store.read_header(thread_id) == done.header

    async def test_a_stale_slice_adds_nothing(self, store: HotTier, thread_id: str) -> None:
        """A step that was computed on an old state must not stand."""
        await opened(store, thread_id)
        await store.save_slice(thread_id, a_step(thread_id).epoch, b"newer", 0)
        before = await image(store, thread_id)
        with pytest.raises(StaleStateError):
            await store.append(replace(a_step(thread_id), slice=b"mine", slice_version=0))
        assert await image(store, thread_id) == before

    async def test_a_repeat_does_not_save_its_slice_again(self, store: HotTier, thread_id: str) -> None:
        """The slice stood with the first answer; the repeat is neither stale nor a second save."""
        await opened(store, thread_id)
        step = replace(a_step(thread_id), slice=b"first")
        await store.append(step)
        again = await store.append(replace(step, slice=b"second"))
        assert again is not None
        assert (again.header.slice, again.header.slice_version) == (b"first", 1)

    async def test_what_the_caller_knows_of_the_archive_moves_the_hint(
        self, store: HotTier, thread_id: str
    ) -> None:
        """The next flush then reads from there, and what waits since then is counted from this append."""
        header = await grown(store, thread_id, messages(2))
        assert header.unarchived_since > 0
        step = replace(a_step(thread_id, header.head), archived=all_of(header))
        done = await store.append(step)
        assert done is not None
        assert (done.header.archived, done.header.archived_size) == (2, header.size)
        assert done.header.unarchived_since >= header.unarchived_since
        again = await store.append(replace(step, archived=all_of(done.header)))
        assert again is not None
        assert (again.header.archived, again.header.unarchived_since) == (4, 0)

    async def test_the_hint_never_goes_back_nor_beyond_the_head(self, store: HotTier, thread_id: str) -> None:
        """A late attempt knows less; another timeline knows what is not here."""
        header = await archived(store, await grown(store, thread_id, messages(4)))
        older = Archived(at(messages(4), 2), 0, 0, 10)
        done = await store.append(replace(a_step(thread_id, header.head), archived=older))
        assert done is not None
        assert done.header.archived == 4
        beyond = Archived(Head(position=99, last_id="x"), 0, 0, 10)
        done = await store.append(replace(a_step(thread_id, done.head), archived=beyond))
        assert done is not None
        assert (done.header.archived, done.header.archived_size) == (4, header.size)

    async def test_the_oldest_waiting_append_sets_the_time(self, store: HotTier, thread_id: str) -> None:
        """How long messages wait for the archive is what a refusal of further turns goes by."""
        header = await archived(store, await grown(store, thread_id, messages(2)))
        assert header.unarchived_since == 0
        first = await store.append(a_step(thread_id, header.head))
        assert first is not None
        assert first.header.unarchived_since > 0
        await asyncio.sleep(0.005)
        second = await store.append(a_step(thread_id, first.head))
        assert second is not None
        assert second.header.unarchived_since == first.header.unarchived_since

    @pytest.mark.parametrize(
        "inputs",
        [
            pytest.param(messages(500, size=7), id="many"),
            pytest.param(messages(3, size=300_000), id="large"),
            pytest.param((*messages(70, size=9), *messages(2, size=400_000, prefix="big")), id="both"),
            pytest.param(messages(64), id="64"),
            pytest.param(messages(65), id="65"),
        ],
    )
    async def test_a_large_step_is_appended_and_repeated_whole(
        self, store: HotTier, thread_id: str, inputs: tuple[StoredMessage, ...]
    ) -> None:
        """However a backend splits a step, it stands whole and is known again."""
        await opened(store, thread_id)
        step = a_step(thread_id, inputs=inputs, answer=an_answer())
        first = await store.append(step)
        again = await store.append(replace(step, answer=an_answer("late")))
        assert first is not None
        assert again == replace(first, repeated=True)
        assert await stored(store, thread_id) == step.messages
        follow = await store.append(a_step(thread_id, first.head))
        assert follow is not None
        assert follow.header.size == size_of(step.messages) + size_of(follow.messages)

    async def test_bodies_are_byte_identical(self, store: HotTier, thread_id: str) -> None:
        """Nothing is parsed or re-encoded: not JSON, not numbers, not NUL."""
        bodies = [
            bytes(range(256)),
            b"",
            b"\x00",
            b"\r\n$-1\r\n",
            b'{"a":[],"n":12345678901234567890,"x":1.0}',
            os.urandom(70_000),
        ]
        messages = tuple(a_message(body, message_id=f"m{n}") for n, body in enumerate(bodies))
        await grown(store, thread_id, messages[:4], messages[4:])
        assert await stored(store, thread_id) == messages

    @pytest.mark.parametrize("epoch", [0, 1, 1_800_000_000_000_001, 2**53 - 1])
    async def test_epochs_are_exact(self, store: HotTier, thread_id: str, epoch: int) -> None:
        """A microsecond decides who may write."""
        await opened(store, thread_id, replace(a_header(thread_id), epoch=epoch))
        done = await store.append(a_step(thread_id, inputs=messages(1), epoch=epoch))
        assert done is not None
        assert done.header.epoch == epoch
