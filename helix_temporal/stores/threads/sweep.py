"""Archives what sessions left in the hot tier: one pass over all threads that are hot.

A thread that has not changed since all of it was archived is passed over: the scan sees it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from helix_temporal._retries import repeat_unanswered
from helix_temporal.errors import FencedError, HeadMovedError, HelixError, StoreUnavailableError
from helix_temporal.models.maintenance import SweepInput, SweepResult
from helix_temporal.stores.protocols.hot import HotHeader, HotTier
from helix_temporal.stores.protocols.threads import FlushStatus, FlushThread, ThreadStore

Outcome = Literal["archived", "clean", "gone", "failed"]
ReportPage = Callable[[str, SweepResult], None]
"""Told after each page where the next one begins, and of what was done up to there."""

_GIVES_UP_AFTER: Final = 16
"""A pass ends when a store did not answer for so many threads in a row: it is away, and asking takes long."""
_THREAD_SECONDS: Final = 120.0
"""A thread that takes longer is put off: those behind it wait."""
_NAMED_FAILURES: Final = 20


class SweptThread(NamedTuple):
    """What a sweep found and did; ``detail`` says why not more."""

    thread_id: str
    outcome: Outcome
    pending_bytes: int = 0
    detail: str = ""


async def sweep_threads(
    hot: HotTier,
    threads: ThreadStore,
    request: SweepInput,
    *,
    cursor: str | None = None,
    done: SweepResult | None = None,
    report: ReportPage | None = None,
) -> SweepResult:
    """Archive all hot threads, page by page; one that a store does not answer for stops no other.

    Args:
        hot: Where they are.
        threads: What archives them.
        request: How many at a time, and whether they are dropped then.
        cursor: Where an earlier pass stopped; None begins.
        done: What it had done.
        report: Told of each page.

    Raises:
        StoreUnavailableError: A store answered for none of 16 threads, though asked several times for each.
    """
    summary, sweep = done or SweepResult(), _Sweep(hot, threads, request)
    while True:
        page = await hot.scan_page(cursor, request.page)
        waiting = [each.thread_id for each in page.threads if request.evict or not each.is_archived]
        summary = add_swept(summary, await sweep.sweep_page(waiting), len(page.threads) - len(waiting))
        cursor = page.cursor
        if cursor is None:
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
        failed=(*summary.failed, *failed)[:_NAMED_FAILURES],
        failures=summary.failures + len(failed),
        pending_bytes=summary.pending_bytes + sum(each.pending_bytes for each in found),
    )


class _Sweep:
    """One pass: so many threads at a time, over all its pages."""

    def __init__(self, hot: HotTier, threads: ThreadStore, request: SweepInput) -> None:
        self._hot, self._threads, self._evict = hot, threads, request.evict
        self._slots, self._unanswered = asyncio.Semaphore(request.parallel), 0

    async def sweep_page(self, thread_ids: Sequence[str]) -> list[SweptThread]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._sweep_one(each)) for each in thread_ids]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [each.result() for each in tasks]

    async def _sweep_one(self, thread_id: str) -> SweptThread:
        async with self._slots:
            try:
                async with asyncio.timeout(_THREAD_SECONDS):
                    result = await repeat_unanswered(
                        lambda: sweep_thread(self._hot, self._threads, thread_id, evict=self._evict)
                    )
            except TimeoutError:
                return SweptThread(thread_id, "failed", detail=f"not done within {_THREAD_SECONDS:.0f} s")
            except StoreUnavailableError as error:
                self._unanswered += 1
                if self._unanswered >= _GIVES_UP_AFTER:
                    raise
                return _describe_failure(thread_id, error)
            self._unanswered = 0
            return result


async def sweep_thread(
    hot: HotTier, threads: ThreadStore, thread_id: str, *, evict: bool = False
) -> SweptThread:
    """Archive one hot thread under its own epoch; a session that is alive does not notice.

    With ``evict`` its hot copy is dropped once it is archived; a live session then hydrates it with its next
    step.  A thread that cannot be archived for good is reported, not raised: it must not stop a sweep.

    Raises:
        StoreUnavailableError: A store did not answer; repeat the call.
    """
    try:
        header = await hot.read_header(thread_id)
        if header is None or header.deleted or not threads.archives:
            return SweptThread(thread_id, "gone", detail="" if threads.archives else "no_cold_tier")
        return await _archive_thread(hot, threads, header, drops=header.closed or evict)
    except StoreUnavailableError:
        raise
    except HelixError as error:
        return _describe_failure(thread_id, error)


async def _archive_thread(
    hot: HotTier, threads: ThreadStore, header: HotHeader, *, drops: bool
) -> SweptThread:
    thread_id = header.thread_id
    try:
        receipt = await threads.flush(FlushThread(thread_id, header.epoch, closes=header.closed, ends=False))
        evicted = await threads.evict(thread_id, header.epoch) if drops else ""
    except FencedError:
        # Somebody opened it, or deleted it: what is left of the old epoch is dropped.
        return SweptThread(thread_id, "clean", detail=await threads.evict(thread_id, header.epoch))
    except HeadMovedError as error:
        # Its session mends it with its next step, or the next open does; one that has ended does neither.
        evicted = await threads.evict(thread_id, header.epoch) if drops else type(error).__name__
        return SweptThread(thread_id, "clean", detail=evicted)
    if not drops and receipt.status is FlushStatus.ARCHIVED:
        await hot.mark_archived(thread_id, header.place)
    outcome: Outcome = "archived" if receipt.puts else "clean"
    return SweptThread(thread_id, outcome, receipt.pending_bytes, evicted)


def _describe_failure(thread_id: str, error: HelixError) -> SweptThread:
    return SweptThread(thread_id, "failed", detail=f"{type(error).__name__}: {error}"[:500])
