"""Cleaning up sessions: what to do, and what was done."""

from typing import Annotated, Literal

from pydantic import Field

from helix_temporal.models._base import Model
from helix_temporal.models.queries import Limit

DAY_MS = 24 * 60 * 60 * 1000
MAX_ERRORS = 50
"""Errors that a summary names; the rest is only counted."""


class CleanupError(Model):
    """What went wrong with one session; the others went on."""

    session_id: str
    stage: Literal["load", "mark", "snapshots", "finish", "delete"]
    message: str


class CleanupSummary(Model):
    """What a clean-up of expired sessions did.

    Attributes:
        detected: Sessions past their time, finished ones among them.
        marked: Of these, ended now with the reason ``session_expired``.
        already_terminal: Of these, finished before.
        skipped: Of these, resumed or prolonged while we looked, or not to be touched (dry run).
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

    def plus(self, **counts: int) -> "CleanupSummary":
        """With these counted in."""
        return self.model_copy(update={name: getattr(self, name) + more for name, more in counts.items()})

    def failed(self, error: CleanupError) -> "CleanupSummary":
        """With an error."""
        errors = (*self.errors, error)[:MAX_ERRORS]
        return self.model_copy(update={"errors": errors, "error_count": self.error_count + 1})


class CleanUpExpiredInput(Model):
    """End sessions that are past their time.

    Attributes:
        max_sessions: Stop after so many.
    """

    page: Limit = 200
    max_sessions: int | None = None
    dry_run: bool = False


class AgeCleanupSummary(Model):
    """What a clean-up by age did; ``changed`` were used while we looked, ``running`` run: both stay."""

    scanned: int = 0
    deleted: int = 0
    changed: int = 0
    snapshots_deleted: int = 0
    errors: tuple[CleanupError, ...] = ()
    error_count: int = 0
    running: int = 0

    def plus(self, **counts: int) -> "AgeCleanupSummary":
        """With so many more."""
        return self.model_copy(update={name: getattr(self, name) + count for name, count in counts.items()})

    def failed(self, error: CleanupError) -> "AgeCleanupSummary":
        """With an error."""
        errors = (*self.errors, error)[:MAX_ERRORS]
        return self.model_copy(update={"errors": errors, "error_count": self.error_count + 1})


class CleanUpOldInput(Model):
    """Delete sessions that nobody has changed for so long (ms)."""

    max_age_ms: Annotated[int, Field(ge=1000)]
    page: Limit = 200
    dry_run: bool = False


class PurgeOperationsInput(Model):
    """Forget operations older than this (ms): a repeat of one is then a new operation."""

    older_than_ms: Annotated[int, Field(ge=1000)] = 7 * DAY_MS


class PurgeOperationsResult(Model):
    """How many were forgotten."""

    purged: int = 0


class CleanupInput(Model):
    """What one run of the clean-up workflow does; a None leaves that part out."""

    expired: CleanUpExpiredInput | None = CleanUpExpiredInput()
    old: CleanUpOldInput | None = None
    operations: PurgeOperationsInput | None = PurgeOperationsInput()


class CleanupResult(Model):
    """What it did."""

    expired: CleanupSummary = CleanupSummary()
    old: AgeCleanupSummary = AgeCleanupSummary()
    operations_purged: int = 0
