"""What model calls and sub-agents used, in the usage store: once for each, whatever became of it."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from helix_temporal.agents import Agent, Model, StreamingModel
from helix_temporal.errors import HelixError
from helix_temporal.models.messages import Message, SummaryUsage, Usage
from helix_temporal.models.steps import EndTurnInput, RunStepInput
from helix_temporal.models.usage import (
    SubAgentUsageEntry,
    TokenCounts,
    TokenUsageEntry,
    UsageEntry,
    UsageSource,
)
from helix_temporal.stores.protocols.usage import UsageStore

_PATIENCE: Final = 2.0
"""Seconds that a step waits, at its end, for its entry."""
_NAMES: Final = ("model_name", "model", "name")

log = logging.getLogger(__name__)


class UsageLog:
    """Records what answers used.

    The entry's id is the answer's: an answer that is found in the thread again is not counted again, and
    one that was paid for and is not in the thread is.  A summary has an entry of its own: attempts that use
    one that was made before count it once, and one that makes it anew pays for it anew.

    Args:
        store: None where nothing is recorded.
    """

    def __init__(self, store: UsageStore | None = None) -> None:
        self._store = store

    @contextlib.asynccontextmanager
    async def recording(
        self, agent: Agent, request: RunStepInput, answer: Message, number: int
    ) -> AsyncIterator[None]:
        """Record while the step goes on; a failure is logged, and never the step's."""
        entries = [*_children(request), *_of_answer(agent, request, answer, number)]
        if self._store is None or not entries:
            yield
            return
        task = asyncio.create_task(self._record(self._store, entries))
        try:
            yield
        finally:
            # Also when the step failed: its model call was paid for all the same.
            done, _ = await asyncio.wait([task], timeout=_PATIENCE)
            if not done:
                task.cancel()
                log.warning("usage of session %r is not recorded: no answer in time", request.session_id)

    async def summary(self, agent: Agent, request: RunStepInput, used: SummaryUsage, number: int) -> None:
        """Record what a summary took; a failure is logged, and the step tries once more."""
        if self._store is None:
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._record(self._store, [_summary(agent, request, used, number)])
        except TimeoutError:
            log.warning("usage of session %r is not recorded: no answer in time", request.session_id)

    async def children(self, request: EndTurnInput) -> None:
        """Record the sub-agents whose results end a turn; a failure is logged."""
        if self._store is not None and (entries := _children(request)):
            await self._record(self._store, entries)

    async def _record(self, store: UsageStore, entries: Sequence[UsageEntry]) -> None:
        for entry in entries:
            try:
                await store.record_entry(entry)
            except Exception as error:  # noqa: BLE001 (a store from elsewhere has its own)
                # Whose text may hold what must not be in a log.
                kind, said = type(error).__name__, str(error) if isinstance(error, HelixError) else ""
                log.warning("usage of session %r is not recorded: %s: %s", entry.session_id, kind, said)


def _children(request: RunStepInput | EndTurnInput) -> list[UsageEntry]:
    """Calls of sub-agents whose results these are: by them sums reach their sessions."""
    return [
        SubAgentUsageEntry(
            id=f"child/{each.id}",
            session_id=request.session_id,
            timestamp=int(time.time() * 1000),
            run_id=request.run_id,
            agent_type=each.child.agent,
            source=UsageSource(type="tool", name=each.name or each.child.agent),
            sub_session_id=each.child.session_id,
            success=each.child.status == "completed",
            duration_ms=each.child.duration_ms,
        )
        for each in request.inputs
        if each.child is not None and each.child.agent
    ]


def _of_answer(agent: Agent, request: RunStepInput, answer: Message, number: int) -> list[UsageEntry]:
    """The model call that gave the answer, and the summary that was made for it."""
    used, summary = answer.usage, answer.summary_usage
    if used is None:
        return []
    if summary is None:
        return [_tokens(f"step/{answer.id}", agent, agent.model, request, used, number)]
    own = _tokens(f"step/{answer.id}", agent, agent.model, request, used - summary.used, number)
    return [own, _summary(agent, request, summary, number)]


def _summary(agent: Agent, request: RunStepInput, summary: SummaryUsage, number: int) -> UsageEntry:
    compaction = agent.compaction
    model = agent.model if compaction is None or compaction.model is None else compaction.model
    return _tokens(f"summary/{summary.id}", agent, model, request, summary.used, number)


def _tokens(
    entry_id: str,
    agent: Agent,
    model: Model | StreamingModel,
    request: RunStepInput,
    used: Usage,
    number: int,
) -> TokenUsageEntry:
    return TokenUsageEntry(
        id=entry_id,
        session_id=request.session_id,
        timestamp=int(time.time() * 1000),
        run_id=request.run_id,
        agent_type=agent.name,
        step_count=number,
        source=UsageSource(type="agent", name=agent.name),
        model=_name_of(model),
        tokens=TokenCounts(
            prompt=used.input_tokens,
            completion=used.output_tokens,
            reasoning=used.reasoning_tokens,
            cached=used.cached_read_tokens,
            cache_write=used.cached_write_tokens,
        ),
    )


def _name_of(model: Model | StreamingModel) -> str:
    """The model's name as its adapter tells it, else what it is."""
    found = (getattr(model, name, None) for name in _NAMES)
    return next((name for name in found if isinstance(name, str) and name), type(model).__name__)
