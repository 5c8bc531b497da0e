"""Contract of thread stores: where an open cuts."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from helix_temporal.errors import (
    FencedError,
    HeadMovedError,
    InvalidRequestError,
    ThreadNotFoundError,
)
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.threads import FlushThread, OpenThread, ReadPage, Reopen, ThreadStore
from helix_temporal.testing.builders import a_message, an_answer, messages
from helix_temporal.testing.contracts._threads_base import LATER, Author, ThreadFixtures, calls, result


class CutContract(ThreadFixtures):
    """Where an open cuts."""

    @staticmethod
    async def unfinished(author: Author, *, archived: bool) -> tuple[Head, Appended]:
        """A finished turn, and a step that asks for tools: the head between them, and the step."""
        await author.turn("one")
        finished = author.head
        standing = await author.asks_for_tools("two")
        if archived:
            await author.flush()
        return finished, standing

    async def test_a_fresh_open_cuts_the_unfinished_turn(self, author: Author) -> None:
        """What a terminated execution left half done is not answered for."""
        await author.turn("one")
        await author.asks_for_tools()
        later = author.later(owner="run-2")
        opened = await later.open()
        assert (opened.cut, opened.header.head, opened.header.committed) == (2, author.turn_start, 2)
        assert await later.texts() == ["one", "hi there"]

    async def test_a_reopen_keeps_the_turn_under_way(self, author: Author) -> None:
        """An execution that lost its hot thread goes on where it stands."""
        await author.turn()
        known = (await author.asks_for_tools()).head
        opened = await author.later().open(reopen=Reopen(known, author.turn_start))
        assert (opened.cut, opened.header.head, opened.header.committed) == (0, known, 2)

    async def test_a_reopen_cuts_what_it_does_not_know(self, author: Author) -> None:
        """A step of an attempt that was given up must not stand in the way."""
        await author.turn()
        known = author.head
        await author.asks_for_tools("of a lost attempt")
        later = author.later()
        opened = await later.open(reopen=Reopen(known, known))
        assert (opened.cut, opened.header.head, opened.at) == (2, known, known)
        assert await later.texts() == ["hello", "hi there"]

    async def test_a_reopen_cuts_no_finished_turn(self, author: Author) -> None:
        """A workflow that was reset knows less than was answered: it goes on from there."""
        await author.turn("one")
        known = author.head
        await author.turns(2)
        later = author.later()
        opened = await later.open(reopen=Reopen(known, known, ("m-other",)))
        assert (opened.cut, opened.header.head, opened.header.committed) == (0, author.head, 6)
        assert (opened.at, later.head) == (author.head, author.head)
        assert await later.open(reopen=Reopen(known, known, ("m-other",))) == opened
        await later.turn("goes on")
        assert len(await later.everything()) == 8

    @pytest.mark.parametrize("archived", [False, True], ids=["hot", "cold"])
    async def test_a_reopen_that_knows_less_than_is_finished_keeps_the_turn_under_way(
        self, author: Author, archived: bool
    ) -> None:
        """Its step may yet turn out to be the very one that the workflow comes to."""
        start = author.head
        await author.turn("one")
        finished = author.head
        standing = await author.asks_for_tools("two")
        if archived:
            await author.flush()
        later = author.later()
        opened = await later.open(reopen=Reopen(start, start, (standing.messages[0].id,)))
        assert (opened.cut, opened.header.head, opened.header.committed) == (0, standing.head, 2)
        assert (opened.at, later.head) == (finished, finished)
        again = later.step(standing.messages[0], answer=calls(), commits=False)
        assert (await later.append(again)).messages == standing.messages

    @pytest.mark.parametrize("archived", [False, True], ids=["hot", "cold"])
    async def test_a_reopen_keeps_a_turn_of_other_messages(self, author: Author, archived: bool) -> None:
        """Its tools may have run: the workflow was reset to before it, and another message came first."""
        finished, standing = await self.unfinished(author, archived=archived)
        later = author.later()
        opened = await later.open(reopen=Reopen(finished, finished, ("m-other",)))
        assert (opened.cut, opened.header.head, opened.at) == (0, standing.head, finished)
        both = Reopen(finished, finished, (standing.messages[0].id, "m-other"))
        assert (await author.later(by=2_000_000).open(reopen=both)).cut == 0
        given_up = author.later(by=3_000_000)
        opened = await given_up.open(reopen=Reopen(finished, finished))
        assert (opened.cut, opened.header.head, opened.at) == (2, finished, finished)

    @pytest.mark.parametrize("archived", [False, True], ids=["hot", "cold"])
    async def test_a_reopen_after_a_reset_cuts_nothing(self, author: Author, archived: bool) -> None:
        """The workflow will come to what stands there: the tools of those steps may have run."""
        finished, standing = await self.unfinished(author, archived=archived)
        later = author.later()
        opened = await later.open(reopen=Reopen(finished, finished, reset=True))
        assert (opened.cut, opened.header.head, opened.at) == (0, standing.head, finished)
        elsewhere = Reopen(Head(position=3, last_id="m-gone"), finished, ("m-gone.0",), reset=True)
        opened = await author.later(by=2_000_000).open(reopen=elsewhere)
        assert (opened.cut, opened.header.head, opened.at) == (0, standing.head, finished)

    @pytest.mark.parametrize("finished_turns", [0, 1], ids=["in its first turn", "after a turn"])
    async def test_a_reopen_that_knows_nothing_cuts_nothing(
        self, author: Author, finished_turns: int
    ) -> None:
        """The workflow was reset to before it had opened the thread; tools of what stands may have run."""
        for _ in range(finished_turns):
            await author.turn("one")
        finished = author.head
        standing = await author.asks_for_tools("two")
        later = author.later()
        opened = await later.open(reopen=Reopen(None, EMPTY))
        assert (opened.cut, opened.header.head, opened.at) == (0, standing.head, finished)

    @pytest.mark.parametrize("archived", [False, True], ids=["hot", "cold"])
    async def test_an_open_that_is_found_done_goes_on_from_what_is_finished(
        self, author: Author, archived: bool
    ) -> None:
        """Its workflow was reset to before it had heard of it: a turn that was begun since stands apart."""
        await author.turn("one")
        later = author.later(owner="run-2")
        await later.open()
        await later.turn("two")
        finished, standing = later.head, await later.asks_for_tools("three")
        if archived:
            await later.flush()
        opened = await later.open()
        assert (opened.header.head, opened.at) == (standing.head, finished)

    async def test_a_reopen_goes_on_with_the_step_that_ended_its_turn(self, author: Author) -> None:
        """It was committed, and nobody was told: the next attempt finds it standing."""
        await author.turn("one")
        known, appended = author.head, await author.turn("two")
        later = author.later()
        opened = await later.open(reopen=Reopen(known, known, (appended.messages[0].id,)))
        assert (opened.cut, opened.header.head, opened.header.committed) == (0, appended.head, 4)
        assert opened.at == known

    @pytest.mark.parametrize("archived", [False, True], ids=["hot", "cold"])
    async def test_a_reopen_that_is_to_end_a_turn_keeps_no_step_that_went_on(
        self, author: Author, archived: bool
    ) -> None:
        """The results stand as inputs of a step that its workflow, which was reset, does not know of."""
        await author.turn("one")
        known = (await author.asks_for_tools("two")).head
        results = (result(0), result(1))
        await author.append(author.step(*results, answer=calls(), commits=False))
        if archived:
            await author.flush()
        later, ids = author.later(), tuple(each.id for each in results)
        opened = await later.open(reopen=Reopen(known, author.turn_start, ids, answered=False))
        assert (opened.cut, opened.header.head, opened.at) == (3, known, known)

    async def test_a_reopen_that_is_to_end_a_turn_keeps_the_end_that_stands(self, author: Author) -> None:
        """It was committed, and nobody was told."""
        known, results = (await author.asks_for_tools()).head, (result(0), result(1))
        ended = await author.append(author.step(*results, answer=None))
        ids = tuple(each.id for each in results)
        opened = await author.later().open(reopen=Reopen(known, EMPTY, ids, answered=False))
        assert (opened.cut, opened.header.head, opened.header.committed) == (0, ended.head, 4)
        assert opened.at == known

    async def test_a_reopen_whose_head_is_lost_starts_the_turn_again(self, author: Author) -> None:
        """Half a turn that nobody holds any more is run again as a whole."""
        await author.turn()
        await author.asks_for_tools()
        lost = Head(position=4, last_id="lost")
        opened = await author.later().open(reopen=Reopen(lost, author.turn_start))
        assert (opened.header.head, opened.header.committed) == (author.turn_start, 2)

    async def test_a_reopen_that_finds_nothing_it_knows_cuts_at_the_finished_turns(
        self, author: Author
    ) -> None:
        """The caller sees by the head that its turns are gone, and says so."""
        await author.turns(2)
        lost = Head(position=9, last_id="lost")
        opened = await author.later().open(reopen=Reopen(lost, Head(position=8, last_id="too")))
        assert opened.header.head == author.head

    async def test_a_lost_reopen_names_the_last_message_that_is_there(self, author: Author) -> None:
        """A head without its message's id would refuse every later step."""
        await author.turn()
        await author.asks_for_tools()
        lost = Head(position=9, last_id="lost")
        later = author.later()
        await later.open(reopen=Reopen(lost, Head(position=8, last_id="too")))
        assert later.head == author.turn_start
        again = author.later(by=2_000_000)
        await again.open(reopen=Reopen(later.head, later.head))
        await again.turn("goes on")

    async def test_a_reopen_inside_a_turn_that_was_committed_meanwhile_goes_on_behind_it(
        self, author: Author
    ) -> None:
        """Finished turns never end between a tool call and its results, whoever dies next."""
        await author.turn("one")
        start, known = author.head, (await author.asks_for_tools()).head
        finished = (await author.append(author.step(result(0), answer=an_answer("done")))).head
        later = author.later()
        opened = await later.open(reopen=Reopen(known, start))
        assert (opened.header.head, opened.header.committed, opened.at) == (finished, 6, finished)

    async def test_a_reopen_after_another_execution_took_over_touches_nothing(self, author: Author) -> None:
        """Who was replaced must end, not take back."""
        await author.turn()
        successor = author.later(owner="run-2")
        await successor.open()
        before = await successor.image()
        with pytest.raises(FencedError):
            await successor.later(owner="run-1").open(reopen=Reopen(author.head, author.head))
        assert await successor.image() == before

    async def test_a_reopen_of_a_thread_that_is_gone(self, threads: ThreadStore, thread_id: str) -> None:
        """An archive does not lose it; a hot store alone does, and its workflow tells what is lost."""
        author, known = Author(threads, thread_id), Head(position=4, last_id="m-4")
        if self.archives:
            with pytest.raises(ThreadNotFoundError):
                await author.open(reopen=Reopen(known, known))
            return
        opened = await author.open(reopen=Reopen(known, known))
        assert (opened.header.head, opened.at, opened.header.committed) == (EMPTY, EMPTY, 0)
        await author.turn("goes on")
        assert await author.texts() == ["goes on", "hi there"]

    async def test_a_reopen_of_a_thread_that_was_deleted_is_refused(self, author: Author) -> None:
        """Its mark tells it from one that was lost."""
        await author.turn("one")
        await author.threads.delete(author.thread_id, author.epoch)
        with pytest.raises((ThreadNotFoundError, FencedError)):
            await author.later().open(reopen=Reopen(author.head, author.head))

    async def test_a_rewind_cuts_at_a_finished_turn(self, author: Author) -> None:
        """Editing an earlier message drops what followed it."""
        first = (await author.turn("one")).head
        await author.turns(3)
        later = author.later()
        opened = await later.open(rewind_to=first)
        assert (opened.cut, opened.header.head, opened.header.committed) == (6, first, 2)
        await later.turn("other")
        assert await later.texts() == ["one", "hi there", "other", "hi there"]

    async def test_a_rewind_to_the_beginning_empties_the_thread(self, author: Author) -> None:
        """Starting over keeps the thread and its id."""
        await author.turns(3)
        later = author.later()
        opened = await later.open(rewind_to=EMPTY)
        assert (opened.cut, opened.header.head, opened.created) == (6, EMPTY, False)
        assert await later.everything() == ()

    async def test_a_repeated_rewind_cuts_once(self, author: Author) -> None:
        """The thread may have grown again when a late attempt of the rewind comes."""
        first = (await author.turn("one")).head
        await author.turn("two")
        later = author.later()
        await later.open(rewind_to=first)
        await later.turn("three")
        await author.later().open(rewind_to=first)
        assert await later.texts() == ["one", "hi there", "three", "hi there"]

    async def test_a_rewind_beyond_what_is_finished_is_refused(self, author: Author) -> None:
        """Only turn boundaries that were committed can be gone back to."""
        await author.turn()
        unfinished = (await author.asks_for_tools()).head
        before = await author.image()
        with pytest.raises(InvalidRequestError, match="only 2 are committed"):
            await author.later().open(rewind_to=unfinished)
        assert await author.image() == before

    async def test_a_rewind_to_another_message_is_refused(self, author: Author) -> None:
        """The caller looks at another timeline than the one that is stored."""
        await author.turn()
        before = await author.image()
        with pytest.raises(HeadMovedError):
            await author.later().open(rewind_to=Head(position=2, last_id="other"))
        assert await author.image() == before

    @pytest.mark.parametrize("archived", [False, True], ids=["hot", "cold"])
    async def test_a_cut_at_an_expected_head_takes_what_was_read(
        self, author: Author, archived: bool
    ) -> None:
        """Whoever takes the last message back cuts this one, and the cut repeated cuts no other."""
        first = (await author.turn("one")).head
        await author.turn("two")
        if archived:
            await author.flush()
        later = author.later()
        opened = await later.open(rewind_to=first, expected_head=author.head)
        assert (opened.cut, opened.header.head, opened.header.committed) == (2, first, 2)
        await later.turn("three")
        again = await later.open(rewind_to=first, expected_head=author.head)
        assert again.cut == opened.cut
        assert await later.texts() == ["one", "hi there", "three", "hi there"]

    async def test_a_cut_of_a_thread_that_went_on_is_refused(self, author: Author) -> None:
        """What was appended since nobody has read yet: it stays, and so does the epoch."""
        first = (await author.turn("one")).head
        seen = (await author.turn("two")).head
        await author.turn("three")
        before = await author.image()
        with pytest.raises(HeadMovedError, match=r"ends at 6 .*, not at 4"):
            await author.later().open(rewind_to=first, expected_head=seen)
        assert await author.image() == before

    async def test_a_cut_of_nothing_makes_no_thread(self, threads: ThreadStore, thread_id: str) -> None:
        """It was there when it was read: it is gone."""
        author = Author(threads, thread_id)
        with pytest.raises(HeadMovedError):
            await author.open(rewind_to=EMPTY, expected_head=Head(position=2, last_id="gone"))
        with pytest.raises(ThreadNotFoundError):
            await author.facts()

    async def test_cuts_and_appends_at_once_lose_and_double_nothing(self, author: Author) -> None:
        """Each message is in the thread or was given to exactly one who took it back."""
        epochs, added, taken = itertools.count(author.epoch + 1), list[str](), list[str]()

        async def append(name: str) -> None:
            while True:
                facts = await author.facts()
                message = a_message(message_id=name)
                step = StepAppend(author.thread_id, facts.epoch, facts.head, (message,), None, commits=True)
                try:
                    await author.threads.append(step)
                except (HeadMovedError, FencedError):
                    await asyncio.sleep(0)
                else:
                    added.append(name)
                    return

        async def take_newest() -> None:
            while True:
                page = await author.threads.read(
                    ReadPage(author.thread_id, limit=2, backward=True, whole=False)
                )
                if not page.messages:
                    await asyncio.sleep(0)
                    continue
                *before, newest = page.messages
                to = Head(position=page.head.position - 1, last_id=before[0].id if before else "")
                taker = replace(author, epoch=next(epochs))
                try:
                    await taker.open(rewind_to=to, expected_head=page.head)
                except (HeadMovedError, FencedError):
                    await asyncio.sleep(0)
                else:
                    taken.append(newest.id)
                    return

        await asyncio.gather(*(append(f"m{n}") for n in range(12)), *(take_newest() for _ in range(6)))
        left = [message.id for message in await author.everything()]
        assert sorted([*left, *taken]) == sorted(added)

    async def test_all_messages_are_replaced_at_once(self, author: Author) -> None:
        """Replacing is a rewind to the beginning with messages: nobody sees neither."""
        await author.turns(3)
        stored = messages(3, prefix="new")
        later = author.later()
        first = await later.open(rewind_to=EMPTY, messages=stored)
        assert (first.header.committed, await later.everything()) == (3, stored)
        assert await later.open(rewind_to=EMPTY, messages=stored) == first

    async def test_messages_follow_a_rewind_to_the_middle(self, author: Author) -> None:
        """An edited message stands where the old one stood."""
        first = (await author.turn("one")).head
        await author.turns(2)
        edited = (a_message("edited"), calls(), result(0), an_answer("fine"))
        later = author.later()
        await later.open(rewind_to=first, messages=edited)
        assert (await later.everything())[2:] == edited
        assert (await later.facts()).committed == 6

    async def test_a_step_goes_on_after_replaced_messages(self, author: Author) -> None:
        """The head after a replacement is one that a step can stand at."""
        later = author.later()
        await later.open(rewind_to=EMPTY, messages=messages(3))
        assert later.head == Head(position=3, last_id="m2")
        await later.turn("next")
        assert (await later.facts()).head.position == 5

    @pytest.mark.parametrize("before", [b"told", b"t" * 300_000], ids=["small", "large"])
    async def test_an_open_rewrites_the_slice_where_it_cuts(self, author: Author, before: bytes) -> None:
        """Who takes turns back is remembered with the cut, or neither is there; a repeat finds both."""
        await author.turns(2)
        await author.threads.save_slice(author.thread_id, author.epoch, before, 0)
        later, heard = author.later(), list[tuple[bytes, Head, int]]()

        def rewrites(data: bytes, head: Head, born: int) -> bytes:
            heard.append((data, head, born))
            return b"rewritten"

        to = Head(position=2, last_id=(await author.everything())[1].id)
        request = OpenThread(later.thread_id, later.epoch, later.owner, rewind_to=to, rewrites=rewrites)
        opened = await later.threads.open(request)
        again = await later.threads.open(request)
        assert (opened.header.slice, opened.header.slice_version) == (b"rewritten", 2)
        assert (again.header.slice, again.header.slice_version) == (b"rewritten", 2)
        assert set(heard) == {(before, to, author.epoch)}
        facts = await later.facts()
        assert (facts.slice, facts.slice_version, facts.head) == (b"rewritten", 2, to)

    async def test_a_slice_that_is_not_changed_keeps_its_version(self, author: Author) -> None:
        """Whoever saves it next knows that version."""
        await author.threads.save_slice(author.thread_id, author.epoch, b"told", 0)
        later = author.later()
        request = OpenThread(later.thread_id, later.epoch, later.owner, rewrites=lambda data, *_: data)
        opened = await later.threads.open(request)
        assert (opened.header.slice, opened.header.slice_version) == (b"told", 1)

    async def test_flush_of_a_lower_epoch_changes_nothing(self, author: Author) -> None:
        """What an execution that is out has in mind does not reach the archive."""
        await author.turn()
        successor = Author(author.threads, author.thread_id, LATER, "run-2")
        await successor.open()
        before = await successor.image()
        step = StepAppend(author.thread_id, author.epoch, author.head, (a_message("late"),))
        with pytest.raises(FencedError):
            await author.threads.append(step)
        await self._flush_ignoring_fence(author)
        assert await successor.image() == before

    @staticmethod
    async def _flush_ignoring_fence(author: Author) -> None:
        request = FlushThread(author.thread_id, author.epoch, closes=True)
        try:
            await author.threads.flush(request)
        except FencedError:
            return  # stores that archive say so; others have nothing to do
