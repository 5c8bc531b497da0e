"""Usage: what steps record, and activities ``helix.usage.*``."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from temporalio import activity

from helix_temporal.activities._runtime import raise_application_errors, scheduled_ms
from helix_temporal.activities.step_facts import step_number
from helix_temporal.agents import Agent, Model, StreamingModel, ToolOutcome
from helix_temporal.errors import HelixError, InvalidIdError, InvalidRequestError
from helix_temporal.models.base import Amount, Name, only_set, only_truthy, wall_clock_ms
from helix_temporal.models.foreign_rows import is_foreign
from helix_temporal.models.handles import ModelCalls
from helix_temporal.models.ids import CallKey
from helix_temporal.models.messages import Message, SummaryUsage, Usage, check_size, decode_message
from helix_temporal.models.steps import EndTurnInput, RunStepInput, ToolInput
from helix_temporal.models.store_calls import Page
from helix_temporal.models.stored_messages import Kind
from helix_temporal.models.usage import (
    CustomUsageEntry,
    RecordUsageInput,
    RecordUsageResult,
    SubAgentUsageEntry,
    TokenCounts,
    TokenUsageEntry,
    ToolUsageEntry,
    UsageEntriesInput,
    UsageEntriesResult,
    UsageEntry,
    UsageQuery,
    UsageRollupInput,
    UsageRollupResult,
)
from helix_temporal.models.waiting import DENIED
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.protocols.threads import ReadPage, ThreadFacts, ThreadStore
from helix_temporal.stores.protocols.usage import UsageStore
from helix_temporal.telemetry import metrics

Result = TypeVar("Result", UsageEntriesResult, Page[UsageEntry])


class UsageActivities:
    """Usage over the protocol alone.

    Args:
        max_payload: Bytes that a result may have.
    """

    def __init__(self, usage: UsageStore, *, max_payload: int = 1024 * 1024) -> None:
        self._usage, self._max_payload = usage, max_payload

    @activity.defn(name="helix.usage.record")
    @raise_application_errors
    async def record(self, request: RecordUsageInput) -> RecordUsageResult:
        """Add an entry; a second attempt finds it there."""
        return RecordUsageResult(recorded=await self._usage.record_entry(request.entry))

    @activity.defn(name="helix.usage.entries")
    @raise_application_errors
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
        return self._check_page_size(UsageEntriesResult(entries=tuple(found)))

    @activity.defn(name="helix.usage.rollup")
    @raise_application_errors
    async def rollup(self, request: UsageRollupInput) -> UsageRollupResult:
        """Sums over a session, with its descendants if asked."""
        found = await self._usage.get_rollup(
            request.session_id, include_sub_agents=request.include_sub_agents
        )
        return UsageRollupResult(rollup=found)

    @activity.defn(name="helix.usage.query")
    @raise_application_errors
    async def query(self, request: UsageQuery) -> Page[UsageEntry]:
        """Entries of all sessions, by pages."""
        return self._check_page_size(await self._usage.query_usage(request))

    def _check_page_size(self, page: Result) -> Result:
        check_size(len(page.model_dump_json()), self._max_payload, "entries of this page (ask for fewer)")
        return page


_PATIENCE: Final = 2.0
"""Seconds that a step waits, at its end, for its entry."""
_SHORT_PATIENCE: Final = 0.5
"""Seconds that an error waits for the entry of the tool that failed by it."""
_PAUSES: Final = (0.2, 0.5, *[1.0] * 10, *[10.0] * 60)
"""Seconds until a store that does not answer is asked again: some ten minutes, while the worker lives."""
_LAST_PATIENCE: Final = 5.0
"""Seconds that a worker which stops waits for entries that no store has taken yet."""
_LAST_PAUSE: Final = 0.2
_NAMES: Final = ("model_name", "model", "name")

log = logging.getLogger(__name__)


class _Metric(BaseModel):
    """What a tool counts, as an entry may have it."""

    metric: Name
    amount: Amount
    unit: Name | None


class ToolCounts:
    """What one attempt of a tool counts of its own; see `ToolContext.record`."""

    def __init__(self) -> None:
        self._counted: list[tuple[str, int | Decimal, str | None]] = []

    def record(self, name: str, value: int | Decimal, unit: str | None = None, /) -> None:
        """Count; see `ToolContext.record`.

        Raises:
            InvalidRequestError: The value is no whole or decimal number, a name or an amount is nothing that
                stores take, or the name was counted in another unit.
        """
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise InvalidRequestError(
                f"metric {name!r}: int or Decimal expected, got {type(value).__name__}; sums of floats are "
                "not exact"
            )
        _Metric(metric=name, amount=value, unit=unit)
        before = next((each for counted, _, each in self._counted if counted == name), unit)
        if before != unit:
            raise InvalidRequestError(
                f"metric {name!r}: counted in {before or 'no unit'} before, now in {unit or 'none'}; give "
                "each unit a name of its own, since amounts of one name are summed"
            )
        self._counted.append((name, value, unit))

    def build_entries(self, request: ToolInput) -> list[UsageEntry]:
        """An entry for each; the same names for every attempt, so that one counts."""
        about = _common_fields(request, request.agent, request.step, "tool", request.tool)
        result_id = CallKey.parse(request.key).result_id
        found: list[UsageEntry] = []
        for number, (name, value, unit) in enumerate(self._counted):
            entry_id, counted = (
                f"metric/{result_id}/{number}",
                {"metric": name, "amount": value, "unit": unit},
            )
            found += _build_entry(CustomUsageEntry, id=entry_id, key=request.tool, **counted, **about)
        return found


class UsageLog:
    """Records what answers and tool calls used.

    The entry's id is the answer's: an answer that is found in the thread again is not counted again, and
    one that was paid for and is not in the thread is.  A summary has an entry of its own: attempts that use
    one that was made before count it once, and one that makes it anew pays for it anew.  A tool call has one
    entry, of the first attempt that came to its end, of the last one if all failed, or of the result that it
    was given instead; what the tool used of models is another, under the tool's name.  A worker that is
    killed between a failure that it tells and Temporal's hearing of it leaves the entry of that failure.
    The end of an attempt that has timed out meanwhile is not recorded: another one's result counts.

    Args:
        store: None where nothing is recorded.
    """

    def __init__(self, store: UsageStore | None = None) -> None:
        self._store = store
        self._recording: set[asyncio.Task[None]] = set()
        """Also those that nobody waits for any more: the store has not taken them yet."""
        self._closing = asyncio.Event()

    def recording_step(
        self, agent: Agent, request: RunStepInput, answer: Message, number: int, seconds: float = 0.0
    ) -> AbstractAsyncContextManager[None]:
        """Record a step, and the results that it takes, while it goes on; its model took so long."""
        results = _of_results(request, agent.name, number - 1)
        return self._record_alongside(
            request.session_id, [*results, *_of_answer(agent, request, answer, number, seconds)]
        )

    def recording_tool(
        self,
        request: ToolInput,
        outcome: ToolOutcome,
        seconds: float,
        counts: "ToolCounts | None" = None,
        *,
        attempts: int = 1,
        current: bool = True,
    ) -> AbstractAsyncContextManager[None]:
        """Record a tool that has run for so long, and what it counted itself, while its result is kept.

        Of an attempt that has timed out (``current`` is false) what its models used: that was paid for.
        """
        own = [] if counts is None else counts.build_entries(request)
        entries = [*_of_tool(request, outcome, seconds, attempts), *own]
        if not current:
            entries = [each for each in entries if isinstance(each, TokenUsageEntry)]
        return self._record_alongside(request.session_id, entries)

    def recording_failed_tool(
        self, request: ToolInput, seconds: float, attempts: int
    ) -> AbstractAsyncContextManager[None]:
        """Record a tool whose last attempt has failed, after so long: its error is not held up by it."""
        failed = _of_tool(request, ToolOutcome("", is_error=True), seconds, attempts)
        return self._record_alongside(request.session_id, failed, _SHORT_PATIENCE)

    @contextlib.asynccontextmanager
    async def _record_alongside(
        self, session_id: str, entries: Sequence[UsageEntry], patience: float = _PATIENCE
    ) -> AsyncIterator[None]:
        """Record while the work within goes on; a failure is logged, and never the work's."""
        if self._store is None or not entries:
            yield
            return
        task = asyncio.create_task(self._record_entries(self._store, entries))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)
        try:
            yield
        finally:
            # Also when the work failed: what it used was paid for all the same.
            done, _ = await asyncio.wait([task], timeout=patience)
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

    async def record_summary(
        self, agent: Agent, request: RunStepInput, used: SummaryUsage, number: int
    ) -> None:
        """Record what a summary took, now; the step tries once more."""
        async with self._record_alongside(request.session_id, _of_summary(agent, request, used, number)):
            pass

    async def record_results(self, request: EndTurnInput, record: SessionRecord) -> None:
        """Record the results that end a turn."""
        step = step_number(request, record) - 1
        async with self._record_alongside(request.session_id, _of_results(request, record.agent, step)):
            pass

    async def _record_entries(self, store: UsageStore, entries: Sequence[UsageEntry]) -> None:
        for entry in entries:
            for pause in _PAUSES:
                if await self._try_record_entry(store, entry):
                    break
                await self._pause_before_retry(pause)
            else:
                log.warning(
                    "usage of session %r is lost: it was tried %d times", entry.session_id, len(_PAUSES)
                )

    async def _pause_before_retry(self, seconds: float) -> None:
        """Until the next try; a worker that stops does not wait for it."""
        if self._closing.is_set():
            await asyncio.sleep(min(seconds, _LAST_PAUSE))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def _try_record_entry(self, store: UsageStore, entry: UsageEntry) -> bool:
        """Whether the store has taken an entry, or never will; false: it may take it later."""
        try:
            if await store.record_entry(entry):
                _count_entry(entry)
        except Exception as error:  # noqa: BLE001 (a store from elsewhere has its own)
            # Whose text may hold what must not be in a log.
            kind, said = type(error).__name__, str(error) if isinstance(error, HelixError) else ""
            lost = isinstance(error, HelixError) and not error.retryable
            then = "lost" if lost else "tried again"
            log.warning(
                "usage of session %r is not recorded, and %s: %s: %s", entry.session_id, then, kind, said
            )
            return lost
        return True


_TOKEN_KINDS: Final = {
    "input": "prompt",
    "output": "completion",
    "reasoning": "reasoning",
    "cache_read": "cached",
    "cache_write": "cache_write",
}


def _count_entry(entry: UsageEntry) -> None:
    """Count what the store has taken: once, however often it was told."""
    if isinstance(entry, TokenUsageEntry):
        for kind, field in _TOKEN_KINDS.items():
            count = getattr(entry.tokens, field)
            metrics.TOKENS.add(count, agent=entry.agent_type, model=entry.model, kind=kind)
    elif isinstance(entry, ToolUsageEntry) and entry.duration_ms is not None:
        outcome = "completed" if entry.success else "failed"
        metrics.TOOL_DURATION.record(
            entry.duration_ms / 1000, agent=entry.agent_type, tool=entry.tool_name, outcome=outcome
        )


def list_untold_results(request: RunStepInput | EndTurnInput, agent: str, step: int) -> list[UsageEntry]:
    """What is recorded of those results that no worker of a tool has told of itself.

    Args:
        request: The step that takes them.
        agent: Whose turn it is.
        step: Number of the step that asked for them.
    """
    untold = tuple(
        each
        for each in request.inputs
        if each.child is not None
        or each.unfinished
        or (each.answered is not None and each.answered.outcome != "approved")
    )
    return _of_results(request.model_copy(update={"inputs": untold}), agent, step) if untold else []


def _of_results(request: RunStepInput | EndTurnInput, agent: str, step: int) -> list[UsageEntry]:
    """Calls of sub-agents, by which sums reach their sessions, and of tools that no worker ran to an end."""
    entries: list[UsageEntry] = []
    for each in request.inputs:
        if each.child is not None and each.child.agent:
            about = _common_fields(
                request, each.child.agent, max(step, 0), "tool", each.name or each.child.agent
            )
            # It had ended when the step was scheduled that takes its result, before that one's model call.
            about["timestamp"] = scheduled_ms()
            entries += _build_entry(
                SubAgentUsageEntry,
                id=f"child/{each.id}",
                sub_session_id=each.child.session_id,
                success=each.child.status == "completed",
                duration_ms=each.child.duration_ms,
                **about,
            )
        elif each.call is not None and (each.is_error or each.answered is not None):
            # Also a sub-agent's call for which no session was started.
            about = _common_fields(request, agent, max(step, 0), "tool", each.name)
            denied = each.answered is not None and each.answered.outcome == "denied"
            entries += _build_tool_entry(
                each.id, each.call, about, success=not each.is_error, **({"error": DENIED} if denied else {})
            )
    return entries


def _of_tool(request: ToolInput, outcome: ToolOutcome, seconds: float, attempts: int) -> list[UsageEntry]:
    """A tool that has run, at the last of so many attempts for so long, and what it used of models."""
    about = _common_fields(request, request.agent, request.step, "tool", request.tool)
    result_id = CallKey.parse(request.key).result_id
    took = max(round(seconds * 1000), 1)  # 0 is that nobody measured it
    ran = _build_tool_entry(
        result_id,
        request.call.id,
        about,
        success=not outcome.is_error,
        duration_ms=took,
        attempts=attempts,
    )
    if outcome.usage is None:
        return ran
    return [*ran, *_build_token_entry(f"tool-tokens/{result_id}", request.tool, outcome.usage, about)]


def _of_answer(
    agent: Agent, request: RunStepInput, answer: Message, number: int, seconds: float
) -> list[UsageEntry]:
    """The model call that gave the answer, and the summary that was made for it."""
    used, summary = answer.usage, answer.summary_usage
    if used is None and answer.cost_usd is None:
        return []
    used = used or Usage()
    about = _common_fields(request, agent.name, number, "agent", agent.name)
    name, took = name_of_model(agent.model), round(seconds * 1000)
    known = only_truthy(duration_ms=took) | only_set(cost_usd=answer.cost_usd)
    if summary is None:
        return _build_token_entry(f"step/{answer.id}", name, used, about, **known)
    own = _build_token_entry(f"step/{answer.id}", name, used - summary.used, about, **known)
    return [*own, *_of_summary(agent, request, summary, number)]


def _of_summary(agent: Agent, request: RunStepInput, summary: SummaryUsage, number: int) -> list[UsageEntry]:
    about = _common_fields(request, agent.name, number, "agent", agent.name)
    name, known = name_of_summary_model(agent), only_set(cost_usd=summary.cost_usd)
    return _build_token_entry(f"summary/{summary.id}", name, summary.used, about, **known)


# -- entries


def _common_fields(
    request: RunStepInput | EndTurnInput | ToolInput, agent: str, step: int, by: str, name: str | None
) -> dict[str, Any]:
    return {
        "session_id": request.session_id,
        "timestamp": wall_clock_ms(),
        "run_id": request.run_id,
        "agent_type": agent,
        "step_count": step,
        "source": {"type": by, "name": name},
    }


def _build_tool_entry(result_id: str, call: str, about: dict[str, Any], **how: Any) -> list[UsageEntry]:
    """A tool call; without its error, which may quote a conversation that is deleted before its usage.

    That somebody denied it is told, without the reason: it has no success, but nothing failed.
    """
    tool = about["source"]["name"]
    return _build_entry(
        ToolUsageEntry, id=f"tool/{result_id}", tool_name=tool, tool_call_id=call, **how, **about
    )


def _build_token_entry(
    entry_id: str, model: str, used: Usage, about: dict[str, Any], **known: Any
) -> list[UsageEntry]:
    counts = TokenCounts(
        prompt=used.input_tokens,
        completion=used.output_tokens,
        reasoning=used.reasoning_tokens,
        cached=used.cached_read_tokens,
        cache_write=used.cached_write_tokens,
    )
    return _build_entry(TokenUsageEntry, id=entry_id, model=model, tokens=counts, **known, **about)


def _build_entry(kind: Callable[..., UsageEntry], **fields: Any) -> list[UsageEntry]:
    """The entry; none where a name is nothing that stores take: models make names up."""
    try:
        return [kind(**fields)]
    except (InvalidRequestError, InvalidIdError) as error:
        log.warning("usage of session %r is not recorded: %s", fields["session_id"], error)
        return []


def name_of_summary_model(agent: Agent) -> str:
    """The name of the model that makes an agent's summaries."""
    compaction = agent.compaction
    own = None if compaction is None else compaction.model
    return name_of_model(agent.model if own is None else own)


def name_of_model(model: Model | StreamingModel) -> str:
    """The model's name as its adapter tells it, else what it is."""
    found = (getattr(model, name, None) for name in _NAMES)
    return next((name for name in found if isinstance(name, str) and name), type(model).__name__)


_AT_ONCE: Final = 1000
_PAGE_BYTES: Final = 4 * 1024 * 1024
_STEP, _SUMMARY = "step/", "summary/"


@dataclass(slots=True)
class ThreadUsage:
    """Sums over the messages of finished turns.

    Attributes:
        tokens: Of all messages; ``own_tokens`` of answers alone.
        answers: All of them; ``calls`` are those that told what they used.
    """

    tokens: Usage = field(default_factory=Usage)
    own_tokens: Usage = field(default_factory=Usage)
    answers: int = 0
    calls: int = 0


async def thread_usage(threads: ThreadStore, facts: ThreadFacts) -> ThreadUsage:
    """What the messages say that are in the thread now: not what was cut or taken back."""
    found = ThreadUsage()
    start = 0
    while start < facts.committed:
        page = await threads.read(
            ReadPage(facts.thread_id, start, facts.committed, _AT_ONCE, _PAGE_BYTES, whole=False)
        )
        if not page.messages:
            break
        for message in page.messages:
            # A foreign row is none, though it asks for tools: several of them may be one answer.
            own = message.kind in Kind.ANSWERS and not is_foreign(message)
            used = decode_message(message).usage
            found.answers += own
            if used is None:
                continue
            found.tokens += used
            if own:
                found.calls += 1
                found.own_tokens += used
        start = page.first + len(page.messages)
    return found


def paid_calls(entries: Iterable[UsageEntry]) -> ModelCalls:
    """Pure: model calls of a session's steps, and the tokens of their summaries with them."""
    calls, tokens = 0, Usage()
    for each in entries:
        if isinstance(each, TokenUsageEntry) and each.id.startswith((_STEP, _SUMMARY)):
            calls += each.id.startswith(_STEP)
            tokens += Usage(
                input_tokens=each.tokens.prompt,
                output_tokens=each.tokens.completion,
                reasoning_tokens=each.tokens.reasoning,
                cached_read_tokens=each.tokens.cached,
                cached_write_tokens=each.tokens.cache_write,
            )
    return ModelCalls(calls=calls, tokens=tokens)
