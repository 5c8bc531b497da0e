"""What model calls used, in the usage store: once for each call that was paid for, whatever became of it."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Final

from helix_temporal.agents import Agent
from helix_temporal.errors import HelixError
from helix_temporal.models.messages import Message
from helix_temporal.models.steps import RunStepInput
from helix_temporal.models.usage import TokenCounts, TokenUsageEntry, UsageSource
from helix_temporal.stores.protocols.usage import UsageStore

_PATIENCE: Final = 2.0
"""Seconds that a step waits, at its end, for its entry."""
_NAMES: Final = ("model_name", "model", "name")

log = logging.getLogger(__name__)


class UsageLog:
    """Records what answers used.

    The entry's id is the answer's: an answer that is found in the thread again is not counted again, and
    one that was paid for and is not in the thread is.

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
        if self._store is None or answer.usage is None:
            yield
            return
        task = asyncio.create_task(self._record(self._store, _entry(agent, request, answer, number)))
        try:
            yield
        finally:
            # Also when the step failed: its model call was paid for all the same.
            done, _ = await asyncio.wait([task], timeout=_PATIENCE)
            if not done:
                task.cancel()
                log.warning("usage of session %r is not recorded: no answer in time", request.session_id)

    async def _record(self, store: UsageStore, entry: TokenUsageEntry) -> None:
        try:
            await store.record_entry(entry)
        except HelixError as error:
            kind = type(error).__name__
            log.warning("usage of session %r is not recorded: %s: %s", entry.session_id, kind, error)


def _entry(agent: Agent, request: RunStepInput, answer: Message, number: int) -> TokenUsageEntry:
    used = answer.usage
    assert used is not None
    return TokenUsageEntry(
        id=f"step/{answer.id}",
        session_id=request.session_id,
        timestamp=int(time.time() * 1000),
        run_id=request.run_id,
        agent_type=agent.name,
        step_count=number,
        source=UsageSource(type="agent", name=agent.name),
        model=_model_of(agent),
        tokens=TokenCounts(
            prompt=used.input_tokens,
            completion=used.output_tokens,
            reasoning=used.reasoning_tokens,
            cached=used.cached_read_tokens,
            cache_write=used.cached_write_tokens,
        ),
    )


def _model_of(agent: Agent) -> str:
    """The model's name as its adapter tells it, else what it is."""
    found = (getattr(agent.model, name, None) for name in _NAMES)
    return next((name for name in found if isinstance(name, str) and name), type(agent.model).__name__)
