"""Traces of turns, told by activities: one trace a turn, a span for each model call and each tool call.

Nothing of this runs in workflow code, so a replay tells nothing twice.  What a turn's trace needs is kept in
the thread's record (`TurnTrace`), and in the session store with the turn's run, from which
`trace_backfill` tells the same spans again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Self

from helix_temporal.activities._runtime import scheduled_ms
from helix_temporal.activities.step_facts import step_number
from helix_temporal.activities.usage import list_untold_results, name_of_model, name_of_summary_model
from helix_temporal.agents import Agent, ToolOutcome
from helix_temporal.models.base import only_truthy, wall_clock_ms
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.ids import CallKey
from helix_temporal.models.messages import Finish, Message, SummaryUsage
from helix_temporal.models.newest import Newest
from helix_temporal.models.states import SubSessionRef
from helix_temporal.models.steps import EndTurnInput, RunStepInput, ToolInput
from helix_temporal.models.traces import MAX_LINKS, TurnTrace
from helix_temporal.session.projection import end_of_run
from helix_temporal.session.record import SessionRecord, add_waits
from helix_temporal.telemetry import genai
from helix_temporal.telemetry.emitter import Emitter
from helix_temporal.telemetry.ids import SpanRef, derive_span_id, derive_trace_id
from helix_temporal.telemetry.spans import (
    Span,
    Stopwatch,
    Turn,
    error_types,
    span_of_cut_call,
    span_of_run,
    spans_of_usage,
    turn_name,
)

_REMEMBERED: Final = 64
_REMEMBERED_STEPS: Final = 1024

CallerIs = Literal["parent", "link"]
"""What the sender's span is to the turn of its message."""


class TurnTraces:
    """Tells of turns, model calls and tools; nothing until it is given an emitter.

    Args:
        emitter: Takes the spans.
        caller: What a caller's span is to the turn, if its message alone is in the turn; of several messages
            all callers are linked.
    """

    def __init__(self, emitter: Emitter | None = None, caller: CallerIs = "parent") -> None:
        self._emitter, self._caller = emitter, caller
        self._begun = Newest[tuple[str, str], TurnTrace](_REMEMBERED)
        """Traces of turns whose first step is under way."""
        self._told = Newest[tuple[str, str], None](_REMEMBERED_STEPS)
        """Session and last message of steps of which this process has told."""

    @property
    def emitter(self) -> Emitter | None:
        """Where spans go; None where there are none."""
        return self._emitter

    def start(self, emitter: Emitter | None, caller: CallerIs = "parent") -> None:
        """Tell from here on."""
        self._emitter, self._caller = emitter, caller

    def close(self) -> None:
        """Give up what is on its way after a few seconds; blocks that long."""
        emitter, self._emitter = self._emitter, None
        if emitter is not None:
            emitter.close()

    # -- turns

    def find_turn(self, request: RunStepInput | EndTurnInput, record: SessionRecord) -> TurnTrace | None:
        """The trace of the turn that a step belongs to, for the record; the same for all its attempts.

        ``record`` is the one before the step.
        """
        emitter, run_id = self._emitter, request.run_id
        if emitter is None or run_id is None:
            return None
        if record.trace is not None and record.run == run_id:
            return add_waits(record.trace, record, request)
        known = self._begun.get((request.session_id, run_id))
        if known is None:
            known = self._begun[request.session_id, run_id] = self._begin_turn(emitter, request, record)
        return known

    def _begin_turn(
        self, emitter: Emitter, request: RunStepInput | EndTurnInput, record: SessionRecord
    ) -> TurnTrace:
        run_id = request.run_id or ""
        agent = request.agent if isinstance(request, RunStepInput) else record.agent
        parent, links = self._find_callers(request)
        if parent is not None:
            trace_id, sampled = parent.trace_id, parent.sampled
        else:
            trace_id = derive_trace_id(request.session_id, run_id)
            sampled = emitter.is_sampled(trace_id, turn_name(agent))
        root = SpanRef(trace_id, derive_span_id(request.session_id, run_id, "turn"), sampled)
        named: dict[str, Any] = only_truthy(
            parent=None if parent is None else parent.traceparent,
            links=tuple(each.traceparent for each in links),
            before=None if record.trace is None else record.trace.root,
        )
        return TurnTrace(root=root.traceparent, agent=agent, started=scheduled_ms(), **named)

    def _find_callers(self, request: RunStepInput | EndTurnInput) -> tuple[SpanRef | None, list[SpanRef]]:
        """The caller that is the parent, and those that are linked."""
        messages = [each.traceparent for each in request.inputs if each.call is None]
        named = dict.fromkeys(each for each in messages if each)
        found = [each for each in map(SpanRef.parse, named) if each is not None][:MAX_LINKS]
        if len(messages) == 1 and found and self._caller == "parent":
            return found[0], []
        return None, found

    def tell_cut(self, run: Run) -> None:
        """A turn has ended that came to nothing; told by whoever ended its run in the session store."""
        if self._emitter is not None and (span := span_of_run(run)) is not None:
            self._emitter.emit(span)

    def tell_cut_call(self, run: Run, ref: SubSessionRef, called: Run) -> None:
        """A turn takes no result of this sub-agent, whose turn is ``called``."""
        span = span_of_cut_call(run, ref, called, wall_clock_ms())
        if self._emitter is not None and span is not None:
            self._emitter.emit(span)

    # -- within a turn

    def open_step(
        self, request: RunStepInput | EndTurnInput, record: SessionRecord, agent: Agent | None = None
    ) -> "StepTrace":
        """Tell of one attempt of a step; ``agent`` is the one whose model is called."""
        trace = None if self._emitter is None else self.find_turn(request, record)
        return self._open_step(request, trace, step_number(request, record), agent)

    def open_standing_step(
        self, request: RunStepInput | EndTurnInput, record: SessionRecord, writer: str
    ) -> "StepTrace":
        """Tell of a step that stands in the thread, if an attempt for the same workflow run has appended it.

        That workflow run would not ask for it if it had been told of the step: the attempt that appended it
        was cut short, and may not have known that it did.  ``record`` is the one that the step has left,
        ``writer`` the short id of the workflow run that asks.
        """
        if record.trace is None or record.run != request.run_id or record.writer != writer:
            return NO_STEP
        number = record.turn_steps if isinstance(request, RunStepInput) else step_number(request, record)
        return self._open_step(request, record.trace, number)

    def _open_step(
        self,
        request: RunStepInput | EndTurnInput,
        trace: TurnTrace | None,
        number: int,
        agent: Agent | None = None,
    ) -> "StepTrace":
        turn = None if trace is None else Turn.of_trace(request.session_id, request.run_id or "", trace)
        if self._emitter is None or trace is None or turn is None:
            return NO_STEP
        return _RecordedStep(self._emitter, turn, trace, request, agent, number, self._told)

    def open_call(self, request: ToolInput, attempt: int) -> "CallTrace":
        """Tell of one attempt of a tool call."""
        emitter, run_id = self._emitter, request.run_id
        if emitter is None or run_id is None:
            return NO_CALL
        root = SpanRef.parse(request.traceparent)
        if root is None:
            # The worker that ran the step tells nothing of it, or is an older one.
            trace_id = derive_trace_id(request.session_id, run_id)
            sampled = emitter.is_sampled(trace_id, turn_name(request.agent))
            root = SpanRef(trace_id, derive_span_id(request.session_id, run_id, "turn"), sampled)
        return _RecordedCall(emitter, Turn(request.session_id, run_id, request.agent, root), request, attempt)


class StepTrace:
    """One attempt of a step; this one tells nothing.

    Attributes:
        trace: Of the turn, for the record.
    """

    trace: TurnTrace | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def call_model(self, answer_id: str) -> "ModelTrace":  # noqa: ARG002 (see the class)
        """Around the model call that is to give this answer."""
        return NO_MODEL

    def note_summary(self, used: SummaryUsage, watch: Stopwatch) -> None:
        """A summary was made, since ``watch`` began."""

    def commit(self, last: str, *, ends_turn: bool) -> None:
        """The step whose last message this is stands in the thread, and perhaps ends the turn.

        What this process has told of already is not told again.
        """


class ModelTrace:
    """One model call; this one tells nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def note_answer(self, answer: Message, inputs: Sequence[Message], instructions: str) -> None:
        """What the model gave, and the new messages that it was given."""


class CallTrace:
    """One attempt of a tool call; this one tells nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def note_outcome(self, arguments: Any, outcome: ToolOutcome) -> None:
        """The tool has come to its end."""


NO_STEP: Final = StepTrace()
NO_MODEL: Final = ModelTrace()
NO_CALL: Final = CallTrace()


class _RecordedStep(StepTrace):
    def __init__(
        self,
        emitter: Emitter,
        turn: Turn,
        trace: TurnTrace,
        request: RunStepInput | EndTurnInput,
        agent: Agent | None,
        number: int,
        told: Newest[tuple[str, str], None],
    ) -> None:
        self._emitter, self._turn, self.trace = emitter, turn, trace
        self._request, self._agent, self._number, self._told = request, agent, number, told
        self._watch, self._ends = Stopwatch(), False
        self._spans: list[Span] = []
        """Told at the end, when what they used is recorded: no span has tokens that the usage log lacks."""

    def __exit__(self, *_: object) -> None:
        for span in self._spans:
            self._emitter.emit(span)
        # Also where what follows the commit failed: the turn is in the thread.
        if self._ends and self.trace is not None:
            status, reason = end_of_run(self._request)
            self._emitter.emit(self._turn.end(self.trace, reason or status.value, self._watch.end_ns))

    def call_model(self, answer_id: str) -> "ModelTrace":
        assert self._agent is not None
        model = name_of_model(self._agent.model)
        return _RecordedModelCall(
            self._emitter, self._turn, self._spans.append, model, self._number, answer_id
        )

    def commit(self, last: str, *, ends_turn: bool) -> None:
        key = (self._request.session_id, last)
        if key in self._told:
            return
        self._told[key] = None
        self._ends = ends_turn
        # Sub-agents, and calls that no worker ran to an end: those that did have been told.
        untold = list_untold_results(self._request, self._turn.agent, self._number - 1)
        self._spans += spans_of_usage(self._turn, untold)

    def note_summary(self, used: SummaryUsage, watch: Stopwatch) -> None:
        assert self._agent is not None
        model, step = name_of_summary_model(self._agent), self._number
        ref, start_ns, end_ns = self._turn.ref("summary", used.id), watch.start_ns, watch.end_ns
        self._spans.append(
            self._turn.chat(model, ref, start_ns, end_ns, step=step, used=used.used, summary=True)
        )


class _Attempt:
    """Something that is tried once: how long it takes, and where spans of others belong meanwhile."""

    def __init__(self, emitter: Emitter, turn: Turn, ref: SpanRef, tell: Callable[[Span], None]) -> None:
        self._emitter, self._turn, self._tell = emitter, turn, tell
        self._ref, self._watch, self._nested = ref, Stopwatch(), emitter.nested(ref)
        self._span: Span | None = None

    def __enter__(self) -> Self:
        self._watch = Stopwatch()
        self._nested.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        error = raised[1]
        # The context alone: what was raised is none of its business.
        self._nested.__exit__(None, None, None)
        span = self._span
        if isinstance(error, BaseException):
            # Also one that came to its end, and whose result was not kept: another attempt tells of the call.
            span = replace(self._describe_failure(), error=error_types.name_error(error))
        if span is not None:
            self._tell(span)

    def _describe_failure(self) -> Span:
        raise NotImplementedError


class _RecordedModelCall(_Attempt, ModelTrace):
    def __init__(
        self,
        emitter: Emitter,
        turn: Turn,
        tell: Callable[[Span], None],
        model: str,
        step: int,
        answer_id: str,
    ) -> None:
        super().__init__(emitter, turn, turn.ref("chat", answer_id), tell)
        self._model, self._step = model, step

    def note_answer(self, answer: Message, inputs: Sequence[Message], instructions: str) -> None:
        used = answer.usage
        if used is not None and answer.summary_usage is not None:
            used -= answer.summary_usage.used
        finish = answer.finish or (Finish.TOOL_CALLS if answer.tool_calls else Finish.STOP)
        content: Mapping[str, Any] | None = None
        if self._emitter.content:
            content = genai.input_attributes(inputs, instructions) | genai.output_attributes(answer)
        self._span = self._describe_call(used=used, finish=finish.value, content=content)

    def _describe_call(self, **facts: Any) -> Span:
        start, end = self._watch.start_ns, self._watch.end_ns
        return self._turn.chat(self._model, self._ref, start, end, step=self._step, **facts)

    def _describe_failure(self) -> Span:
        return self._describe_call()


class _RecordedCall(_Attempt, CallTrace):
    def __init__(self, emitter: Emitter, turn: Turn, request: ToolInput, attempt: int) -> None:
        self._request, self._attempt = request, attempt
        self._result_id = CallKey.parse(request.key).result_id
        # Not yet known whether it is the attempt that comes to the call's end: as if it were.
        super().__init__(emitter, turn, turn.ref("call", self._result_id), emitter.emit)

    def note_outcome(self, arguments: Any, outcome: ToolOutcome) -> None:
        span = self._describe_attempt(None, failed=outcome.is_error)
        attributes = span.attributes
        if outcome.usage is not None:
            attributes |= genai.usage_attributes(outcome.usage)
        content: dict[str, Any] = {}
        if self._emitter.content:
            content = genai.arguments_attributes(arguments) | genai.result_attributes(outcome.content)
        self._span = replace(span, attributes=attributes, content=content)

    def _describe_failure(self) -> Span:
        return self._describe_attempt(self._attempt)

    def _describe_attempt(self, attempt: int | None, *, failed: bool = False) -> Span:
        return self._turn.call(
            self._request.tool,
            self._request.call.id,
            self._result_id,
            self._watch.start_ns,
            self._watch.end_ns,
            step=self._request.step,
            failed=failed,
            attempt=attempt,
        )
