"""The contracts of `ThreadStore`: bind one by a class and a fixture or two.

::

    class TestMyThreads(HotOnlyThreadsContract):
        @pytest.fixture
        async def threads(self): ...              # an empty store of the test's own

    class TestMyTiers(ArchivingThreadsContract):
        @pytest.fixture
        async def blobs(self): ...                # FaultyBlobs around the archive's store

        @pytest.fixture
        async def threads(self, blobs): ...       # TieredThreads over it
"""

from helix_temporal.stores.protocols.threads import FlushStatus, FlushThread, ThreadStore
from helix_temporal.testing.builders import a_message, an_answer
from helix_temporal.testing.contracts._threads_append import SliceContract, StepContract, ViewContract
from helix_temporal.testing.contracts._threads_base import Author, ThreadFixtures
from helix_temporal.testing.contracts._threads_cold import ColdContract, EvictContract, FlushContract
from helix_temporal.testing.contracts._threads_cold_confirm import ConfirmContract
from helix_temporal.testing.contracts._threads_cold_copies import (
    ColdDeleteContract,
    ColdForkContract,
    GivenUpForkContract,
)
from helix_temporal.testing.contracts._threads_cut import CutContract
from helix_temporal.testing.contracts._threads_delete import DeleteContract, IsolationContract
from helix_temporal.testing.contracts._threads_fork import ForkContract
from helix_temporal.testing.contracts._threads_open import FencingContract, OpenContract
from helix_temporal.testing.contracts._threads_read import ReadContract

__all__ = ["ArchivingThreadsContract", "Author", "HotOnlyThreadsContract", "ThreadStoreContract"]


class ThreadStoreContract(
    OpenContract,
    FencingContract,
    CutContract,
    StepContract,
    ViewContract,
    SliceContract,
    ReadContract,
    ForkContract,
    DeleteContract,
    IsolationContract,
):
    """Every promise that all thread stores make, one test each."""

    async def test_the_store_says_whether_it_archives(self, threads: ThreadStore, author: Author) -> None:
        """A receipt never claims more than was done."""
        receipt = await threads.flush(FlushThread(author.thread_id, author.epoch))
        assert (receipt.status is FlushStatus.ARCHIVED) is self.archives


class HotOnlyContract(ThreadFixtures):
    """Without a cold tier flush and hydrate do nothing and say so."""

    async def test_a_flush_says_that_there_is_no_cold_tier(self, author: Author) -> None:
        """Nobody takes the thread for archived."""
        await author.turn()
        receipt = await author.threads.flush(FlushThread(author.thread_id, author.epoch))
        assert (receipt.status, receipt.reason) == (FlushStatus.NO_COLD_TIER, "no_cold_tier")
        assert (await author.facts()).archived == -1

    async def test_a_step_says_that_there_is_no_cold_tier(self, author: Author) -> None:
        """The same for the flush after a step."""
        step = author.step(a_message(), answer=an_answer())
        receipt = await author.threads.archive_step(step, await author.append(step))
        assert receipt.status is FlushStatus.NO_COLD_TIER

    async def test_an_evict_keeps_the_thread(self, author: Author) -> None:
        """It is all there is."""
        await author.turn()
        assert await author.threads.evict(author.thread_id, author.epoch) == "no_cold_tier"
        assert (await author.facts()).hot

    async def test_a_hydrate_finds_nothing(self, author: Author) -> None:
        """There is nothing to take it from."""
        assert await author.threads.hydrate(author.thread_id, author.epoch) is None


class HotOnlyThreadsContract(ThreadStoreContract, HotOnlyContract):
    """The contract of a store without an archive."""


class ArchivingThreadsContract(
    ThreadStoreContract,
    FlushContract,
    EvictContract,
    ConfirmContract,
    ColdContract,
    ColdForkContract,
    GivenUpForkContract,
    ColdDeleteContract,
):
    """The contract of a store with an archive."""

    archives = True
