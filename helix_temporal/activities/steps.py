"""One step of a turn as an activity: ask the model, append its answer, archive it, commit the turn's state.

`Stepper` does it, with `model_calls` and `step_messages`; `step_news` tells the session store.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from helix_temporal.activities._runtime import (
    current_attempt,
    scheduled_ms,
    workflow_run,
)
from helix_temporal.activities.context import Summaries
from helix_temporal.activities.kept_answers import KeptAnswers
from helix_temporal.activities.live import StepStream, Streaming
from helix_temporal.activities.model_calls import ask_model
from helix_temporal.activities.payloads import Payloads, References
from helix_temporal.activities.record_store import StoredRecord, swap_record, update_record
from helix_temporal.activities.session_sync import CommittedTurn, FinishedTurn, SessionSync
from helix_temporal.activities.step_facts import (
    ModelStep,
    TurnAnswers,
    count_step,
    is_archived,
    lost_answer_error,
    new_id,
    record_of,
    step_number,
    unarchived_fields,
)
from helix_temporal.activities.step_messages import StepMessages
from helix_temporal.activities.step_news import StepNews
from helix_temporal.activities.suspended_turns import (
    list_waiting_calls,
    read_results_behind,
)
from helix_temporal.activities.traces import StepTrace, TurnTraces
from helix_temporal.activities.usage import UsageLog
from helix_temporal.agents import Agent, AgentRegistry
from helix_temporal.errors import (
    ColdTierBehindError,
    HeadMovedError,
    InvalidConfigError,
    NotArchivedError,
    PayloadNotFoundError,
    StaleStateError,
    StoreUnavailableError,
)
from helix_temporal.models.base import only_set, wall_clock_ms
from helix_temporal.models.ids import shorten_id
from helix_temporal.models.limits import DEDUP_WINDOW, INLINE_RESULT, INLINE_TEXT, MAX_TEXT
from helix_temporal.models.messages import (
    Message,
    decode_message,
    encode_message,
    shorten_arguments,
)
from helix_temporal.models.sessions import Answered, ExitReason
from helix_temporal.models.steps import EndTurnInput, RunStepInput, RunStepResult, StepInput
from helix_temporal.models.stored_messages import Kind, StoredMessage
from helix_temporal.models.traces import TurnTrace
from helix_temporal.models.waiting import CallOutcome, WaitingCall
from helix_temporal.session.projection import end_of_run
from helix_temporal.session.record import (
    SessionRecord,
    apply_step,
    apply_wait,
    encode_record,
    find_suspension,
    parse_record,
)
from helix_temporal.stores.protocols.hot import Appended, StepAppend, StepView
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushStatus, ReadPage, ThreadStore
from helix_temporal.stores.threads.standing_step import find_standing_step, find_step
from helix_temporal.telemetry import metrics

_log = logging.getLogger(__name__)


RESET_WINDOW: Final = 20_000
"""After a reset so many messages are looked at, at most."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """Sizes in bytes: of texts and arguments that travel in results, and of what a workflow carries.

    ``inline_arguments`` holds for results of tools as well, where the thread has them already.
    """

    inline_text: int = INLINE_TEXT
    inline_arguments: int = INLINE_RESULT
    message: int = MAX_TEXT


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a look at the thread says of a step: to be run, or standing, or with nothing left to do."""

    view: StepView
    inputs: tuple[StepInput, ...]
    dropped: tuple[str, ...]
    stands: tuple[StoredMessage, ...] | None
    left: tuple[str, ...] = ()
    """Inputs that the step that stands does not have."""
    answers: tuple[Answered, ...] = ()
    """Where those of the dropped inputs that came with others were answered."""

    def other_input_fields(self) -> dict[str, Any]:
        """What the workflow is told of inputs that are not the step's own; only what is there."""
        told = {"dropped": self.dropped, "left": self.left, "answers": self.answers}
        return {name: value for name, value in told.items() if value}


class Stepper:
    """Runs steps of sessions.

    Args:
        flush_each_step: Archive every step at once; otherwise only at open and at the end.
        archive_required: No step is done before it is archived, unless its session says otherwise.
        archives: There is a cold tier.
        states: Keeps the session store in step; None where there is none.
        streams: Where steps are shown live.
        used: Where what they used is recorded.
        traces: Who tells of them in traces.

    Attributes:
        messages: Builds messages of inputs.
    """

    def __init__(
        self,
        threads: ThreadStore,
        agents: AgentRegistry,
        payloads: Payloads,
        limits: StepLimits | None = None,
        *,
        flush_each_step: bool = True,
        archive_required: bool = False,
        archives: bool = True,
        states: SessionSync | None = None,
        streams: Streaming | None = None,
        used: UsageLog | None = None,
        traces: TurnTraces | None = None,
    ) -> None:
        self._traces = traces or TurnTraces()
        self._threads, self._agents = threads, agents
        self._payloads, self._limits = payloads, limits or StepLimits()
        self.messages = StepMessages(References(payloads, threads), self._limits.message)
        self._flush_each_step, self._archives = flush_each_step, archives
        self._archive_required = archive_required
        self._states, self._news = states, StepNews(agents, states)
        self._streams, self._used = streams or Streaming(), used or UsageLog()
        self._summaries = Summaries(threads, self._used)
        self._kept = KeptAnswers()

    async def run(self, request: RunStepInput) -> RunStepResult:
        """Run a step, or find it standing: a model call whose answer stands is never made again.

        Raises:
            HeadMovedError, FencedError: The thread is not where the workflow believes; it opens again.
            ColdTierBehindError: Too much is unarchived to go on.
            NotArchivedError: The step stands, and may not count before it is archived; run it again.
            InvalidConfigError: The archive is required, and there is no cold tier.
            PayloadNotFoundError: What an input refers to is gone for good, and the step does not stand.
            IdempotencyConflictError: A user's message has the id of another message.
            TooLargeError: An input is larger than messages may be; ``facts`` has its ``message_id``.
        """
        self._check_archive(request)
        agent = self._agents.get_agent(request.agent)
        thread_id = request.thread_id or request.session_id
        await self._kept.wait((thread_id, request.epoch, request.head))
        seen = await self._look_up_step(request, agent, thread_id)
        if seen.inputs and seen.stands is None and _may_have_been_made(record_of(seen.view)):
            await self._try_confirm_head(request, thread_id)
            # The archive may have taken its time, in which another attempt's answer came.
            seen = await self._look_up_step(request, agent, thread_id)
        if not seen.inputs:
            return await self._answered_before(request, thread_id, seen)
        if seen.stands is not None:
            return await self._finish_standing_step(request, agent, thread_id, seen)
        await self._news.tell_answers(request, seen.view.header.slice)
        try:
            inputs = await self.messages.build_messages(request, seen.inputs)
        except PayloadNotFoundError:
            # An attempt that was taken for dead may have made the step meanwhile, and dropped its payloads.
            seen = await self._look_up_step(request, agent, thread_id)
            if seen.stands is None:
                # It may stand in the archive alone: then it is no message that has lost its content.
                await self._threads.confirm_head(thread_id, request.epoch, request.head)
                raise
            return await self._finish_standing_step(request, agent, thread_id, seen)
        record = record_of(seen.view)
        number, reached = step_number(request, record), record.stream_reached
        async with self._streams.open_step_stream(request, agent, new_id(), number, reached) as live:
            live.tell_begin(inputs)
            with self._traces.open_step(request, record, agent) as traced:
                result = await self._new_step(request, agent, thread_id, seen, inputs, live, traced)
            await live.tell_end(result)
        return result

    async def _new_step(
        self,
        request: RunStepInput,
        agent: Agent,
        thread_id: str,
        seen: _Seen,
        inputs: list[Message],
        live: StepStream,
        traced: StepTrace,
    ) -> RunStepResult:
        record = record_of(seen.view)
        async with self._news.recording_run(request, record, live.find_turn_start):
            asks = ModelStep(agent, request, thread_id, record, traced.note_summary)
            call = traced.call_model(live.message_id)
            answer, given, took = await ask_model(asks, seen.view, inputs, live, self._summaries, call)
            if agent.compaction is not None:
                # One of another timeline goes: a later window may not reach back to where it shows.
                record = record.model_copy(update={"summary": given.summary})
            step = StepAppend(
                thread_id,
                request.epoch,
                request.head,
                tuple(encode_message(message) for message in inputs),
                encode_message(answer),
                commits=not answer.tool_calls,
            )
            async with self._used.recording_step(agent, request, answer, live.number, took):
                live.tell_answer(answer)  # paid for, also by an attempt that Temporal has given up
                append = partial(
                    self._append_step, step, record, request, [*inputs, answer], seen.view, live.reached,
                    traced.trace,
                )  # fmt: skip
                appended, turn = await self._kept.store((thread_id, request.epoch, request.head), append)
                self._count_turn_end(request, step, appended)
                stored = answer if not appended.repeated else decode_message(appended.messages[-1])
                if stored.id == answer.id:
                    # Nobody else ever made this answer: the end of its turn is told once.
                    traced.commit(stored.id, ends_turn=step.commits)
                live.tell_committed(stored, appended.head)
                receipt = await self._archive_step(step, appended, request)
        if appended.messages[-1].kind == Kind.ANSWER:
            # Until its turn ends, a tool may rewind the step, which then takes the same inputs again.
            await self.messages.drop_payloads(request, seen.inputs, receipt)
        result = await self._build_result(request, appended, stored, receipt, seen, turn, traced.trace)
        return result.model_copy(update={"repairs": given.repairs}) if given.repairs else result

    async def end_turn(self, request: EndTurnInput) -> RunStepResult:
        """Commit tool results without a model call, so that the turn ends with every call answered.

        Raises:
            HeadMovedError, FencedError, NotArchivedError, InvalidConfigError, PayloadNotFoundError: As `run`.
        """
        self._check_archive(request)
        thread_id = request.thread_id or request.session_id
        view, stands = await self._look_up_results(request, thread_id)
        if not stands and _may_have_been_made(record_of(view)):
            await self._try_confirm_head(request, thread_id)
        inputs: list[Message] = []
        if not stands:
            try:
                inputs = await self.messages.build_messages(request, request.inputs)
            except PayloadNotFoundError:
                # As in `run`: an attempt that was taken for dead may have used them.
                view, stands = await self._look_up_results(request, thread_id)
                if not stands:
                    await self._threads.confirm_head(thread_id, request.epoch, request.head)
                    raise
        record = record_of(view)
        if stands:
            traced = self._traces.open_standing_step(request, record, workflow_run())
        else:
            traced = self._traces.open_step(request, record)
        with traced:
            return await self._commit_results(request, thread_id, view, inputs, traced, stands=stands)

    async def _commit_results(
        self,
        request: EndTurnInput,
        thread_id: str,
        view: StepView,
        inputs: list[Message],
        traced: StepTrace,
        *,
        stands: bool,
    ) -> RunStepResult:
        step = StepAppend(thread_id, request.epoch, request.head, view.after, commits=True)
        turn, told = None, False
        if stands:
            # It stands already, and its payloads may be gone.
            appended = await self._append_again(step, view)
            inputs = [decode_message(message) for message in view.after]
            told = record_of(view).run != request.run_id
        else:
            step = replace(step, inputs=tuple(encode_message(each) for each in inputs))
            await self._news.tell_answers(request, view.header.slice)
            appended, turn = await self._append_step(
                step, record_of(view), request, inputs, view, trace=traced.trace
            )
            self._count_turn_end(request, step, appended)
        if stands or not appended.repeated:
            traced.commit(appended.head.last_id, ends_turn=True)
        receipt = await self._archive_step(step, appended, request)
        await self.messages.drop_payloads(request, request.inputs, receipt)
        await self._news.tell_sub_agents(request)
        await self._used.record_results(request, record_of(view))
        committed = await self._commit_state(request, appended, turn)
        if not told:
            await self._streams.tell_turn_ended(
                request, inputs, appended.head, record_of(view).stream_reached
            )
        return RunStepResult(
            head=appended.head,
            slice_version=appended.header.slice_version,
            **unarchived_fields(receipt),
            **committed,
        )

    # -- looking

    async def _try_confirm_head(self, request: RunStepInput | EndTurnInput, thread_id: str) -> None:
        """Look into the archive before what may have been made is made again; one that is down is passed by.

        Raises:
            HeadMovedError: It was made.
        """
        try:
            await self._threads.confirm_head(thread_id, request.epoch, request.head)
        except StoreUnavailableError as down:
            _log.warning("thread %s: tried again without a look at its archive: %s", thread_id, down)

    async def _look_up_results(self, request: EndTurnInput, thread_id: str) -> tuple[StepView, bool]:
        """The thread at the end of a turn, and whether its results stand there already.

        Raises:
            HeadMovedError: The hot thread is an older copy; or the turn has gone on, and its workflow was
                reset.
        """
        count = len(request.inputs)
        view = await self._threads.step_view(
            thread_id, request.epoch, request.head, after=count, limit=1, max_bytes=1, ids=0
        )
        header, end = view.header, request.head.position + count
        lost = header.head.position < request.head.position or view.last_id_at_head != request.head.last_id
        if lost or header.committed > end or header.committed < end < header.head.position:
            # Results that end a turn are committed by the session store, together with its state.
            raise lost_answer_error(thread_id, request.head)
        stands = find_step(view.after, [each.id for each in request.inputs], answers="")
        return view, stands is not None

    async def _view_step(self, request: RunStepInput, agent: Agent, thread_id: str) -> StepView:
        """The thread as the step needs it; counts the turn that the archive's absence refuses."""
        users = any(each.call is None for each in request.inputs)
        try:
            return await self._threads.step_view(
                thread_id,
                request.epoch,
                request.head,
                after=len(request.inputs) + 1,
                limit=agent.context.max_messages,
                max_bytes=agent.context.max_bytes,
                ids=_dedup_window(request) if users else 0,
            )
        except ColdTierBehindError:
            metrics.record_turn(agent.name, metrics.REFUSED, 0)
            raise

    async def _look_up_step(self, request: RunStepInput, agent: Agent, thread_id: str) -> _Seen:
        view = await self._view_step(request, agent, thread_id)
        stored_ids = {*view.earlier_ids, *(message.id for message in view.before)}
        gone = _taken_back(request, view)
        dropped = tuple(
            each.id
            for each in request.inputs
            if each.call is None and (each.id in stored_ids or (gone and shorten_id(each.id) in gone))
        )
        inputs = tuple(each for each in request.inputs if each.id not in dropped)
        stands = find_standing_step(view, request.head, [each.id for each in inputs]) if inputs else None
        left = () if stands is None else tuple(each.id for each in inputs[len(stands) - 1 :])
        answers: tuple[Answered, ...] = ()
        if dropped and len(request.inputs) > 1:
            answers = await self._find_answers(request, thread_id, view, dropped)
        return _Seen(view, inputs, dropped, stands, left, answers)

    async def _find_answers(
        self, request: RunStepInput, thread_id: str, view: StepView, dropped: Sequence[str]
    ) -> tuple[Answered, ...]:
        """Where messages were answered that are in the thread already; none for one whose turn was not.

        Raises:
            HeadMovedError: The hot thread was rolled back, so that what it holds is not what was answered.
            IdempotencyConflictError: One of them has the id of a message that is no user's.
        """
        if view.last_id_at_head != request.head.last_id:
            raise lost_answer_error(thread_id, request.head)
        window = [*view.earlier_ids, *(message.id for message in view.before)]
        start = request.head.position - len(window)
        places = {message_id: start + at for at, message_id in enumerate(window) if message_id in dropped}
        position, newest = min(places.values(), default=0), max(places.values(), default=-1)
        found = TurnAnswers(places)
        while position < request.head.position and (position <= newest or found.open):
            page = await self._threads.read(
                ReadPage(
                    thread_id,
                    position,
                    request.head.position,
                    limit=64,
                    committed_only=False,
                    whole=False,
                    epoch=request.epoch,
                )
            )
            ids = [each.id for each in page.messages]
            if not ids or ids != window[page.first - start : page.first - start + len(ids)]:
                raise lost_answer_error(thread_id, request.head)
            found.follow(page.first, page.messages)
            position = page.first + len(ids)
        return tuple(
            Answered(message_id=each, answer=found.answers[each]) for each in dropped if each in found.answers
        )

    async def _finish_standing_step(
        self, request: RunStepInput, agent: Agent, thread_id: str, seen: _Seen
    ) -> RunStepResult:
        """The step is there already: only make sure that it is committed and archived."""
        assert seen.stands is not None
        asked, request = request.run_id, await self._under_its_name(request, seen.view)
        *inputs, answer = seen.stands
        step = StepAppend(
            thread_id, request.epoch, request.head, tuple(inputs), answer, commits=answer.kind == Kind.ANSWER
        )
        appended = await self._append_again(step, seen.view)
        appended = await self._save_wait(request, agent, thread_id, appended)
        receipt = await self._archive_step(step, appended, request)
        if appended.messages[-1].kind == Kind.ANSWER:
            ids = {each.id for each in appended.messages}
            await self.messages.drop_payloads(
                request, [each for each in request.inputs if each.id in ids], receipt
            )
        await self._news.tell_standing_step(request, seen.view, appended)
        # What stands may be another answer than a moment ago: the hot thread was lost and came back.
        *taken, stored = (decode_message(message) for message in appended.messages)
        record = record_of(seen.view)
        with self._traces.open_standing_step(request, record, workflow_run()) as traced:
            traced.commit(stored.id, ends_turn=step.commits)
        async with self._used.recording_step(agent, request, stored, record.turn_steps):
            same_run = record.run == request.run_id
            trace = record.trace if same_run else None
            result = await self._build_result(request, appended, stored, receipt, seen, trace=trace)
            if outcomes := await self._results_behind(appended, result, same_run=same_run):
                result = result.model_copy(update={"outcomes": outcomes})
            if appended.header.head.position > appended.head.position:
                result = result.model_copy(update={"goes_on": True})
            if same_run:
                await self._streams.tell_standing_step(
                    request, agent, taken, stored, result, record.stream_reached
                )
        return result if request.run_id == asked else result.model_copy(update={"run": request.run_id})

    async def _save_wait(
        self, request: RunStepInput, agent: Agent, thread_id: str, appended: Appended
    ) -> Appended:
        """Say in the record that the step waits, if it does not: else the next open would cut the step.

        That is so where an open cut a later step, which had taken the answers.
        """
        head, header = appended.head, appended.header
        if header.head != head or find_suspension(parse_record(header.slice), head) is not None:
            return appended
        waiting = list_waiting_calls(agent, decode_message(appended.messages[-1]), wall_clock_ms())
        if not waiting:
            return appended
        saved = await update_record(
            self._threads,
            thread_id,
            request.epoch,
            lambda stored: apply_wait(stored.record, head, waiting) if stored.head == head else stored.record,
            "a step was found to wait again",
        )
        kept = replace(header, slice=encode_record(saved.record), slice_version=saved.version)
        return replace(appended, header=kept)

    async def _under_its_name(self, request: RunStepInput, view: StepView) -> RunStepInput:
        """A turn that a reset workflow begins anew goes on under the name that the thread has for it.

        What its tools staged, and what was told of it, has that name.  A run that the session store has
        ended keeps its name to itself: the thread lost steps that the store had committed.
        """
        kept = record_of(view)
        is_newest = kept.changes is not None and kept.changes.turn <= request.head.position
        if kept.run is None or request.run_id in {None, kept.run} or not is_newest:
            return request
        if self._states is not None and not await self._states.is_live(request.session_id, kept.run):
            return request
        return request.model_copy(update={"run_id": kept.run})

    async def _results_behind(
        self, appended: Appended, result: RunStepResult, *, same_run: bool
    ) -> tuple[CallOutcome, ...]:
        """Results of the step's calls that the thread has, where its workflow was reset to before them."""
        if not (result.waiting or (result.calls and same_run)):
            return ()
        return await read_results_behind(
            self._threads,
            self._payloads,
            appended.header,
            appended.head,
            result.waiting,
            len(result.calls),
            self._limits.inline_arguments,
        )

    async def _answered_before(self, request: RunStepInput, thread_id: str, seen: _Seen) -> RunStepResult:
        """Every input is in the thread already: where the newest one's answer is, and those of the others.

        Raises:
            HeadMovedError: The hot thread was rolled back, so that what it holds is not what was answered.
        """
        answers = seen.answers or await self._find_answers(request, thread_id, seen.view, seen.dropped)
        newest = [each.answer for each in answers if each.message_id == seen.dropped[-1]]
        fields: dict[str, Any] = {"answers": seen.answers} if seen.answers else {}
        return RunStepResult(
            head=request.head,
            answer=newest[0] if newest else None,
            dropped=seen.dropped,
            slice_version=seen.view.header.slice_version,
            **fields,
        )

    # -- the model

    # -- writing

    @staticmethod
    def _count_turn_end(request: RunStepInput | EndTurnInput, step: StepAppend, appended: Appended) -> None:
        """Record the end of a turn, by whoever has added it to the thread: nobody else.

        Its own answer may be found there where the reply to the append was lost.
        """
        is_own = step.answer is not None and appended.messages[-1].id == step.answer.id
        if not step.commits or (appended.repeated and not is_own) or metrics.find_meter() is None:
            return
        status, reason = end_of_run(request)
        # The other turns that are superseded are those of terminated executions.
        outcome = metrics.WENT_ON if reason == ExitReason.SUPERSEDED else reason or status.value
        record = parse_record(appended.header.slice)
        metrics.record_turn(record.agent, outcome, record.at_work_since)

    async def _append_step(
        self,
        step: StepAppend,
        record: SessionRecord,
        request: RunStepInput | EndTurnInput,
        messages: Sequence[Message],
        view: StepView,
        reached: int = 0,
        trace: TurnTrace | None = None,
    ) -> tuple[Appended, CommittedTurn | None]:
        """Append with the record that goes with it; a record saved meanwhile is taken in first."""
        waiting, writer = self._waiting_calls(step, request, messages), workflow_run()

        async def write(stored: StoredRecord) -> tuple[Appended, CommittedTurn | None]:
            after = apply_step(
                stored.record,
                step,
                request,
                messages,
                waiting=waiting,
                writer=writer,
                now=scheduled_ms(),
                trace=trace,
            )
            if reached > after.stream_reached:
                after = after.model_copy(update={"stream_reached": reached})
            with_slice = replace(step, slice=encode_record(after), slice_version=stored.version)
            return await self._append_with_state(with_slice, request)

        read_before = StoredRecord(record, view.header.slice_version, view.header.head)
        return await swap_record(
            self._threads,
            step.thread_id,
            write,
            "a step was appended",
            read_before=read_before,
            otherwise=StaleStateError,
        )

    def _waiting_calls(
        self, step: StepAppend, request: RunStepInput | EndTurnInput, messages: Sequence[Message]
    ) -> tuple[WaitingCall, ...]:
        if not isinstance(request, RunStepInput) or step.answer is None:
            return ()
        return list_waiting_calls(self._agents.get_agent(request.agent), messages[-1], wall_clock_ms())

    async def _append_with_state(
        self, step: StepAppend, request: RunStepInput | EndTurnInput
    ) -> tuple[Appended, CommittedTurn | None]:
        turn = None if self._states is None else await self._states.append_last_step(step, request)
        return (await self._threads.append(step), None) if turn is None else (turn.appended, turn)

    async def _commit_state(
        self, request: RunStepInput | EndTurnInput, appended: Appended, turn: CommittedTurn | None
    ) -> dict[str, Any]:
        """Commit the state of a turn that has ended; what the workflow must know of it."""
        if self._states is None:
            return {}
        if turn is not None:
            done = FinishedTurn(turn.values)
        else:
            done = await self._states.finish_turn(request, appended, parse_record(appended.header.slice))
        found: dict[str, Any] = {} if done.values is None else {"values": dict(done.values)}
        return found | ({"notes": done.notes} if done.notes else {})

    async def _append_again(self, step: StepAppend, view: StepView) -> Appended:
        """Make sure of a step that was seen standing; with its state, should the hot thread have lost it."""
        header = view.header
        if header.slice_version > 0:
            step = replace(step, slice=header.slice, slice_version=header.slice_version - 1)
        try:
            return await self._threads.append(step)
        except StaleStateError as stale:
            raise HeadMovedError(
                f"thread {step.thread_id!r}: the step at {step.head.position} was seen and is gone; "
                "open it again"
            ) from stale

    def _check_archive(self, request: RunStepInput | EndTurnInput) -> None:
        if self._requires_archive(request) and not self._archives:
            raise InvalidConfigError(
                f"session {request.session_id!r}: archive is 'required', and its workers have no cold tier; "
                "give them one, or ask for archive='eventual'"
            )

    def _requires_archive(self, request: RunStepInput | EndTurnInput) -> bool:
        return self._archive_required if request.archive is None else request.archive == "required"

    async def _archive_step(
        self, step: StepAppend, appended: Appended, request: RunStepInput | EndTurnInput
    ) -> FlushReceipt:
        required = self._requires_archive(request)
        if not (self._flush_each_step or required):
            await self._threads.confirm_step(step, appended)
            return FlushReceipt(FlushStatus.UNAVAILABLE, reason="flushed at exit", tried=False)
        receipt = await self._threads.archive_step(step, appended)
        count_step(receipt)
        if required and not is_archived(receipt):
            raise NotArchivedError(
                f"thread {step.thread_id!r}: the step that ends at {appended.head.position} is in the thread "
                f"and not archived, which is required ({receipt.reason}); it is tried again",
                committed=step.commits,
            )
        return receipt

    def _unknown_call_fields(self, request: RunStepInput, answer: Message, seen: _Seen) -> dict[str, Any]:
        """Calls of tools that the agent does not have; where all are known nothing is told.

        Nor of a step that stands: the worker that made it may have offered tools that this one lacks.
        """
        if seen.stands is not None:
            return {}
        agent = self._agents.get_agent(request.agent)
        unknown = tuple(at for at, call in enumerate(answer.tool_calls) if agent.find_tool(call.name) is None)
        return {"unknown": unknown} if unknown else {}

    async def _build_result(
        self,
        request: RunStepInput,
        appended: Appended,
        answer: Message,
        receipt: FlushReceipt,
        seen: _Seen,
        turn: CommittedTurn | None = None,
        trace: TurnTrace | None = None,
    ) -> RunStepResult:
        fields: dict[str, Any] = {"head": appended.head, "slice_version": appended.header.slice_version}
        if answer.tool_calls:
            fields |= only_set(traceparent=None if trace is None else trace.root)
            fields["calls"] = tuple(
                shorten_arguments(call, self._limits.inline_arguments) for call in answer.tool_calls
            )
            fields |= self._unknown_call_fields(request, answer, seen)
            fields |= await self._news.tell_waiting_calls(request, answer, appended)
        elif len(answer.text.encode()) <= self._limits.inline_text:
            fields["text"] = answer.text
        if answer.usage is not None:
            fields["usage"] = answer.usage
        if answer.finish is not None:
            fields["finish"] = answer.finish
        fields |= unarchived_fields(receipt)
        fields |= seen.other_input_fields()
        await self._news.tell_sub_agents(request, answer)
        if not answer.tool_calls:
            fields |= await self._commit_state(request, appended, turn)
        elif self._states is not None and (stop := await self._states.find_stop_request(request)) is not None:
            fields["stop"] = stop
        return RunStepResult(**fields)


def _may_have_been_made(record: SessionRecord) -> bool:
    """Whether a step that the hot thread lacks may have been made, and that thread was lost since.

    By an earlier attempt, or by the run before a reset.
    """
    return current_attempt() > 1 or record.writer != workflow_run()


def _dedup_window(request: RunStepInput) -> int:
    """How many messages before the head are looked at for those that were sent again."""
    if request.since is None:
        return DEDUP_WINDOW
    beyond = max(request.head.position - request.since.position, 0)
    return min(DEDUP_WINDOW + beyond, RESET_WINDOW)


def _taken_back(request: RunStepInput, view: StepView) -> frozenset[str]:
    """Short ids of messages that were taken back since the point to which the workflow was reset.

    What stands behind the head was asked again after it had been taken back: a cut leaves none of it there.
    """
    since = request.since
    if since is None:
        return frozenset()
    taken = (each.cut for each in record_of(view).taken_back if each.epoch > since.epoch)
    cut = {message_id for each in taken for message_id in each}
    return frozenset(cut.difference(shorten_id(message.id) for message in view.after))
