"""Usage in this process: for tests and the first try; gone with it."""

from collections.abc import Sequence

from helix_temporal.models.usage import UsageEntry
from helix_temporal.stores import usage as rules
from helix_temporal.stores.usage import UsageFilter, UsageLedger


class MemoryUsage(UsageLedger):
    """`UsageStore` in a dict.  No operation awaits, so each is atomic on its event loop."""

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, UsageEntry]] = {}

    # -- for tests

    def clear(self) -> None:
        """Forget everything."""
        self._sessions.clear()

    def get_all_session_ids(self) -> list[str]:
        """The sessions that have entries, in order."""
        return sorted(self._sessions)

    @property
    def size(self) -> int:
        """How many sessions have entries."""
        return len(self._sessions)

    @property
    def total_entry_count(self) -> int:
        """How many entries there are."""
        return sum(len(entries) for entries in self._sessions.values())

    # -- the operations

    async def _add_entry(self, entry: UsageEntry, body: bytes) -> bool:
        entries = self._sessions.setdefault(entry.session_id, {})
        if entry.id in entries:
            return False
        # A copy by way of its bytes: what the other backends give back is what this one does.
        entries[entry.id] = rules.from_body(body, f"usage of session {entry.session_id!r}")
        return True

    async def _of_session(
        self, session_id: str, wanted: UsageFilter, limit: int | None, offset: int
    ) -> list[UsageEntry]:
        entries = self._sessions.get(session_id, {}).values()
        return rules.page_of_entries(rules.select_entries(entries, wanted), limit, offset)

    async def _find_entries(self, session_id: str, entry_ids: Sequence[str]) -> list[UsageEntry]:
        entries = self._sessions.get(session_id, {})
        return [entries[each] for each in entry_ids if each in entries]

    async def _of_all(self, wanted: UsageFilter, limit: int, offset: int) -> tuple[list[UsageEntry], int]:
        every = [entry for entries in self._sessions.values() for entry in entries.values()]
        found = rules.select_entries(every, wanted)
        return rules.page_of_entries(found, limit, offset), len(found)

    async def _has_entries(self, session_id: str) -> bool:
        return session_id in self._sessions

    async def _drop_entries(self, session_id: str) -> bool:
        return self._sessions.pop(session_id, None) is not None
