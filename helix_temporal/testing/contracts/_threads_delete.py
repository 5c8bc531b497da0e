"""Contract of thread stores: deletion, and ids that are apart."""

import contextlib

import pytest

from helix_temporal.errors import FencedError, HeadMovedError, ThreadNotFoundError
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.stores.protocols.threads import Create, FlushThread, ForkThread, ReadPage, ThreadStore
from helix_temporal.testing.builders import an_id
from helix_temporal.testing.contracts._threads_base import LATER, Author, ThreadFixtures

STRANGE_IDS = (
    "a/b", "a\\b", "a:b", "a", "..", "../../etc/passwd", ".hidden", "*", "a?[b]", "{x}", "a}b", "{}", "ADMIN",
    "admin", "CON", "nul.txt", "é", "e\u0301", "x" * 256, "x" * 255 + "y", "日本語", "a b", "a%2Fb",
    "~2f", "/",
)  # fmt: skip


class DeleteContract(ThreadFixtures):
    """A deleted thread stays deleted until somebody newer makes it again."""

    @pytest.fixture
    async def deleted(self, author: Author) -> Author:
        """Who wrote a thread that was then deleted."""
        await author.turns(3)
        await author.threads.save_slice(author.thread_id, author.epoch, b"state", 0)
        await author.threads.delete(author.thread_id, author.epoch)
        return author

    async def test_a_deleted_thread_is_gone(self, deleted: Author) -> None:
        """For every reader."""
        with pytest.raises(ThreadNotFoundError):
            await deleted.threads.read(ReadPage(deleted.thread_id))
        with pytest.raises(ThreadNotFoundError):
            await deleted.facts()

    async def test_deleting_twice_is_deleting_once(self, deleted: Author) -> None:
        """The activity is tried again."""
        await deleted.threads.delete(deleted.thread_id, deleted.epoch)
        with pytest.raises(ThreadNotFoundError):
            await deleted.facts()

    async def test_a_late_append_revives_nothing(self, deleted: Author) -> None:
        """A step that was under way when the thread was deleted."""
        with pytest.raises((FencedError, ThreadNotFoundError)):
            await deleted.turn("late")
        with pytest.raises(ThreadNotFoundError):
            await deleted.facts()

    async def test_a_late_look_is_refused(self, deleted: Author) -> None:
        """It would be paid for nothing."""
        with pytest.raises((FencedError, ThreadNotFoundError)):
            await deleted.threads.step_view(
                deleted.thread_id, deleted.epoch, deleted.head, after=2, limit=9, max_bytes=999, ids=9
            )

    async def test_a_late_flush_revives_nothing(self, deleted: Author) -> None:
        """Whether it is refused or finds nothing to do."""
        request = FlushThread(deleted.thread_id, deleted.epoch, closes=True)
        with contextlib.suppress(FencedError, ThreadNotFoundError, HeadMovedError):
            await deleted.threads.flush(request)
        with pytest.raises(ThreadNotFoundError):
            await deleted.facts()

    async def test_a_late_open_revives_nothing(self, deleted: Author) -> None:
        """Neither a lower epoch nor another attempt of the very open that had made the thread."""
        with pytest.raises(FencedError):
            await deleted.open()
        with pytest.raises(FencedError):
            await Author(deleted.threads, deleted.thread_id, deleted.epoch - 1).open()
        with pytest.raises(ThreadNotFoundError):
            await deleted.facts()

    async def test_a_deleted_thread_cannot_be_continued(self, deleted: Author) -> None:
        """It is not there."""
        with pytest.raises(ThreadNotFoundError):
            await deleted.later().open(create=Create.NEVER)

    async def test_a_higher_epoch_makes_the_thread_anew(self, deleted: Author) -> None:
        """The id is free again, and nothing of the old thread comes back."""
        later = deleted.later()
        opened = await later.open(create=Create.NEW)
        assert (opened.created, opened.header.head, opened.header.slice) == (True, EMPTY, b"")
        await later.turn("new life")
        assert await later.texts() == ["new life", "hi there"]

    async def test_a_deleted_thread_cannot_be_forked(self, deleted: Author) -> None:
        """There is nothing to copy."""
        with pytest.raises(ThreadNotFoundError):
            await deleted.threads.fork(ForkThread(deleted.thread_id, an_id(), LATER, "forker"))

    async def test_a_deleted_thread_can_be_forked_into(self, deleted: Author) -> None:
        """Its id is free for a newer thread."""
        source = Author(deleted.threads, an_id())
        await source.open()
        await source.turn("copied")
        await deleted.threads.fork(ForkThread(source.thread_id, deleted.thread_id, LATER, "forker"))
        assert await deleted.texts() == ["copied", "hi there"]

    async def test_deleting_what_was_never_there_is_no_error(
        self, threads: ThreadStore, thread_id: str
    ) -> None:
        """What should be gone is gone."""
        await threads.delete(thread_id, LATER)
        with pytest.raises(ThreadNotFoundError):
            await threads.read_facts(thread_id)


class IsolationContract(ThreadFixtures):
    """No two ids share a thread."""

    async def test_ids_that_look_alike_are_threads_apart(self, threads: ThreadStore) -> None:
        """Slashes, dots, braces, case, accents and length: each id has its own messages."""
        authors = [Author(threads, name) for name in STRANGE_IDS]
        for author in authors:
            await author.open(create=Create.NEW)
            await author.turn(author.thread_id)
        texts = [await author.texts() for author in authors]
        assert texts == [[author.thread_id, "hi there"] for author in authors]
