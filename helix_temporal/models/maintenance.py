"""Inputs and results of the activities ``helix.maintenance.*``."""

from typing import Annotated, Final

from pydantic import Field

from helix_temporal.models._base import Model
from helix_temporal.models.ids import Id

ABANDONED_AFTER: Final = 7 * 24 * 3600.0
"""Seconds; as long as payload stores keep what was put aside: longer than any step may be retried."""


class ListHotInput(Model):
    """Which hot threads to list; ``limit`` bounds one answer."""

    after: str = ""
    limit: int = 1000


class ListHotResult(Model):
    """Ids of hot threads in order; ``more`` if there are further ones after the last."""

    thread_ids: tuple[str, ...] = ()
    more: bool = False


class SweepThreadInput(Model):
    """Archive one hot thread that nobody may be looking after any more; ``evict`` drops it then."""

    thread_id: Id
    evict: bool = False


class SweepThreadResult(Model):
    """What the sweep found and did; ``outcome`` is ``archived``, ``clean``, ``gone`` or ``failed``."""

    thread_id: str
    outcome: str
    pending_bytes: int = 0
    detail: str = ""


class KeepThreadInput(Model):
    """Compact, collect garbage of, and audit one thread.

    Attributes:
        abandoned_after: Seconds after which what was put aside for no step, or copied for no thread, is
            garbage.
    """

    thread_id: Id
    compact: bool = True
    collect_garbage: bool = True
    audit: bool = False
    abandoned_after: float = ABANDONED_AFTER


class KeepThreadResult(Model):
    """What upkeep did to one thread."""

    thread_id: str
    segments_before: int = 0
    segments_after: int = 0
    objects_deleted: int = 0
    bytes_deleted: int = 0
    problems: tuple[str, ...] = ()


class SweepInput(Model):
    """One sweep of all hot threads.

    Attributes:
        parallel: Threads flushed side by side.
        evict: Drop what is archived from the hot tier: leftovers of sessions that were terminated.
        after: Where an earlier run of this sweep stopped.
    """

    parallel: int = 8
    page: int = 500
    after: str = ""
    evict: bool = False
    upkeep: bool = False
    summary: "SweepResult | None" = None


class SweepResult(Model):
    """Sums over all threads of a sweep; ``failed`` holds the first ids that could not be archived."""

    seen: int = 0
    archived: int = 0
    clean: int = 0
    gone: int = 0
    failed: tuple[str, ...] = ()
    failures: int = 0
    pending_bytes: int = 0


class ListArchivedInput(Model):
    """Which archived threads to list: those of one of the archive's 256 parts."""

    part: Annotated[int, Field(ge=0, lt=256)] = 0
    after: str = ""
    limit: int = 500


class ListArchivedResult(Model):
    """Ids of archived threads in order; ``more`` if there are further ones in this part."""

    thread_ids: tuple[str, ...] = ()
    more: bool = False


class KeepInput(Model):
    """Upkeep of all archived threads, hot or cold.

    Attributes:
        audit: Also read and verify everything: as much traffic as the archive is large.
        parallel: Threads kept side by side.
        abandoned_after: As for one thread.
        part: Where an earlier run of this upkeep stopped, with ``after``.
    """

    audit: bool = False
    parallel: int = 8
    page: int = 500
    part: int = 0
    after: str = ""
    abandoned_after: float = ABANDONED_AFTER
    summary: "KeepResult | None" = None


class KeepResult(Model):
    """Sums over all threads; ``damaged`` holds the first ids with problems, ``failed`` those not kept."""

    seen: int = 0
    segments_merged: int = 0
    objects_deleted: int = 0
    bytes_deleted: int = 0
    damaged: tuple[str, ...] = ()
    problems: int = 0
    failed: tuple[str, ...] = ()
    failures: int = 0


SweepInput.model_rebuild()
KeepInput.model_rebuild()
