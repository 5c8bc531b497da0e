"""Flush: archive what is hot, by compare-and-swap, and know for certain that it is there.

`Flushing` does it: `plan.decide_flush` says what is missing, `Archive.store_slice` puts a large slice aside,
`plan.plan_commit` says what else is uploaded, and `Archive.commit_plan` uploads it.
`Breaker` stops trying for a moment when the archive fails for several threads in a row; `Backlog` counts
what is hot alone.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from helix_temporal.coldtier.archive import (
    Archive,
    SegmentGoneError,
    Stored,
    Traffic,
    UnansweredWriteError,
    retry_on_change,
)
from helix_temporal.coldtier.format import Manifest
from helix_temporal.coldtier.plan import CommitPlan, FlushDecision, decide_flush, plan_commit, whole_log
from helix_temporal.errors import (
    ColdRegressedError,
    ColdTierBehindError,
    FencedError,
    HeadMovedError,
    HelixError,
    StoreUnavailableError,
)
from helix_temporal.models.stored_messages import EMPTY, Head, size_of
from helix_temporal.stores.protocols.hot import (
    NEVER_ARCHIVED,
    SINCE_ARCHIVED,
    Appended,
    HotHeader,
    HotSnapshot,
    HotTier,
    StepAppend,
)
from helix_temporal.stores.protocols.threads import (
    FlushReceipt,
    FlushStatus,
    FlushThread,
    Progress,
    no_progress,
)
from helix_temporal.stores.threads.fences import Fence

THREADS: Final = 3
"""So many different threads must fail in a row."""
PAUSE_SECONDS: Final = 1.0
"""While it is open one step in so many seconds tries the archive."""


class Breaker:
    """Keeps steps from waiting for an archive that answers nobody.

    A slow or failed PUT of one thread says nothing of another.  The breaker opens when `THREADS` different
    threads have failed and none has succeeded meanwhile; the next success, of whatever thread, closes it.
    """

    def __init__(self) -> None:
        self._failed: set[str] = set()
        self._next_try = 0.0

    @property
    def is_open(self) -> bool:
        """Whether steps go without the archive."""
        return len(self._failed) >= THREADS

    def admit_try(self, now: float) -> bool:
        """Whether a step may try the archive; while it is open this counts as the try."""
        if not self.is_open:
            return True
        if now < self._next_try:
            return False
        self._next_try = now + PAUSE_SECONDS
        return True

    def note_failure(self, thread_id: str, now: float) -> None:
        """A try for this thread failed."""
        if not self.is_open:
            self._failed.add(thread_id)
            self._next_try = now + PAUSE_SECONDS

    def note_success(self) -> None:
        """The archive took a step, or said who has the thread."""
        self._failed.clear()


logger = logging.getLogger(__name__)

_REASON_CHARACTERS: Final = 200
"""At most so many of an error's text: it is in the history of each turn that is not archived."""
STEP_SECONDS: Final = 2.0
BACKLOG_SECONDS: Final = 60.0


_Tiers = tuple[HotSnapshot | None, Stored]
"""A hot thread and its manifest, as they were read."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much may be hot and unarchived before turns are refused."""

    max_bytes: int = 64 * 1024 * 1024
    max_seconds: float = 3600.0


class Flushing:
    """The flush part of the tiered thread store."""

    def __init__(
        self,
        hot: HotTier,
        archive: Archive,
        backlog: Backlog,
        clock: Callable[[], float] = time.time,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        self._hot, self._archive, self._backlog, self._clock = hot, archive, backlog, clock
        self._step_seconds = step_seconds
        self.breaker = Breaker()
        self._failed_by = ""
        """What the newest step failed by, without its thread: others are told it."""

    async def flush_thread(
        self,
        request: FlushThread,
        progress: Progress = no_progress,
        *,
        first_try: HotSnapshot | None = None,
        known: str = "",
        traffic: Traffic | None = None,
    ) -> FlushReceipt:
        """As `ThreadStore.flush`.

        A hot thread is archived over a manifest that was there before it was read.  Otherwise it may be one
        that was lost meanwhile, and the manifest that of the hot thread which has taken its place.

        Args:
            request: What to archive.
            progress: Told of objects that are moved.
            first_try: What the caller just appended.
            known: Etag of the manifest that was known before ``first_try`` was read; empty for none.
            traffic: Counts what is moved.
        """
        traffic, thread_id = traffic or Traffic(), request.thread_id
        remembered = self._archive.find_remembered(thread_id)
        if remembered is not None:
            hot = first_try if remembered.etag == known else None
            hot = hot or await self._hot.read_snapshot(thread_id, SINCE_ARCHIVED)
            # These inputs may be stale: if they do not fit, both are read again below.
            with contextlib.suppress(SegmentGoneError, UnansweredWriteError, HelixError):
                if receipt := await self._try_flush(request, (hot, remembered), traffic, progress):
                    return receipt
            self._archive.forget_manifest(thread_id)

        async def flush_anew() -> FlushReceipt | None:
            return await self._flush_anew(request, traffic, progress)

        return await retry_on_change(thread_id, flush_anew, failed="not archived")

    async def _flush_anew(
        self, request: FlushThread, traffic: Traffic, progress: Progress
    ) -> FlushReceipt | None:
        stored = await self._archive.read_manifest(request.thread_id, traffic)
        hot = await self._hot.read_snapshot(request.thread_id, SINCE_ARCHIVED)
        try:
            return await self._try_flush(request, (hot, stored), traffic, progress)
        except (ColdRegressedError, HeadMovedError):
            # If the archive has grown between the two looks, it only looks as if it had gone back.
            if (await self._archive.read_manifest(request.thread_id, traffic)).etag == stored.etag:
                raise
            return None

    async def _try_flush(
        self, request: FlushThread, tiers: _Tiers, traffic: Traffic, progress: Progress
    ) -> FlushReceipt | None:
        """The receipt of a manifest that holds what was asked for; None if it is unclear whether one does."""
        hot, stored = tiers
        decision = await self._decide_flush(request, hot, stored.manifest)
        if decision.done:
            return _build_receipt(stored.manifest, hot, traffic)
        plan = await self._plan_flush(request, decision, stored.manifest, traffic)
        if not await self._archive.try_commit(plan, stored, traffic, progress):
            return None
        return _build_receipt(plan.manifest, hot, traffic)

    async def _decide_flush(
        self, request: FlushThread, hot: HotSnapshot | None, archive: Manifest
    ) -> FlushDecision:
        mine = request.mine or request.known_head
        holds = mine is not None and await self._archive.holds(archive, mine)
        return decide_flush(request, hot, archive, archive_holds_mine=holds)

    async def _plan_flush(
        self, request: FlushThread, decision: FlushDecision, archive: Manifest, traffic: Traffic
    ) -> CommitPlan:
        log = whole_log(archive)
        changes: dict[str, Any] = {
            "closed": request.closes or archive.closed,
            "ended": (request.closes and request.ends) or archive.ended,
        }
        if decision.header is not None:
            changes |= await self._from_hot(decision.header, archive, traffic)
        return plan_commit(
            archive,
            log,
            decision.messages,
            nonce=self._archive.make_nonce(),
            key=self._archive.key,
            head_before=EMPTY if archive.is_absent else archive.head,
            **changes,
        )

    async def _from_hot(self, header: HotHeader, archive: Manifest, traffic: Traffic) -> dict[str, Any]:
        changes: dict[str, Any] = {
            "committed": max(header.committed, archive.committed),
            "adapter": header.adapter or archive.adapter,
        }
        if archive.is_absent:
            changes |= {"epoch": header.epoch, "owner": header.owner, "born": header.born}
            changes |= {"origin": header.origin, "deleted": False}
        if header.slice_version != archive.slice_version or archive.is_absent:
            data, name = await self._archive.store_slice(header.thread_id, archive.gen, header.slice, traffic)
            changes |= {"slice": data, "slice_object": name, "slice_version": header.slice_version}
        return changes

    async def archive_hot_thread(self, thread_id: str) -> None:
        """Archive what is hot, under the hot thread's own epoch, before the archive is copied.

        A hot thread that does not continue the archive is ignored: the archive counts.
        """
        header = await self._hot.read_header(thread_id)
        if header is None or header.deleted:
            return
        try:
            await self.flush_thread(FlushThread(thread_id, header.epoch, closes=header.closed, ends=False))
        except (FencedError, HeadMovedError) as error:
            logger.info("thread %s: taken from its archive alone: %s", thread_id, error)

    async def archive_step(self, step: StepAppend, appended: Appended) -> FlushReceipt:
        """Archive the step that was just appended; an archive that is down is a receipt, not an error.

        One try of a few seconds, none while the `Breaker` is open.

        Raises:
            FencedError, HeadMovedError: As flush.
            StoreUnavailableError: It refused the swap and then did not say why: somebody else may have
                the thread, or hot may have been rolled back, so the step cannot be called done.
        """
        header, traffic = appended.header, Traffic()
        if not self.breaker.admit_try(self._clock()):
            reason = f"not tried: steps of {THREADS} or more threads failed, none succeeded; the last: "
            return replace(_not_archived(header, reason + self._failed_by), tried=False)
        request, first_try = _of_step(step, appended)
        try:
            async with asyncio.timeout(self._step_seconds):
                receipt = await self.flush_thread(
                    request, first_try=first_try, known=appended.manifest, traffic=traffic
                )
        except (StoreUnavailableError, TimeoutError) as error:
            self.breaker.note_failure(step.thread_id, self._clock())
            if traffic.refused:
                raise StoreUnavailableError(
                    f"thread {step.thread_id!r}: the archive refused the step and did not say why; try again"
                ) from error
            if isinstance(error, TimeoutError):
                within = f"within {self._step_seconds:g} s (HELIX_TIMEOUT_FLUSH_ATTEMPT)"
                self._failed_by = reason = f"TimeoutError: the archive did not answer {within}"
            else:
                self._failed_by = _describe_to_others(error)
                reason = f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
            return _not_archived(header, reason)
        except (FencedError, HeadMovedError):
            self.breaker.note_success()
            raise
        if traffic.puts or traffic.gets:
            self.breaker.note_success()
        return receipt

    async def confirm_step(self, step: StepAppend, appended: Appended) -> None:
        """As `ThreadStore.confirm_step`, for a step that is the first behind what is known to be archived.

        A hot thread that is not archived is never evicted.  So one look is enough, for this step and for all
        that follow it.

        Raises:
            FencedError, HeadMovedError: As flush.
            StoreUnavailableError: The archive did not answer; it cannot be told.
        """
        request, hot = _of_step(step, appended)
        if hot is not None:
            try:
                await self._check_against_archive(request, hot)
            except HelixError as error:
                if error.retryable:
                    raise
                # Judged on a part of the hot thread.
            else:
                return
        await self._check_against_archive(
            request, await self._hot.read_snapshot(step.thread_id, SINCE_ARCHIVED)
        )

    async def confirm_standing(self, thread_id: str, epoch: int, head: Head) -> None:
        """As `ThreadStore.confirm_standing`."""
        await self._check_against_archive(
            FlushThread(thread_id, epoch, mine=head),
            await self._hot.read_snapshot(thread_id, SINCE_ARCHIVED),
        )

    async def _check_against_archive(self, request: FlushThread, hot: HotSnapshot | None) -> None:
        async def decide_by_archive(archive: Manifest) -> FlushDecision:
            return await self._decide_flush(request, hot, archive)

        await self._archive.with_manifest(request.thread_id, decide_by_archive)

    async def confirm_head(self, thread_id: str, epoch: int, head: Head) -> None:
        """As `ThreadStore.confirm_head`."""
        try:
            async with asyncio.timeout(self._step_seconds):
                archive = (await self._archive.read_manifest(thread_id)).manifest
        except TimeoutError as error:
            raise StoreUnavailableError(
                f"thread {thread_id!r}: the archive did not answer in {self._step_seconds:.0f} s; try again"
            ) from error
        Fence.of(archive).check_not_replaced(epoch)
        if archive.epoch == epoch and archive.head.position > head.position:
            raise HeadMovedError(
                f"thread {thread_id!r}: the archive has gone on to {archive.head.position}, the hot thread "
                f"is at {head.position} and went back to an older copy; open it again",
                thread_id=thread_id,
            )

    async def check_backlog(self, header: HotHeader) -> None:
        """Archive now what has waited too long, and refuse new work if that fails.

        Raises:
            ColdTierBehindError: More than the allowed bytes are unarchived, or for longer than allowed,
                and the archive does not take them.
            FencedError, HeadMovedError: As flush.
        """
        if not self._is_backlog_exceeded(header):
            return
        # The hint in the header lags by a step, so this mostly finds nothing left to do; with
        # ``flush="exit"`` it is what keeps a long session from running away from its archive.
        try:
            async with asyncio.timeout(BACKLOG_SECONDS):
                await self.flush_thread(FlushThread(header.thread_id, header.epoch))
        except (StoreUnavailableError, TimeoutError) as error:
            raise self._too_far_behind(header) from error

    def _too_far_behind(self, header: HotHeader) -> ColdTierBehindError:
        return ColdTierBehindError(
            f"thread {header.thread_id!r}: {_unarchived_bytes(header)} bytes are not "
            f"archived since {header.unarchived_since} ms; at most {self._backlog.max_bytes} bytes or "
            f"{self._backlog.max_seconds:.0f} s are allowed: the archive must come back first"
        )

    def _is_backlog_exceeded(self, header: HotHeader) -> bool:
        if header.archived == NEVER_ARCHIVED:
            return False
        waiting = self._clock() - header.unarchived_since / 1000 if header.unarchived_since else 0.0
        return _unarchived_bytes(header) > self._backlog.max_bytes or waiting > self._backlog.max_seconds


def _of_step(step: StepAppend, appended: Appended) -> tuple[FlushThread, HotSnapshot | None]:
    """What must be archived of a step, and the part of the hot thread that it is, if it is its end."""
    header = appended.header
    # The first answer may have asked for tools where ours ended the turn.
    commits = step.commits and header.committed >= appended.head.position
    request = FlushThread(step.thread_id, step.epoch, mine=appended.head, commits=commits)
    if appended.head != header.head:
        return request, None
    # The hot thread starts, as far as this looks, with the step itself.
    own = replace(header, base=step.head)
    return request, HotSnapshot(own, step.head.position, appended.messages)


def _build_receipt(manifest: Manifest, hot: HotSnapshot | None, traffic: Traffic) -> FlushReceipt:
    pending = (
        size_of(hot.messages[manifest.head.position - hot.first :])
        if hot and _is_hot_ahead(hot, manifest)
        else 0
    )
    return FlushReceipt(
        FlushStatus.ARCHIVED,
        head=manifest.head,
        committed=manifest.committed,
        version=manifest.version,
        segments=len(manifest.segments),
        puts=traffic.puts,
        gets=traffic.gets,
        uploaded=traffic.uploaded,
        pending_bytes=pending,
    )


def _is_hot_ahead(hot: HotSnapshot, manifest: Manifest) -> bool:
    return hot.header.head.position > manifest.head.position >= hot.first


def _describe_to_others(error: StoreUnavailableError) -> str:
    """What the archive said, without the key, which names a thread."""
    said = [str(each) for each in map(error.facts.get, ("status", "code")) if each]
    return f"{type(error).__name__}: {' '.join(said) or 'the archive did not answer'}"


def _not_archived(header: HotHeader, reason: str) -> FlushReceipt:
    return FlushReceipt(FlushStatus.UNAVAILABLE, pending_bytes=_unarchived_bytes(header), reason=reason)


def _unarchived_bytes(header: HotHeader) -> int:
    """What a hot thread holds beyond its archive, as far as its header knows: it may lag by a step."""
    archived = 0 if header.archived == NEVER_ARCHIVED else header.archived_size
    return max(header.size - archived, 0)
