"""Archives threads that their sessions left in the hot tier, one by one."""

import asyncio
from typing import Final

from helix_temporal._retries import repeat_unanswered
from helix_temporal.errors import FencedError, HeadMovedError, HelixError, StoreUnavailableError
from helix_temporal.models.maintenance import SweepThreadInput, SweepThreadResult
from helix_temporal.stores.protocols.hot import HotHeader, HotTier
from helix_temporal.stores.protocols.threads import FlushThread, Progress, ThreadStore, no_progress

_GIVES_UP_AFTER: Final = 16
"""A pass ends when a store did not answer for so many threads in a row: it is away, and asking takes long."""


async def sweep_threads(
    hot: HotTier, threads: ThreadStore, *, evict: bool, parallel: int
) -> list[SweepThreadResult]:
    """Archive all hot threads, so many at a time; one that a store does not answer for stops no other.

    Raises:
        StoreUnavailableError: A store answered for none of 16 threads, though asked several times for each.
    """
    slots, unanswered = asyncio.Semaphore(parallel), 0

    async def sweep_one(thread_id: str) -> SweepThreadResult:
        nonlocal unanswered
        request = SweepThreadInput(thread_id=thread_id, evict=evict)
        async with slots:
            try:
                result = await repeat_unanswered(lambda: sweep_thread(hot, threads, request))
            except StoreUnavailableError as error:
                unanswered += 1
                if unanswered >= _GIVES_UP_AFTER:
                    raise
                return _describe_failure(thread_id, error)
            unanswered = 0
            return result

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(sweep_one(each)) async for each in hot.scan()]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [each.result() for each in tasks]


async def sweep_thread(
    hot: HotTier, threads: ThreadStore, request: SweepThreadInput, progress: Progress = no_progress
) -> SweepThreadResult:
    """Archive one hot thread under its own epoch; a session that is alive does not notice.

    With ``evict`` its hot copy is dropped once it is archived; a live session then hydrates it with its next
    step.  A thread that cannot be archived for good is reported, not raised: it must not stop a sweep.

    Raises:
        StoreUnavailableError: A store did not answer; repeat the call.
    """
    thread_id = request.thread_id
    try:
        header = await hot.read_header(thread_id)
        if header is None or header.deleted or not threads.archives:
            detail = "" if threads.archives else "no_cold_tier"
            return SweepThreadResult(thread_id=thread_id, outcome="gone", detail=detail)
        return await _archive_thread(threads, header, drops=header.closed or request.evict, progress=progress)
    except StoreUnavailableError:
        raise
    except HelixError as error:
        return _describe_failure(thread_id, error)


async def _archive_thread(
    threads: ThreadStore, header: HotHeader, *, drops: bool, progress: Progress
) -> SweepThreadResult:
    thread_id = header.thread_id
    try:
        flush = FlushThread(thread_id, header.epoch, closes=header.closed, ends=False)
        receipt = await threads.flush(flush, progress)
        evicted = await threads.evict(thread_id, header.epoch) if drops else ""
    except FencedError:
        # Somebody opened it, or deleted it: what is left of the old epoch is dropped.
        evicted = await threads.evict(thread_id, header.epoch)
        return SweepThreadResult(thread_id=thread_id, outcome="clean", detail=evicted)
    except HeadMovedError as error:
        # Its session mends it with its next step, or the next open does; one that has ended does neither.
        evicted = await threads.evict(thread_id, header.epoch) if drops else type(error).__name__
        return SweepThreadResult(thread_id=thread_id, outcome="clean", detail=evicted)
    return SweepThreadResult(
        thread_id=thread_id,
        outcome="archived" if receipt.puts else "clean",
        pending_bytes=receipt.pending_bytes,
        detail=evicted,
    )


def _describe_failure(thread_id: str, error: HelixError) -> SweepThreadResult:
    detail = f"{type(error).__name__}: {error}"[:500]
    return SweepThreadResult(thread_id=thread_id, outcome="failed", detail=detail)
