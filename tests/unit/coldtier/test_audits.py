"""An audit beside anything that changes a thread is no false alarm, and every kind of damage is one."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from helix_temporal.stores.protocols.threads import Audit, ForkThread, OpenThread
from helix_temporal.testing.contracts._threads_base import Author, noise
from tests.unit.coldtier._interleave import at_every_call
from tests.unit.coldtier._tiers import Tiers

World = tuple[Tiers, Author]
Change = Callable[[World], Awaitable[object]]


async def make_world() -> World:
    """A hot thread with a dozen segments and a message that is not archived."""
    tiers = Tiers()
    author = await tiers.author()
    for number in range(12):
        await author.append(author.step(*noise(60, prefix=f"{number}-"), answer=None))
        await author.flush()
    await author.turn()
    return tiers, author


async def merge(world: World) -> None:
    """Segments become other ones, and are deleted."""
    upkeep = world[0].worker().upkeep
    await upkeep.compact("t")
    await upkeep.collect_garbage("t")


async def append(world: World) -> None:
    """A turn that is archived."""
    author = world[0].elsewhere(world[1])
    await author.append(author.step(*noise(70, prefix="new"), answer=None))
    await author.flush()


async def end(world: World) -> None:
    """The session ends and its thread is cold."""
    await world[0].elsewhere(world[1]).go_cold()


async def reopen(world: World) -> None:
    """A later run takes it over, says something and ends."""
    later = replace(world[1].later(), threads=world[0].worker())
    await later.open()
    await later.turn("again")
    await later.go_cold()


async def delete(world: World) -> None:
    """Nothing but a tombstone is left."""
    await world[0].worker().delete("t", world[1].epoch + 1)


async def delete_and_begin_anew(world: World) -> None:
    """Another thread of the same id."""
    await delete(world)
    author = replace(world[1].later(by=5_000_000), threads=world[0].worker())
    await author.threads.open(OpenThread("t", author.epoch, "another"))


async def fork(world: World) -> None:
    """Its objects are copied."""
    await world[0].worker().fork(ForkThread("t", "copy", world[1].epoch + 1, "fork"))


async def lose_hot(world: World) -> None:
    """The hot store restarts without its data."""
    await world[1].flush()
    world[0].wipe()


@pytest.mark.parametrize("reads_data", [True, False])
@pytest.mark.parametrize(
    "change", [merge, append, end, reopen, delete, delete_and_begin_anew, fork, lose_hot]
)
async def test_no_change_in_the_middle_of_an_audit_is_damage(change: Change, reads_data: bool) -> None:
    """Before each of its calls in turn: whoever is called for nothing will not come the next time."""
    found: list[Audit] = []
    listed = []

    async def audit(world: World) -> None:
        tiers = world[0]
        # A listing of before the change, as a pass over all threads has it.
        objects = [each async for each in tiers.bucket.list(tiers.threads.layout.thread_prefix("t"))]
        listed.append(objects)
        reader = tiers.worker().for_reading()
        found.append(await reader.upkeep.audit("t", objects=objects, reads_data=reads_data))

    async def no_check(_: World) -> None:
        return

    calls = await at_every_call(make_world, lambda world: world[0].blobs, audit, change, no_check)
    assert calls > 0
    assert [each.problems for each in found if each.problems] == []


async def break_index(tiers: Tiers) -> None:
    """The list of the oldest segments is another one."""
    keys = [key for key in await tiers.keys() if key.startswith("idx/")]
    await spoil(tiers, keys[0])


async def lose_state(tiers: Tiers) -> None:
    """The object of a large state is gone."""
    (key,) = [key for key in await tiers.keys() if key.startswith("state/")]
    await tiers.bucket.delete(tiers.threads.layout.thread_prefix("t") + key)


async def swap_segments(tiers: Tiers) -> None:
    """One object has the bytes of another one."""
    prefix = tiers.threads.layout.thread_prefix("t")
    one, other = [key for key in await tiers.keys() if key.startswith("seg/")][:2]
    await tiers.bucket.copy(prefix + one, prefix + other)


async def put_old_manifest(tiers: Tiers) -> None:
    """A restore brought an older archive than the hot store has seen."""
    manifest = await tiers.manifest()
    await tiers.forge(replace(manifest, head=manifest.head, epoch=manifest.epoch - 1))


async def spoil(tiers: Tiers, key: str) -> None:
    """One byte is another one."""
    key = tiers.threads.layout.thread_prefix("t") + key
    blob = await tiers.bucket.get(key)
    assert blob is not None
    await tiers.bucket.put(key, blob.data[:-1] + bytes([blob.data[-1] ^ 1]))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (break_index, "checksum does not match"),
        (lose_state, "is named by the manifest and missing"),
        (swap_segments, "expected"),
        (put_old_manifest, "ColdRegressedError"),
    ],
)
async def test_damage_of_each_kind_is_found(damage: Callable[[Tiers], Awaitable[None]], said: str) -> None:
    """Those of segments and of the manifest are tried with the pass over all threads."""
    tiers = Tiers()
    author = await tiers.author()
    for number in range(100):
        await author.append(author.step(*noise(50, prefix=f"{number}-", size=3000), answer=None))
        await author.flush()
    await tiers.threads.save_slice("t", author.epoch, bytes(range(256)) * 4000, 0)
    await author.flush()
    await merge((tiers, author))
    assert (await tiers.worker().upkeep.audit("t")).problems == ()
    await damage(tiers)
    (problem,) = (await tiers.worker().upkeep.audit("t")).problems
    assert said in problem
