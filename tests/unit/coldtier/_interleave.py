"""Stop one operation before each of its calls in turn, let another run meanwhile, then look what is left."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

from helix_temporal.testing.contracts._threads_base import Author
from helix_temporal.testing.faults import BlobCall, BlobFault, FaultyBlobs
from tests.unit.coldtier._tiers import Tiers

_slow: ContextVar[bool] = ContextVar("_slow", default=False)

World = TypeVar("World")
Act = Callable[[World], Awaitable[object]]

MAX_CALLS = 60


async def at_every_call(
    make: Callable[[], Awaitable[World]],
    blobs: Callable[[World], FaultyBlobs],
    slow: Act[World],
    fast: Act[World],
    check: Act[World],
) -> int:
    """Returns how many calls ``slow`` makes; each time all begins anew with ``make``."""
    for number in range(MAX_CALLS):
        world = await make()
        if not await _interleaved(blobs(world), number, slow(world), lambda world=world: fast(world)):  # type: ignore[misc]
            return number
        await check(world)
    raise AssertionError(f"over {MAX_CALLS} calls")


async def _interleaved(
    blobs: FaultyBlobs, number: int, slow: Awaitable[object], fast: Callable[[], Awaitable[object]]
) -> bool:
    left = number

    def plan(call: BlobCall) -> BlobFault | None:
        nonlocal left
        if not _slow.get():
            return None
        left -= 1
        return BlobFault.DELAYED if left == -1 else None

    async def run() -> None:
        _slow.set(True)
        await slow

    blobs.plan = plan
    task = asyncio.create_task(run())
    while left >= 0 and not task.done():  # noqa: ASYNC110 (one step at a time)
        await asyncio.sleep(0)
    stopped = left < 0
    if stopped:
        await fast()
    blobs.plan = None
    while not task.done():
        await blobs.release()
        await asyncio.sleep(0.001)
    await task
    return stopped


async def sound(tiers: Tiers, thread_id: str = "t") -> None:
    """Everything that the manifest names is there, and nothing is wrong with the messages."""
    audit = await tiers.worker().upkeep.audit(thread_id)
    assert audit.problems == ()


async def ids(author: Author) -> list[str]:
    """Ids of all messages."""
    return [record.id for record in await author.everything()]
