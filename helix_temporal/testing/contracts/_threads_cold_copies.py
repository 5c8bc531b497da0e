"""Contract of thread stores that archive: forks and deletions in both tiers."""

import pytest

from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import FencedError, ThreadNotFoundError
from helix_temporal.models.records import EMPTY
from helix_temporal.testing.contracts._threads_base import Author, noise
from helix_temporal.testing.contracts._threads_cold import ColdFixtures
from helix_temporal.testing.contracts._threads_fork import copy_of, fork_of
from helix_temporal.testing.faults import FaultyBlobs


class ColdForkContract(ColdFixtures):
    """Forks of threads that are cold, hot, or both."""

    async def test_a_fork_of_a_cold_thread(self, author: Author) -> None:
        """Neither it nor its source becomes hot."""
        await author.turns(20)
        before = await author.everything()
        await author.go_cold()
        request = fork_of(author)
        facts = await author.threads.fork(request)
        assert (facts.hot, (await author.facts()).hot) == (False, False)
        assert await copy_of(author, request).everything() == before

    async def test_a_fork_of_a_hot_thread_includes_what_was_not_archived(self, author: Author) -> None:
        """The source is flushed on the way."""
        await author.turn("archived")
        await author.flush()
        await author.turn("hot")
        request = fork_of(author)
        await author.threads.fork(request)
        assert await copy_of(author, request).texts() == ["archived", "hi there", "hot", "hi there"]

    async def test_a_fork_copies_objects_rather_than_messages(
        self, author: Author, blobs: FaultyBlobs
    ) -> None:
        """A long thread is forked without passing through us."""
        await author.append(author.step(*noise(2000), answer=None, commits=True))
        await author.flush()
        blobs.forget()
        await author.threads.fork(fork_of(author))
        assert blobs.count("copy") > 0
        assert blobs.bytes_up < 40_000

    async def test_a_fork_goes_on_when_its_thread_is_opened(self, author: Author) -> None:
        """It is a thread like any other."""
        await author.append(author.step(*noise(1000), answer=None, commits=True))
        before = await author.everything()
        request = fork_of(author, at=777)
        await author.threads.fork(request)
        user = copy_of(author, request).later()
        opened = await user.open()
        assert (opened.created, opened.header.head.position) == (False, 777)
        await user.turn("more")
        await user.go_cold()
        assert (await user.everything())[:777] == before[:777]
        assert len(await user.everything()) == 779


class ColdDeleteContract(ColdFixtures):
    """Deletion in both tiers."""

    async def test_deletion_leaves_one_small_object(
        self, author: Author, threads: TieredThreads, blobs: FaultyBlobs
    ) -> None:
        """Nothing that was said remains, only that the thread was deleted."""
        await author.append(author.step(*noise(1000), answer=None, commits=True))
        await author.threads.save_slice(author.thread_id, author.epoch, b"s" * 300_000, 0)
        await author.flush()
        await threads.delete(author.thread_id, author.epoch)
        left = [info async for info in blobs.list(threads.layout.thread(author.thread_id))]
        assert [info.key for info in left] == [threads.layout.manifest(author.thread_id)]
        assert left[0].size < 2000

    async def test_a_late_hydrate_after_deletion_is_refused(self, author: Author) -> None:
        """There is nothing to make hot."""
        await author.turn()
        await author.flush()
        await author.threads.delete(author.thread_id, author.epoch)
        with pytest.raises((ThreadNotFoundError, FencedError)):
            await author.threads.hydrate(author.thread_id, author.epoch)

    async def test_a_copy_that_comes_late_is_not_taken_for_a_thread(
        self, author: Author, threads: TieredThreads
    ) -> None:
        """A hydrate that read the archive before the deletion and installs after it."""
        await author.turn("secret")
        await author.flush()
        snapshot = await threads.hot.snapshot(author.thread_id, 0)
        assert snapshot is not None
        await threads.delete(author.thread_id, author.epoch)
        await threads.hot.install(snapshot.header, snapshot.records, replace=False)
        with pytest.raises(ThreadNotFoundError):
            await author.facts()
        later = author.later()
        opened = await later.open()
        assert (opened.created, opened.header.head) == (True, EMPTY)
        assert await later.everything() == ()
