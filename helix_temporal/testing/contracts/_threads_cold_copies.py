"""Contract of thread stores that archive: forks and deletions in both tiers."""

from dataclasses import replace
from hashlib import sha256

import pytest

from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import ArchiveAccessError, FencedError, InvalidRequestError, ThreadNotFoundError
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.stores.protocols.threads import ForkThread
from helix_temporal.testing.contracts._threads_base import Author, noise
from helix_temporal.testing.contracts._threads_cold import ColdFixtures
from helix_temporal.testing.contracts._threads_fork import copy_of, fork_of
from helix_temporal.testing.faults import BlobCall, BlobFault, FaultyBlobs

HOURS = 3600.0


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


class GivenUpForkContract(ColdFixtures):
    """A fork that dies when everything is copied and before its thread is there."""

    @pytest.fixture(params=["copy", "c" * 200, "~é" * 100], ids=["short", "long", "long and odd"])
    def target_id(self, request: pytest.FixtureRequest, thread_id: str) -> str:
        """Object names hold a short id as it is, and a hash of a long one."""
        return f"{request.param}{thread_id}"

    @pytest.fixture
    async def given_up(self, author: Author, target_id: str, blobs: FaultyBlobs) -> ForkThread:
        """What was to be forked; its copies lie there, and nobody comes back for them."""
        await author.append(author.step(*noise(1000), answer=None, commits=True))
        await author.flush()
        request = replace(fork_of(author), target_id=target_id)
        blobs.forget()

        def after_the_copies(call: BlobCall) -> BlobFault | None:
            is_manifest = call.method == "put" and call.key.endswith("/manifest")
            return BlobFault.NO_ACCESS if is_manifest and blobs.count("copy") else None

        blobs.plan = after_the_copies
        with pytest.raises(ArchiveAccessError):
            await author.threads.fork(request)
        blobs.plan = None
        return request

    async def test_its_copies_are_found_and_removed(
        self, given_up: ForkThread, threads: TieredThreads, blobs: FaultyBlobs
    ) -> None:
        """Nobody else would ever look at them, and they are as large as the conversation."""
        assert given_up.target_id in await archived(threads, given_up.target_id)
        done = await threads.upkeep.collect_garbage(given_up.target_id, abandoned_after=-1.0)
        assert (done.objects_deleted, done.bytes_deleted > 0) == (blobs.count("copy"), True)
        left = [info.key async for info in blobs.list(threads.layout.thread_prefix(given_up.target_id))]
        assert left == [threads.layout.manifest_key(given_up.target_id)]
        with pytest.raises(ThreadNotFoundError):
            await threads.read_facts(given_up.target_id)

    async def test_its_copies_are_kept_while_it_may_go_on(
        self, author: Author, given_up: ForkThread, threads: TieredThreads
    ) -> None:
        """Its next attempt may be writing the manifest right now."""
        before = await author.everything()
        done = await threads.upkeep.collect_garbage(given_up.target_id, abandoned_after=HOURS)
        assert done.objects_deleted == 0
        await threads.fork(given_up)
        assert await copy_of(author, given_up).everything() == before

    async def test_it_may_be_tried_again_after_its_copies_went(
        self, author: Author, given_up: ForkThread, threads: TieredThreads
    ) -> None:
        """Late, but not too late: everything is copied once more."""
        before = await author.everything()
        await threads.upkeep.collect_garbage(given_up.target_id, abandoned_after=-1.0)
        await threads.fork(given_up)
        assert await copy_of(author, given_up).everything() == before

    async def test_a_fork_that_came_to_be_keeps_its_segments(
        self, author: Author, given_up: ForkThread, threads: TieredThreads
    ) -> None:
        """Maintenance comes by every thread, however old it is; this one is found as any other is."""
        await threads.fork(given_up)
        before = await author.everything()
        assert given_up.target_id in await archived(threads, given_up.target_id)
        await threads.upkeep.collect_garbage(given_up.target_id, abandoned_after=-1.0)
        assert await copy_of(author, given_up).everything() == before
        assert (await threads.upkeep.audit(given_up.target_id)).problems == ()

    async def test_a_fork_that_is_refused_leaves_no_trace(
        self, author: Author, target_id: str, threads: TieredThreads, blobs: FaultyBlobs
    ) -> None:
        """A mistyped position leaves nothing that would be kept for ever."""
        await author.turn()
        with pytest.raises(InvalidRequestError):
            await threads.fork(replace(fork_of(author, at=99), target_id=target_id))
        assert [info async for info in blobs.list(threads.layout.thread_prefix(target_id))] == []


async def archived(threads: TieredThreads, thread_id: str) -> list[str]:
    """The threads that the maintenance worker finds in the part of the archive that this one is in."""
    part = int(sha256(thread_id.encode()).hexdigest()[:2], 16)
    return [each.thread_id async for each in threads.upkeep.list_archived(part)]


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
        left = [info async for info in blobs.list(threads.layout.thread_prefix(author.thread_id))]
        assert [info.key for info in left] == [threads.layout.manifest_key(author.thread_id)]
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
        snapshot = await threads.hot.read_snapshot(author.thread_id, 0)
        assert snapshot is not None
        await threads.delete(author.thread_id, author.epoch)
        await threads.hot.install(snapshot.header, snapshot.messages, replace=False)
        with pytest.raises(ThreadNotFoundError):
            await author.facts()
        later = author.later()
        opened = await later.open()
        assert (opened.created, opened.header.head) == (True, EMPTY)
        assert await later.everything() == ()
