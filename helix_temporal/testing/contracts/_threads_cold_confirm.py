"""Contract of thread stores that archive: steps that are acknowledged before they are archived."""

from dataclasses import replace

import pytest

from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import FencedError, HeadMovedError, StoreUnavailableError
from helix_temporal.stores.protocols.hot import HotSnapshot
from helix_temporal.stores.protocols.threads import ReadPage, Reopen
from helix_temporal.testing.builders import a_message, an_answer
from helix_temporal.testing.contracts._threads_base import Author
from helix_temporal.testing.contracts._threads_cold import ColdFixtures
from helix_temporal.testing.faults import BlobFault, FaultyBlobs


async def an_old_copy(author: Author, threads: TieredThreads) -> HotSnapshot:
    """What a hydrate of now would install, were it held up on its way; the thread is cold again."""
    await author.go_cold()
    await threads.hydrate(author.thread_id, author.epoch)
    snapshot = await threads.hot.read_snapshot(author.thread_id, 0)
    assert snapshot is not None
    await author.go_cold()
    return snapshot


class ConfirmContract(ColdFixtures):
    """With ``flush="exit"`` nothing but a look at the manifest tells an old copy from the thread."""

    async def test_a_step_on_a_copy_that_came_late_is_not_confirmed(
        self, author: Author, threads: TieredThreads
    ) -> None:
        """An attempt that was given up had added its step, a sweep had archived and dropped it; then a
        hydrate of before landed, and the next attempt of the step found nothing standing there.
        """
        await author.turn("one")
        copy, known = await an_old_copy(author, threads), author.head
        await author.turn("two", "first answer")
        await author.go_cold()
        await threads.hot.install(copy.header, copy.messages, replace=False)
        late = replace(author, head=known)
        step = late.step(a_message("two"), answer=an_answer("second answer"))
        appended = await late.append(step)
        with pytest.raises(HeadMovedError):
            await threads.confirm_step(step, appended)

    async def test_its_workflow_opens_again_and_finds_what_was_archived(
        self, author: Author, threads: TieredThreads
    ) -> None:
        """The archive has the turn; what was added to the copy was never acknowledged."""
        await author.turn("one")
        copy, known, question = await an_old_copy(author, threads), author.head, a_message("two")
        await author.append(author.step(question, answer=an_answer("first answer")))
        await author.go_cold()
        await threads.hot.install(copy.header, copy.messages, replace=False)
        late = replace(author, head=known)
        await late.append(late.step(question, answer=an_answer("second answer")))
        again = late.later()
        await again.open(reopen=Reopen(known, known, (question.id,)))
        assert await again.texts() == ["one", "hi there", "two", "first answer"]

    async def test_a_step_behind_the_archive_is_confirmed_by_one_look(
        self, author: Author, threads: TieredThreads, blobs: FaultyBlobs
    ) -> None:
        """And those behind it by none: from then on nothing drops the hot thread that is not archived."""
        await author.turn("one")
        await author.go_cold()
        await threads.hydrate(author.thread_id, author.epoch)
        blobs.forget()
        for _ in range(3):
            step = author.step(a_message(), answer=an_answer())
            await threads.confirm_step(step, await author.append(step))
        assert (blobs.count("get"), blobs.count("put")) == (1, 0)

    async def test_a_repeated_step_is_confirmed_again(self, author: Author, threads: TieredThreads) -> None:
        """Its first attempt may have died before it looked."""
        await author.turn("one")
        await author.go_cold()
        await threads.hydrate(author.thread_id, author.epoch)
        step = author.step(a_message(), answer=an_answer())
        await author.append(step)
        await author.turn("more")
        await threads.confirm_step(step, await threads.append(step))

    async def test_a_step_that_was_archived_and_dropped_since_is_confirmed(
        self, author: Author, threads: TieredThreads
    ) -> None:
        """The maintenance worker was quicker than the look."""
        await author.turn("one")
        step = author.step(a_message(), answer=an_answer())
        appended = await author.append(step)
        await author.go_cold()
        await threads.confirm_step(step, appended)

    async def test_a_step_of_an_execution_that_is_out_is_not_confirmed(
        self, author: Author, threads: TieredThreads
    ) -> None:
        """Its copy came late, too."""
        await author.turn("one")
        copy = await an_old_copy(author, threads)
        later = author.later()
        await later.open()
        await later.go_cold()
        await threads.hot.install(copy.header, copy.messages, replace=False)
        step = author.step(a_message(), answer=an_answer())
        appended = await author.append(step)
        with pytest.raises(FencedError):
            await threads.confirm_step(step, appended)

    async def test_an_archive_that_is_down_confirms_nothing(
        self, author: Author, threads: TieredThreads, blobs: FaultyBlobs
    ) -> None:
        """A moment ago it gave the copy; the step is tried again."""
        await author.turn("one")
        await author.go_cold()
        await threads.hydrate(author.thread_id, author.epoch)
        step = author.step(a_message(), answer=an_answer())
        appended = await author.append(step)
        blobs.fail(BlobFault.ERROR_BEFORE, method="get")
        with pytest.raises(StoreUnavailableError):
            await threads.confirm_step(step, appended)
        await threads.confirm_step(step, appended)

    async def test_a_thread_that_went_back_is_told_before_its_step_is_tried_again(
        self, author: Author, threads: TieredThreads
    ) -> None:
        """An earlier attempt's answer is in the archive: nobody need pay for another one."""
        await author.turn("one")
        copy, known = await an_old_copy(author, threads), author.head
        await author.turn("two", "first answer")
        await author.go_cold()
        await threads.hot.install(copy.header, copy.messages, replace=False)
        with pytest.raises(HeadMovedError, match="older copy"):
            await threads.confirm_head(author.thread_id, author.epoch, known)

    async def test_an_archive_that_is_down_tells_nothing_of_an_earlier_attempt(
        self, author: Author, threads: TieredThreads, blobs: FaultyBlobs
    ) -> None:
        """Whoever asked decides whether to go on without it."""
        await author.turn("one")
        blobs.fail(BlobFault.ERROR_BEFORE, method="get")
        with pytest.raises(StoreUnavailableError):
            await threads.confirm_head(author.thread_id, author.epoch, author.head)
        await threads.confirm_head(author.thread_id, author.epoch, author.head)

    async def test_a_step_of_a_thread_that_went_back_behind_a_newer_open_is_not_made(
        self, author: Author, threads: TieredThreads
    ) -> None:
        """Its answer may stand there, found by the open of a run that was reset before this one was."""
        await author.turn("one")
        copy, known = await an_old_copy(author, threads), author.head
        await author.turn("two", "first answer")
        later = author.later()
        await later.open()
        await later.go_cold()
        await threads.hot.install(copy.header, copy.messages, replace=False)
        with pytest.raises(FencedError):
            await threads.confirm_head(author.thread_id, author.epoch, known)

    async def test_a_page_of_a_newer_open_is_not_read_from_a_thread_that_went_back(
        self, author: Author, threads: TieredThreads
    ) -> None:
        """At the same places there stood a turn that was cut since."""
        await author.turn("one")
        first = author.head
        await author.append(author.step(a_message("cut"), answer=an_answer("cut, too"), commits=False))
        copy = await an_old_copy(author, threads)
        later = author.later()
        await later.open(reopen=Reopen(first, first))
        await later.append(later.step(a_message("kept"), answer=an_answer("kept, too")))
        await later.go_cold()
        await threads.hot.install(copy.header, copy.messages, replace=False)
        facts = await threads.read_facts(author.thread_id)
        page = await threads.read(
            ReadPage(author.thread_id, 2, 4, committed_only=False, whole=False, epoch=facts.epoch)
        )
        assert [each.body for each in page.messages] == [b"kept", b"kept, too"]

    async def test_a_thread_that_is_where_the_archive_is_or_beyond_may_go_on(
        self, author: Author, threads: TieredThreads
    ) -> None:
        """Also one that was opened again, and cut, since."""
        await author.turn("one")
        first = author.head
        await author.go_cold()
        await threads.hydrate(author.thread_id, author.epoch)
        await threads.confirm_head(author.thread_id, author.epoch, first)
        await author.turn("two")
        await threads.confirm_head(author.thread_id, author.epoch, author.head)
        await author.go_cold()
        later = author.later()
        await later.open(rewind_to=first)
        await threads.confirm_head(later.thread_id, later.epoch, first)
