"""Fork: segments are copied on the server, one manifest makes the new thread."""

from dataclasses import replace

from helix_temporal.blobs import ConditionFailedError
from helix_temporal.coldtier.archive import Archive, SegmentGoneError, Stored, Traffic, retry_on_change
from helix_temporal.coldtier.flush import Flushing
from helix_temporal.coldtier.format import Manifest, encode_index, size_before
from helix_temporal.coldtier.plan import CommitPlan, Draft, Log, plan_commit
from helix_temporal.errors import FencedError
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage, head_after
from helix_temporal.models.turns import check_split
from helix_temporal.stores.protocols.threads import ForkedThread, ForkThread, Progress, Transform, no_progress
from helix_temporal.stores.threads.hot_only import first_answer, origin_of
from helix_temporal.stores.threads.opening import fork_position, thread_not_found_error


class Forking:
    """The fork part of the tiered thread store."""

    def __init__(self, archive: Archive, flushing: Flushing) -> None:
        self._archive, self._flushing = archive, flushing

    async def fork_thread(
        self, request: ForkThread, transform: Transform | None = None, progress: Progress = no_progress
    ) -> ForkedThread:
        """As `ThreadStore.fork`."""
        traffic = Traffic()

        async def try_fork() -> ForkedThread | None:
            target = await self._archive.read_manifest(request.target_id, traffic)
            if not target.manifest.is_absent:
                return first_answer(request, target.manifest.origin)
            _check_deleted(request, target.manifest)
            await self._flushing.archive_hot_thread(request.source_id)
            source = (await self._archive.read_manifest(request.source_id, traffic)).manifest
            cut = await self._find_fork_head(request, source)
            target = await self._archive.ensure_named(target, traffic)
            plan = await self._plan_fork(request, source, target, cut, transform, traffic, progress)
            if not await self._archive.try_commit(plan, target, traffic, progress):
                return None
            return first_answer(request, plan.manifest.origin)

        return await retry_on_change(request.target_id, try_fork, failed="not forked")

    async def find_earlier_fork(self, request: ForkThread) -> ForkedThread | None:
        """What an earlier attempt of this fork answered, None if there was none.

        Raises:
            ThreadExistsError: The target was made by something else.
        """
        target = (await self._archive.read_manifest(request.target_id)).manifest
        return None if target.is_absent else first_answer(request, target.origin)

    async def _plan_fork(
        self,
        request: ForkThread,
        source: Manifest,
        target: Stored,
        cut: Head,
        transform: Transform | None,
        traffic: Traffic,
        progress: Progress,
    ) -> CommitPlan:
        gen = target.manifest.gen
        drafts: tuple[Draft, ...] = ()
        new: tuple[StoredMessage, ...] = ()
        if transform is not None:
            before = await self._archive.read_messages(source, 0, cut.position, progress)
            log, new, cut = Log(None, (), ()), tuple(await transform(before)), EMPTY
        else:
            log = await self._archive.read_log_below(source, cut.position)
            log, drafts = await self._copy_segments(source, request.target_id, log, gen, progress)
        head = head_after(cut, new)
        slice_bytes = await self._archive.read_slice(source) if request.slice is None else request.slice
        data, name = await self._archive.store_slice(request.target_id, gen, slice_bytes, traffic)
        base = replace(Manifest(request.target_id), version=target.manifest.version, gen=gen)
        forked = ForkedThread(
            request.source_id, request.target_id, request.epoch, request.owner, head, head.position,
            1 if slice_bytes else 0, source.adapter,
            size_before(replace(base, index=log.index), log.segments, (*log.inline, *new)),
        )  # fmt: skip
        plan = plan_commit(
            base, log, new,
            nonce=self._archive.make_nonce(), key=self._archive.key, head_before=cut,
            epoch=request.epoch, owner=request.owner, born=request.epoch, closed=False,
            committed=head.position, slice=data, slice_object=name,
            slice_version=forked.slice_version, adapter=forked.adapter, origin=origin_of(forked),
        )  # fmt: skip
        return replace(plan, objects=(*drafts, *plan.objects))

    async def _find_fork_head(self, request: ForkThread, source: Manifest) -> Head:
        if source.is_absent:
            raise thread_not_found_error(request.source_id)
        position = fork_position(request, source.committed)
        around = await self._archive.read_messages(
            source, max(0, position - 1), min(position + 1, source.committed)
        )
        before = around[0] if position else None
        after = around[-1].kind if position < source.committed else None
        check_split(f"thread {request.source_id!r}", position, before and before.kind, after)
        return Head(position=position, last_id=before.id if before else "")

    async def _copy_segments(
        self, source: Manifest, target_id: str, log: Log, gen: int, progress: Progress
    ) -> tuple[Log, tuple[Draft, ...]]:
        """The log as the target's own, named by the target's generation as everything that is written.

        Under its old name a copy could be one that garbage collection of the target has on its list.
        """
        indexed = await self._archive.read_index(source) if log.index is not None else ()
        copies = []
        for number, ref in enumerate((*indexed, *log.segments)):
            copies.append(replace(ref, gen=gen))
            target = self._archive.layout.segment_key(target_id, copies[-1])
            await self._copy_one(self._archive.layout.segment_key(source.thread_id, ref), target, progress)
            progress("copy", number, ref.size, target)
        listed, direct = copies[: len(indexed)], tuple(copies[len(indexed) :])
        if not listed:
            return Log(None, direct, log.inline), ()
        draft = Draft("idx", *encode_index(listed, gen))
        return Log(draft.ref, direct, log.inline), (draft,)

    async def _copy_one(self, source: str, target: str, progress: Progress) -> None:
        if target in progress.finished:
            return
        try:
            await self._archive.blobs.copy(source, target)
        except ConditionFailedError as error:
            raise SegmentGoneError(source) from error


def _check_deleted(request: ForkThread, target: Manifest) -> None:
    """Refuse to revive a target that was deleted after this fork was scheduled.

    Raises:
        FencedError: It was.
    """
    if target.deleted and target.epoch >= request.epoch:
        raise FencedError(
            f"thread {request.target_id!r}: it was deleted after this fork was scheduled; fork again",
            epoch=request.epoch,
            current=target.epoch,
        )
