"""What a step looks at, where the hot record does not hold all of it."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from helix_temporal.coldtier._reading import Reading
from helix_temporal.models.records import Head, Record, size_of
from helix_temporal.stores.protocols.hot import HotHeader, StepView

REMEMBERED: Final = 512
"""Threads whose ids a worker remembers, each some 10 KB."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Ids of the messages before a base; they are what they are for as long as the epoch lasts."""

    epoch: int
    base: Head
    ids: tuple[str, ...]


class Windows:
    """The context window and the ids before a step, joined from both tiers.

    Ids are remembered: a thread with large messages is hydrated by its newest 8 MiB alone, and each of its
    turns would otherwise read what lies before them, bodies and all, for their ids.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def complete(
        self, thread_id: str, view: StepView, head: Head, limit: int, max_bytes: int, ids: int
    ) -> StepView:
        """Take from the archive what the window and its ids want and the hot record no longer holds."""
        base, held = view.header.base, len(view.before) + len(view.earlier_ids)
        if base.position == 0 or head.position - held > base.position or head.position < base.position:
            return view
        older: tuple[Record, ...] = ()
        if not view.earlier_ids and limit > held:
            older = await self._older(thread_id, view, limit - held, max_bytes - size_of(view.before))
        before = await self._ids(thread_id, view.header, ids - held) if ids > held + len(older) else ()
        earlier = before[: max(len(before) - len(older), 0)]
        return replace(view, before=(*older, *view.before), earlier_ids=(*earlier, *view.earlier_ids))

    async def _older(self, thread_id: str, view: StepView, limit: int, space: int) -> tuple[Record, ...]:
        if space <= 0:
            return ()
        found = await self._reading.older(thread_id, view.header.base, limit, space)
        # A page gives one message even if it is too large; a window does so only if it is empty.
        return () if view.before and size_of(found) > space else found

    async def _ids(self, thread_id: str, header: HotHeader, count: int) -> tuple[str, ...]:
        """Ids of up to ``count`` messages before the record's base."""
        known = self._known.get(thread_id)
        wanted = min(count, header.base.position)
        is_same = known is not None and (known.epoch, known.base) == (header.epoch, header.base)
        if known is None or not is_same or len(known.ids) < wanted:
            known = _Known(
                header.epoch, header.base, await self._reading.older_ids(thread_id, header.base, wanted)
            )
            self._remember(thread_id, known)
        return known.ids[max(len(known.ids) - wanted, 0) :]

    def forget(self, thread_id: str) -> None:
        """Nobody is at work on the thread."""
        self._known.pop(thread_id, None)

    def _remember(self, thread_id: str, known: _Known) -> None:
        self._known[thread_id] = known
        self._known.move_to_end(thread_id)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
