"""Upkeep and cleaning up: what to do, and what was done."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field

from helix_temporal.models.base import WireModel
from helix_temporal.models.store_calls import Limit

ABANDONED_AFTER: Final = 7 * 24 * 3600.0
"""Seconds; as long as payload stores keep what was put aside: longer than any step may be retried."""

NAMED: Final = 20
"""So many threads that failed, or are damaged, are named in a result."""

ARCHIVE_PARTS: Final = 256
"""So many parts has an archive: by the first byte of the hash of a thread's id."""


class SweepInput(WireModel):
    """One sweep of all hot threads.

    Attributes:
        parallel: Threads flushed side by side.
        page: Threads that are looked at together, about.
        evict: Drop what is archived from the hot tier: leftovers of sessions that were terminated.
    """

    parallel: int = 8
    page: int = 500
    evict: bool = False


class SweepResult(WireModel):
    """Sums over all threads of a sweep; ``failed`` holds the first ids that could not be archived.

    Attributes:
        unarchived_bytes: Of messages that are in the hot tier alone afterwards.
        unarchived_since: When the oldest of them was appended, in ms since 1970; 0 if there are none.
    """

    seen: int = 0
    archived: int = 0
    clean: int = 0
    gone: int = 0
    failed: tuple[str, ...] = ()
    failures: int = 0
    pending_bytes: int = 0
    unarchived_bytes: int = 0
    unarchived_since: int = 0


class KeepInput(WireModel):
    """Upkeep of all archived threads, hot or cold.

    Attributes:
        audit: Also read and verify: all of the archive within 30 days, so much traffic; with ``whole`` all.
        records: Then archive old records of sessions, too.
        whole: Look at all threads, not only at those that have changed since the last run.
        parts: Which parts of the archive; None for all.
        parallel: Threads kept side by side.
        abandoned_after: Seconds after which what was put aside for no step, or copied for no thread, is
            garbage.
    """

    audit: bool = False
    records: bool = False
    whole: bool = False
    parts: tuple[int, ...] | None = None
    parallel: int = 8
    abandoned_after: float = ABANDONED_AFTER


class KeepPartInput(WireModel):
    """Upkeep of one part of the archive.

    Attributes:
        part: Which one.
        since: Only threads that have changed since then, in seconds since 1970 by the archive's clock.
        audit: Also read and verify all that is looked at.
    """

    part: Annotated[int, Field(ge=0, lt=ARCHIVE_PARTS)] = 0
    since: float | None = None
    audit: bool = False
    parallel: int = 8
    abandoned_after: float = ABANDONED_AFTER


class KeepResult(WireModel):
    """Sums over all threads; ``damaged`` holds the first ids with problems, ``failed`` those not kept.

    Attributes:
        seen: Threads that were looked at.
        records: What was done to records; None where that was not asked for, or failed.
        since: The next run looks at what has changed since then, in seconds since 1970 by the clock of the
            archive; None: at everything.
        missed: Parts with something that failed: the next run looks at all of them.
        day: When the run began, in days since 1970.
        group: The group of parts that the next run looks at as a whole first.
    """

    seen: int = 0
    segments_merged: int = 0
    objects_deleted: int = 0
    bytes_deleted: int = 0
    damaged: tuple[str, ...] = ()
    problems: int = 0
    failed: tuple[str, ...] = ()
    failures: int = 0
    records: "RecordsKept | None" = None
    since: float | None = None
    missed: tuple[int, ...] = ()
    day: int | None = None
    group: int = 0

    def plus(self, part: Self) -> Self:
        """With another part counted in; ``since`` is the earlier one."""
        began = [each for each in (self.since, part.since) if each is not None]
        return self.model_copy(
            update={
                "seen": self.seen + part.seen,
                "segments_merged": self.segments_merged + part.segments_merged,
                "objects_deleted": self.objects_deleted + part.objects_deleted,
                "bytes_deleted": self.bytes_deleted + part.bytes_deleted,
                "damaged": (*self.damaged, *part.damaged)[:NAMED],
                "problems": self.problems + part.problems,
                "failed": (*self.failed, *part.failed)[:NAMED],
                "failures": self.failures + part.failures,
                "since": min(began, default=None),
            }
        )


class KeepRecordsInput(WireModel):
    """Archive old records of all sessions, and delete packs that hold none; settings say what is old."""


class RecordsKept(WireModel):
    """What upkeep of records did.

    Attributes:
        archived: Records whose bodies went to the archive.
        packs_deleted: Objects that hold no record any more.
        failed: The first sessions that could not be looked after.
    """

    seen: int = 0
    archived: int = 0
    packs_deleted: int = 0
    failed: tuple[str, ...] = ()
    failures: int = 0


KeepResult.model_rebuild()
KeepInput.model_rebuild()


DAY_MS = 24 * 60 * 60 * 1000
MAX_ERRORS = 50
"""Errors that a summary names; the rest is only counted."""


class CleanupError(WireModel):
    """What went wrong with one session; the others went on."""

    session_id: str
    stage: Literal["load", "mark", "snapshots", "finish", "delete"]
    message: str


class CleanupSummary(WireModel):
    """What a clean-up of expired sessions did.

    Attributes:
        detected: Sessions past their time, finished ones among them.
        marked: Of these, ended now with the reason ``session_expired``.
        already_terminal: Of these, finished before.
        skipped: Of these, resumed, prolonged or deleted while we looked.
        would_end: Of these, those that would be ended, or asked to end, if this were no dry run.
        running: Of these, those that an execution runs: they were asked to end, and are not marked.
        snapshots_deleted: Of workspaces, also of sessions that an earlier clean-up had ended.
        errors: The first ones; ``error_count`` counts all.
    """

    detected: int = 0
    marked: int = 0
    already_terminal: int = 0
    skipped: int = 0
    snapshots_deleted: int = 0
    errors: tuple[CleanupError, ...] = ()
    error_count: int = 0
    running: int = 0
    would_end: int = 0

    @property
    def ended(self) -> int:
        """Sessions that it ended, or would end.

        Those that ended before, run on or fail stay in the list of the expired: counted, they would keep
        a clean-up that stops after so many from ever coming to the ones behind them.
        """
        return self.marked + self.would_end

    def plus(self, **counts: int) -> "CleanupSummary":
        """With these counted in."""
        return self.model_copy(update={name: getattr(self, name) + more for name, more in counts.items()})

    def failed(self, error: CleanupError) -> "CleanupSummary":
        """With an error."""
        errors = (*self.errors, error)[:MAX_ERRORS]
        return self.model_copy(update={"errors": errors, "error_count": self.error_count + 1})


class CleanUpExpiredInput(WireModel):
    """End sessions that are past their time.

    Attributes:
        max_sessions: Stop after so many that were ended.
    """

    page: Limit = 200
    max_sessions: int | None = None
    dry_run: bool = False


class AgeCleanupSummary(WireModel):
    """What a clean-up by age did; ``changed`` were used while we looked, ``running`` run: both stay.

    A dry run counts in ``would_delete`` what it would delete.
    """

    scanned: int = 0
    deleted: int = 0
    changed: int = 0
    snapshots_deleted: int = 0
    errors: tuple[CleanupError, ...] = ()
    error_count: int = 0
    running: int = 0
    would_delete: int = 0

    def plus(self, **counts: int) -> "AgeCleanupSummary":
        """With so many more."""
        return self.model_copy(update={name: getattr(self, name) + count for name, count in counts.items()})

    def failed(self, error: CleanupError) -> "AgeCleanupSummary":
        """With an error."""
        errors = (*self.errors, error)[:MAX_ERRORS]
        return self.model_copy(update={"errors": errors, "error_count": self.error_count + 1})


class CleanUpOldInput(WireModel):
    """Delete sessions that nobody has changed for so long (ms); sub-agents' go with their callers'."""

    max_age_ms: Annotated[int, Field(ge=1000)]
    page: Limit = 200
    dry_run: bool = False


class PurgeOperationsInput(WireModel):
    """Forget operations older than this (ms): a repeat of one is then a new operation."""

    older_than_ms: Annotated[int, Field(ge=1000)] = 7 * DAY_MS


class PurgeOperationsResult(WireModel):
    """How many were forgotten."""

    purged: int = 0


class CleanupInput(WireModel):
    """What one run of the clean-up workflow does; a None leaves that part out."""

    expired: CleanUpExpiredInput | None = CleanUpExpiredInput()
    old: CleanUpOldInput | None = None
    operations: PurgeOperationsInput | None = PurgeOperationsInput()


class CleanupResult(WireModel):
    """What it did."""

    expired: CleanupSummary = CleanupSummary()
    old: AgeCleanupSummary = AgeCleanupSummary()
    operations_purged: int = 0
