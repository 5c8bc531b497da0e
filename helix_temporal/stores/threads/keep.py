"""Looks after the archive: one part of it at a time, and of that what has changed."""

import logging
import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from helix_temporal.models.maintenance import NAMED, KeepPartInput, KeepResult
from helix_temporal.stores.protocols.threads import (
    ArchivedThread,
    ArchiveUpkeep,
    Maintenance,
    Progress,
    no_progress,
)
from helix_temporal.stores.threads.visits import Visits

logger = logging.getLogger(__name__)

_THREAD_SECONDS: Final = 1800.0


class KeptThread(NamedTuple):
    """What was done to a thread; None, and why, if it failed."""

    thread_id: str
    done: Maintenance | None
    problems: tuple[str, ...] = ()
    failure: str = ""


async def keep_part(
    upkeep: ArchiveUpkeep, request: KeepPartInput, progress: Progress = no_progress
) -> KeepResult:
    """Compact, collect garbage and, if asked, audit; a live session does not notice.

    Its ``since`` is when this began: what is written later is for the next time.

    Raises:
        StoreUnavailableError: The archive does not answer.
    """
    began = await upkeep.tell_time()
    visits = Visits[ArchivedThread, KeptThread](
        lambda thread: _keep_thread(upkeep, thread, request, progress),
        lambda thread, why: KeptThread(thread.thread_id, None, failure=f"{why}; {_say_what_to_do(thread)}"),
        parallel=request.parallel,
        seconds=_THREAD_SECONDS,
    )
    threads = [each async for each in upkeep.list_archived(request.part, request.since)]
    found = await visits.visit_all(threads)
    visits.check_answered()
    for each in found:
        if each.done is None:
            logger.warning("thread %r is not kept: %s", each.thread_id, each.failure)
    return _sum_up(found).model_copy(update={"since": began})


def _say_what_to_do(thread: ArchivedThread) -> str:
    if thread.damage:
        return "restore an older version of that object"
    return (
        f"see what is wrong with `helix-temporal thread verify {shlex.quote(thread.thread_id)}`; "
        "the next run looks at it again"
    )


async def _keep_thread(
    upkeep: ArchiveUpkeep, thread: ArchivedThread, request: KeepPartInput, progress: Progress
) -> KeptThread:
    done = await upkeep.keep(thread, progress, abandoned_after=request.abandoned_after)
    problems = (await upkeep.audit(thread.thread_id, progress)).problems if request.audit else ()
    return KeptThread(thread.thread_id, done, problems)


def _sum_up(found: Sequence[KeptThread]) -> KeepResult:
    done = [each.done for each in found if each.done is not None]
    damaged = tuple(each.thread_id for each in found if each.problems)
    failed = tuple(each.thread_id for each in found if each.done is None)
    return KeepResult(
        seen=len(found),
        segments_merged=sum(max(each.segments_before - each.segments_after, 0) for each in done),
        objects_deleted=sum(each.objects_deleted for each in done),
        bytes_deleted=sum(each.bytes_deleted for each in done),
        damaged=damaged[:NAMED],
        problems=sum(len(each.problems) for each in found),
        failed=failed[:NAMED],
        failures=len(failed),
    )
