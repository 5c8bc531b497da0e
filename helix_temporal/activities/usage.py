"""Activities ``helix.usage.*``: what sessions used, recorded once, and sums over it."""

from typing import TypeVar

from temporalio import activity

from helix_temporal.activities._errors import typed
from helix_temporal.models.messages import check_size
from helix_temporal.models.queries import Page
from helix_temporal.models.usage import (
    RecordUsageInput,
    RecordUsageResult,
    UsageEntriesInput,
    UsageEntriesResult,
    UsageEntry,
    UsageQuery,
    UsageRollupInput,
    UsageRollupResult,
)
from helix_temporal.stores.protocols.usage import UsageStore

Result = TypeVar("Result", UsageEntriesResult, Page[UsageEntry])


class UsageActivities:
    """Usage over the protocol alone.

    Args:
        max_payload: Bytes that a result may have.
    """

    def __init__(self, usage: UsageStore, *, max_payload: int = 1024 * 1024) -> None:
        self._usage, self._max_payload = usage, max_payload

    @activity.defn(name="helix.usage.record")
    @typed
    async def record(self, request: RecordUsageInput) -> RecordUsageResult:
        """Add an entry; a second attempt finds it there."""
        return RecordUsageResult(recorded=await self._usage.record_entry(request.entry))

    @activity.defn(name="helix.usage.entries")
    @typed
    async def entries(self, request: UsageEntriesInput) -> UsageEntriesResult:
        """Entries of one session, by pages."""
        found = await self._usage.get_entries(
            request.session_id,
            kinds=request.kinds,
            step_range=request.step_range,
            run_id=request.run_id,
            limit=request.limit,
            offset=request.offset,
        )
        return self._fitting(UsageEntriesResult(entries=tuple(found)))

    @activity.defn(name="helix.usage.rollup")
    @typed
    async def rollup(self, request: UsageRollupInput) -> UsageRollupResult:
        """Sums over a session, with its descendants if asked."""
        found = await self._usage.get_rollup(
            request.session_id, include_sub_agents=request.include_sub_agents
        )
        return UsageRollupResult(rollup=found)

    @activity.defn(name="helix.usage.query")
    @typed
    async def query(self, request: UsageQuery) -> Page[UsageEntry]:
        """Entries of all sessions, by pages."""
        return self._fitting(await self._usage.query_usage(request))

    def _fitting(self, page: Result) -> Result:
        check_size(len(page.model_dump_json()), self._max_payload, "entries of this page (ask for fewer)")
        return page
