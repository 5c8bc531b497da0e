"""Contract of thread stores: open, its repeats, its fence and its cuts."""

import asyncio

import pytest

from helix_temporal.errors import (
    FencedError,
    HeadMovedError,
    InvalidRequestError,
    ThreadExistsError,
    ThreadNotFoundError,
)
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.protocols.threads import Create, OpenedThread, OpenThread, ThreadStore
from helix_temporal.testing.builders import EPOCH, an_answer, messages
from helix_temporal.testing.contracts._threads_base import Author, ThreadFixtures, calls, result


class OpenContract(ThreadFixtures):
    """Making threads and continuing them."""

    async def test_open_makes_a_thread(self, threads: ThreadStore, thread_id: str) -> None:
        """A new conversation starts empty, under the caller's epoch."""
        opened = await threads.open(OpenThread(thread_id, EPOCH, "run-1"))
        assert (opened.created, opened.cut, opened.header.head) == (True, 0, EMPTY)
        assert (opened.header.epoch, opened.header.owner) == (EPOCH, "run-1")

    async def test_open_continues_a_thread(self, author: Author) -> None:
        """A later execution finds all finished turns."""
        await author.turn("one")
        opened = await author.later().open()
        assert (opened.created, opened.cut, opened.header.head) == (False, 0, author.head)
        assert await author.texts() == ["one", "hi there"]

    async def test_open_of_an_empty_thread_does_not_create_it_again(self, author: Author) -> None:
        """Hooks of a session's start fire once, also when nothing was said yet."""
        assert not (await author.later().open()).created

    async def test_new_refuses_a_thread_that_exists(self, author: Author) -> None:
        """Creating never overwrites a conversation, and doesn't even take its epoch."""
        await author.turn()
        before = await author.image()
        with pytest.raises(ThreadExistsError):
            await author.later().open(create=Create.NEW)
        assert await author.image() == before

    async def test_never_refuses_a_thread_that_is_not_there(
        self, threads: ThreadStore, thread_id: str
    ) -> None:
        """A mistyped id is an error rather than a new empty conversation."""
        with pytest.raises(ThreadNotFoundError):
            await Author(threads, thread_id).open(create=Create.NEVER)
        with pytest.raises(ThreadNotFoundError):
            await threads.read_facts(thread_id)

    async def test_never_continues_a_thread(self, author: Author) -> None:
        """Continuing needs no permission to create."""
        await author.turn()
        assert (await author.later().open(create=Create.NEVER)).header.head == author.head

    async def test_a_repeated_open_gives_the_same_answer(self, author: Author) -> None:
        """The activity is tried again when its first answer was lost."""
        await author.turn()
        later = author.later()
        first = await later.open()
        assert await later.open() == first

    async def test_a_repeated_open_remembers_that_it_created(
        self, threads: ThreadStore, thread_id: str
    ) -> None:
        """The hooks of a new session run although the first answer was lost."""
        author = Author(threads, thread_id)
        first = await author.open(create=Create.NEW, state=b"{}", adapter="plain")
        assert await author.open(create=Create.NEW, state=b"{}", adapter="plain") == first
        assert first.created

    async def test_a_repeated_open_remembers_what_it_cut(self, author: Author) -> None:
        """Somebody is told that an unfinished turn was dropped."""
        await author.turn()
        await author.asks_for_tools()
        later = author.later()
        first = await later.open()
        assert first.cut == 2
        assert await later.open() == first

    async def test_a_late_attempt_of_an_open_keeps_what_was_appended(self, author: Author) -> None:
        """A zombie of the open activity must not undo the session's work."""
        await author.turn("one")
        again = await Author(author.threads, author.thread_id).open()
        assert (again.header.head, again.created) == (author.head, True)
        assert await author.texts() == ["one", "hi there"]

    async def test_open_with_messages_makes_a_committed_thread(
        self, threads: ThreadStore, thread_id: str
    ) -> None:
        """A conversation that was recorded elsewhere becomes a thread at once."""
        stored = messages(5)
        opened = await Author(threads, thread_id).open(messages=stored)
        assert (opened.header.head, opened.header.committed) == (Head(position=5, last_id="m4"), 5)
        assert await Author(threads, thread_id).everything() == stored

    async def test_open_stores_the_slice_of_a_new_thread(self, threads: ThreadStore, thread_id: str) -> None:
        """State that belongs to the thread is there from its first moment."""
        await Author(threads, thread_id).open(state=b'{"tasks":[]}')
        facts = await threads.read_facts(thread_id)
        assert (facts.slice, facts.slice_version) == (b'{"tasks":[]}', 1)

    async def test_open_keeps_the_slice_of_an_old_thread(self, author: Author) -> None:
        """A default for new threads never replaces real state."""
        await author.threads.save_slice(author.thread_id, author.epoch, b"mine", 0)
        await author.later().open(state=b"default")
        facts = await author.facts()
        assert (facts.slice, facts.slice_version) == (b"mine", 1)

    async def test_another_adapter_is_refused(self, threads: ThreadStore, thread_id: str) -> None:
        """Bodies of one format are not given to code that reads another."""
        author = Author(threads, thread_id)
        await author.open(adapter="anthropic")
        before = await author.image()
        with pytest.raises(InvalidRequestError, match="'anthropic'"):
            await author.later().open(adapter="openai")
        assert await author.image() == before

    async def test_the_adapter_is_remembered(self, threads: ThreadStore, thread_id: str) -> None:
        """The thread knows its format although later opens don't state it."""
        author = Author(threads, thread_id)
        await author.open(adapter="anthropic")
        assert (await author.later().open()).header.adapter == "anthropic"

    async def test_a_session_may_go_on_with_another_adapter(
        self, threads: ThreadStore, thread_id: str
    ) -> None:
        """What a thread began with is remembered; who answers next may be somebody else."""
        for at, name in enumerate(("anthropic", "openai"), 1):
            opened = await threads.open(
                OpenThread(thread_id, at, "run-1", slice=b"{}", begun_with=name),
            )
            assert opened.header.adapter == "anthropic"

    async def test_an_open_keeps_a_turn_that_waits(self, author: Author) -> None:
        """A person was asked for something: the next execution takes the answer."""
        await author.turn()
        await author.asks_for_tools()
        opened = await _keeping(author, author.head)
        assert (opened.cut, opened.header.head) == (0, author.head)
        assert opened.header.committed == 2
        assert await _keeping(author, author.head) == opened

    async def test_an_open_keeps_a_turn_that_waits_and_went_cold(self, author: Author) -> None:
        """Days later, in another process, with hot stores that were emptied."""
        await author.turn()
        await author.asks_for_tools()
        await author.flush()
        await author.threads.evict(author.thread_id, author.epoch)
        opened = await _keeping(author, author.head)
        assert (opened.cut, opened.header.head, opened.header.committed) == (0, author.head, 2)
        successor = author.later()
        successor.head = opened.header.head
        await successor.append(successor.step(*(result(n) for n in range(2)), answer=an_answer("found")))
        assert (await successor.facts()).committed == 7

    async def test_an_open_cuts_a_turn_that_waits_elsewhere(self, author: Author) -> None:
        """What the slice says counts only where the thread stands as it says."""
        await author.turn()
        await author.asks_for_tools()
        opened = await _keeping(author, Head(position=author.head.position, last_id="another"))
        assert (opened.cut, opened.header.head.position) == (2, 2)

    async def test_an_open_cuts_a_turn_whose_execution_was_closed(self, author: Author) -> None:
        """Cancelled, or failed: whoever asked was told that the turn came to nothing."""
        await author.asks_for_tools()
        await author.flush(closes=True)
        opened = await _keeping(author, author.head)
        assert (opened.cut, opened.header.head) == (2, EMPTY)

    async def test_an_open_cuts_what_follows_a_step_that_waited(self, author: Author) -> None:
        """It waits no more, and what came after it is of a turn that has not ended."""
        await author.asks_for_tools()
        waited = author.head
        await author.append(author.step(*(result(n) for n in range(2)), answer=calls(), commits=False))
        assert (await _keeping(author, waited)).header.head == waited


async def _keeping(author: Author, head: Head) -> OpenedThread:
    """The next execution's open, where the slice says that the thread waits at ``head``."""
    later = author.later()
    return await author.threads.open(
        OpenThread(later.thread_id, later.epoch, later.owner, keeps=lambda data: head)
    )


class FencingContract(ThreadFixtures):
    """A higher epoch shuts out lower ones, whatever they try; nothing changes."""

    @pytest.fixture
    async def successor(self, author: Author) -> Author:
        """Who opened the thread after ``author`` had finished one turn."""
        await author.turn()
        successor = author.later(owner="run-2")
        await successor.open()
        return successor

    async def test_a_lower_epoch_may_not_append(self, author: Author, successor: Author) -> None:
        """A step of a terminated execution comes too late."""
        before = await successor.image()
        with pytest.raises(FencedError):
            await author.turn("late")
        assert await successor.image() == before

    async def test_a_lower_epoch_may_not_look(self, author: Author, successor: Author) -> None:
        """It would pay for a model call whose answer can never be stored."""
        with pytest.raises(FencedError):
            await author.threads.step_view(
                author.thread_id, author.epoch, author.head, after=2, limit=10, max_bytes=1000, ids=10
            )

    async def test_a_lower_epoch_may_not_save_the_slice(self, author: Author, successor: Author) -> None:
        """State of an execution that is out does not overwrite the present one's."""
        before = await successor.image()
        with pytest.raises(FencedError):
            await author.threads.save_slice(author.thread_id, author.epoch, b"late", 0)
        assert await successor.image() == before

    async def test_a_lower_epoch_may_not_open(self, author: Author, successor: Author) -> None:
        """An open that was scheduled earlier and comes late changes nothing."""
        before = await successor.image()
        with pytest.raises(FencedError):
            await author.open()
        assert await successor.image() == before

    async def test_a_lower_epoch_may_not_delete(self, author: Author, successor: Author) -> None:
        """A deletion meant for what was there before does not hit what is there now."""
        before = await successor.image()
        with pytest.raises(FencedError):
            await author.threads.delete(author.thread_id, author.epoch)
        assert await successor.image() == before

    async def test_an_equal_epoch_of_another_owner_is_refused(self, author: Author) -> None:
        """Two opens of the same microsecond: one of them has it."""
        before = await author.image()
        with pytest.raises(FencedError):
            await Author(author.threads, author.thread_id, owner="run-2").open()
        assert await author.image() == before

    async def test_an_epoch_that_never_opened_may_not_append(self, author: Author) -> None:
        """A hot thread from before the caller's open was rolled back: the caller opens again."""
        later = author.later()
        with pytest.raises(HeadMovedError):
            await later.turn()

    async def test_a_closed_epoch_refuses_late_attempts(self, author: Author) -> None:
        """After the finaliser nobody of that epoch writes, however late it wakes up."""
        await author.turn()
        await author.flush(closes=True)
        before = await author.image()
        with pytest.raises(FencedError):
            await author.turn("late")
        with pytest.raises(FencedError):
            await author.threads.save_slice(author.thread_id, author.epoch, b"late", 0)
        assert await author.image() == before
        assert before[0].closed

    async def test_closing_twice_is_closing_once(self, author: Author) -> None:
        """The finaliser is tried again when its answer was lost."""
        await author.turn()
        await author.flush(closes=True)
        before = await author.image()
        await author.flush(closes=True)
        assert await author.image() == before

    async def test_a_closed_thread_opens_under_the_next_epoch(self, author: Author) -> None:
        """Closing ends an execution, not the conversation."""
        await author.turn("one")
        await author.flush(closes=True)
        later = author.later()
        opened = await later.open()
        assert not opened.header.closed
        await later.turn("two")
        assert await later.texts() == ["one", "hi there", "two", "hi there"]

    async def test_of_many_opens_at_once_the_highest_epoch_has_it(self, author: Author) -> None:
        """Executions that start together sort themselves out; the winner can write."""
        await author.turn()
        rivals = [author.later(owner=f"run-{n}", by=n) for n in range(1, 9)]
        await self._race(rivals)
        facts = await author.facts()
        winner = rivals[facts.epoch - EPOCH - 1]
        assert facts.owner == winner.owner
        winner.head = facts.head
        await winner.turn()

    @staticmethod
    async def _race(rivals: list[Author]) -> None:
        outcomes = await asyncio.gather(*(rival.open() for rival in rivals), return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert all(isinstance(outcome, FencedError) for outcome in failed), failed
        assert not isinstance(outcomes[-1], BaseException)
