"""What an open thread keeps hot of what is archived: enough for the next step, and little more."""

import logging
from dataclasses import dataclass
from typing import Final

from helix_temporal.coldtier._archive import Archive
from helix_temporal.coldtier._flushing import Flushing
from helix_temporal.errors import HelixError
from helix_temporal.models.records import Head
from helix_temporal.stores.protocols.hot import Archived, HotHeader, HotTier, StepView
from helix_temporal.stores.protocols.threads import FlushThread

logger = logging.getLogger(__name__)

BROUGHT_BACK_MAX: Final = 64 * 1024 * 1024
"""More than so many bytes are not made hot again for the sake of a step that may stand there."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a thread that stays open keeps hot although it is archived.

    Attributes:
        archived_bytes: Older messages are forgotten once they are about so many packed bytes.
        messages: So many newest ones before a step always stay, and its context window: what a step
            reads never has to come from the archive because of this.
    """

    archived_bytes: int = 8 * 1024 * 1024
    messages: int = 200


def keep_from(view: StepView, head: Head, archived: Archived, held: Held) -> int | None:
    """The place below which a record may forget what is archived; None where that isn't worth a call."""
    header = view.header
    place = min(head.position - max(len(view.before), held.messages), archived.head.position)
    count = place - header.base.position
    # The sizes of single messages are not known here; some bytes more or less do no harm.
    forgotten = _mean_size(header) * count
    return place if count > 0 and forgotten >= held.archived_bytes else None


def can_come_back(header: HotHeader, head: Head) -> bool:
    """Whether what follows ``head``, which lies below the base, is little enough to be made hot again."""
    base = header.base.position
    older = header.base_size * (base - head.position) / base
    return header.size - header.base_size + older <= BROUGHT_BACK_MAX


def _mean_size(header: HotHeader) -> float:
    held = header.head.position - header.base.position
    return (header.size - header.base_size) / held if held else 0.0


class Trimming:
    """Keeps the hot record of an open thread small, and brings back what a late look needs."""

    def __init__(self, hot: HotTier, archive: Archive, flushing: Flushing, held: Held) -> None:
        self._hot, self._archive, self._flushing, self._held = hot, archive, flushing, held

    async def trim(self, thread_id: str, view: StepView, head: Head) -> None:
        """Forget what no step needs any more, if the archive is known to hold it; no step fails by this."""
        known, header = self._archive.remembered(thread_id), view.header
        if known is None or known.manifest.epoch != header.epoch or known.manifest.is_absent:
            return
        archived = known.manifest.archived
        place = keep_from(view, head, archived, self._held)
        if place is None:
            return
        try:
            await self._hot.trim(thread_id, header.epoch, archived.head, place)
        except HelixError as error:
            # The next step tries again.
            logger.warning("thread %s: not trimmed: %s", thread_id, type(error).__name__)

    async def bring_back(self, thread_id: str, view: StepView, head: Head) -> bool:
        """Drop a record that begins after ``head``, so that one is made that holds it; whether it did.

        After a reset, the workflow looks for steps that stand further back than any other look does.
        """
        header = view.header
        if head.position >= header.base.position or not can_come_back(header, head):
            return False
        await self._flushing.flush(FlushThread(thread_id, header.epoch))
        known = self._archive.remembered(thread_id) or await self._archive.manifest(thread_id)
        await self._hot.evict(thread_id, header.epoch, known.manifest.archived)
        return True
