"""Usage above the backends: arguments are checked, sums and pages made, here and once."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Final

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.ids import validate_id
from helix_temporal.models.queries import Page
from helix_temporal.models.usage import (
    CustomUsageEntry,
    StepRange,
    SubAgentUsageEntry,
    TokenUsageEntry,
    ToolUsageEntry,
    UsageEntry,
    UsageKind,
    UsageQuery,
    UsageRollup,
)
from helix_temporal.stores import _usage_rules as rules
from helix_temporal.stores._cursors import decode_cursor, encode_cursor
from helix_temporal.stores._usage_rules import Wanted

_LIST: Final = "usage"
_ENTRIES = (TokenUsageEntry, ToolUsageEntry, SubAgentUsageEntry, CustomUsageEntry)


class UsageLedger(ABC):
    """`UsageStore` over the operations of one backend."""

    # -- what a backend brings

    @abstractmethod
    async def _add(self, entry: UsageEntry, body: bytes) -> bool:
        """Keep an entry unless its session has one of that id."""

    @abstractmethod
    async def _of_session(
        self, session_id: str, wanted: Wanted, limit: int | None, offset: int
    ) -> list[UsageEntry]:
        """Entries of one session that match, in order."""

    @abstractmethod
    async def _of_all(self, wanted: Wanted, limit: int, offset: int) -> tuple[list[UsageEntry], int]:
        """Entries of all sessions that match, in order, and how many there are in all."""

    @abstractmethod
    async def _any(self, session_id: str) -> bool:
        """Whether the session has entries."""

    @abstractmethod
    async def _drop(self, session_id: str) -> bool:
        """Remove a session's entries; whether there were any."""

    # -- the protocol

    async def record_entry(self, entry: UsageEntry) -> bool:
        """See `UsageStore.record_entry`."""
        if not isinstance(entry, _ENTRIES):
            raise InvalidRequestError(f"a usage entry expected, got {type(entry).__name__}")
        return await self._add(entry, rules.to_body(entry))

    async def get_entries(
        self,
        session_id: str,
        *,
        kinds: Collection[UsageKind] | None = None,
        step_range: StepRange | None = None,
        run_id: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[UsageEntry]:
        """See `UsageStore.get_entries`."""
        rules.check_page(1 if limit is None else limit, offset, rules.MOST_ENTRIES)
        wanted = rules.of_session(session_id, kinds, step_range, run_id)
        return await self._of_session(session_id, wanted, limit, offset)

    async def get_rollup(self, session_id: str, *, include_sub_agents: bool = False) -> UsageRollup | None:
        """See `UsageStore.get_rollup`."""
        found: dict[str, list[UsageEntry]] = {}
        level = [validate_id(session_id, "session id")]
        while level:
            entries = await asyncio.gather(*(self._of_session(each, Wanted(), None, 0) for each in level))
            found.update(zip(level, entries, strict=True))
            below = rules.descendants(entry for each in entries for entry in each)
            level = [each for each in below if each not in found] if include_sub_agents else []
        return rules.roll_up(found)

    async def query_usage(self, query: UsageQuery) -> Page[UsageEntry]:
        """See `UsageStore.query_usage`."""
        wanted = rules.of_query(query)
        offset = 0 if query.cursor is None else decode_cursor(_LIST, query.cursor)[0]
        rules.check_page(query.limit, offset, rules.MOST_IN_PAGE)
        entries, total = await self._of_all(wanted, query.limit, offset)
        end = offset + len(entries)
        more = entries and end < total
        return Page[UsageEntry](
            items=tuple(entries),
            next_cursor=encode_cursor(_LIST, end, "") if more else None,
            has_more=bool(more),
            total=total,
        )

    async def exists(self, session_id: str) -> bool:
        """See `UsageStore.exists`."""
        return await self._any(validate_id(session_id, "session id"))

    async def delete(self, session_id: str) -> bool:
        """See `UsageStore.delete`."""
        return await self._drop(validate_id(session_id, "session id"))
