"""What model calls, tools and sub-agents used, in the usage store: once for each, whatever became of it."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from typing import Any, Final

from helix_temporal.activities._chunks import call_of
from helix_temporal.activities._step_rules import step_number
from helix_temporal.agents import Agent, Model, StreamingModel, ToolOutcome
from helix_temporal.errors import HelixError, InvalidIdError, InvalidRequestError
from helix_temporal.models.messages import Message, SummaryUsage, Usage
from helix_temporal.models.slices import SliceState
from helix_temporal.models.steps import EndTurnInput, RunStepInput, ToolInput
from helix_temporal.models.usage import (
    CustomUsageEntry,
    SubAgentUsageEntry,
    TokenCounts,
    TokenUsageEntry,
    ToolUsageEntry,
    UsageEntry,
)
from helix_temporal.stores.protocols.usage import UsageStore

_PATIENCE: Final = 2.0
"""Seconds that a step waits, at its end, for its entry."""
_PAUSES: Final = (0.2, 0.5, *[1.0] * 10, *[10.0] * 60)
"""Seconds until a store that does not answer is asked again: some ten minutes, while the worker lives."""
_LAST_PATIENCE: Final = 5.0
"""Seconds that a worker which stops waits for entries that no store has taken yet."""
_LAST_PAUSE: Final = 0.2
_NAMES: Final = ("model_name", "model", "name")

log = logging.getLogger(__name__)


class Metrics:
    """What one attempt of a tool counts of its own; see `ToolContext.record`."""

    def __init__(self) -> None:
        self._counted: list[tuple[str, int | Decimal, str | None]] = []

    def record(self, name: str, value: int | Decimal, unit: str | None = None, /) -> None:
        """Count; see `ToolContext.record`.

        Raises:
            InvalidRequestError: The value is no whole or decimal number.
        """
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise InvalidRequestError(
                f"metric {name!r}: int or Decimal expected, got {type(value).__name__}; sums of floats are "
                "not exact"
            )
        self._counted.append((name, value, unit))

    def entries(self, request: ToolInput) -> list[UsageEntry]:
        """An entry for each; the same names for every attempt, so that one counts."""
        about = _about(request, request.agent, request.step, "tool", request.tool)
        result_id = ".".join(call_of(request))
        found: list[UsageEntry] = []
        for number, (name, value, unit) in enumerate(self._counted):
            entry_id, counted = (
                f"metric/{result_id}/{number}",
                {"metric": name, "amount": value, "unit": unit},
            )
            found += _entry(CustomUsageEntry, id=entry_id, key=request.tool, **counted, **about)
        return found


class UsageLog:
    """Records what answers and tool calls used.

    The entry's id is the answer's: an answer that is found in the thread again is not counted again, and
    one that was paid for and is not in the thread is.  A summary has an entry of its own: attempts that use
    one that was made before count it once, and one that makes it anew pays for it anew.  A tool call has one
    entry, of the first attempt that came to its end, or of the result that it was given instead; what the
    tool used of models is another, under the tool's name.

    Args:
        store: None where nothing is recorded.
    """

    def __init__(self, store: UsageStore | None = None) -> None:
        self._store = store
        self._recording: set[asyncio.Task[None]] = set()
        """Also those that nobody waits for any more: the store has not taken them yet."""
        self._closing = asyncio.Event()

    def recording(
        self, agent: Agent, request: RunStepInput, answer: Message, number: int
    ) -> AbstractAsyncContextManager[None]:
        """Record a step, and the results that it takes, while it goes on."""
        results = _of_results(request, agent.name, number - 1)
        return self._beside(request.session_id, [*results, *_of_answer(agent, request, answer, number)])

    def tool(
        self, request: ToolInput, outcome: ToolOutcome, seconds: float, metrics: "Metrics | None" = None
    ) -> AbstractAsyncContextManager[None]:
        """Record a tool that has run for so long, and what it counted itself, while its result is kept."""
        own = [] if metrics is None else metrics.entries(request)
        return self._beside(request.session_id, [*_of_tool(request, outcome, seconds), *own])

    @contextlib.asynccontextmanager
    async def _beside(self, session_id: str, entries: Sequence[UsageEntry]) -> AsyncIterator[None]:
        """Record while the work within goes on; a failure is logged, and never the work's."""
        if self._store is None or not entries:
            yield
            return
        task = asyncio.create_task(self._record(self._store, entries))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)
        try:
            yield
        finally:
            # Also when the work failed: what it used was paid for all the same.
            done, _ = await asyncio.wait([task], timeout=_PATIENCE)
            if not done:
                log.warning("usage of session %r is not recorded yet: no answer in time", session_id)

    async def close(self) -> None:
        """Wait for what the store has not taken yet, but not for long; it is tried again at once."""
        if not self._recording:
            return
        self._closing.set()
        _, left = await asyncio.wait(self._recording, timeout=_LAST_PATIENCE)
        for task in left:
            task.cancel()
        if left:
            log.warning("usage of %d steps or calls is not recorded, and lost: no answer in time", len(left))
            await asyncio.wait(left)
        self._closing.clear()

    async def summary(self, agent: Agent, request: RunStepInput, used: SummaryUsage, number: int) -> None:
        """Record what a summary took, now; the step tries once more."""
        async with self._beside(request.session_id, _of_summary(agent, request, used, number)):
            pass

    async def results(self, request: EndTurnInput, state: SliceState) -> None:
        """Record the results that end a turn."""
        step = step_number(request, state) - 1
        async with self._beside(request.session_id, _of_results(request, state.agent, step)):
            pass

    async def _record(self, store: UsageStore, entries: Sequence[UsageEntry]) -> None:
        for entry in entries:
            for pause in _PAUSES:
                if await self._recorded(store, entry):
                    break
                await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        """Until the next try; a worker that stops does not wait for it."""
        if self._closing.is_set():
            await asyncio.sleep(min(seconds, _LAST_PAUSE))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def _recorded(self, store: UsageStore, entry: UsageEntry) -> bool:
        """Whether the store has taken an entry, or never will; false: it may take it later."""
        try:
            await store.record_entry(entry)
        except Exception as error:  # noqa: BLE001 (a store from elsewhere has its own)
            # Whose text may hold what must not be in a log.
            kind, said = type(error).__name__, str(error) if isinstance(error, HelixError) else ""
            log.warning("usage of session %r is not recorded: %s: %s", entry.session_id, kind, said)
            return isinstance(error, HelixError) and not error.retryable
        return True


def _of_results(request: RunStepInput | EndTurnInput, agent: str, step: int) -> list[UsageEntry]:
    """Calls of sub-agents, by which sums reach their sessions, and of tools that no worker ran to an end."""
    entries: list[UsageEntry] = []
    for each in request.inputs:
        if each.child is not None and each.child.agent:
            about = _about(request, each.child.agent, 0, "tool", each.name or each.child.agent)
            entries += _entry(
                SubAgentUsageEntry,
                id=f"child/{each.id}",
                sub_session_id=each.child.session_id,
                success=each.child.status == "completed",
                duration_ms=each.child.duration_ms,
                **about,
            )
        elif each.call is not None and each.child is None and (each.is_error or each.answered is not None):
            about = _about(request, agent, max(step, 0), "tool", each.name)
            entries += _called(each.id, each.call, about, success=not each.is_error)
    return entries


def _of_tool(request: ToolInput, outcome: ToolOutcome, seconds: float) -> list[UsageEntry]:
    """A tool that has run, and what it used of models."""
    about = _about(request, request.agent, request.step, "tool", request.tool)
    result_id, took = ".".join(call_of(request)), round(seconds * 1000)
    ran = _called(result_id, request.call.id, about, success=not outcome.is_error, duration_ms=took)
    if outcome.usage is None:
        return ran
    return [*ran, *_tokens(f"tool-tokens/{result_id}", request.tool, outcome.usage, about)]


def _of_answer(agent: Agent, request: RunStepInput, answer: Message, number: int) -> list[UsageEntry]:
    """The model call that gave the answer, and the summary that was made for it."""
    used, summary = answer.usage, answer.summary_usage
    if used is None:
        return []
    about = _about(request, agent.name, number, "agent", agent.name)
    name = _name_of(agent.model)
    if summary is None:
        return _tokens(f"step/{answer.id}", name, used, about)
    own = _tokens(f"step/{answer.id}", name, used - summary.used, about)
    return [*own, *_of_summary(agent, request, summary, number)]


def _of_summary(agent: Agent, request: RunStepInput, summary: SummaryUsage, number: int) -> list[UsageEntry]:
    compaction = agent.compaction
    model = agent.model if compaction is None or compaction.model is None else compaction.model
    about = _about(request, agent.name, number, "agent", agent.name)
    return _tokens(f"summary/{summary.id}", _name_of(model), summary.used, about)


# -- entries


def _about(
    request: RunStepInput | EndTurnInput | ToolInput, agent: str, step: int, by: str, name: str | None
) -> dict[str, Any]:
    return {
        "session_id": request.session_id,
        "timestamp": int(time.time() * 1000),
        "run_id": request.run_id,
        "agent_type": agent,
        "step_count": step,
        "source": {"type": by, "name": name},
    }


def _called(result_id: str, call: str, about: dict[str, Any], **how: Any) -> list[UsageEntry]:
    """A tool call; without its error, which may quote a conversation that is deleted before its usage."""
    tool = about["source"]["name"]
    return _entry(ToolUsageEntry, id=f"tool/{result_id}", tool_name=tool, tool_call_id=call, **how, **about)


def _tokens(entry_id: str, model: str, used: Usage, about: dict[str, Any]) -> list[UsageEntry]:
    counts = TokenCounts(
        prompt=used.input_tokens,
        completion=used.output_tokens,
        reasoning=used.reasoning_tokens,
        cached=used.cached_read_tokens,
        cache_write=used.cached_write_tokens,
    )
    return _entry(TokenUsageEntry, id=entry_id, model=model, tokens=counts, **about)


def _entry(kind: Callable[..., UsageEntry], **fields: Any) -> list[UsageEntry]:
    """The entry; none where a name is nothing that stores take: models make names up."""
    try:
        return [kind(**fields)]
    except (InvalidRequestError, InvalidIdError) as error:
        log.warning("usage of session %r is not recorded: %s", fields["session_id"], error)
        return []


def _name_of(model: Model | StreamingModel) -> str:
    """The model's name as its adapter tells it, else what it is."""
    found = (getattr(model, name, None) for name in _NAMES)
    return next((name for name in found if isinstance(name, str) and name), type(model).__name__)
