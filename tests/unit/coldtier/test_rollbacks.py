"""A hot tier that was rolled back or replaced never takes anything away from the archive."""

from dataclasses import replace

import pytest

from helix_temporal.errors import ColdRegressedError, FencedError, HeadMovedError
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.protocols.hot import Rebase
from helix_temporal.stores.protocols.threads import FlushThread, ForkThread, ReadPage, Reopen
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.builders import a_message, an_answer
from helix_temporal.testing.contracts._threads_base import Author
from helix_temporal.testing.faults import BlobFault
from tests.unit.coldtier._tiers import Tiers


async def test_a_rolled_back_commit_mark_does_not_uncommit_the_archive() -> None:
    """The hot thread is from before a repeat committed the step; the archive knows better."""
    tiers = Tiers()
    author = await tiers.author()
    step = author.step(a_message(), answer=an_answer(), commits=False)
    await author.threads.append(step)
    backup = tiers.hot.backup()
    await author.threads.append(replace(step, commits=True))
    await author.flush()
    tiers.hot.restore(backup)
    await tiers.elsewhere(author).flush()
    assert (await tiers.manifest()).committed == 2


async def test_a_rolled_back_slice_does_not_replace_the_archived_one() -> None:
    """An older state never overwrites a newer one, whatever was appended since."""
    tiers = Tiers()
    author = await tiers.author()
    await author.turn()
    await author.threads.save_slice("t", author.epoch, b"old", 0)
    backup = tiers.hot.backup()
    await author.threads.save_slice("t", author.epoch, b"new", 1)
    await author.flush()
    tiers.hot.restore(backup)
    with pytest.raises(HeadMovedError):
        await tiers.elsewhere(author).flush()
    assert (await tiers.manifest()).slice == b"new"


async def rolled_back() -> tuple[Tiers, Author]:
    """Two archived turns, of which the hot thread has the first one."""
    tiers = Tiers()
    author = await tiers.author()
    await author.turn("one")
    backup = tiers.hot.backup()
    await author.turn("two")
    await author.flush()
    tiers.hot.restore(backup)
    return tiers, author


@pytest.mark.parametrize("backward", [False, True])
async def test_readers_see_what_is_archived_before_the_next_step_mends_it(backward: bool) -> None:
    """A failover lost what was acknowledged from the hot tier alone: nobody is shown less."""
    tiers, author = await rolled_back()
    reader = tiers.elsewhere(author).threads
    page = await reader.read(ReadPage("t", backward=backward))
    assert [message.body.decode() for message in page.messages] == ["one", "hi there", "two", "hi there"]
    assert (page.head, page.committed) == (author.head, 4)
    facts = await reader.read_facts("t")
    assert (facts.head, facts.committed, facts.hot) == (author.head, 4, False)


@pytest.mark.parametrize("fault", [BlobFault.ERROR_BEFORE, BlobFault.DELAYED, BlobFault.NO_ACCESS])
async def test_what_the_hot_thread_has_is_read_while_the_archive_is_away(
    fault: BlobFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader waits a moment for what the archive says, and not for ever."""
    monkeypatch.setattr("helix_temporal.coldtier.read.ARCHIVE_SECONDS", 0.05)
    tiers, author = await rolled_back()
    tiers.blobs.plan = lambda _: fault
    assert await tiers.elsewhere(author).texts() == ["one", "hi there"]


@pytest.mark.parametrize("closes", [False, True])
async def test_a_slice_that_was_lost_before_it_was_archived_is_not_called_archived(closes: bool) -> None:
    """Whoever saved it, and waits for the archive, saves it again."""
    tiers = Tiers()
    author = await tiers.author()
    await author.turn()
    await author.flush()
    saved = await author.threads.save_slice("t", author.epoch, b"new", 0)
    flush = FlushThread("t", author.epoch, closes=closes, slice_version=saved)
    tiers.wipe()
    with pytest.raises(HeadMovedError, match="save it again"):
        await tiers.worker().flush(flush)
    again = await tiers.worker().save_slice("t", author.epoch, b"new", 0)
    await tiers.worker().flush(replace(flush, slice_version=again))
    assert ((await tiers.manifest()).slice, (await tiers.manifest()).closed) == (b"new", closes)


async def test_an_open_keeps_the_newer_slice_and_the_newer_messages() -> None:
    """After a roll-back each tier may hold something that the other lacks."""
    tiers = Tiers()
    author = await tiers.author()
    await author.threads.save_slice("t", author.epoch, b"old", 0)
    backup = tiers.hot.backup()
    await author.threads.save_slice("t", author.epoch, b"new", 1)
    await author.flush()
    tiers.hot.restore(backup)
    await author.turn("kept")
    later = author.later()
    opened = await later.open()
    assert (opened.header.slice, opened.header.slice_version) == (b"new", 2)
    assert await later.texts() == ["kept", "hi there"]
    tiers.wipe()
    assert (await later.facts()).slice == b"new"


async def test_a_hot_thread_behind_the_archive_is_replaced_at_open() -> None:
    """The archive wins where hot does not continue it."""
    tiers = Tiers()
    author = await tiers.author()
    await author.turn("one")
    backup = tiers.hot.backup()
    await author.turn("two")
    await author.flush()
    tiers.hot.restore(backup)
    later = author.later()
    await later.open()
    assert await later.texts() == ["one", "hi there", "two", "hi there"]


async def test_what_a_caller_knows_of_is_read_from_the_archive_where_the_hot_thread_is_older() -> None:
    """The text of an answer that somebody was just told of; and how far the thread reaches."""
    tiers = Tiers()
    author = await tiers.author()
    await author.turn("one")
    backup = tiers.hot.backup()
    await author.turn("two")
    await author.flush()
    answer = (await author.everything())[3]
    tiers.hot.restore(backup)
    page = await tiers.worker().read(ReadPage("t", 3, 4))
    assert page.messages == (answer,)
    assert (page.committed, (await tiers.worker().read_facts("t")).head.position) == (4, 4)


async def test_a_hot_thread_of_another_timeline_is_refused_by_flush() -> None:
    """It holds another message at the archive's last position."""
    tiers = Tiers()
    author = await tiers.author()
    await author.turn("one")
    before = tiers.hot.backup()
    await author.turn("two")
    await author.flush()
    tiers.hot.restore(before)
    hot = await tiers.hot.read_header("t")
    assert hot is not None
    author.head = author.turn_start = hot.head
    await author.turn("other")
    await author.turn("timeline")
    with pytest.raises(HeadMovedError):
        await author.flush()
    assert (await tiers.manifest()).head.position == 4


async def test_a_step_is_archived_by_a_worker_that_remembers_nothing() -> None:
    """Earlier steps may wait in the hot tier; that is no reason to open again."""
    tiers = Tiers()
    author = await tiers.author()
    await author.turn("not archived")
    elsewhere = tiers.elsewhere(author)
    step = elsewhere.step(a_message(), answer=an_answer())
    receipt = await elsewhere.threads.archive_step(step, await elsewhere.append(step))
    assert receipt.head == elsewhere.head


async def test_a_step_whose_first_answer_asks_for_tools_is_archived_uncommitted() -> None:
    """The attempt that came second thought that its answer would end the turn."""
    tiers = Tiers()
    author = await tiers.author()
    await author.asks_for_tools()
    first = (await author.everything())[0]
    author.head = EMPTY
    step = author.step(first, answer=an_answer())
    appended = await author.threads.append(step)
    receipt = await author.threads.archive_step(step, appended)
    assert (receipt.head, receipt.committed) == (appended.head, 0)


async def test_a_flush_tells_when_the_archive_holds_another_message_at_its_place() -> None:
    """Success means that this very message is archived, though hot no longer has it at hand."""
    tiers = Tiers()
    author = await tiers.author()
    for text in ("one", "two", "three"):
        await author.turn(text)
        await author.flush()
    request = FlushThread("t", author.epoch, mine=Head(position=2, last_id="another"))
    with pytest.raises(HeadMovedError):
        await tiers.worker().flush(request)


class TestRegressedArchives:
    """An archive that holds less than it did is found out before anything is written."""

    async def test_a_deleted_manifest_is_found_by_open(self) -> None:
        """A lifecycle rule removed it."""
        tiers = Tiers()
        author = await tiers.author()
        await author.turn()
        await author.flush()
        await author.turn()
        await tiers.bucket.delete(tiers.threads.layout.manifest_key("t"))
        with pytest.raises(ColdRegressedError):
            await tiers.elsewhere(author).later().open()
        assert "manifest" not in await tiers.keys()

    async def test_a_deleted_manifest_is_found_by_flush(self) -> None:
        """In the middle of a session."""
        tiers = Tiers()
        author = await tiers.author()
        await author.turn()
        await author.flush()
        await author.turn()
        await tiers.bucket.delete(tiers.threads.layout.manifest_key("t"))
        with pytest.raises(ColdRegressedError):
            await author.flush()
        assert "manifest" not in await tiers.keys()

    async def test_an_older_manifest_is_found_by_open(self) -> None:
        """A backup was restored over the bucket."""
        tiers = Tiers()
        author = await tiers.author()
        older = await tiers.manifest()
        for _ in range(3):
            await author.turn()
            await author.flush()
        await tiers.forge(older)
        with pytest.raises(ColdRegressedError):
            await tiers.elsewhere(author).later().open()
        assert await tiers.manifest() == older

    async def test_an_older_epoch_is_found_by_flush(self) -> None:
        """The archive forgot who has the thread."""
        tiers = Tiers()
        author = await tiers.author()
        older = await tiers.manifest()
        later = author.later()
        await later.open()
        await later.turn()
        await tiers.forge(older)
        with pytest.raises(ColdRegressedError):
            await later.flush()

    async def test_an_older_epoch_is_found_though_nothing_is_hot(self) -> None:
        """Closing would else be written into somebody else's epoch."""
        tiers = Tiers()
        author = await tiers.author()
        older = await tiers.manifest()
        later = author.later()
        await later.open()
        await later.go_cold()
        await tiers.forge(older)
        with pytest.raises(ColdRegressedError):
            await tiers.elsewhere(later).flush(closes=True)
        assert await tiers.manifest() == older


class TestLeftovers:
    """Hot threads that an interrupted operation left behind."""

    async def test_a_fork_takes_the_archive_where_the_hot_thread_is_outdated(self) -> None:
        """An open took the epoch in the archive and died before it reached the hot tier."""
        tiers = Tiers()
        author = await tiers.author()
        await author.turn("one")
        await author.flush()
        backup = tiers.hot.backup()
        later = author.later()
        await later.open()
        await later.turn("two")
        await later.flush()
        tiers.hot.restore(backup)
        await tiers.worker().fork(ForkThread("t", "copy", later.epoch, "forker"))
        assert (await tiers.worker().read_facts("copy")).head.position == 4

    async def test_a_closed_epoch_stays_closed_after_a_rollback(self) -> None:
        """The archive remembers what the hot tier forgot."""
        tiers = Tiers()
        author = await tiers.author()
        await author.turn()
        backup = tiers.hot.backup()
        await author.flush(closes=True)
        tiers.hot.restore(backup)
        await author.turn("late")
        with pytest.raises(FencedError):
            await author.flush()

    async def test_a_thread_that_was_hot_before_there_was_an_archive_is_archived(self) -> None:
        """A cold tier is added to a running deployment."""
        tiers = Tiers()
        author = Author(HotThreads(tiers.hot), "t")
        await author.open()
        await author.turn("one")
        later = replace(author.later(), threads=tiers.threads)
        assert not (await later.open()).created
        await later.go_cold()
        assert await later.texts() == ["one", "hi there"]

    async def test_a_reopen_finds_its_turn_in_the_archive(self) -> None:
        """The hot tier was wiped in the middle of a turn."""
        tiers = Tiers()
        author = await tiers.author()
        await author.turn()
        await author.asks_for_tools()
        await author.flush()
        tiers.wipe()
        opened = await author.later().open(reopen=Reopen(author.head, author.turn_start))
        assert opened.header.head == author.head

    async def test_a_rebase_that_is_overtaken_ends_in_the_archive_s_copy(self) -> None:
        """The hot thread changed while its open was under way."""
        tiers = Tiers()
        author = await tiers.author()
        await author.turn()
        header = await tiers.hot.read_header("t")
        assert header is not None
        changed = replace(header, unarchived_since=0, committed=0)
        assert await tiers.hot.rebase(Rebase((header.epoch, header.head), changed, keep=2)) is not None
        later = author.later()
        assert (await later.open()).header.head == EMPTY
