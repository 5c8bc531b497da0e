"""Archives what sessions left in the hot tier: one pass over all threads that are hot.

A thread that has not changed since all of it was archived is passed over: the scan sees it.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from helix_temporal.errors import FencedError, HeadMovedError
from helix_temporal.models.maintenance import NAMED, SweepInput, SweepResult
from helix_temporal.stores.protocols.hot import HotHeader, HotTier
from helix_temporal.stores.protocols.threads import FlushStatus, FlushThread, ThreadStore
from helix_temporal.stores.threads.visits import Visits

logger = logging.getLogger(__name__)

Outcome = Literal["archived", "clean", "gone", "failed"]
ReportPage = Callable[[str, SweepResult], None]
"""Told after each page where the next one begins, and of what was done up to there."""

_THREAD_SECONDS: Final = 120.0
"""A thread that takes longer is put off: those behind it wait."""


class SweptThread(NamedTuple):
    """What a sweep found and did; ``detail`` says why not more."""

    thread_id: str
    outcome: Outcome
    pending_bytes: int = 0
    detail: str = ""


class Unarchived:
    """What a sweep has seen in the hot tier, and not archived.

    Args:
        done: What an earlier attempt had done.
    """

    def __init__(self, done: SweepResult | None = None) -> None:
        self._done, self._left = done or SweepResult(), dict[str, tuple[int, int]]()

    def note(self, header: HotHeader) -> None:
        """A thread is about to be archived."""
        size = header.size - header.archived_size
        if size > 0 and header.unarchived_since:
            self._left[header.thread_id] = size, header.unarchived_since

    def settle(self, thread_id: str) -> None:
        """It is archived, or nothing of it counts."""
        self._left.pop(thread_id, None)

    @property
    def size(self) -> int:
        """Bytes."""
        return self._done.unarchived_bytes + sum(size for size, _ in self._left.values())

    @property
    def since(self) -> int:
        """When the oldest was appended, in ms since 1970; 0 if there is none."""
        known = [self._done.unarchived_since, *(since for _, since in self._left.values())]
        return min(filter(None, known), default=0)

    def added_to(self, summary: SweepResult) -> SweepResult:
        """The summary with this counted in."""
        return summary.model_copy(update={"unarchived_bytes": self.size, "unarchived_since": self.since})


class FailureLog:
    """Says in the log why threads are not archived: the first 20 of a pass, which its result names."""

    def __init__(self) -> None:
        self._count = 0

    def fail(self, thread_id: str, why: str) -> SweptThread:
        """The result of a thread that could not be archived."""
        self._count += 1
        if self._count <= NAMED:
            logger.warning("thread %r was not archived by this pass: %s", thread_id, why)
        elif self._count == NAMED + 1:
            logger.warning("more threads were not archived by this pass: the log names %d", NAMED)
        return SweptThread(thread_id, "failed", detail=why)


async def sweep_threads(
    hot: HotTier,
    threads: ThreadStore,
    request: SweepInput,
    *,
    cursor: str | None = None,
    done: SweepResult | None = None,
    report: ReportPage | None = None,
    unarchived: Unarchived | None = None,
) -> SweepResult:
    """Archive all hot threads, page by page; one that a store does not answer for stops no other.

    Args:
        hot: Where they are.
        threads: What archives them.
        request: How many at a time, and whether they are dropped then.
        cursor: Where an earlier pass stopped; None begins.
        done: What it had done.
        report: Told of each page.
        unarchived: Told of what is not archived, also where this raises.

    Raises:
        StoreUnavailableError: A store answered for none of the threads that had to be archived, or of 16 in a
            row, though asked several times for each, or not in time.
    """
    summary, left = done or SweepResult(), unarchived or Unarchived(done)
    visits = Visits[str, SweptThread](
        lambda thread_id: sweep_thread(hot, threads, thread_id, evict=request.evict, unarchived=left),
        FailureLog().fail,
        parallel=request.parallel,
        seconds=_THREAD_SECONDS,
    )
    while True:
        page = await hot.scan_page(cursor, request.page)
        waiting = [each.thread_id for each in page.threads if request.evict or not each.is_archived]
        summary = add_swept(summary, await visits.visit_all(waiting), len(page.threads) - len(waiting))
        summary, cursor = left.added_to(summary), page.cursor
        if cursor is None:
            visits.check_answered()
            return summary
        if report is not None:
            report(cursor, summary)


def add_swept(summary: SweepResult, found: Sequence[SweptThread], unchanged: int = 0) -> SweepResult:
    """The summary with these threads counted in, and so many that had not changed."""

    def count(outcome: Outcome) -> int:
        return sum(1 for each in found if each.outcome == outcome)

    failed = tuple(each.thread_id for each in found if each.outcome == "failed")
    return SweepResult(
        seen=summary.seen + len(found) + unchanged,
        archived=summary.archived + count("archived"),
        clean=summary.clean + count("clean") + unchanged,
        gone=summary.gone + count("gone"),
        failed=(*summary.failed, *failed)[:NAMED],
        failures=summary.failures + len(failed),
        pending_bytes=summary.pending_bytes + sum(each.pending_bytes for each in found),
    )


async def sweep_thread(
    hot: HotTier,
    threads: ThreadStore,
    thread_id: str,
    *,
    evict: bool = False,
    unarchived: Unarchived | None = None,
) -> SweptThread:
    """Archive one hot thread under its own epoch; a session that is alive does not notice.

    With ``evict`` its hot copy is dropped once it is archived; a live session then hydrates it with its next
    step.

    Raises:
        StoreUnavailableError: A store did not answer; repeat the call.
        HelixError: It cannot be archived.
    """
    if not threads.archives:
        # Nothing is read of it: this is so for each hot thread, each minute.
        return SweptThread(thread_id, "gone", detail="no_cold_tier")
    header = await hot.read_header(thread_id)
    if header is None or header.deleted:
        return SweptThread(thread_id, "gone")
    drops, left = header.closed or evict, unarchived or Unarchived()
    left.note(header)
    try:
        receipt = await threads.flush(FlushThread(thread_id, header.epoch, closes=header.closed, ends=False))
        left.settle(thread_id)
        evicted = await threads.evict(thread_id, header.epoch) if drops else ""
    except FencedError:
        left.settle(thread_id)
        # Somebody opened it, or deleted it: what is left of the old epoch is dropped.
        return SweptThread(thread_id, "clean", detail=await threads.evict(thread_id, header.epoch))
    except HeadMovedError as error:
        left.settle(thread_id)
        # Its session mends it with its next step, or the next open does; one that has ended does neither.
        evicted = await threads.evict(thread_id, header.epoch) if drops else type(error).__name__
        return SweptThread(thread_id, "clean", detail=evicted)
    if not drops and receipt.status is FlushStatus.ARCHIVED:
        await hot.mark_archived(thread_id, header.place)
    outcome: Outcome = "archived" if receipt.puts else "clean"
    return SweptThread(thread_id, outcome, receipt.pending_bytes, evicted)
