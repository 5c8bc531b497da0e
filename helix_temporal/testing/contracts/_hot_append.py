"""Appending a step: once, whole, exactly at its head."""

import asyncio
from dataclasses import replace

import pytest

from helix_temporal.errors import (
    HeadMovedError,
    IdempotencyConflictError,
    InvalidRequestError,
)
from helix_temporal.models.stored_messages import EMPTY, Head, Kind, head_after, size_of
from helix_temporal.stores.protocols.hot import Appended, HotTier
from helix_temporal.testing.builders import (
    a_header,
    a_message,
    a_step,
    an_answer,
    grown,
    messages,
    opened,
)
from helix_temporal.testing.contracts._hot_base import HotTierFixtures, at, image, stored


class AppendContract(HotTierFixtures):
    """Appending a step where the thread stands."""

    async def test_a_step_is_appended_whole(self, store: HotTier, thread_id: str) -> None:
        """Inputs and answer become visible together, in order, and the header tells of them."""
        await opened(store, thread_id)
        step = a_step(thread_id)
        done = await store.append(step)
        assert done is not None
        assert (done.messages, done.repeated) == (step.messages, False)
        assert done.head == done.header.head == head_after(EMPTY, step.messages)
        assert done.header.size == size_of(step.messages)
        assert done.header == await store.read_header(thread_id)
        assert await stored(store, thread_id) == step.messages

    async def test_a_step_follows_the_one_before(self, store: HotTier, thread_id: str) -> None:
        """Steps appended one after the other read as one log."""
        first, second = messages(3), messages(2, prefix="n")
        header = await grown(store, thread_id, first, second)
        assert await stored(store, thread_id) == first + second
        assert header.size == size_of(first + second)

    async def test_an_absent_thread_is_not_created(self, store: HotTier, thread_id: str) -> None:
        """An append never makes an empty thread in place of a cold one."""
        assert await store.append(a_step(thread_id)) is None
        assert await store.read_header(thread_id) is None

    async def test_a_step_without_messages_is_refused(self, store: HotTier, thread_id: str) -> None:
        """It would have no identity."""
        await opened(store, thread_id)
        with pytest.raises(InvalidRequestError):
            await store.append(a_step(thread_id, inputs=()))

    async def test_a_repeated_append_is_applied_once(self, store: HotTier, thread_id: str) -> None:
        """A retried activity attempt leaves the thread as the first attempt left it."""
        await opened(store, thread_id)
        step = a_step(thread_id)
        first = await store.append(step)
        again = await store.append(step)
        assert first is not None
        assert again == replace(first, repeated=True)
        assert await stored(store, thread_id) == step.messages

    async def test_a_repeat_answers_the_same_after_growth(self, store: HotTier, thread_id: str) -> None:
        """However late an attempt comes, it learns what its step became, not where the thread is now."""
        await opened(store, thread_id)
        step = a_step(thread_id)
        first = await store.append(step)
        assert first is not None
        for _ in range(3):
            header = await store.read_header(thread_id)
            assert header is not None
            await store.append(a_step(thread_id, header.head))
        again = await store.append(step)
        assert again is not None
        assert (again.messages, again.head, again.repeated) == (first.messages, first.head, True)
        assert again.header.head.position == 8

    async def test_the_first_answer_wins(self, store: HotTier, thread_id: str) -> None:
        """Two attempts of one step call the model twice; only the answer that came first counts."""
        await opened(store, thread_id)
        step = a_step(thread_id)
        await store.append(step)
        late = await store.append(replace(step, answer=an_answer("another thought")))
        assert late is not None
        assert (late.messages, late.repeated) == (step.messages, True)
        assert await stored(store, thread_id) == step.messages

    async def test_an_answer_that_asks_for_tools_is_an_answer_too(
        self, store: HotTier, thread_id: str
    ) -> None:
        """Whether a model asks for tools may differ from attempt to attempt."""
        await opened(store, thread_id)
        step = a_step(thread_id, inputs=[a_message()], answer=a_message(kind=Kind.CALLS))
        await store.append(step)
        late = await store.append(replace(step, answer=an_answer()))
        assert late is not None
        assert late.messages == step.messages

    async def test_a_message_is_no_answer(self, store: HotTier, thread_id: str) -> None:
        """A second user message after the inputs must not be taken for what the model said."""
        pair = messages(2)
        await grown(store, thread_id, pair)
        before = await image(store, thread_id)
        with pytest.raises(HeadMovedError):
            await store.append(a_step(thread_id, inputs=pair[:1], answer=an_answer()))
        assert await image(store, thread_id) == before

    async def test_a_step_of_an_answer_alone_is_repeated_too(self, store: HotTier, thread_id: str) -> None:
        """A step may go on from the head without new inputs; its identity is its place."""
        await grown(store, thread_id, messages(1))
        step = a_step(thread_id, at(messages(1), 1), answer=an_answer("first"))
        await store.append(step)
        late = await store.append(replace(step, answer=an_answer("second")))
        assert late is not None
        assert late.messages == step.messages

    async def test_a_plain_append_is_known_by_its_inputs(self, store: HotTier, thread_id: str) -> None:
        """A plain append that stands is repeated even where an answer follows it."""
        await opened(store, thread_id)
        step = a_step(thread_id)
        await store.append(step)
        plain = await store.append(replace(step, answer=None))
        assert plain is not None
        assert (plain.messages, plain.repeated) == (step.inputs, True)
        assert plain.head == head_after(EMPTY, step.inputs)

    async def test_other_inputs_at_the_head_are_refused(self, store: HotTier, thread_id: str) -> None:
        """A timeline that somebody else continued is not the caller's."""
        await opened(store, thread_id)
        await store.append(a_step(thread_id))
        before = await image(store, thread_id)
        with pytest.raises(HeadMovedError):
            await store.append(a_step(thread_id))
        assert await image(store, thread_id) == before

    async def test_a_step_that_stands_in_part_is_refused(self, store: HotTier, thread_id: str) -> None:
        """Inputs without an answer are not this step, and it cannot be added at its head any more."""
        inputs = messages(2)
        await grown(store, thread_id, inputs[:1])
        with pytest.raises(HeadMovedError):
            await store.append(a_step(thread_id, inputs=inputs, answer=an_answer()))
        with pytest.raises(HeadMovedError):
            await store.append(a_step(thread_id, inputs=inputs[:1], answer=an_answer()))
        assert await stored(store, thread_id) == inputs[:1]

    @pytest.mark.parametrize("position", [2, 4])
    async def test_another_message_before_the_head_is_refused(
        self, store: HotTier, thread_id: str, position: int
    ) -> None:
        """A hot thread of the right length that holds another history is another one."""
        await grown(store, thread_id, messages(4))
        with pytest.raises(HeadMovedError):
            await store.append(a_step(thread_id, Head(position=position, last_id="other")))
        assert await stored(store, thread_id) == messages(4)

    async def test_a_head_beyond_the_thread_is_refused(self, store: HotTier, thread_id: str) -> None:
        """The thread lost what the caller knows, or never had it."""
        await grown(store, thread_id, messages(2))
        with pytest.raises(HeadMovedError):
            await store.append(a_step(thread_id, Head(position=3, last_id="m2")))

    async def test_a_head_before_the_base_is_refused(self, store: HotTier, thread_id: str) -> None:
        """What is no longer held here cannot be compared."""
        stored = messages(6)
        held = a_header(thread_id, stored[3:], base=at(stored, 3))
        await store.install(held, stored[3:], replace=False)
        with pytest.raises(HeadMovedError):
            await store.append(a_step(thread_id, at(stored, 2), inputs=stored[2:3]))

    async def test_a_step_follows_the_base_of_an_otherwise_empty_thread(
        self, store: HotTier, thread_id: str
    ) -> None:
        """A thread hydrated without any of its messages still knows the one before."""
        await store.install(a_header(thread_id, base=at(messages(3), 3)), (), replace=False)
        with pytest.raises(HeadMovedError):
            await store.append(a_step(thread_id, Head(position=3, last_id="other")))
        done = await store.append(a_step(thread_id, at(messages(3), 3)))
        assert done is not None
        assert done.head.position == 5

    async def test_the_same_ids_with_other_content_are_refused(self, store: HotTier, thread_id: str) -> None:
        """A client that reuses a message id for another text must hear of it."""
        await opened(store, thread_id)
        step = a_step(thread_id, inputs=[a_message("one", message_id="m")], answer=an_answer())
        await store.append(step)
        before = await image(store, thread_id)
        with pytest.raises(IdempotencyConflictError):
            await store.append(replace(step, inputs=(a_message("two", message_id="m"),)))
        assert await image(store, thread_id) == before

    async def test_of_many_at_one_head_exactly_one_wins(self, store: HotTier, thread_id: str) -> None:
        """Compare and append is one step: no two writers find the same head."""
        await opened(store, thread_id)
        steps = [a_step(thread_id) for _ in range(32)]
        outcomes = await asyncio.gather(*map(store.append, steps), return_exceptions=True)
        won = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, HeadMovedError)]
        assert (len(won), len(lost)) == (1, 31)
        assert await stored(store, thread_id) == won[0].messages

    async def test_of_many_attempts_of_one_step_all_get_one_answer(
        self, store: HotTier, thread_id: str
    ) -> None:
        """Attempts that overlap all return the one that was first."""
        await opened(store, thread_id)
        step = a_step(thread_id)
        attempts = [replace(step, answer=an_answer(f"thought {n}")) for n in range(32)]
        outcomes = await asyncio.gather(*map(store.append, attempts))
        answers = {outcome.messages for outcome in outcomes if outcome is not None}
        assert len(answers) == 1
        assert sum(outcome is not None and outcome.repeated for outcome in outcomes) == 31
