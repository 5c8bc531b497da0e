"""Archives threads that their sessions left in the hot tier, one by one."""

from helix_temporal.errors import FencedError, HeadMovedError, HelixError, StoreUnavailableError
from helix_temporal.models.maintenance import SweepThreadInput, SweepThreadResult
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.threads import FlushThread, Progress, ThreadStore, no_progress


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
    header = await hot.read_header(thread_id)
    if header is None or header.deleted or not threads.archives:
        detail = "" if threads.archives else "no_cold_tier"
        return SweepThreadResult(thread_id=thread_id, outcome="gone", detail=detail)
    drops = header.closed or request.evict
    try:
        flush = FlushThread(thread_id, header.epoch, closes=header.closed, ends=False)
        receipt = await threads.flush(flush, progress)
        evicted = await threads.evict(thread_id, header.epoch) if drops else ""
    except StoreUnavailableError:
        raise
    except FencedError:
        # Somebody opened it, or deleted it: what is left of the old epoch is dropped.
        evicted = await threads.evict(thread_id, header.epoch)
        return SweepThreadResult(thread_id=thread_id, outcome="clean", detail=evicted)
    except HeadMovedError as error:
        # Its session mends it with its next step, or the next open does; one that has ended does neither.
        evicted = await threads.evict(thread_id, header.epoch) if drops else type(error).__name__
        return SweepThreadResult(thread_id=thread_id, outcome="clean", detail=evicted)
    except HelixError as error:
        detail = f"{type(error).__name__}: {error}"[:500]
        return SweepThreadResult(thread_id=thread_id, outcome="failed", detail=detail)
    return SweepThreadResult(
        thread_id=thread_id,
        outcome="archived" if receipt.puts else "clean",
        pending_bytes=receipt.pending_bytes,
        detail=evicted,
    )
