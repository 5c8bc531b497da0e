"""A turn: steps and tools until the final answer.  Deterministic; everything outside is `Calls`."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NoReturn, Protocol

from temporalio.exceptions import ActivityError

from helix_temporal._failures import tell_tool_failure
from helix_temporal.errors import (
    FencedError,
    HeadMovedError,
    HelixError,
    SessionInterruptedError,
    ThreadNotFoundError,
)
from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.base import only_set, only_truthy
from helix_temporal.models.ids import CallKey, make_result_id
from helix_temporal.models.messages import Finish, ToolCall, Usage, why_not_run
from helix_temporal.models.sessions import (
    AnswerRef,
    ArchiveMode,
    ExitReason,
    Receipt,
    SuspendedTurn,
    UserMessage,
)
from helix_temporal.models.steps import (
    AgentFactsInput,
    EndTurnInput,
    OpenSessionResult,
    ReopenHeads,
    RunStepInput,
    RunStepResult,
    StepInput,
    ToolInput,
    ToolResult,
)
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.waiting import INTERRUPTED, AnswerReceipt, SubAgentCall
from helix_temporal.session.after_reopen import After, Reopened, after_cut, after_step, after_wait
from helix_temporal.session.pending_calls import PendingCalls, SubAgentCalls, UnattendedCalls
from helix_temporal.workflows.calls import Calls, ToolFailedError, heed_cancel, is_cancelled
from helix_temporal.workflows.clock import now_ms
from helix_temporal.workflows.opening import CurrentThread, reopen_thread, thread_field

_NOBODY: Final[Mapping[int, AnswerReceipt]] = MappingProxyType({})


class StepCalls(Protocol):
    """The calls of a step, as far as they have results."""

    @property
    def sub_agent_calls(self) -> SubAgentCalls:
        """Sub-agents among them that wait for people."""
        ...

    def list_runnable(self) -> list[int]:
        """Those that may run now."""
        ...

    def add_result(self, at: int, result: ToolResult) -> None:
        """One has its result."""
        ...


class ToolCalls:
    """Runs the tools of one turn's steps.

    Args:
        number: The turn's.
        step: Number of its newest step.

    Attributes:
        usage: What the tools used of models.
        traceparent: The turn's root, once a worker has told it.
    """

    def __init__(self, calls: Calls, thread: CurrentThread, number: int, step: Callable[[], int]) -> None:
        self._calls, self._thread, self._number, self._step = calls, thread, number, step
        self.usage = Usage()
        self.traceparent: str | None = None

    async def look_up_added_tools(self, result: RunStepResult) -> None:
        """Load tools that the agent got after the session was opened, or that only newer workers have.

        The worker that ran the step has offered them to the model; ours did not know of them.
        """
        for ordinal, call in enumerate(result.calls):
            if ordinal in result.unknown or self._thread.facts.tool(call.name) is not None:
                continue
            wanted = AgentFactsInput(agent=self._thread.request.agent, tools=(call.name,))
            # Where no worker has it any more, the model is told so.
            with suppress(HelixError, ActivityError):
                self._thread.facts = await heed_cancel(self._calls.agent_facts(wanted))

    async def run(self, run_id: str, result: RunStepResult, step: StepCalls) -> None:
        """Run calls until each has its result, or waits; one that may go on meanwhile does so at once."""
        news, running = step.sub_agent_calls.news, dict[int, asyncio.Task[ToolResult | SubAgentCall]]()
        try:
            while True:
                news.clear()
                for at in step.list_runnable():
                    if at in running or (running and not self._thread.facts.parallel_tools):
                        continue
                    task = running[at] = asyncio.create_task(
                        self._run_call(run_id, result, at, result.calls[at])
                    )
                    task.add_done_callback(lambda _: news.set())
                if not running:
                    return
                await heed_cancel(news.wait())
                for at in [at for at, task in running.items() if task.done()]:
                    outcome = running.pop(at).result()
                    if isinstance(outcome, ToolResult):
                        step.sub_agent_calls.finish_call(at)
                        step.add_result(at, outcome)
        finally:
            for task in running.values():
                task.cancel()

    async def _run_call(
        self, run_id: str, result: RunStepResult, ordinal: int, call: ToolCall
    ) -> ToolResult | SubAgentCall:
        facts = self._thread.facts.tool(call.name)
        if facts is None:
            names = ", ".join(tool.name for tool in self._thread.facts.tools) or "none"
            return _unfinished(f"There is no tool {call.name!r}. Tools: {names}.")
        told = why_not_run(call)
        if told is not None:
            return _unfinished(told)
        return await self._run_tool(facts, run_id, result, ordinal, call)

    async def _run_tool(
        self, facts: ToolFacts, run_id: str, result: RunStepResult, ordinal: int, call: ToolCall
    ) -> ToolResult | SubAgentCall:
        request = self._thread.request
        try:
            outcome = await self._calls.run_tool(
                facts,
                ToolInput(
                    session_id=request.session_id,
                    thread_id=request.thread_id,
                    agent=request.agent,
                    tool=call.name,
                    call=call,
                    key=str(CallKey(request.session_id, result.head.last_id, ordinal)),
                    turn=self._number,
                    position=result.head.position,
                    run_id=run_id,
                    epoch=self._thread.handle.epoch,
                    step=self._step(),
                    **only_set(
                        metadata=request.metadata or None,
                        tracing_context=self._thread.tracing_context,
                        traceparent=self.traceparent,
                    ),
                ),
            )
        except ToolFailedError as failed:
            return _unfinished(tell_tool_failure(str(failed)))
        if isinstance(outcome, ToolResult) and outcome.usage is not None:
            self.usage = self.usage + outcome.usage
        return outcome


def _unfinished(text: str) -> ToolResult:
    """The result of a call that no worker ran to an end."""
    return ToolResult(text=text, is_error=True, unfinished=True)


def _in_call_order(results: Mapping[int, ToolResult]) -> list[ToolResult]:
    return [results[at] for at in sorted(results)]


def unanswerable_results(result: RunStepResult) -> dict[int, ToolResult]:
    """Results of calls that somebody would have to answer, where nobody can be waited for."""
    text = "Nobody can answer this call here."
    return {each.at: _unfinished(text) for each in result.waiting}


def tool_inputs(
    result: RunStepResult, outcomes: Sequence[ToolResult], answers: Mapping[int, AnswerReceipt] = _NOBODY
) -> tuple[StepInput, ...]:
    """The inputs of the next step: one result a call, in call order."""
    return tuple(
        _tool_input(make_result_id(result.head.last_id, at), call, outcome, answers.get(at))
        for at, (call, outcome) in enumerate(zip(result.calls, outcomes, strict=True))
    )


def _tool_input(
    message_id: str, call: ToolCall, outcome: ToolResult, answered: AnswerReceipt | None
) -> StepInput:
    fields: dict[str, Any] = {"id": message_id, "call": call.id, "name": call.name}
    for name in ("text", "parts", "ref", "is_error", "usage", "child", "staged", "unfinished"):
        if getattr(outcome, name):
            fields[name] = getattr(outcome, name)
    if answered is not None:
        fields["answered"] = answered
    return StepInput(**fields)


REOPENS: Final = 20
"""Re-opens of one turn; more mean that the stores forget faster than we write."""
_CUTTING_AFTER: Final = 3
"""Tries of one step after which an open cuts what stands in its way, also after a reset."""


@dataclass(slots=True)
class TurnResult:
    """How a turn ended.

    Attributes:
        answer: Where its answer is; None if it gave none.
        text: The answer's text if it is short.
        in_thread: Its inputs are in the thread.
        dropped: Messages that had been answered by an earlier turn.
        left: Messages that the turn, which stood already, does not have.
        finish: Why the model stopped, where that is worth telling.
    """

    exit_reason: ExitReason
    answer: AnswerRef | None = None
    text: str | None = None
    in_thread: bool = False
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    dropped: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    finish: Finish | None = None


class _TurnMoved(Exception):  # noqa: N818 (control flow, not an error)
    """The thread was opened again, and the turn does not go on at its present step.

    Attributes:
        after: How it goes on.
        why: What the step met; None where none was tried.
    """

    def __init__(self, after: After, why: HelixError | None = None) -> None:
        super().__init__(after)
        self.after, self.why = after, why


class Turn:
    """One turn of a session.

    Attributes:
        interrupted: Whether to end after the present step.
        values_stored: The application's values are in the thread with one of its steps.
        run_id: Names the turn in the session store; another one when it is run again, and the first one
            where a reset workflow finds it under way.
        promoted: The application's values after tools' staged changes went into them.
        caught_up: The session as it was opened when the turn went on behind turns that it did not know of.
        notes: What had to be put right in the session store.

    Args:
        pending_calls: For calls that a client or a person answers; None where nobody can be waited for.
        archive: As in `SessionOptions`.
        answer_earlier: Called with a step's result if some of the turn's messages were answered before, or
            are left for the next turn; returns false if they stay with this turn to its end.
        adopt_messages: Called with messages that this turn takes over: their turn stands unfinished, after
            a reset.
    """

    def __init__(
        self,
        calls: Calls,
        thread: CurrentThread,
        *,
        number: int,
        max_steps: int,
        pending_calls: PendingCalls | None = None,
        archive: ArchiveMode | None = None,
        answer_earlier: Callable[[RunStepResult], bool] = lambda _: False,
        adopt_messages: Callable[[Sequence[UserMessage]], None] = lambda _: None,
    ) -> None:
        self._calls, self._thread, self._pending_calls = calls, thread, pending_calls
        self._archive = only_set(archive=archive)
        self._answer_earlier, self._adopt_messages = answer_earlier, adopt_messages
        self.caught_up: OpenSessionResult | None = None
        self._number, self._max_steps = number, max_steps
        self._values: dict[str, Any] = {}
        self.values_stored = False
        self.run_id = self._first_run_id = calls.new_id()[:16]
        self.promoted: dict[str, Any] | None = None
        self.notes: tuple[Receipt, ...] = ()
        self._left: tuple[str, ...] = ()
        self._tools = ToolCalls(calls, thread, number, lambda: self.steps)
        self._start = thread.head
        self._reopens = self._again = 0
        self._epoch_before = 0
        self.interrupted = False
        self.steps = 0
        self._used = Usage()
        self._used_before = Usage()
        self._messages: tuple[UserMessage, ...] = ()

    @property
    def usage(self) -> Usage:
        """Of all its steps and tools, also before it was suspended."""
        return self._used_before + self.used

    @property
    def used(self) -> Usage:
        """As `usage`, without what the turn used before it was suspended."""
        return self._used + self._tools.usage

    def give_values(self, values: dict[str, Any] | None, changed: tuple[str, ...] | None) -> None:
        """What the application has not saved yet goes with the next step; ``changed``: those of its keys."""
        self._values = {} if values is None else {"values": values, "changed": changed}

    async def run(self, messages: Sequence[UserMessage]) -> TurnResult:
        """Run to the final answer, the last step allowed, an interrupt, or calls that wait for somebody."""
        self._messages = tuple(messages)
        return await self._run_until_over(None, ())

    async def resume(self, suspended: SuspendedTurn) -> TurnResult:
        """Go on with a turn whose calls, or some of them, were answered."""
        return await self._run_until_over(self._restore_suspended(suspended), suspended.dropped)

    async def give_up(
        self, suspended: SuspendedTurn, reason: ExitReason, *, again: bool = True
    ) -> TurnResult:
        """End a suspended turn, whose calls all have results by now.

        Where the thread has lost it, it is run ``again``, up to the end of its first step.

        Raises:
            HeadMovedError: It is lost, and was not to be run again; or the thread is at another place.
        """
        result = self._restore_suspended(suspended)
        assert self._pending_calls is not None
        results = self._pending_calls.results()
        if self._pending_calls.sub_agent_calls:
            self._pending_calls.sub_agent_calls.end_all()
            await self._tools.run(self.run_id, result, self._pending_calls)
            results = self._pending_calls.results()
        outcomes = [results[at] for at in range(len(result.calls))]
        inputs = tool_inputs(result, outcomes, self._pending_calls.get_receipts())
        self._pending_calls.end_wait()
        try:
            return await self._end_turn(inputs, reason, suspended.dropped, _list_refs(self._messages))
        except _TurnMoved as moved:
            if not again:
                thread_id = self._thread.request.thread_id
                raise HeadMovedError(f"thread {thread_id!r}: the turn that waited is lost") from moved.why
            self._begin_again(moved)
        self.interrupted = True
        return await self._run_until_over(None, ())

    def _restore_suspended(self, suspended: SuspendedTurn) -> RunStepResult:
        """Become the turn that was suspended; returns its newest step."""
        self._messages, self._left = suspended.messages, suspended.left
        self._start, self.steps, self._used_before = suspended.start, suspended.steps, suspended.usage
        self.run_id = self._first_run_id = suspended.run_id or self.run_id
        self._tools.traceparent = suspended.traceparent
        waits = {each.at for each in suspended.waiting}
        unknown = tuple(at for at in range(len(suspended.calls)) if at not in waits)
        return RunStepResult(
            head=suspended.head, calls=suspended.calls, waiting=suspended.waiting, unknown=unknown
        )

    async def _run_until_over(self, resumed: RunStepResult | None, dropped: tuple[str, ...]) -> TurnResult:
        while True:
            users = tuple(_user_input(message) for message in self._messages)
            try:
                if resumed is not None and self._thread.opened_by_another_run:
                    await self._look_behind(resumed.head)
                return await self._run_steps(users, resumed, dropped)
            except _TurnMoved as moved:
                resumed = None
                self._begin_again(moved)

    async def _look_behind(self, waiting: Head) -> None:
        """See whether the thread has gone on from the step that waits: a reset workflow would not know.

        Raises:
            _TurnMoved: It has, or has lost the step.
        """
        opened = await self._reopen_thread(waiting)
        reopened = self._compare_places(opened, waiting)
        after = after_wait(reopened)
        if after is After.SAME_STEP:
            return
        assert self._pending_calls is not None
        self._pending_calls.end_wait()
        self._pending_calls.sub_agent_calls.restore_calls(())
        self.steps, self._used_before = 0, Usage()
        self._move_to(after, opened, reopened)

    def _compare_places(self, opened: OpenSessionResult, known: Head) -> Reopened:
        """Where the thread is, beside where the turn took it to be; adopts what a reset finds under way."""
        of_others = False
        if opened.reset:
            self._thread.note_reset_point(self._start.position, self._epoch_before)
            of_others = self._adopt_turn_under_way(opened.under_way)
        return Reopened(
            start=self._start,
            known=known,
            found=self._thread.head,
            reset=opened.reset,
            goes_on=opened.goes_on,
            of_others=of_others,
        )

    def _move_to(
        self, after: After, opened: OpenSessionResult, place: Reopened, why: HelixError | None = None
    ) -> NoReturn:
        """Set the place where the turn goes on.

        Raises:
            _TurnMoved: Always: the steps up to now do not count any more.
        """
        if after is After.BEHIND:
            self._start, self.caught_up = place.found, opened
            # What the application had not saved is merged with what the thread has saved since.
            self.promoted, self._values = dict(opened.values or {}), {}
        elif after is not After.NOWHERE:
            # What the stores have lost stays gone: the turn begins where the thread is.
            self._start = place.found if place.is_lost else self._start
            self._thread.move_to(self._start)
        raise _TurnMoved(after, why)

    def _begin_again(self, moved: _TurnMoved) -> None:
        """Name the turn's next run, which begins at its start.

        Raises:
            HelixError: What the step met, where the turn cannot go on.
        """
        if moved.after is After.NOWHERE and moved.why is not None:
            raise moved.why
        if moved.after is After.FIND_STEPS:
            return
        if moved.after is After.FROM_START:
            self._thread.turns_run_again += 1
        self.values_stored = False
        self._again += 1
        # The session store may have committed the run whose steps the hot thread lost, or has gone on behind.
        self.run_id = f"{self._first_run_id}.{self._again}"

    async def _run_steps(
        self, users: tuple[StepInput, ...], resumed: RunStepResult | None, dropped: tuple[str, ...]
    ) -> TurnResult:
        inputs, refs = users, _list_refs(users) if resumed is not None else ()
        while True:
            before = self._thread.head if resumed is None else self._start
            if resumed is None:
                result = await self._run_step(inputs, refs)
                refs = (*refs, *_list_refs(each for each in inputs if each.id not in result.left))
            else:
                result, resumed = resumed, None
            dropped = dropped or result.dropped
            self._left = self._left or result.left
            self._part_with_others(result)
            if not result.calls:
                self._apply_commit(result)
                return self._result_with_answer(result, dropped, stepped=result.head != before)
            if result.stop == "abort":
                raise SessionInterruptedError(f"run {self.run_id}: asked to abort")
            self.interrupted = self.interrupted or result.stop is not None
            outcomes, answers = await self._collect_results(result, dropped)
            if self._wants_rewind(outcomes):
                # The open ends the step's sub-agents that are suspended: the step is made again without them.
                opened = await self._reopen_thread(before, cuts=True)
                reopened = self._compare_places(opened, before)
                if (after := after_cut(reopened)) is not After.SAME_STEP:
                    self._move_to(after, opened, reopened)
                continue
            if len(outcomes) < len(result.calls):
                return self._turn_result(ExitReason.SUSPENDED, dropped=dropped)
            inputs = tool_inputs(result, outcomes, answers)
            reason = self._reason_to_end(outcomes)
            if reason is not None:
                return await self._end_turn(inputs, reason, dropped, refs)

    def _part_with_others(self, result: RunStepResult) -> None:
        """Drop messages that turn out to be of other turns: they do not wait for the end of this one."""
        if (result.left or result.dropped) and self._answer_earlier(result):
            apart = {*result.left, *result.dropped}
            self._messages = tuple(each for each in self._messages if each.id not in apart)

    async def _collect_results(
        self, result: RunStepResult, dropped: tuple[str, ...]
    ) -> tuple[list[ToolResult], Mapping[int, AnswerReceipt]]:
        """Results of a step's calls; fewer than calls while some wait for a client or a person."""
        if result.outcomes:
            return self._read_standing_results(result)
        await self._tools.look_up_added_tools(result)
        if self._pending_calls is not None:
            return await self._run_calls_or_suspend(self._pending_calls, result, dropped)
        step = UnattendedCalls(len(result.calls), SubAgentCalls(now_ms), unanswerable_results(result))
        await self._tools.run(self.run_id, result, step)
        return _in_call_order(step.results()), {}

    def _read_standing_results(
        self, result: RunStepResult
    ) -> tuple[list[ToolResult], Mapping[int, AnswerReceipt]]:
        """Results that the thread has: after a reset no person is asked, and no tool is run, once more."""
        answers = {each.at: each.answered for each in result.outcomes if each.answered is not None}
        if self._pending_calls is not None:
            self._pending_calls.note_found_answers(tuple(answers.values()))
        outcomes = [each.result for each in result.outcomes if each.result is not None]
        self._used = sum((each.usage for each in outcomes if each.usage), start=self._used)
        return outcomes, answers

    async def _run_calls_or_suspend(
        self, pending_calls: PendingCalls, result: RunStepResult, dropped: tuple[str, ...]
    ) -> tuple[list[ToolResult], Mapping[int, AnswerReceipt]]:
        """As `_collect_results`: the turn is suspended once nothing is left but to wait for people."""
        pending_calls.sub_agent_calls.in_order = not self._thread.facts.parallel_tools
        if result.waiting:
            pending_calls.begin_wait(self._make_suspended_turn(result, dropped), shift_deadlines=True)
        step = (
            pending_calls
            if pending_calls.suspended is not None
            else UnattendedCalls(len(result.calls), pending_calls.sub_agent_calls)
        )
        await self._tools.run(self.run_id, result, step)
        if self.interrupted:
            pending_calls.sub_agent_calls.end_all()
            await self._tools.run(self.run_id, result, step)
            pending_calls.give_up_calls(INTERRUPTED)
        results, answers = step.results(), pending_calls.get_receipts()
        if len(results) == len(result.calls) or self._wants_rewind(results.values()):
            pending_calls.end_wait()
        else:
            suspended = self._make_suspended_turn(result, dropped)
            pending_calls.begin_wait(suspended.model_copy(update={"outcomes": step.list_outcomes()}))
        return _in_call_order(results), answers

    def _make_suspended_turn(self, result: RunStepResult, dropped: tuple[str, ...]) -> SuspendedTurn:
        return SuspendedTurn(
            head=result.head,
            start=self._start,
            run_id=self.run_id,
            steps=self.steps,
            messages=self._messages,
            calls=result.calls,
            waiting=result.waiting,
            **only_set(
                usage=None if self.usage == Usage() else self.usage,
                dropped=dropped or None,
                left=self._left or None,
                traceparent=self._tools.traceparent,
                children=(self._pending_calls.sub_agent_calls.list_calls() or None)
                if self._pending_calls
                else None,
            ),
        )

    def _wants_rewind(self, outcomes: Iterable[ToolResult]) -> bool:
        return self.steps < self._max_steps and any(outcome.rewind for outcome in outcomes)

    def _reason_to_end(self, outcomes: Sequence[ToolResult]) -> ExitReason | None:
        if any(outcome.wait for outcome in outcomes):
            return ExitReason.WAITING
        if self.interrupted:
            return ExitReason.INTERRUPTED
        return ExitReason.MAX_STEPS if self.steps >= self._max_steps else None

    def _result_with_answer(
        self, result: RunStepResult, dropped: tuple[str, ...], *, stepped: bool
    ) -> TurnResult:
        answer = result.answer
        if not stepped and answer is None:
            # Sent again, and its turn had ended without an answer.
            return self._turn_result(ExitReason.INTERRUPTED, dropped=dropped)
        if answer is None:
            answer = AnswerRef(position=result.head.position - 1, id=result.head.last_id)
        return self._turn_result(
            ExitReason.COMPLETED, answer=answer, text=result.text, dropped=dropped, finish=result.finish
        )

    async def _end_turn(
        self,
        inputs: tuple[StepInput, ...],
        reason: ExitReason,
        dropped: tuple[str, ...],
        refs: tuple[str, ...],
    ) -> TurnResult:
        """End the turn with results and no further model call: each call of the thread has its result."""
        thread = self._thread

        async def attempt(**answered: Any) -> RunStepResult:
            return await self._calls.end_turn(
                EndTurnInput(
                    session_id=thread.request.session_id,
                    **thread_field(thread.request),
                    epoch=thread.handle.epoch,
                    head=thread.head,
                    inputs=inputs,
                    run_id=self.run_id,
                    reason=reason,
                    **self._archive,
                    **only_truthy(earlier_refs=refs),
                    **answered,
                )
            )

        result = await self._attempt_at_head(attempt, inputs, answered=False)
        self._apply_commit(result)
        thread.note_step(result)
        return self._turn_result(reason, dropped=dropped)

    def _apply_commit(self, result: RunStepResult) -> None:
        if result.values is not None:
            self.promoted = result.values
        self.notes = (*self.notes, *result.notes)

    def _turn_result(self, reason: ExitReason, **fields: Any) -> TurnResult:
        return TurnResult(
            reason, in_thread=True, steps=self.steps, usage=self.usage, left=self._left, **fields
        )

    # -- steps

    async def _run_step(self, inputs: tuple[StepInput, ...], refs: tuple[str, ...]) -> RunStepResult:
        thread = self._thread

        async def attempt(**answered: Any) -> RunStepResult:
            return await self._calls.run_step(
                RunStepInput(
                    session_id=thread.request.session_id,
                    **thread_field(thread.request),
                    agent=thread.request.agent,
                    epoch=thread.handle.epoch,
                    head=thread.head,
                    inputs=inputs,
                    turn=self._number,
                    run_id=self.run_id,
                    **({} if self.values_stored else only_set(**self._values)),
                    **self._archive,
                    **only_truthy(earlier_refs=refs),
                    **only_set(since=thread.since, tracing_context=thread.tracing_context),
                    **answered,
                )
            )

        before = thread.head
        result = await self._attempt_at_head(attempt, inputs)
        self.run_id = result.run or self.run_id
        self._tools.traceparent = result.traceparent
        thread.note_step(result)
        self.values_stored = self.values_stored or result.head != before
        self.steps += 1
        if result.usage is not None:
            self._used = self._used + result.usage
        return result

    async def _attempt_at_head(
        self, attempt: Any, inputs: tuple[StepInput, ...], *, answered: bool = True
    ) -> RunStepResult:
        """Run ``attempt`` at the head that is known; if the thread is elsewhere, open it and try again."""
        for tries in itertools.count():
            if is_cancelled():
                # It came with the failure of the attempt before: another one would be paid for.
                raise asyncio.CancelledError
            below = () if self._pending_calls is None else self._pending_calls.list_unsaved_answers()
            try:
                self._thread.check_settled()
                result: RunStepResult = await heed_cancel(attempt(**only_set(answered=below or None)))
                if self._pending_calls is not None:
                    self._pending_calls.mark_saved(below)
                return result
            except (HeadMovedError, FencedError, ThreadNotFoundError) as moved:
                if isinstance(moved, ThreadNotFoundError) and tries:
                    raise  # the thread is there
                head = self._thread.head
                self._reopens += 1
                if self._reopens > REOPENS:
                    raise
                # What still stands in the way then is no step that a reset workflow comes to.
                cuts = not answered or tries >= _CUTTING_AFTER
                ids = tuple(each.id for each in inputs)
                opened = await self._reopen_thread(head, ids, answered=answered, cuts=cuts)
                reopened = self._compare_places(opened, head)
                if (after := after_step(reopened, len(inputs))) is not After.SAME_STEP:
                    self._move_to(after, opened, reopened, moved)
                # What lies beyond is this very step: the next attempt finds it standing.
                self._thread.move_to(head)
        raise AssertionError("unreachable")  # pragma: no cover

    def _adopt_turn_under_way(self, messages: tuple[UserMessage, ...]) -> bool:
        """Put the messages of a turn that stands unfinished before this turn's; whether they are others."""
        if not messages:
            return False
        first = [each.id for each in messages]
        changed = [each.id for each in self._messages[: len(first)]] != first
        self._adopt_messages(messages)
        self._messages = (*messages, *(each for each in self._messages if each.id not in first))
        return changed

    async def _reopen_thread(
        self, known_head: Head, inputs: tuple[str, ...] = (), *, answered: bool = True, cuts: bool = False
    ) -> OpenSessionResult:
        heads = ReopenHeads(head=known_head, turn_start=self._start, inputs=inputs, answered=answered)
        self._epoch_before = self._thread.handle.epoch
        opened = await reopen_thread(self._calls, self._thread, heads, cuts=cuts)
        self.notes = (*self.notes, *opened.notes)
        return opened


def _list_refs(inputs: Iterable[StepInput | UserMessage]) -> tuple[str, ...]:
    """Names of content that is kept apart from these inputs."""
    return tuple(each.ref for each in inputs if each.ref is not None)


def _user_input(message: UserMessage) -> StepInput:
    fields: dict[str, Any] = {"id": message.id, "text": message.text}
    if message.ref is not None:
        fields["ref"] = message.ref
    if message.metadata:
        fields["metadata"] = message.metadata
    return StepInput(**fields, **only_set(traceparent=message.traceparent))
