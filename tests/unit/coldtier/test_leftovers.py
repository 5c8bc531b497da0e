"""Hot records that a deletion or a later open left behind: dropped by whoever comes by, never revived."""

from helix_temporal.stores.protocols.threads import OpenThread, ReadPage
from tests.unit.coldtier._tiers import Tiers


async def test_a_copy_that_outlived_its_deletion_is_dropped() -> None:
    """A late hydrate may put it there; nobody would ever ask for it again, and it never expires."""
    tiers = Tiers()
    author = await tiers.author()
    await author.turn()
    kept = tiers.hot.backup()
    await tiers.worker().delete("t", author.epoch + 1)
    tiers.hot.restore(kept)
    assert await tiers.worker().evict("t", author.epoch) == "dropped"
    assert await tiers.hot.header("t") is None


async def test_a_copy_of_an_older_epoch_is_dropped_and_the_archive_has_everything() -> None:
    """A Redis that was restored from an old copy holds threads that have gone on since."""
    tiers = Tiers()
    author = await tiers.author()
    await author.turn()
    kept = tiers.hot.backup()
    later = tiers.worker()
    opened = await later.open(OpenThread("t", author.epoch + 1, "next"))
    assert await later.evict("t", author.epoch + 1) == "dropped"
    tiers.hot.restore(kept)
    assert await tiers.worker().evict("t", author.epoch) == "dropped"
    page = await tiers.worker().read(ReadPage("t"))
    assert len(page.records) == opened.header.head.position


async def test_the_record_of_the_present_epoch_is_left_alone() -> None:
    """An old execution's clean-up does not touch its successor's thread."""
    tiers = Tiers()
    author = await tiers.author()
    await author.turn()
    await tiers.worker().open(OpenThread("t", author.epoch + 1, "next"))
    assert await tiers.worker().evict("t", author.epoch) == "newer"
    assert await tiers.hot.header("t") is not None
