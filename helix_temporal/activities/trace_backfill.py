"""Tells turns again, under the same ids, from what the stores say of them: spans that were lost are there.

A worker that is killed loses the spans that it had not exported yet.  Who has them already sees the same ids
once more, and nothing new.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.errors import HelixError, StoreUnavailableError
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.states import TERMINAL, SubSessionRef
from helix_temporal.models.store_calls import OrderBy, SessionQuery
from helix_temporal.models.usage import SubAgentUsageEntry, UsageEntry
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.usage import UsageStore
from helix_temporal.telemetry.spans import (
    ABANDONED,
    NANOS_IN_MS,
    Span,
    Turn,
    span_of_abandoned,
    span_of_cut_call,
    span_of_run,
    spans_of_usage,
)

_log: Final = logging.getLogger(__name__)
_PAGE = 200


@dataclass(slots=True)
class BackfillSummary:
    """What a backfill has told.

    Attributes:
        sessions: Looked at: those that were changed since.
        turns: Told, each with all its spans; ``abandoned`` of them died.
        under_way: Turns that have not ended: nothing is told of them yet.
        untraced: Turns that had no trace, since their workers told nothing.
        failed: Sessions that could not be read to their end.
    """

    sessions: int = 0
    turns: int = 0
    abandoned: int = 0
    under_way: int = 0
    untraced: int = 0
    failed: int = 0
    spans: int = 0


ReportFailure = Callable[[str, HelixError], None]
"""Told of each session that could not be read."""


def _log_failure(session_id: str, error: HelixError) -> None:
    _log.warning("session %r is not told whole: %s", session_id, error)


class TraceBackfill:
    """Tells the turns of sessions again.

    Args:
        sessions: Has the turns, as runs.
        usage: Has their model calls and tool calls.
        emit: Takes the spans; a `StoreUnavailableError` of it ends the backfill.
        report_failure: Told of sessions that could not be read.
    """

    def __init__(
        self,
        sessions: SessionStore,
        usage: UsageStore,
        emit: Callable[[Span], None],
        report_failure: ReportFailure = _log_failure,
    ) -> None:
        self._sessions, self._usage, self._emit = sessions, usage, emit
        self._report_failure = report_failure

    async def tell_since(self, since_ms: int, session_id: str | None = None) -> BackfillSummary:
        """Tell all turns that ended since then, of one session or of all; a damaged one stops no other.

        Raises:
            StoreUnavailableError: A store does not answer; what was told before may be told again.
        """
        found = BackfillSummary()
        ids = self._list_sessions(since_ms) if session_id is None else _only(session_id)
        async for each in ids:
            try:
                await self._tell_session(each, since_ms, found)
            except StoreUnavailableError:
                raise
            except HelixError as error:
                found.failed += 1
                self._report_failure(each, error)
        return found

    async def _list_sessions(self, since_ms: int) -> AsyncIterator[str]:
        order = OrderBy(field="updated_at", direction="asc")
        cursor: str | None = None
        while True:
            page = await self._sessions.list_sessions(
                SessionQuery(
                    date_field="updated_at", date_from=since_ms, order_by=order, limit=_PAGE, cursor=cursor
                )
            )
            for each in page.sessions:
                yield each.session_id
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _tell_session(self, session_id: str, since_ms: int, found: BackfillSummary) -> None:
        state = await self._sessions.load_state(session_id)
        if state is None:
            return
        refs = await self._sessions.list_sub_session_refs(session_id)
        found.sessions += 1
        ended_ms = state.updated_at if state.status in TERMINAL else None
        cursor: str | None = None
        while True:
            page = await self._sessions.list_runs(session_id, limit=_PAGE, cursor=cursor)
            for run in page.items:
                if run.ended_at is not None and run.ended_at < since_ms:
                    return  # and so have all before it
                own = [each for each in refs if each.run_id == run.run_id]
                await self._tell_turn(run, own, ended_ms, found)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _tell_turn(
        self, run: Run, refs: Sequence[SubSessionRef], session_ended_ms: int | None, found: BackfillSummary
    ) -> None:
        turn = None if run.trace is None else Turn.of_trace(run.session_id, run.run_id, run.trace)
        if turn is None:
            found.untraced += 1
            return
        root = span_of_run(run)
        if root is None and session_ended_ms is not None:
            root = span_of_abandoned(run, session_ended_ms)
        if root is None:
            found.under_way += 1
            return
        entries = await self._usage.get_entries(run.session_id, run_id=run.run_id)
        cut = await self._list_cut_calls(run, refs, entries, root.end_ns // NANOS_IN_MS)
        spans = [*spans_of_usage(turn, entries), *cut, root]
        for span in spans:
            self._emit(span)
        found.turns += 1
        found.abandoned += root.error == ABANDONED
        found.spans += len(spans)

    async def _list_cut_calls(
        self, run: Run, refs: Sequence[SubSessionRef], entries: Sequence[UsageEntry], end_ms: int
    ) -> list[Span]:
        """Calls of sub-agents whose results no step has taken: the usage log has none of them."""
        taken = {each.sub_session_id for each in entries if isinstance(each, SubAgentUsageEntry)}
        found: list[Span | None] = []
        for ref in refs:
            if ref.sub_session_id not in taken:
                called = await self._sessions.list_runs(ref.sub_session_id, limit=1)
                found += [span_of_cut_call(run, ref, each, end_ms) for each in called.items]
        return [each for each in found if each is not None]


async def _only(session_id: str) -> AsyncIterator[str]:
    yield session_id
