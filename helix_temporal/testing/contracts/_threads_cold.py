"""Contract of thread stores that archive: flush, evict, hydrate, and threads that are cold."""

import asyncio
from dataclasses import replace

import pytest

from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import FencedError, HeadMovedError, ThreadNotFoundError
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.threads import FlushStatus, FlushThread, ReadPage, Reopen
from helix_temporal.testing.builders import a_message, an_answer
from helix_temporal.testing.contracts._threads_base import Author, ThreadFixtures, noise, pages, result
from helix_temporal.testing.faults import BlobFault, FaultyBlobs


class ColdFixtures(ThreadFixtures):
    """Fixtures; an archiving store overrides the first two."""

    @pytest.fixture
    async def blobs(self) -> FaultyBlobs:
        """The store that holds the archive, wrapped: it counts, and fails when told to."""
        raise NotImplementedError("bind the contract: override the fixture `blobs`")

    @pytest.fixture
    async def threads(self, blobs: FaultyBlobs) -> TieredThreads:
        """An empty store of the test's own, archiving to ``blobs``."""
        raise NotImplementedError("bind the contract: override the fixture `threads`")


async def wipe(author: Author) -> None:
    """Lose the hot thread, as a restarted Redis does."""
    threads = author.threads
    assert isinstance(threads, TieredThreads)
    await threads.hot.drop(author.thread_id, author.epoch + 10**9)


class FlushContract(ColdFixtures):
    """What is hot becomes archived, once."""

    async def test_a_flush_archives_what_is_hot(self, author: Author) -> None:
        """Finished turns and the turn under way."""
        await author.turn()
        await author.asks_for_tools()
        receipt = await author.threads.flush(FlushThread(author.thread_id, author.epoch))
        assert (receipt.status, receipt.head, receipt.committed) == (FlushStatus.ARCHIVED, author.head, 2)
        assert (await author.facts()).archived == 4

    async def test_a_hot_header_is_read_without_the_archive(self, author: Author, blobs: FaultyBlobs) -> None:
        """It is asked for while the archive is away; a cold thread has none."""
        await author.turn()
        blobs.forget()
        assert await author.threads.read_hot_header(author.thread_id) is not None
        assert blobs.calls == ()
        await author.go_cold()
        blobs.forget()
        assert await author.threads.read_hot_header(author.thread_id) is None
        assert blobs.calls == ()

    async def test_a_second_flush_writes_nothing(self, author: Author, blobs: FaultyBlobs) -> None:
        """The activity is tried again; the session flushes at its end, too."""
        await author.turn()
        first = await author.threads.flush(FlushThread(author.thread_id, author.epoch))
        blobs.forget()
        second = await author.threads.flush(FlushThread(author.thread_id, author.epoch))
        assert (second.head, second.version, second.puts) == (first.head, first.version, 0)
        assert blobs.count("put") == 0

    async def test_a_plain_step_is_archived_by_one_put(self, author: Author, blobs: FaultyBlobs) -> None:
        """The price of losing nothing: one small object and no read."""
        await author.turn()
        step = author.step(a_message(), answer=an_answer())
        await author.threads.archive_step(step, await author.append(step))
        blobs.forget()
        step = author.step(a_message(), answer=an_answer())
        receipt = await author.threads.archive_step(step, await author.append(step))
        assert (receipt.status, receipt.head) == (FlushStatus.ARCHIVED, author.head)
        assert (blobs.count("put"), blobs.count("get")) == (1, 0)

    @pytest.mark.parametrize("wiped_before", [False, True])
    async def test_a_step_is_archived_from_what_its_worker_has(
        self, author: Author, wiped_before: bool
    ) -> None:
        """Redis is wiped between its append and its archive, or before both too: nothing is paid again."""
        await author.turn()
        await author.flush()
        step = author.step(a_message(), answer=an_answer())
        if wiped_before:
            await wipe(author)
        appended = await author.append(step)
        await wipe(author)
        receipt = await author.threads.archive_step(step, appended)
        assert (receipt.status, receipt.head) == (FlushStatus.ARCHIVED, author.head)

    async def test_a_step_that_is_archived_already_is_so_again(self, author: Author) -> None:
        """A repeated step finds itself in the archive, whatever followed."""
        step = author.step(a_message(), answer=an_answer())
        first = await author.append(step)
        await author.threads.archive_step(step, first)
        await author.turn()
        await author.flush()
        again = await author.threads.archive_step(step, await author.threads.append(step))
        assert again.status is FlushStatus.ARCHIVED

    async def test_a_flush_of_a_lower_epoch_is_fenced(self, author: Author) -> None:
        """An execution that is out archives nothing."""
        await author.turn()
        successor = author.later(owner="run-2")
        await successor.open()
        before = await successor.image()
        with pytest.raises(FencedError):
            await author.flush()
        assert await successor.image() == before

    async def test_a_late_flush_of_a_closed_epoch_is_fenced(self, author: Author) -> None:
        """An attempt from before the finaliser."""
        await author.turn()
        await author.flush(closes=True)
        with pytest.raises(FencedError):
            await author.flush()

    async def test_a_flush_of_a_step_that_is_lost_is_refused(self, author: Author) -> None:
        """Success means that my last message is archived, not that something is."""
        await author.turn()
        request = FlushThread(author.thread_id, author.epoch, mine=Head(position=4, last_id="lost"))
        with pytest.raises(HeadMovedError):
            await author.threads.flush(request)

    async def test_a_flush_of_nothing_is_an_error(self, author: Author) -> None:
        """Neither hot nor archived: the caller has the wrong id."""
        with pytest.raises(ThreadNotFoundError):
            await author.threads.flush(FlushThread(f"{author.thread_id}-no", author.epoch))

    async def test_an_append_during_a_flush_survives(self, author: Author, blobs: FaultyBlobs) -> None:
        """A flush drops only what it archived: here it is the next that may."""
        await author.turn("one")
        blobs.fail(BlobFault.DELAYED, method="put")
        flushing = asyncio.create_task(author.flush())
        while not await blobs.release():
            await author.turn("two")
            await asyncio.sleep(0.01)
        await flushing
        await author.threads.evict(author.thread_id, author.epoch)
        texts = await author.texts()
        assert (texts[:2], set(texts[2::2])) == (["one", "hi there"], {"two"})
        await author.flush()
        await author.threads.evict(author.thread_id, author.epoch)
        assert not (await author.facts()).hot
        assert await author.texts() == texts


class EvictContract(ColdFixtures):
    """Only what is archived is dropped."""

    async def test_an_archived_thread_is_dropped(self, author: Author) -> None:
        """And found again where it was archived."""
        await author.turns(3)
        before = await author.everything()
        await author.go_cold()
        assert await author.everything() == before

    async def test_a_thread_that_was_never_flushed_stays(self, author: Author) -> None:
        """It is all there is."""
        await author.turn()
        assert await author.threads.evict(author.thread_id, author.epoch) == "newer"
        assert (await author.facts()).hot

    async def test_a_thread_with_a_new_message_stays(self, author: Author) -> None:
        """What came after the flush is not archived."""
        await author.turn()
        await author.flush()
        await author.turn("newer")
        assert await author.threads.evict(author.thread_id, author.epoch) == "newer"
        assert "newer" in await author.texts()

    async def test_a_thread_with_a_new_slice_stays(self, author: Author) -> None:
        """State counts like messages."""
        await author.flush()
        await author.threads.save_slice(author.thread_id, author.epoch, b"newer", 0)
        assert await author.threads.evict(author.thread_id, author.epoch) == "newer"
        assert (await author.facts()).slice == b"newer"

    async def test_a_thread_with_a_new_commit_stays(self, author: Author) -> None:
        """Else a finished turn would be cut at the next open."""
        step = author.step(a_message(), answer=an_answer(), commits=False)
        await author.threads.append(step)
        await author.flush()
        await author.threads.append(replace(step, commits=True))
        assert await author.threads.evict(author.thread_id, author.epoch) == "newer"
        assert (await author.facts()).committed == 2

    async def test_a_thread_of_another_epoch_stays(self, author: Author) -> None:
        """An evict of an execution that is out does not touch its successor's hot thread."""
        await author.turn()
        await author.flush()
        later = author.later()
        await later.open()
        assert await author.threads.evict(author.thread_id, author.epoch) == "newer"
        assert (await later.facts()).hot

    async def test_evicting_twice_is_evicting_once(self, author: Author) -> None:
        """The activity is tried again."""
        await author.go_cold()
        assert await author.threads.evict(author.thread_id, author.epoch) == "absent"


class ColdContract(ColdFixtures):
    """A cold thread is as good as a hot one."""

    async def test_a_step_makes_a_cold_thread_hot(self, author: Author) -> None:
        """Eviction in the middle of a session is no error."""
        await author.turn("one")
        await author.go_cold()
        await author.turn("two")
        assert (await author.facts()).hot
        assert await author.texts() == ["one", "hi there", "two", "hi there"]

    async def test_the_first_answer_wins_after_a_flush(self, author: Author) -> None:
        """An attempt may come when everything is archived."""
        step = author.step(a_message(), answer=an_answer("first"))
        await author.append(step)
        await author.flush()
        late = await author.threads.append(replace(step, answer=an_answer("late")))
        assert (late.messages, late.repeated) == (step.messages, True)

    async def test_the_first_answer_wins_after_the_thread_went_cold(self, author: Author) -> None:
        """And when it has come back from the archive."""
        step = author.step(a_message(), answer=an_answer("first"))
        await author.append(step)
        await author.go_cold()
        late = await author.threads.append(replace(step, answer=an_answer("late")))
        assert (late.messages, late.repeated) == (step.messages, True)
        assert await author.texts() == ["hello", "first"]

    async def test_a_view_makes_a_cold_thread_hot(self, author: Author) -> None:
        """A step looks before it calls the model."""
        step = author.step(a_message(), answer=an_answer())
        await author.append(step)
        await author.go_cold()
        view = await author.threads.step_view(
            author.thread_id, author.epoch, step.head, after=2, limit=9, max_bytes=9999, ids=9
        )
        assert view.after == step.messages

    async def test_pages_of_a_cold_thread_leave_it_cold(self, author: Author) -> None:
        """Readers never fill the hot tier."""
        await author.turns(20)
        before = await author.everything()
        await author.go_cold()
        forward = await pages(author.threads, ReadPage(author.thread_id, limit=7))
        backward = await pages(author.threads, ReadPage(author.thread_id, limit=7, backward=True))
        assert tuple(message for page in forward for message in page) == before
        assert tuple(message for page in reversed(backward) for message in page) == before
        assert not (await author.facts()).hot

    async def test_pages_of_a_cold_thread_hold_whole_steps(self, author: Author) -> None:
        """Wherever the messages lie."""
        await author.tool_turn(results=40)
        await author.append(author.step(*noise(60), answer=None))
        await author.go_cold()
        page = await author.threads.read(ReadPage(author.thread_id, limit=2))
        assert (len(page.messages), page.after) == (42, 42)

    async def test_facts_of_a_cold_thread(self, author: Author) -> None:
        """The same as of a hot one, but for where it is."""
        await author.threads.save_slice(author.thread_id, author.epoch, b"state", 0)
        await author.tool_turn()
        await author.flush()
        hot = await author.facts()
        await author.go_cold()
        assert await author.facts() == replace(hot, hot=False)

    async def test_a_cold_thread_opens(self, author: Author) -> None:
        """The next execution, days later."""
        await author.threads.save_slice(author.thread_id, author.epoch, b"state", 0)
        await author.turns(3)
        before = await author.everything()
        await author.flush(closes=True)
        await author.threads.evict(author.thread_id, author.epoch)
        later = author.later(owner="run-2")
        opened = await later.open()
        assert (opened.created, opened.header.slice, opened.header.slice_version) == (False, b"state", 1)
        assert await later.everything() == before

    async def test_a_cold_thread_is_rewound(self, author: Author) -> None:
        """Also to a place inside what was archived together."""
        await author.turns(30)
        at_ten = Head(position=20, last_id=(await author.everything())[19].id)
        await author.go_cold()
        later = author.later()
        assert (await later.open(rewind_to=at_ten)).cut == 40
        assert len(await later.everything()) == 20

    async def test_a_cold_thread_reopens_at_a_known_head(self, author: Author) -> None:
        """The turn under way was archived before its tools ran."""
        await author.turn()
        await author.asks_for_tools()
        await author.flush()
        await wipe(author)
        opened = await author.later().open(reopen=Reopen(author.head, author.turn_start))
        assert (opened.header.head, opened.header.committed) == (author.head, 2)

    async def test_many_hydrates_at_once_give_one_copy(self, author: Author) -> None:
        """Twenty workers wake up together."""
        await author.turns(20)
        before = await author.everything()
        await author.go_cold()
        headers = await asyncio.gather(
            *(author.threads.hydrate(author.thread_id, author.epoch) for _ in range(20))
        )
        assert [header.head for header in headers if header] == [author.head] * 20
        assert await author.everything() == before

    async def test_hydrate_never_touches_a_hot_thread(self, author: Author) -> None:
        """A late hydrate must not undo appends."""
        await author.turn("one")
        await author.flush()
        await author.turn("two")
        await author.threads.hydrate(author.thread_id, author.epoch)
        assert await author.texts() == ["one", "hi there", "two", "hi there"]

    async def test_hydrate_of_a_lower_epoch_is_fenced(self, author: Author) -> None:
        """Nobody fills the hot tier for an execution that is out."""
        await author.flush()
        await author.later(owner="run-2").open()
        with pytest.raises(FencedError):
            await author.threads.hydrate(author.thread_id, author.epoch)

    async def test_a_wiped_hot_tier_loses_nothing_that_was_archived(self, author: Author) -> None:
        """Not even the turn under way."""
        await author.turn("one")
        await author.asks_for_tools("two")
        await author.flush()
        await wipe(author)
        await author.append(author.step(result(0), answer=an_answer("done")))
        assert await author.texts() == ["one", "hi there", "two", "let me see", "result 0", "done"]

    async def test_a_late_attempt_of_an_open_finds_a_cold_thread(self, author: Author) -> None:
        """It answers with what is archived now."""
        await author.turn()
        await author.go_cold()
        again = await Author(author.threads, author.thread_id).open()
        assert (again.header.head, again.created) == (author.head, True)

    @pytest.mark.parametrize("length", [1, 30, 1000])
    async def test_a_long_thread_comes_back_whole(self, author: Author, length: int) -> None:
        """Inline, in one segment, in several."""
        await author.append(author.step(*noise(length), answer=None))
        before = await author.everything()
        await author.go_cold()
        assert await author.everything() == before
        await author.threads.hydrate(author.thread_id, author.epoch)
        assert await author.everything() == before
        await author.turn("goes on")
        assert (await author.everything())[:-2] == before

    async def test_the_context_of_a_step_reaches_into_the_archive(self, author: Author) -> None:
        """Only the newest part of a long thread is hot; a step may want more."""
        await author.append(author.step(*noise(1500), answer=None))
        before = await author.everything()
        await author.go_cold()
        view = await author.threads.step_view(
            author.thread_id, author.epoch, author.head, after=1, limit=1200, max_bytes=10**6, ids=0
        )
        assert view.before == before[-1200:]
