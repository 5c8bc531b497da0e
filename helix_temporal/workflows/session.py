"""A session: open the thread, serve turns, save, flush; and the workflow that does it."""

import asyncio
import contextlib
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NoReturn

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from helix_temporal._failures import describe_failure
from helix_temporal.errors import (
    ColdTierBehindError,
    HeadMovedError,
    HelixError,
    IdempotencyConflictError,
    NotArchivedError,
    PayloadNotFoundError,
    SessionInterruptedError,
    TooLargeError,
    split_text,
)
from helix_temporal.models.base import only_set, only_truthy
from helix_temporal.models.ids import SESSION_WORKFLOW
from helix_temporal.models.limits import MAX_CARRIED, MAX_TURN
from helix_temporal.models.sessions import (
    Answered,
    AskResult,
    AskStatus,
    Carried,
    ExitReason,
    SessionInput,
    SessionResult,
    Status,
    SuspendedTurn,
    UserMessage,
)
from helix_temporal.models.steps import OpenSessionInput, OpenSessionResult, ReopenHeads, RunStepResult
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.waiting import INTERRUPTED, WENT_ON
from helix_temporal.session.inbox import AskAgain, Entry
from helix_temporal.session.next_work import Work
from helix_temporal.session.rewinds import tells_of_lost_turns
from helix_temporal.session.values import StoredValues, Values
from helix_temporal.workflows.agent_wait import AgentWait
from helix_temporal.workflows.call_answers import Submissions
from helix_temporal.workflows.calls import (
    OPEN_POLICY,
    OpenedDespiteCancel,
    TemporalCalls,
    count_cancels,
    is_cancelled,
)
from helix_temporal.workflows.clock import now_ms
from helix_temporal.workflows.ending import Ending, Finaliser, try_to_archive, would_lose_answers
from helix_temporal.workflows.execution import NOTES, Execution, without_turn
from helix_temporal.workflows.handlers import Handlers
from helix_temporal.workflows.hooks import Events, HookRunner, SessionHooks, ask_result
from helix_temporal.workflows.opening import CurrentThread, reopen_thread, thread_field
from helix_temporal.workflows.rewinds import carry_out_rewind
from helix_temporal.workflows.runners import keep_tasks_apart
from helix_temporal.workflows.stops import Stops
from helix_temporal.workflows.target_version import continue_on_target_version, has_target_changed
from helix_temporal.workflows.turn import Turn, TurnResult

TURN_MESSAGES: Final = 100
"""Messages of one turn; see also `limits.MAX_TURN`."""
_WHY: Final = {ExitReason.SUPERSEDED: WENT_ON}


class Serving:
    """Serves the turns of one execution, one after the other.

    Attributes:
        still_waits: The suspended turn could not be ended, since a store does not answer.
    """

    def __init__(self, execution: Execution, calls: TemporalCalls, events: Events, values: Values) -> None:
        self._execution, self._calls, self._events, self._values = execution, calls, events, values
        self._unended: Turn | None = None
        self._given = StoredValues.of({})
        self.still_waits = False

    async def serve_turn(self) -> None:
        """Run a turn of the messages that wait."""
        # Before the hooks, which may take long: the execution may end meanwhile.
        self._execution.turn_start = self._execution.opened_thread.head
        entries = self._execution.inbox.begin_turn(self._execution.rewinds.before, self._turn_message_limit())
        self._execution.status = Status.RUNNING
        turn, start = self._make_turn(), self._execution.opened_thread.head
        turn.interrupted = self._execution.interrupted
        # Hooks are part of the turn: whoever stops it meanwhile stops them, too.
        task = asyncio.create_task(self._admit_and_run(turn, entries))
        await self._follow_turn(turn, task, start, entries)

    async def _admit_and_run(self, turn: Turn, entries: list[Entry]) -> TurnResult | None:
        """Run a turn of the entries that hooks admit, which are left in the list; None if that is none."""
        entries[:] = await self._events.admit_entries(entries)
        self._give_values(turn)  # hooks may have changed some
        return await turn.run([entry.for_thread for entry in entries]) if entries else None

    async def resume_turn(self) -> None:
        """Go on with the turn that is suspended, or end it as was asked."""
        execution, suspended = self._execution, self._execution.pending_calls.suspended
        assert suspended is not None
        if execution.stopping == "abort":
            execution.stopping = None
            execution.pending_calls.end_wait()
            await self._abandon_turn(suspended.run_id, suspended.start)
            execution.status, execution.quiet_since = Status.IDLE, workflow.now()
            return
        reason = execution.reason_to_give_up
        execution.stopping, execution.status, turn = None, Status.RUNNING, self._make_turn()
        # What came before the answer is in the slice, and goes to the step that takes it.
        suspended = suspended.model_copy(update={"outcomes": execution.pending_calls.list_outcomes()})
        if reason is None:
            running = turn.resume(suspended)
        else:
            execution.pending_calls.give_up_calls(_WHY.get(reason, INTERRUPTED))
            running = turn.give_up(suspended, reason)
        await self._follow_turn(
            turn, asyncio.create_task(running), suspended.start, execution.inbox.turn_entries
        )

    async def end_suspended(self, finaliser: Finaliser) -> str | None:
        """End the suspended turn, which somebody was told of, since the execution is cancelled or fails.

        Returns:
            The run of a turn that was cut short; None if there is none, or one that waits and may go on.
        """
        execution = self._execution
        suspended = (
            None if execution.thread is None else execution.pending_calls.restore_at(execution.thread.head)
        )
        if suspended is None:
            return None if self._unended is None else self._unended.run_id
        waiting = execution.pending_calls.sub_agent_calls.list_calls()
        before = suspended.model_copy(
            update={"outcomes": execution.pending_calls.list_outcomes(), "children": waiting}
        )
        execution.pending_calls.give_up_calls(INTERRUPTED)
        turn = self._make_turn()
        ended = asyncio.create_task(self._try_give_up(turn, suspended))
        receipt = await finaliser.run_within_budget("end_turn", ended)
        execution.notes = (*execution.notes, receipt)
        lost = not ended.cancelled() and ended.exception() is not None
        if not (receipt.ok or lost):
            self._restore_wait(before)
        return None

    def _restore_wait(self, before: SuspendedTurn) -> None:
        """Wait again as before the turn was given up; results that its sub-agents gave meanwhile stay."""
        pending_calls = self._execution.pending_calls
        pending_calls.restore_at(before.head)
        waited = {each.at for each in before.children}
        ended = {
            each.at: each
            for each in pending_calls.list_outcomes()
            if each.at in waited and each.result is not None
        }
        children = tuple(each for each in before.children if each.at not in ended)
        pending_calls.end_wait()
        self._execution.turn, self.still_waits = None, True
        outcomes = (*before.outcomes, *ended.values())
        pending_calls.begin_wait(before.model_copy(update={"outcomes": outcomes, "children": children}))

    async def _try_give_up(self, turn: Turn, suspended: SuspendedTurn) -> bool:
        """End the turn without answers, and return whether that worked; raises if the thread has lost it."""
        try:
            await turn.give_up(suspended, ExitReason.INTERRUPTED, again=False)
        except HeadMovedError:
            raise
        except HelixError as error:
            workflow.logger.warning("the suspended turn could not be ended: %s", type(error).__name__)
            return False
        self._execution.turns += 1
        return True

    def _make_turn(self) -> Turn:
        self._execution.pending_calls.sub_agent_calls.ending = False
        self._calls.children.archive = self._execution.options.archive
        turn = self._execution.turn = Turn(
            self._calls,
            self._execution.opened_thread,
            number=self._execution.turns + 1,
            max_steps=self._execution.options.max_steps or self._execution.opened_thread.facts.max_steps,
            pending_calls=self._execution.pending_calls,
            archive=self._execution.options.archive,
            answer_earlier=self._answer_earlier_messages,
            adopt_messages=self._execution.inbox.adopt_messages,
        )
        self._give_values(turn)
        return turn

    def _give_values(self, turn: Turn) -> None:
        self._execution.note_refused_values(self._values.list_refused())
        turn.give_values(self._values.find_unsaved(), self._values.list_changed_keys())
        self._given = StoredValues.of(self._values.build_storable())

    def _turn_message_limit(self) -> int | None:
        """How many of the messages that wait become one turn: after a reset hundreds may, in one input."""
        fit = self._execution.inbox.count_for_turn(TURN_MESSAGES, MAX_TURN)
        return fit if fit < len(self._execution.inbox) else None

    def _answer_earlier_messages(self, result: RunStepResult) -> bool:
        """Answer messages that an earlier turn has answered; what the step left waits for the next turn."""
        inbox = self._execution.inbox
        if len(inbox.turn_entries) < 2:
            return False
        answers = {each.message_id: each.answer for each in result.answers}
        for each in result.dropped:
            inbox.resolve_earlier(each, answers.get(each))
        inbox.put_back_first(result.left)
        return True

    async def _follow_turn(
        self, turn: Turn, task: "asyncio.Task[TurnResult | None]", start: Head, entries: list[Entry]
    ) -> None:
        self._unended = turn
        result = await self._await_turn_outcome(turn, task, start)
        if result is not None:
            await self._apply_outcome(turn, result, entries)
        self._unended = None

    async def _await_turn_outcome(
        self, turn: Turn, task: "asyncio.Task[TurnResult | None]", start: Head
    ) -> TurnResult | None:
        """How the turn ended; None of one that was refused or stopped, of which its askers are told."""
        execution = self._execution
        execution.turn_start, execution.turn_task = start, task
        try:
            return await task
        except (asyncio.CancelledError, SessionInterruptedError) as stopped:
            aborting = execution.aborting or isinstance(stopped, SessionInterruptedError)
            if not aborting or is_cancelled():
                raise
            execution.pending_calls.end_wait()
            await self._abandon_turn(turn.run_id, start)
        except ColdTierBehindError as behind:
            self._refuse_unarchived(behind)
        except (PayloadNotFoundError, IdempotencyConflictError, TooLargeError) as failed:
            await self._fail_message(failed, turn.run_id, start)
        finally:
            if turn.caught_up is not None:
                execution.turns, execution.usage = turn.caught_up.turns, turn.caught_up.usage
                execution.pending_calls.remember_answers(turn.caught_up.answered)
            execution.used, execution.notes = (
                execution.used + turn.used,
                (*execution.notes, *turn.notes)[-NOTES:],
            )
            execution.note_losses()
            execution.turn, execution.turn_task, execution.aborting = None, None, False
            execution.status, execution.idle = Status.IDLE, False
            if workflow.in_workflow():  # not when a run left in the cache of an ended worker is collected
                execution.quiet_since = workflow.now()
        return None

    async def _apply_outcome(self, turn: Turn, result: TurnResult, entries: list[Entry]) -> None:
        execution = self._execution
        if turn.values_stored:
            self._values.stored = self._given
        if turn.promoted is not None:
            self._values.apply_promoted(self._given, turn.promoted)
        if result.exit_reason is ExitReason.SUSPENDED:
            execution.status = Status.SUSPENDED
            execution.tell_askers_if_exiting()
        else:
            await self._finish_turn(turn, result, entries)

    def _refuse_unarchived(self, why: ColdTierBehindError) -> None:
        """Nothing of the turn is in the thread: what was sent waits for the archive, who asks is told."""
        refused = AskResult(status=AskStatus.FAILED, error=describe_failure(why))
        if self._execution.list_sent_ids(self._execution.inbox.turn_entries):
            self._execution.wait_for_archive(refused)
        self._execution.inbox.finish_turn(refused)

    async def _fail_message(
        self, why: PayloadNotFoundError | IdempotencyConflictError | TooLargeError, run_id: str, start: Head
    ) -> None:
        """Fail the one message whose content is gone or too large, or whose id is taken.

        If the content is that of a tool's result, fail the turn.
        """
        if not isinstance(why, PayloadNotFoundError) and "message_id" not in why.facts:
            raise why  # a store's, of the turn itself
        self._execution.pending_calls.end_wait()
        inbox = self._execution.inbox
        finished = await self._cut_turn(run_id, start)
        lost = inbox.find(str(why.facts.get("message_id")))
        failed = AskResult(status=AskStatus.FAILED, error=describe_failure(why))
        refused = [] if finished else inbox.turn_entries if lost is None else [lost]
        self._execution.note_refused(refused, type(why).__name__)
        if lost is None and not finished:
            inbox.finish_turn(failed)
            return
        if lost is not None and not finished:
            inbox.refuse_message(lost, failed)
        # Where a late attempt has finished the turn all the same, they are answered from the thread.
        inbox.put_back_first([entry.message.id for entry in inbox.turn_entries])
        inbox.finish_turn(failed.model_copy(update={"in_thread": finished}))

    async def _abandon_turn(self, run_id: str | None, start: Head) -> None:
        """Cut what the turn left in the thread, and tell those who asked that it was interrupted."""
        # What was finished before anybody could stop it stays.
        finished: dict[str, Any] = {"in_thread": True} if await self._cut_turn(run_id, start) else {}
        self._calls.children.dismiss_calls(self._execution.opened_thread.request)
        interrupted = AskResult(status=AskStatus.INTERRUPTED, exit_reason=ExitReason.INTERRUPTED, **finished)
        self._execution.inbox.finish_turn(interrupted)

    async def _cut_turn(self, run_id: str | None, start: Head) -> bool:
        """Cut what the turn left in the thread: a late attempt of its step must not bring it back.

        Returns:
            Whether the turn was finished before, so that it stays.
        """
        heads, thread = ReopenHeads(head=start, turn_start=start), self._execution.opened_thread
        epoch = thread.handle.epoch
        opened = await reopen_thread(self._calls, thread, heads, abandoned=run_id, cuts=True)
        if opened.reset:
            thread.note_reset_point(start.position, epoch)
        return thread.head.position > start.position

    async def _finish_turn(self, turn: Turn, result: TurnResult, entries: list[Entry]) -> None:
        self._calls.children.dismiss_calls(self._execution.opened_thread.request)
        entries = [*entries, *(each for each in self._execution.inbox.turn_entries if each not in entries)]
        if len(entries) > 1:
            # Each that was sent again gets its own answer, in a turn without a model call.
            self._execution.inbox.put_back_alone([*result.dropped, *result.left])
        # A turn that nobody waits for tells nobody what is lost.
        finished = self._execution.finish_result(
            ask_result(result), tells=any(each.asked for each in entries)
        )
        self._execution.inbox.finish_turn(finished, answer=result.answer)
        apart = {*result.dropped, *result.left}
        if not apart and not self._execution.inbox and not self._execution.rewinds:
            # What was applied again after a reset came before this.
            self._execution.opened_thread.since = None
        fresh = [entry for entry in entries if entry.message.id not in apart]
        if not fresh:
            return
        self._execution.turns, self._execution.run_turns = (
            self._execution.turns + 1,
            self._execution.run_turns + 1,
        )
        self._execution.usage, self._execution.exit = self._execution.usage + result.usage, result.exit_reason
        await self._events.tell_turn_completed(turn, result, fresh)


_TICK: Final = 0.001
"""Seconds by which a timer may seem to be early."""
_FLUSH_AGAIN: Final = 5.0
ASK_SECONDS: Final = 20.0
"""So long an ask is held while a turn waits for people; then its client asks again.

The server lets ten updates of a run wait at once, and refuses the one that answers them.
"""
_HANDLER_SECONDS: Final = 1.0
"""So long a run that moves to another worker version waits for handlers; others may take longer."""
_PAUSES: Final = frozenset({ExitReason.WAITING, ExitReason.SUSPENDED})


class _ContinueAsNew(Exception):  # noqa: N818 (control flow, not an error)
    """This run is long enough, or pinned to an old worker version: continue as new."""


class AgentSession:
    """A session inside a workflow.

    Create it in ``@workflow.init`` (handlers registered later are too late for an update that comes
    with the start) and return ``await session.run()``.

    Attributes:
        values: The application's own state: change it between turns or in hooks; it is saved with the
            next step, or at the end.
    """

    def __init__(self, input: SessionInput, hooks: SessionHooks | None = None) -> None:
        keep_tasks_apart()
        carried = input.carried
        self._input = input
        self._execution = Execution.of(input, workflow.now(), workflow.random_seed())
        policy = carried.policy if carried else OPEN_POLICY
        self._calls = TemporalCalls(policy, input.parent, self._execution.pending_calls.sub_agent_calls)
        self._events = Events(input, self._execution, HookRunner(self._calls, hooks or SessionHooks()))
        self._values = Values.of(carried)
        self._serving = Serving(self._execution, self._calls, self._events, self._values)
        self._cancels = 0
        self._was_told = False
        # The server may know the target version late, or somebody may hold the session on this version.
        has_moved = carried is not None or input.unopened is not None
        self._moved_in_vain = has_moved and self._note_target_version()
        self._agent_wait = AgentWait(
            input, self._calls.roll_outs, self._note_target_version, moved_in_vain=self._moved_in_vain
        )
        stops = Stops(input, self._execution, self._calls)
        stops.register()
        Handlers(input, self._execution, self._calls, stops.supersede_below).register()
        self._submissions = Submissions(self._execution, input, workflow.now(), self._calls.children)
        self._submissions.register()

    @property
    def values(self) -> dict[str, Any]:
        """The application's own state."""
        return self._values.now

    @values.setter
    def values(self, values: dict[str, Any]) -> None:
        self._values.now = values

    # -- life

    async def run(self) -> SessionResult:
        """Serve turns until the session ends; saves and flushes on every way out.

        Raises:
            ApplicationError: The session failed; its type is that of the original error.
            asyncio.CancelledError: It was cancelled, after everything was saved and archived.
            ContinueAsNewError: It goes on in another run.
        """
        failure: Exception | None = None
        self._cancels = count_cancels()
        try:
            if self._was_refused():
                self._execution.finalised = True  # the first ask was rejected: there is nothing to do
            else:
                await self._open_session()
                await self._serve_turns()
        except asyncio.CancelledError:
            self._execution.record_end(ExitReason.CANCELLED, Status.INTERRUPTED)
            self._execution.cancelled = True
        except _ContinueAsNew:
            await self._continue_as_new()
        except GeneratorExit:
            # The worker has ended with this run in its cache: whoever takes it over replays it.
            self._execution.finalised = True
            raise
        except Exception as error:
            if not workflow.in_workflow():  # the same, met by a clean-up further in
                self._execution.finalised = True
                raise
            failure = error
            self._record_failure(error)
        finally:
            # On success, failure and cancel, but not on terminate or a time-out of the run.  On cache
            # eviction the SDK raises a BaseException here: it must pass, the run is replayed elsewhere.
            if not self._execution.finalised:
                await self._end_execution()
        if failure is not None:
            self._raise_failure(failure)
        if self._execution.cancelled:
            self._execution.record_end(ExitReason.CANCELLED, Status.INTERRUPTED)
            raise asyncio.CancelledError
        return self._execution.result_of(self._input)

    def _was_refused(self) -> bool:
        """Whether the validator rejected the ask that started the execution: then there is nothing to do.

        After a reset that excludes updates the inbox is empty as well: that is no refusal.
        """
        first = self._input.expects_ask and self._input.carried is None and not _was_reset(self._input)
        return first and not self._execution.inbox and workflow.all_handlers_finished()

    async def _open_session(self) -> None:
        request = OpenSessionInput(
            session_id=self._input.session_id,
            thread_id=self._input.thread,
            agent=self._input.agent,
            owner=workflow.info().first_execution_run_id,
            mode=self._input.mode,
            **only_truthy(
                fork_from=self._input.fork_from,
                rewind_to=self._input.rewind_to,
                metadata=self._input.metadata,
                parent=self._input.parent,
                options=self._input.named_options,
                again=_was_reset(self._input),
                names_thread=self._input.thread_id is not None,
            ),
        )
        carried = self._input.carried
        if carried is not None:
            self._execution.thread = CurrentThread.of(request, carried, now_ms, workflow.random_seed)
            self._execution.lost = carried.lost
            self._execution.turns, self._execution.usage = carried.turns, carried.usage
            self._execution.notes = carried.notes
            if carried.suspended is not None:
                self._execution.restore_turn(carried.suspended)
            return
        if self._input.woken is not None:
            self._submissions.receive_early_answers(self._input.woken)
        properties, seed = only_truthy(properties=self._input.properties), workflow.random_seed()
        try:
            # A later open must not set them again.
            opened = await self._agent_wait.open_session(self._calls, request.model_copy(update=properties))
        except OpenedDespiteCancel as cancelled:
            self._apply_open_result(request, cancelled.opened, seed)
            raise
        if opened is None:
            raise _ContinueAsNew
        self._apply_open_result(request, opened, seed)
        await self._events.tell_started(created=opened.created)

    def _apply_open_result(self, request: OpenSessionInput, opened: OpenSessionResult, seed: int) -> None:
        self._calls.policy = opened.policy
        self._execution.options = opened.options or self._execution.options
        self._execution.expires_at = opened.expires_at
        archives = opened.policy.archives
        found = only_truthy(metadata=opened.metadata, thread_id=opened.thread_id) | (
            {"again": False} if request.again else {}
        )
        self._execution.thread = CurrentThread(
            request.model_copy(update=found),
            opened.handle,
            opened.facts,
            archives=archives,
            now=now_ms,
            tracing_context=opened.tracing_context,
            seed=workflow.random_seed,
            seed_before=seed,
        )
        if request.again:
            self._execution.thread.note_reset_point(0, 0)
        self._execution.inbox.put_first(opened.under_way)
        self._execution.turns, self._execution.usage = opened.turns, opened.usage
        self._execution.notes = opened.notes
        if request.rewind_to is None:
            self._execution.lost = tuple(filter(tells_of_lost_turns, opened.notes))
        self._values.stored = StoredValues.of(opened.values, stale=opened.stale_values)
        self.values = {**self.values, **(opened.values or {})}
        self._execution.pending_calls.remember_answers(opened.answered)
        if opened.suspended is not None:
            self._execution.restore_turn(opened.suspended)

    async def _serve_turns(self) -> None:
        if self._input.woken is not None and self._input.carried is None:
            self._submissions.apply_wake(self._input.woken)
        idle = (
            asyncio.create_task(self._execution.watch_idle()) if self._execution.options.persistent else None
        )
        try:
            while True:
                self._raise_pending_cancel()
                await self._wait_for_work()
                if self._should_move():
                    await self._move_to_target_version()
                work = self._execution.next_work
                if work is Work.REWIND:
                    await self._carry_out_rewind()
                elif work is Work.RESUME:
                    await self._serving.resume_turn()
                    self._move_if_long()
                elif work is Work.SERVE:
                    await self._serving.serve_turn()
                    self._move_if_long()
                elif work is Work.END and await self._finalise_if_idle():
                    return
        finally:
            if idle is not None:
                idle.cancel()

    def _raise_pending_cancel(self) -> None:
        """Raise a cancel that had to wait, or that an activity which was just done has swallowed."""
        if self._was_cancelled():
            raise asyncio.CancelledError

    def _was_cancelled(self) -> bool:
        return self._execution.cancelled or is_cancelled(self._cancels)

    async def _wait_for_work(self) -> None:
        """Wait for a message, a rewind, a move, or the end; meanwhile try again to archive what is not."""
        execution, policy, pause = self._execution, self._calls.policy, _FLUSH_AGAIN
        flush_at = ask_until = None
        if execution.next_work is Work.WAIT:
            execution.seed = workflow.random_seed()  # what was applied again after a reset is handled
        while execution.next_work is Work.WAIT and not self._can_move():
            behind = not execution.opened_thread.handle.archived and (
                policy.flush_each_step or execution.inbox.waits_for_archive
            )
            flush_at = (flush_at or _time_after(min(pause, policy.flush_retry_maximum))) if behind else None
            asked = execution.holds_askers
            ask_until = (ask_until or _time_after(ASK_SECONDS)) if asked else None
            until = _shortest_timeout(
                _seconds_to(flush_at), execution.pending_calls.seconds_left(), _seconds_to(ask_until)
            )
            try:
                await workflow.wait_condition(partial(self._is_due, asked), timeout=until)
            except TimeoutError:
                execution.pending_calls.expire_calls()
                if _is_over(ask_until):
                    execution.inbox.let_askers_go()
                    ask_until = None
                if not _is_over(flush_at) or execution.next_work is not Work.WAIT:
                    continue
                flush_at, pause = None, pause * 2
                await try_to_archive(
                    self._calls, execution.opened_thread, at_rest=execution.pending_calls.suspended is None
                )
                if is_cancelled(self._cancels):
                    self._raise_pending_cancel()  # the flush ended in that very task
                execution.note_losses()
                if execution.opened_thread.handle.archived:
                    execution.inbox.try_again()
                # An archive that is down for days must not fill the history.
                self._move_if_long()

    def _is_due(self, asked: bool) -> bool:
        """There is work, or the first asker has come, or the last one gone."""
        busy = self._execution.next_work is not Work.WAIT
        return busy or self._can_move() or self._execution.holds_askers != asked

    # -- turns

    async def _carry_out_rewind(self) -> None:
        execution = self._execution
        rewind = execution.rewinds.next
        opened = await carry_out_rewind(
            self._calls, execution.opened_thread, execution.inbox, rewind, execution.lost
        )
        execution.note_losses()
        if rewind.tells_losses:
            execution.lost = ()
        if opened is not None and self._calls.policy.keeps_state:
            self.values = dict(opened.values or {})
            self._values.stored = StoredValues.of(self.values, stale=opened.stale_values)
        if opened is not None:
            self._execution.drop_suspended()
            self._calls.children.dismiss_calls(self._execution.opened_thread.request)
        self._execution.rewinds.remove_rewind(rewind)

    # -- ends

    def _move_if_long(self) -> None:
        limit = self._execution.options.max_turns_per_run
        is_long = workflow.info().is_continue_as_new_suggested() or (
            limit and self._execution.run_turns >= limit
        )
        if is_long and self._fits_in_input:
            raise _ContinueAsNew

    @property
    def _fits_in_input(self) -> bool:
        """What waits can be carried along; until then turns take messages out, and steps all answers."""
        return self._execution.inbox.size + self._execution.pending_calls.inline_size <= MAX_CARRIED

    def _note_target_version(self) -> bool:
        """Note whether the run is told that another version is to serve it; true if it ever was.

        Once it was, it stays so: a move that has begun must not end on this version because the next task
        says otherwise.  Where the target has been set back, the next run is on this version all the same.
        """
        self._was_told = self._was_told or has_target_changed()
        return self._was_told

    def _should_move(self) -> bool:
        """Whether the run is between two turns, and pinned to a worker version that it should leave.

        A session for one task does not move: it ends by itself, and a sub-agent stays with its caller.
        """
        execution = self._execution
        return (
            self._note_target_version()
            and execution.options.persistent
            and (execution.run_turns > 0 or not self._moved_in_vain)
            and execution.next_work in {Work.WAIT, Work.SERVE}
            and not (execution.is_suspended or self._calls.children.any_running)
            and self._fits_in_input
        )

    def _can_move(self) -> bool:
        return self._should_move() and workflow.all_handlers_finished()

    async def _move_to_target_version(self) -> None:
        """Continue as new there, before the messages that wait have their turn; who asks, asks again there.

        Comes back if a handler of the application still runs: the session would take no message meanwhile.
        """
        self._execution.inbox.let_askers_go()
        try:
            await workflow.wait_condition(workflow.all_handlers_finished, timeout=_HANDLER_SECONDS)
        except TimeoutError:
            return
        raise _ContinueAsNew

    async def _continue_as_new(self) -> NoReturn:
        """Continue as new: everybody who waits asks again there; a thread that is open stays hot and open."""
        execution = self._execution
        execution.finalised = execution.closing = True
        (inbox, answered, asked), last = execution.inbox.carry_over(), execution.inbox.last_result
        execution.inbox.answer_all(AskAgain())
        execution.rewinds.refuse_all()
        await self._drain_handlers()
        if self._was_cancelled():
            # While we drained, or beside the end of the last turn: the next run would know nothing of it.
            execution.finalised, execution.exit, execution.status = (
                False,
                ExitReason.CANCELLED,
                Status.INTERRUPTED,
            )
            raise asyncio.CancelledError
        if execution.thread is None:
            continue_on_target_version(self._build_unopened_input(inbox, asked))
        carried = self._build_carried(inbox, answered, asked, last)
        further = {
            "carried": carried,
            "messages": (),
            "options": execution.options,
            "metadata": execution.opened_thread.request.metadata,
            **thread_field(execution.opened_thread.request),
            **({} if self._input.unopened is None else {"unopened": None}),
        }
        following = self._input.model_copy(update=further)
        if execution.options.persistent and self._note_target_version():
            # Otherwise the server takes it that the session wants to stay, and does not tell it again.
            continue_on_target_version(following)
        workflow.continue_as_new(following)

    def _build_carried(
        self,
        inbox: tuple[UserMessage, ...],
        answered: tuple[Answered, ...],
        asked: tuple[str, ...],
        last: AskResult | None,
    ) -> Carried:
        execution = self._execution
        return Carried(
            **execution.opened_thread.carry_over(),
            policy=self._calls.policy,
            inbox=inbox,
            answered=answered,
            turns=execution.turns,
            usage=execution.usage,
            close=execution.close,
            values=self._values.build_storable(),
            saved_values=self._values.stored.saved,
            stale_values=self._values.stored.stale,
            notes=execution.notes,
            **execution.pending_calls.carry_over(),
            **only_set(expires_at=execution.expires_at),
            **only_truthy(stopping=execution.stopping, lost=execution.lost, asked=asked),
            **({} if execution.options.persistent else {"last_result": last, "used": execution.used}),
        )

    def _build_unopened_input(self, inbox: tuple[UserMessage, ...], asked: tuple[str, ...]) -> SessionInput:
        """The same start once more, on another worker version, with what came meanwhile."""
        execution = self._execution
        unopened = self._agent_wait.carry_over(
            asked=asked,
            close=execution.close,
            interrupted=execution.interrupted,
            early_answers=execution.pending_calls.carry_over().get("early_answers"),
        )
        # Of messages that came later than the start no client knows that they are there: it sends them again.
        messages = inbox if self._fits_in_input else self._input.messages
        return self._input.model_copy(
            update={"unopened": unopened, "messages": messages, "expects_ask": False}
        )

    async def _finalise_if_idle(self) -> bool:
        """Archive and evict the thread, then end unless somebody came meanwhile.

        The check and the return are in one activation, without a flag before: whoever comes later
        finds the run ended and starts the next one; nobody is told to go away.
        """
        execution = self._execution
        execution.status = Status.ENDING
        finaliser = Finaliser(self._calls, self._on_cancel, lambda: not execution.may_end)
        if execution.pending_calls.suspended is not None:
            execution.exit = ExitReason.SUSPENDED
        elif execution.exit is ExitReason.SUSPENDED:
            execution.exit = ExitReason.COMPLETED  # that turn was cut meanwhile
        status = "paused" if execution.exit in _PAUSES else "completed"
        outcomes, suspended = (
            execution.pending_calls.list_outcomes(),
            execution.pending_calls.build_suspension(),
        )
        ending = Ending(*self._unsaved_values(), status, **self._execution.pending_calls.build_save_fields())

        def ends() -> bool:
            # An answer that has come meanwhile, where others are still wanted, is in no slice yet.
            return (
                execution.may_end
                and execution.pending_calls.list_outcomes() == outcomes
                and execution.pending_calls.build_suspension() == suspended
            )

        receipts = (*execution.notes, *await finaliser.run(execution.opened_thread, ending))
        if execution.is_suspended and execution.cancelled:
            raise asyncio.CancelledError  # somebody was told that the turn waits: it ends whole
        if would_lose_answers(receipts, ending):
            await self._wait_to_save_again()
            return False
        if ends():
            execution.receipts = receipts
            await self._events.tell_ended(self._make_finaliser())
        execution.quiet_since, execution.idle = workflow.now(), False
        if not (ends() and workflow.all_handlers_finished()):
            execution.status = Status.SUSPENDED if execution.is_suspended else Status.IDLE
            execution.receipts = ()  # of no end: a step that was cut short for a newcomer did not fail
            await self._outlast_handlers()
            return False
        execution.finalised = True
        execution.status = Status.WAITING if execution.exit in _PAUSES else Status.COMPLETED
        return True

    async def _wait_to_save_again(self) -> None:
        """Nobody but this execution knows what is not saved: it may not end before that is."""
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(lambda: not self._execution.may_end, timeout=_FLUSH_AGAIN)
        self._execution.status = Status.SUSPENDED
        self._move_if_long()

    async def _outlast_handlers(self) -> None:
        """Wait for handlers of the application that still run: ending would be tried in vain meanwhile."""
        execution = self._execution
        try:
            await workflow.wait_condition(
                lambda: not execution.may_end or workflow.all_handlers_finished(),
                timeout=execution.pending_calls.seconds_left(),
            )
        except TimeoutError:
            execution.pending_calls.expire_calls()

    async def _end_execution(self) -> None:
        """End after a cancel or a failure: a step may still be running, so its epoch is closed."""
        self._execution.closing = True
        self._execution.rewinds.refuse_all()
        committed = 0
        if self._execution.thread is not None:
            finaliser = self._make_finaliser()
            run_id = await self._serving.end_suspended(finaliser)
            status = "failed" if self._execution.exit is ExitReason.FAILED else "interrupted"
            ending = Ending(
                *self._unsaved_values(), status, self._execution.error, closes=True, run_id=run_id
            )
            if self._serving.still_waits:
                ending = replace(
                    ending, status="paused", stays=True, **self._execution.pending_calls.build_save_fields()
                )
            self._execution.receipts = (
                *self._execution.notes,
                *await finaliser.run(self._execution.opened_thread, ending),
            )
            committed = finaliser.committed
        # After the epoch is closed: until then a late attempt may still finish the turn.
        ended = committed > self._execution.turn_start.position or self._execution.failed_turn_stands
        waits = self._serving.still_waits and not ended
        self._name_messages_without_turn(cut=not (ended or waits))
        self._answer_all(in_thread=ended, waits=waits)
        if self._execution.thread is not None:
            await self._events.tell_ended(self._make_finaliser())
        await self._drain_handlers()

    def _name_messages_without_turn(self, *, cut: bool) -> None:
        """Messages that were sent, and have no turn: whoever reads the result may send them again.

        ``cut``: also those of the turn that was under way.
        """
        # What becomes of the turn of a session that serves one task is in its result.
        sent = self._execution.inbox.list_sent_ids(with_turn=cut and self._execution.options.persistent)
        if sent:
            receipt = without_turn(self._input.session_id, "no turn any more for", sent)
            self._execution.receipts = (*self._execution.receipts, receipt)

    def _answer_all(self, *, in_thread: bool, waits: bool) -> None:
        """Tell the turn's askers what became of it; the others are to ask the next execution."""
        if waits:
            self._execution.inbox.answer_all(self._execution.build_suspended_result(in_thread=True))
        elif self._execution.exit is ExitReason.FAILED:
            failed = self._execution.finish_result(
                AskResult(status=AskStatus.FAILED, in_thread=in_thread, error=self._execution.error)
            )
            # One that could not even be opened would fail again for those who only wait.
            self._execution.inbox.answer_all(failed, failed if self._execution.thread is None else None)
        else:
            ended = AskResult(
                status=AskStatus.INTERRUPTED, in_thread=in_thread, exit_reason=self._execution.exit
            )
            self._execution.inbox.answer_all(self._execution.finish_result(ended))

    async def _drain_handlers(self) -> None:
        """Let handlers return; a cancel meanwhile is remembered."""
        while True:
            try:
                await workflow.wait_condition(workflow.all_handlers_finished)
            except asyncio.CancelledError:
                self._on_cancel()
            else:
                return

    def _on_cancel(self) -> None:
        self._execution.cancelled = True

    def _make_finaliser(self) -> Finaliser:
        return Finaliser(self._calls, self._on_cancel)

    def _unsaved_values(self) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
        self._execution.note_refused_values(self._values.list_refused())
        return self._values.find_unsaved(), self._values.list_changed_keys()

    def _record_failure(self, failure: Exception) -> None:
        self._execution.error = describe_failure(failure)
        if isinstance(failure, NotArchivedError):
            self._execution.keep_unarchived(committed=bool(failure.facts.get("committed")))
        self._execution.record_end(ExitReason.FAILED, Status.FAILED)

    def _raise_failure(self, failure: Exception) -> NoReturn:
        kind, _ = split_text(self._execution.error or "")
        result = self._execution.result_of(self._input)
        raise ApplicationError(
            self._execution.error or "", result, type=kind or type(failure).__name__, non_retryable=True
        ) from failure


def _time_after(seconds: float) -> datetime:
    return workflow.now() + timedelta(seconds=seconds)


def _seconds_to(when: datetime | None) -> float | None:
    return None if when is None else max((when - workflow.now()).total_seconds(), _TICK)


def _is_over(when: datetime | None) -> bool:
    return when is not None and workflow.now() + timedelta(seconds=_TICK) >= when


def _shortest_timeout(*seconds: float | None) -> float | None:
    return min((each for each in seconds if each is not None), default=None)


def _was_reset(input: SessionInput) -> bool:
    """Whether this run is one that was reset, and begins anew all the same."""
    info = workflow.info()
    if input.unopened is not None:
        return info.run_id != info.original_execution_run_id
    return (
        input.carried is None and info.continued_run_id is None and info.run_id != info.first_execution_run_id
    )


@workflow.defn(name=SESSION_WORKFLOW)
class SessionWorkflow:
    """A session, ready to use: one execution at a time, started and messaged by `SessionClient`."""

    @workflow.init
    def __init__(self, input: SessionInput) -> None:
        self._session = AgentSession(input)

    @workflow.run
    async def run(self, input: SessionInput) -> SessionResult:  # noqa: ARG002 (init has it)
        """Serve the session until it is idle, closed, cancelled or failed."""
        return await self._session.run()
