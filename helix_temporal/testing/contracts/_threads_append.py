"""Contract of thread stores: steps, and the slice beside them."""

import asyncio
from dataclasses import replace

import pytest

from helix_temporal.errors import (
    HeadMovedError,
    IdempotencyConflictError,
    InvalidRequestError,
    StaleStateError,
    ThreadNotFoundError,
)
from helix_temporal.models.stored_messages import EMPTY, Head, size_of
from helix_temporal.stores.protocols.hot import StepView
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore
from helix_temporal.testing.builders import a_message, a_step, an_answer, messages
from helix_temporal.testing.contracts._threads_base import Author, ThreadFixtures, calls, result


class StepContract(ThreadFixtures):
    """A step is one atomic append; the first answer wins."""

    async def test_a_step_stands_at_its_head(self, author: Author) -> None:
        """Inputs and answer become part of the thread together, in order."""
        step = author.step(a_message("hi"), answer=an_answer("hello"))
        appended = await author.append(step)
        assert (appended.messages, appended.repeated) == (step.messages, False)
        assert appended.head == Head(position=2, last_id=step.messages[1].id)
        assert await author.everything() == step.messages

    async def test_the_first_answer_wins(self, author: Author) -> None:
        """Two attempts of one model call: one answer counts, and both callers learn which."""
        step = author.step(a_message("hi"), answer=an_answer("first"))
        await author.threads.append(step)
        second = await author.threads.append(replace(step, answer=an_answer("second")))
        assert (second.messages, second.repeated) == (step.messages, True)
        assert await author.texts() == ["hi", "first"]

    async def test_the_first_answer_wins_after_the_thread_has_grown(self, author: Author) -> None:
        """An attempt may come a long time after the session went on."""
        step = author.step(a_message("hi"), answer=an_answer("first"))
        first = await author.append(step)
        await author.turns(3)
        late = await author.threads.append(replace(step, answer=an_answer("late")))
        assert (late.messages, late.head, late.repeated) == (first.messages, first.head, True)
        assert len(await author.everything()) == 8

    async def test_a_step_that_asks_for_tools_may_win_over_one_that_does_not(self, author: Author) -> None:
        """Attempts of a model call needn't agree whether tools are wanted."""
        step = author.step(a_message("hi"), answer=calls(), commits=False)
        await author.threads.append(step)
        second = await author.threads.append(replace(step, answer=an_answer(), commits=False))
        assert second.messages == step.messages

    async def test_of_attempts_at_once_one_answer_counts(self, author: Author) -> None:
        """A worker that was thought dead and its successor append in the same moment."""
        step = author.step(a_message("hi"), answer=an_answer())
        attempts = [replace(step, answer=an_answer(f"attempt {n}")) for n in range(8)]
        outcomes = await asyncio.gather(*(author.threads.append(attempt) for attempt in attempts))
        assert len({outcome.messages for outcome in outcomes}) == 1
        assert await author.everything() == outcomes[0].messages

    async def test_a_plain_append_is_applied_once(self, author: Author) -> None:
        """Inputs without an answer are their own identity."""
        step = author.step(a_message("a note"), answer=None)
        await author.threads.append(step)
        assert (await author.threads.append(step)).repeated
        assert await author.texts() == ["a note"]

    async def test_a_head_beyond_the_end_is_refused(self, author: Author) -> None:
        """The hot thread lacks what the caller knows: it was rolled back."""
        await author.turn()
        await self._step_refused(author, Head(position=4, last_id="x"))

    async def test_a_head_after_another_message_is_refused(self, author: Author) -> None:
        """The hot thread is of another timeline."""
        await author.turn()
        await self._step_refused(author, Head(position=2, last_id="x"))

    async def test_other_inputs_at_the_head_are_refused(self, author: Author) -> None:
        """Something else has followed already."""
        await author.turn()
        await self._step_refused(author, EMPTY)

    @staticmethod
    async def _step_refused(author: Author, head: Head) -> None:
        before = await author.image()
        with pytest.raises(HeadMovedError):
            await author.threads.append(a_step(author.thread_id, head, epoch=author.epoch))
        assert await author.image() == before

    async def test_an_id_stands_for_one_content(self, author: Author) -> None:
        """Row 32: a client that uses an id again for another text is told."""
        step = author.step(a_message("yes", message_id="u1"), answer=an_answer())
        await author.threads.append(step)
        before = await author.image()
        with pytest.raises(IdempotencyConflictError):
            await author.threads.append(replace(step, inputs=(a_message("no", message_id="u1"),)))
        assert await author.image() == before

    async def test_a_step_without_messages_is_refused(self, author: Author) -> None:
        """It would have no identity."""
        with pytest.raises(InvalidRequestError):
            await author.threads.append(author.step(answer=None))

    async def test_an_unfinished_turn_is_not_shown_to_readers(self, author: Author) -> None:
        """Who looks at a conversation sees finished turns only, unless asking for more."""
        await author.turn()
        await author.asks_for_tools()
        page = await author.threads.read(ReadPage(author.thread_id))
        assert (len(page.messages), page.committed, page.head) == (2, 2, author.head)
        assert len(await author.everything()) == 4

    async def test_a_repeat_commits(self, author: Author) -> None:
        """The stored answer ends the turn although the attempt that stored it did not say so."""
        step = author.step(a_message(), answer=an_answer(), commits=False)
        await author.threads.append(step)
        assert (await author.facts()).committed == 0
        await author.threads.append(replace(step, commits=True))
        assert (await author.facts()).committed == 2

    async def test_a_repeat_that_does_not_commit_takes_nothing_back(self, author: Author) -> None:
        """A late attempt knows less than the thread."""
        step = author.step(a_message(), answer=an_answer())
        await author.append(step)
        await author.threads.append(replace(step, commits=False))
        assert (await author.facts()).committed == 2

    async def test_a_thread_that_was_never_opened_takes_no_step(
        self, threads: ThreadStore, thread_id: str
    ) -> None:
        """Appending doesn't create."""
        with pytest.raises(ThreadNotFoundError):
            await threads.append(a_step(thread_id))

    async def test_a_step_may_hold_many_messages(self, author: Author) -> None:
        """Forty tools give forty results at once."""
        await author.asks_for_tools()
        step = author.step(*(result(n) for n in range(400)), answer=an_answer())
        assert (await author.append(step)).head.position == 403
        assert (await author.threads.append(step)).repeated

    async def test_bodies_come_back_byte_for_byte(self, author: Author) -> None:
        """A store never looks into a message."""
        inputs = (a_message(bytes(range(256))), a_message(b""), a_message("ünï😀\r\n\x00"))
        await author.append(author.step(*inputs, answer=an_answer(b"\xff" * 70_000)))
        assert (await author.everything())[:3] == inputs
        assert (await author.facts()).size == size_of(await author.everything())


class ViewContract(ThreadFixtures):
    """What a step sees before it calls the model."""

    @staticmethod
    async def _view(author: Author, head: Head, *, limit: int = 10, ids: int = 10) -> StepView:
        return await author.threads.step_view(
            author.thread_id, author.epoch, head, after=2, limit=limit, max_bytes=100_000, ids=ids
        )

    async def test_a_step_finds_its_stored_answer(self, author: Author) -> None:
        """A model call whose answer stands is never paid again."""
        step = author.step(a_message(), answer=an_answer())
        await author.append(step)
        assert (await self._view(author, step.head)).after == step.messages

    async def test_a_step_sees_the_newest_messages_before_it(self, author: Author) -> None:
        """The context window, oldest first."""
        await author.turns(5)
        view = await self._view(author, author.head, limit=3)
        assert view.before == (await author.everything())[-3:]
        assert (view.after, view.last_id_at_head) == ((), author.head.last_id)

    async def test_a_step_sees_ids_of_earlier_messages(self, author: Author) -> None:
        """Ids of users' messages must not repeat, also outside the window."""
        await author.turns(5)
        view = await self._view(author, author.head, limit=3, ids=7)
        assert view.earlier_ids == tuple(message.id for message in (await author.everything())[3:7])

    async def test_a_step_sees_the_state(self, author: Author) -> None:
        """Slice, version and place come in the same read."""
        await author.threads.save_slice(author.thread_id, author.epoch, b"state", 0)
        header = (await self._view(author, EMPTY)).header
        assert (header.slice, header.slice_version, header.head) == (b"state", 1, EMPTY)

    async def test_a_thread_that_is_not_there_has_no_view(self, threads: ThreadStore, thread_id: str) -> None:
        """The workflow hears that its thread is gone rather than that it is empty."""
        with pytest.raises(ThreadNotFoundError):
            await self._view(Author(threads, thread_id), EMPTY)


class SliceContract(ThreadFixtures):
    """The state that travels with a thread."""

    async def test_a_slice_has_a_version(self, author: Author) -> None:
        """Each save counts."""
        save = author.threads.save_slice
        assert await save(author.thread_id, author.epoch, b"one", 0) == 1
        assert await save(author.thread_id, author.epoch, b"two", 1) == 2
        facts = await author.facts()
        assert (facts.slice, facts.slice_version) == (b"two", 2)

    async def test_a_repeated_save_gives_the_first_answer(self, author: Author) -> None:
        """The same bytes against the same version are the same save."""
        save = author.threads.save_slice
        assert await save(author.thread_id, author.epoch, b"one", 0) == 1
        assert await save(author.thread_id, author.epoch, b"one", 0) == 1

    async def test_a_save_against_an_old_version_is_refused(self, author: Author) -> None:
        """Nobody's update is lost without a word."""
        save = author.threads.save_slice
        await save(author.thread_id, author.epoch, b"one", 0)
        with pytest.raises(StaleStateError):
            await save(author.thread_id, author.epoch, b"other", 0)
        assert (await author.facts()).slice == b"one"

    async def test_a_large_slice_survives_open_and_flush(self, author: Author) -> None:
        """Beyond 256 KiB a slice is kept elsewhere; nobody need know."""
        large = bytes(range(256)) * 2000
        await author.threads.save_slice(author.thread_id, author.epoch, large, 0)
        await author.flush()
        later = author.later()
        assert (await later.open()).header.slice == large
        assert (await later.facts()).slice == large

    async def test_a_step_saves_the_slice_with_it(self, author: Author) -> None:
        """State and messages change together or not at all."""
        step = replace(author.step(a_message(), answer=an_answer()), slice=b"with", slice_version=0)
        await author.append(step)
        facts = await author.facts()
        assert (facts.slice, facts.slice_version) == (b"with", 1)
        assert (await author.threads.append(step)).repeated

    async def test_a_step_with_a_stale_slice_adds_nothing(self, author: Author) -> None:
        """Half of a step is no step."""
        await author.threads.save_slice(author.thread_id, author.epoch, b"one", 0)
        before = await author.image()
        with pytest.raises(StaleStateError):
            await author.threads.append(
                replace(author.step(*messages(1), answer=an_answer()), slice=b"x", slice_version=0)
            )
        assert await author.image() == before

    async def test_a_slice_of_no_thread_cannot_be_saved(self, threads: ThreadStore, thread_id: str) -> None:
        """Saving doesn't create."""
        with pytest.raises(ThreadNotFoundError):
            await threads.save_slice(thread_id, 1, b"x", 0)
