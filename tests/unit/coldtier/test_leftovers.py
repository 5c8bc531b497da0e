"""Hot threads that a deletion or a later open left behind: dropped by whoever comes by, never revived."""

from helix_temporal.stores.protocols.threads import OpenThread, ReadPage
from helix_temporal.stores.threads.sweep import sweep_thread
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
    assert await tiers.hot.read_header("t") is None


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
    assert len(page.messages) == opened.header.head.position


async def test_the_thread_of_the_present_epoch_is_left_alone() -> None:
    """An old execution's clean-up does not touch its successor's thread."""
    tiers = Tiers()
    author = await tiers.author()
    await author.turn()
    await tiers.worker().open(OpenThread("t", author.epoch + 1, "next"))
    assert await tiers.worker().evict("t", author.epoch) == "newer"
    assert await tiers.hot.read_header("t") is not None


async def test_a_copy_of_an_earlier_time_of_the_present_epoch_is_dropped() -> None:
    """Redis was restored after the session had ended: nobody opens its thread, so it would stay for ever."""
    tiers = Tiers()
    author = await tiers.author()
    kept = tiers.hot.backup()
    await author.turn()
    await author.flush()
    assert await tiers.worker().evict("t", author.epoch) == "dropped"
    tiers.hot.restore(kept)
    swept = await sweep_thread(tiers.hot, tiers.worker(), "t", evict=True)
    assert (swept.outcome, swept.detail) == ("clean", "dropped")
    assert await tiers.hot.read_header("t") is None
    assert len((await tiers.worker().read(ReadPage("t"))).messages) == 2


async def test_a_copy_with_something_that_the_archive_lacks_is_kept() -> None:
    """Whatever else is older in it: a message that is nowhere else must not go."""
    tiers = Tiers()
    author = await tiers.author()
    await author.threads.save_slice("t", author.epoch, b"old", 0)
    kept = tiers.hot.backup()
    await author.threads.save_slice("t", author.epoch, b"new", 1)
    await author.flush()
    tiers.hot.restore(kept)
    await author.turn()
    assert await tiers.worker().evict("t", author.epoch) == "newer"
    assert await tiers.hot.read_header("t") is not None
