"""Flush: archive what is hot, by compare-and-swap, and know for certain that it is there.

`Flushing` does it: `Archive.store_slice` puts a large slice aside, `plan.plan_commit` says what else is
uploaded, and `Archive.commit_plan` uploads it.
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

from helix_temporal.coldtier.archive import Archive, SegmentGoneError, Stored, Traffic, retry_on_change
from helix_temporal.coldtier.format import Manifest
from helix_temporal.coldtier.plan import CommitPlan, plan_commit, whole_log
from helix_temporal.errors import (
    ColdRegressedError,
    ColdTierBehindError,
    FencedError,
    HeadMovedError,
    HelixError,
    StoreUnavailableError,
    ThreadNotFoundError,
)
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage, size_of
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


def check_regressed(hot: HotSnapshot | None, archive: Manifest) -> None:
    """Refuse an archive that holds less than the hot tier has seen in it.

    Raises:
        ColdRegressedError: It was deleted, or an older copy was restored.
    """
    if hot is None or hot.header.archived == NEVER_ARCHIVED or hot.header.epoch < archive.epoch:
        return
    if hot.header.epoch > archive.epoch or hot.header.archived > archive.head.position:
        raise ColdRegressedError(
            f"thread {archive.thread_id!r}: the archive stands at {archive.head.position} (epoch "
            f"{archive.epoch}), but {hot.header.archived} messages (epoch {hot.header.epoch}) were seen in "
            "it; restore its objects, nothing was written"
        )


def continues_archive(hot: HotSnapshot | None, archive: Manifest) -> bool:
    """Whether hot may go on from the archive: same message at its last position, epoch not lower."""
    # Over a tombstone nothing goes on: a hot copy is what a late hydrate left there.
    if hot is None or hot.header.deleted or archive.deleted or hot.header.epoch < archive.epoch:
        return False
    if archive.is_absent:
        return hot.header.base.position == 0
    if archive.closed and hot.header.epoch == archive.epoch and hot.header.head != archive.head:
        return False  # what a late attempt added to a copy that did not know of the closing
    return hot.holds(archive.head)


def is_old_copy(hot: HotSnapshot, archive: Manifest) -> bool:
    """Whether a hot thread of the archive's epoch does not go on from it, or has less beside its messages."""
    header = hot.header
    if header.epoch != archive.epoch:
        return False
    if not continues_archive(hot, archive):
        return True
    mine = (header.committed, header.slice_version)
    theirs = (archive.committed, archive.slice_version)
    is_behind = mine != theirs and all(one <= other for one, other in zip(mine, theirs, strict=True))
    return header.head == archive.head and is_behind


def is_alive(hot: HotHeader | None, archive: Manifest) -> bool:
    """Whether a hot thread is the thread, rather than a leftover of a deleted or older one."""
    return hot is not None and not hot.deleted and not archive.deleted and hot.epoch >= archive.epoch


def hot_messages_from(hot: HotSnapshot, position: int) -> tuple[StoredMessage, ...]:
    """The hot messages from ``position`` on."""
    return hot.messages[max(0, position - hot.first) :]


@dataclass(frozen=True, slots=True)
class FlushDecision:
    """Write ``messages`` after the archive's head with the fields of ``header``; or nothing is left to do."""

    done: bool
    messages: tuple[StoredMessage, ...] = ()
    header: HotHeader | None = None


def decide_flush(
    request: FlushThread, hot: HotSnapshot | None, archive: Manifest, *, archive_holds_mine: bool
) -> FlushDecision:
    """What a flush must write.

    Raises:
        FencedError: A newer epoch has the thread, or this one is closed.
        HeadMovedError: The hot thread is not what the caller knows.
        ColdRegressedError: The archive went back.
        ThreadNotFoundError: There is neither a hot thread nor an archive.
    """
    _check_archive_epoch(request, hot, archive)
    if archive.closed and archive.epoch == request.epoch:
        # An earlier flush closed the archive, but need not have marked the session as ended.
        return FlushDecision(done=archive.ended or not (request.closes and request.ends))
    closed = archive.closed or not request.closes
    if (
        archive_holds_mine
        and request.mine is not None
        and closed
        and (not request.commits or archive.committed >= _position_of(request.mine))
    ):
        return FlushDecision(done=True)
    if hot is None or (archive.deleted and archive.epoch == request.epoch):
        return _without_hot(request, archive, archive_holds_mine)
    header = hot.header
    Fence.of(header).check_writer(request.epoch, closing=request.closes)
    _check_state(request, max(header.slice_version, archive.slice_version))
    if not continues_archive(hot, archive) or header.slice_version < archive.slice_version:
        raise HeadMovedError(
            f"thread {request.thread_id!r}: the hot thread at {header.head.position} (state "
            f"{header.slice_version}) does not continue the archive at {archive.head.position} (state "
            f"{archive.slice_version}); open it again"
        )
    _check_mine(request, hot, archive_holds_mine=archive_holds_mine)
    same = (header.head, header.slice_version) == (archive.head, archive.slice_version)
    nothing_new = same and header.committed <= archive.committed
    return FlushDecision(nothing_new and closed, hot_messages_from(hot, archive.head.position), header)


def _position_of(head: Head | None) -> int:
    return head.position if head else 0


def _check_archive_epoch(request: FlushThread, hot: HotSnapshot | None, archive: Manifest) -> None:
    if archive.epoch >= request.epoch:
        Fence.of(archive).check_writer(request.epoch, closing=request.closes)
    check_regressed(hot, archive)
    if archive.epoch < request.epoch and hot is None:
        if archive.is_absent:
            raise ThreadNotFoundError(f"thread {request.thread_id!r}: neither hot nor archived")
        raise ColdRegressedError(
            f"thread {request.thread_id!r}: the archive has epoch {archive.epoch}, but {request.epoch} was "
            "opened in it; restore its objects, nothing was written"
        )


def _check_state(request: FlushThread, version: int) -> None:
    """Refuse to call a state archived that was lost before it was."""
    if version < request.slice_version:
        raise HeadMovedError(
            f"thread {request.thread_id!r}: state {request.slice_version} was saved, and the newest that is "
            f"there is {version}; save it again"
        )


def _without_hot(request: FlushThread, archive: Manifest, archive_holds_mine: bool) -> FlushDecision:
    _check_state(request, archive.slice_version)
    wanted = request.mine or request.known_head
    if wanted is not None and not archive_holds_mine:
        raise HeadMovedError(
            f"thread {request.thread_id!r}: not hot, and the archive at {archive.head.position} does not "
            f"hold the message before {wanted.position}; open it again"
        )
    return FlushDecision(done=archive.closed or not request.closes)


def _check_mine(request: FlushThread, hot: HotSnapshot, *, archive_holds_mine: bool) -> None:
    mine, header = request.mine or request.known_head, hot.header
    if mine is None:
        return
    last_id = hot.id_before(mine.position)
    behind = header.head.position < mine.position or (request.commits and header.committed < mine.position)
    # A step from before the snapshot can only be in the archive.
    if behind or (last_id != mine.last_id if last_id is not None else not archive_holds_mine):
        raise HeadMovedError(
            f"thread {request.thread_id!r}: the hot thread at {header.head.position} (committed "
            f"{header.committed}) does not hold the step that ends at {mine.position}; open it again"
        )


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

    async def flush_thread(
        self,
        request: FlushThread,
        progress: Progress = no_progress,
        *,
        first_try: HotSnapshot | None = None,
        traffic: Traffic | None = None,
    ) -> FlushReceipt:
        """As `ThreadStore.flush`; ``first_try`` is what the caller just appended."""
        traffic, thread_id = traffic or Traffic(), request.thread_id

        async def read_both(hot: HotSnapshot | None, stored: Stored | None) -> _Tiers:
            # Redis first: if the archive grows in between, that is harmless.  The other way round it
            # would look as if the archive had gone back.
            hot = hot or await self._hot.read_snapshot(thread_id, SINCE_ARCHIVED)
            return hot, stored or await self._archive.read_manifest(thread_id, traffic)

        async def flush_anew() -> FlushReceipt | None:
            return await self._try_flush(request, await read_both(None, None), traffic, progress)

        remembered = self._archive.find_remembered(thread_id)
        if first_try is not None or remembered is not None:
            tiers = await read_both(first_try, remembered)
            # These inputs may be stale: if they do not fit, both are read again below.
            with contextlib.suppress(SegmentGoneError, HelixError):
                if receipt := await self._try_flush(request, tiers, traffic, progress):
                    return receipt
            self._archive.forget_manifest(thread_id)
        return await retry_on_change(thread_id, flush_anew, failed="not archived")

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
                receipt = await self.flush_thread(request, first_try=first_try, traffic=traffic)
        except (StoreUnavailableError, TimeoutError) as error:
            self.breaker.note_failure(step.thread_id, self._clock())
            if traffic.refused:
                raise StoreUnavailableError(
                    f"thread {step.thread_id!r}: the archive refused the step and did not say why; try again"
                ) from error
            if isinstance(error, TimeoutError):
                within = f"within {self._step_seconds:g} s (HELIX_TIMEOUT_FLUSH_ATTEMPT)"
                self._failed_by = f"TimeoutError: the archive did not answer {within}"
            else:
                self._failed_by = f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
            return _not_archived(header, self._failed_by)
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
            f"thread {header.thread_id!r}: {header.size - max(header.archived_size, 0)} bytes are not "
            f"archived since {header.unarchived_since} ms; at most {self._backlog.max_bytes} bytes or "
            f"{self._backlog.max_seconds:.0f} s are allowed: the archive must come back first"
        )

    def _is_backlog_exceeded(self, header: HotHeader) -> bool:
        if header.archived == NEVER_ARCHIVED:
            return False
        waiting = self._clock() - header.unarchived_since / 1000 if header.unarchived_since else 0.0
        pending = header.size - header.archived_size
        return pending > self._backlog.max_bytes or waiting > self._backlog.max_seconds


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


def _not_archived(header: HotHeader, reason: str) -> FlushReceipt:
    pending = header.size - header.archived_size if header.archived != NEVER_ARCHIVED else header.size
    return FlushReceipt(FlushStatus.UNAVAILABLE, pending_bytes=max(pending, 0), reason=reason)
