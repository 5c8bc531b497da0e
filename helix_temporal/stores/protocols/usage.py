"""Usage: entries that are recorded once, and sums over them."""

from collections.abc import Collection
from typing import Protocol

from helix_temporal.models.store_calls import Page
from helix_temporal.models.usage import (
    StepRange,
    UsageEntry,
    UsageKind,
    UsageQuery,
    UsageRollup,
)


class UsageStore(Protocol):
    """What sessions used, by session.

    An entry's id is its operation id: unique within its session, and recorded once however often it comes.
    Entries are never changed.  Time ranges go by the entries' own timestamps.

    All methods raise `StoreUnavailableError` if the store does not answer, `InvalidIdError` and
    `InvalidRequestError` for arguments out of range.
    """

    async def record_entry(self, entry: UsageEntry) -> bool:
        """Add an entry.

        Returns:
            False if the session has an entry of this id; that one stays as it is.
        """
        ...

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
        """The entries of one session by time, then id; empty if it has none.

        Args:
            session_id: Whose.
            kinds: Only these; None means all.
            step_range: Only of these steps, both ends included.
            run_id: Only of this turn.
            limit: At most so many, 1 to 10,000; None means all.
            offset: So many of those that match are left out first.
        """
        ...

    async def find_entries(self, session_id: str, entry_ids: Collection[str]) -> list[UsageEntry]:
        """Those entries of a session that have one of these ids, by time, then id; 10,000 ids at most.

        Costs as much as they are, however many others the session has.
        """
        ...

    async def get_rollup(self, session_id: str, *, include_sub_agents: bool = False) -> UsageRollup | None:
        """Sums over a session's entries, computed when asked; None if it has none.

        Args:
            session_id: Whose.
            include_sub_agents: With all sessions that its sub-agent entries lead to, each once, also where
                they lead back.
        """
        ...

    async def query_usage(self, query: UsageQuery) -> Page[UsageEntry]:
        """A page of the entries of all sessions that match, by time, then session, then id.

        Raises:
            InvalidCursorError: The cursor is none of this list.
        """
        ...

    async def exists(self, session_id: str) -> bool:
        """Whether the session has entries."""
        ...

    async def delete(self, session_id: str) -> bool:
        """Remove a session's entries.  Their ids are forgotten: a repeat that comes later is recorded.

        Returns:
            False if there were none.
        """
        ...
