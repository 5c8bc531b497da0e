"""Activities ``helix.maintenance.*``: what ``finally`` cannot cover, and the archive's upkeep."""

from temporalio import activity

from helix_temporal.activities._context import beating
from helix_temporal.activities._errors import typed
from helix_temporal.activities._limits import limited_as
from helix_temporal.errors import FencedError, HeadMovedError, HelixError, StoreUnavailableError
from helix_temporal.models.maintenance import (
    KeepThreadInput,
    KeepThreadResult,
    ListArchivedInput,
    ListArchivedResult,
    ListHotInput,
    ListHotResult,
    SweepThreadInput,
    SweepThreadResult,
)
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.threads import FlushThread, ThreadStore
from helix_temporal.stores.protocols.upkeep import ArchiveUpkeep


class MaintenanceActivities:
    """The janitor's hands.

    Args:
        upkeep: The archive's; None where there is none, and then there is nothing to archive either.
    """

    def __init__(
        self, hot: HotTier, threads: ThreadStore, upkeep: ArchiveUpkeep | None, *, beat_every: float = 1.0
    ) -> None:
        self._hot, self._threads, self._upkeep, self._beat_every = hot, threads, upkeep, beat_every

    @activity.defn(name="helix.maintenance.list_hot")
    @typed
    @limited_as("maintenance")
    async def list_hot(self, request: ListHotInput) -> ListHotResult:
        """Scan the hot prefix; only active threads are there, so the list stays small."""
        async with beating(self._beat_every):
            found = sorted([thread_id async for thread_id in self._hot.scan() if thread_id > request.after])
        return ListHotResult(thread_ids=tuple(found[: request.limit]), more=len(found) > request.limit)

    @activity.defn(name="helix.maintenance.sweep_thread")
    @typed
    @limited_as("maintenance")
    async def sweep_thread(self, request: SweepThreadInput) -> SweepThreadResult:
        """Archive one hot thread under its own epoch; a session that is alive does not notice.

        With ``evict`` its hot copy is dropped once it is archived; a live session then hydrates it with
        its next step.  A thread that cannot be archived for good is reported, not raised: it must not
        stop a sweep.
        """
        header = await self._hot.header(request.thread_id)
        if header is None or header.deleted or self._upkeep is None:
            detail = "no_cold_tier" if self._upkeep is None else ""
            return SweepThreadResult(thread_id=request.thread_id, outcome="gone", detail=detail)
        try:
            async with beating(self._beat_every) as progress:
                receipt = await self._threads.flush(
                    FlushThread(request.thread_id, header.epoch, closes=header.closed, ends=False),
                    progress,
                )
                evicted = ""
                if header.closed or request.evict:
                    evicted = await self._threads.evict(request.thread_id, header.epoch)
        except StoreUnavailableError:
            raise
        except FencedError:
            # Somebody opened it, or deleted it: what is left of the old epoch is dropped.
            evicted = await self._threads.evict(request.thread_id, header.epoch)
            return SweepThreadResult(thread_id=request.thread_id, outcome="clean", detail=evicted)
        except HeadMovedError as error:
            # Its session mends it with its next step, or the next open does; one that has ended does neither.
            evicted = type(error).__name__
            if header.closed or request.evict:
                evicted = await self._threads.evict(request.thread_id, header.epoch)
            return SweepThreadResult(thread_id=request.thread_id, outcome="clean", detail=evicted)
        except HelixError as error:
            return SweepThreadResult(
                thread_id=request.thread_id, outcome="failed", detail=f"{type(error).__name__}: {error}"[:500]
            )
        outcome = "archived" if receipt.puts else "clean"
        return SweepThreadResult(
            thread_id=request.thread_id, outcome=outcome, pending_bytes=receipt.pending_bytes, detail=evicted
        )

    @activity.defn(name="helix.maintenance.list_archived")
    @typed
    @limited_as("maintenance")
    async def list_archived(self, request: ListArchivedInput) -> ListArchivedResult:
        """List one part of the archive; what is cold is found here and nowhere else."""
        if self._upkeep is None:
            return ListArchivedResult()
        async with beating(self._beat_every):
            found = sorted(
                [each async for each in self._upkeep.archived(request.part) if each > request.after]
            )
        return ListArchivedResult(thread_ids=tuple(found[: request.limit]), more=len(found) > request.limit)

    @activity.defn(name="helix.maintenance.keep_thread")
    @typed
    @limited_as("maintenance")
    async def keep_thread(self, request: KeepThreadInput) -> KeepThreadResult:
        """Merge small segments, delete what no manifest names, verify what is there."""
        if self._upkeep is None:
            return KeepThreadResult(thread_id=request.thread_id)
        upkeep = self._upkeep
        fields: dict[str, int] = {}
        async with beating(self._beat_every) as progress:
            if request.compact:
                done = await upkeep.compact(request.thread_id, progress)
                fields |= {"segments_before": done.segments_before, "segments_after": done.segments_after}
            if request.collect_garbage:
                done = await upkeep.collect_garbage(
                    request.thread_id, progress, abandoned_after=request.abandoned_after
                )
                fields |= {"objects_deleted": done.objects_deleted, "bytes_deleted": done.bytes_deleted}
            problems: tuple[str, ...] = ()
            if request.audit:
                problems = (await upkeep.audit(request.thread_id, progress)).problems
        return KeepThreadResult(thread_id=request.thread_id, problems=problems, **fields)
