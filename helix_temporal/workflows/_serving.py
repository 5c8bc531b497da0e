"""Turns of a session: served, suspended, gone on with, given up."""

import asyncio
from typing import Any, Final

from temporalio import workflow

from helix_temporal.errors import (
    ColdTierBehindError,
    HeadMovedError,
    HelixError,
    IdempotencyConflictError,
    PayloadNotFoundError,
    SessionInterruptedError,
    TooLargeError,
)
from helix_temporal.models.records import Head
from helix_temporal.models.sessions import (
    AskResult,
    AskStatus,
    ExitReason,
    Status,
    SuspendedTurn,
)
from helix_temporal.models.steps import ReopenHeads, RunStepResult
from helix_temporal.models.suspensions import INTERRUPTED, WENT_ON
from helix_temporal.workflows._calls import TemporalCalls, is_cancelled
from helix_temporal.workflows._conversation import reopen
from helix_temporal.workflows._events import Events, ask_result
from helix_temporal.workflows._finalise import Finaliser, describe
from helix_temporal.workflows._inbox import Entry
from helix_temporal.workflows._live import NOTES, Live
from helix_temporal.workflows._turns import Turn, TurnResult
from helix_temporal.workflows._values import Known, Values, taken

_WAITS_ON: Final = "waits-on"
_LEFT_TOGETHER: Final = "left-together"
_BOUNDED: Final = "bounded-turns"
_HELD: Final = "sent-messages-wait-for-the-archive"
TURN_MESSAGES: Final = 100
TURN_BYTES: Final = 512 * 1024
"""Messages of one turn are the input of one activity, which has 2 MB at most."""
_WHY: Final = {ExitReason.SUPERSEDED: WENT_ON}


class Serving:
    """Serves the turns of one execution, one after the other.

    Attributes:
        waits_on: The turn that waits could not be ended, since a store does not answer.
    """

    def __init__(self, live: Live, calls: TemporalCalls, events: Events, values: Values) -> None:
        self._live, self._calls, self._events, self._values = live, calls, events, values
        self._unended: Turn | None = None
        self.waits_on = False

    async def serve(self) -> None:
        """A turn of all messages that wait."""
        # Not of the turn before: hooks may take their time, and the end of the run may come meanwhile.
        self._live.turn_start = self._live.open.head
        entries = await self._events.admitted(self._live.inbox.take(self._live.rewinds.before, self._most()))
        if not entries:
            return
        self._live.status = Status.RUNNING
        turn, start = self._turn(), self._live.open.head
        turn.interrupted = self._live.interrupted
        task = asyncio.create_task(turn.run([entry.message for entry in entries]))
        await self._follow(turn, task, start, entries)

    async def go_on(self) -> None:
        """Go on with the turn that is suspended, or end it as was asked."""
        live, suspended = self._live, self._live.waits.turn
        assert suspended is not None
        if live.stopping == "abort":
            live.stopping = None
            live.waits.end()
            await self._abandon(suspended.run_id, suspended.start)
            live.status, live.quiet_since = Status.IDLE, workflow.now()
            return
        reason = live.gives_up
        live.stopping, live.status, turn = None, Status.RUNNING, self._turn()
        # What came before the answer is in the slice, and goes to the step that takes it.
        suspended = suspended.model_copy(update={"known": live.waits.known()})
        if reason is None:
            running = turn.resume(suspended)
        else:
            live.waits.give_up(_WHY.get(reason, INTERRUPTED))
            running = turn.give_up(suspended, reason)
        await self._follow(turn, asyncio.create_task(running), suspended.start, live.inbox.taken)

    async def end_suspended(self, finaliser: Finaliser) -> str | None:
        """The execution is cancelled or fails: the turn that somebody was told of ends whole, if it can.

        Returns:
            The run of a turn that comes to no end of its own; None for one that waits, and may go on.
        """
        live = self._live
        suspended = None if live.talk is None else live.waits.wait_at(live.talk.head)
        if suspended is None:
            return None if self._unended is None else self._unended.run_id
        asleep = live.waits.sleepers.waits()
        before = suspended.model_copy(update={"known": live.waits.known(), "children": asleep})
        live.waits.give_up(INTERRUPTED)
        turn = self._turn()
        ended = asyncio.create_task(self._given_up(turn, suspended))
        receipt = await finaliser.to_the_end("end_turn", ended)
        live.notes = (*live.notes, receipt)
        lost = not ended.cancelled() and ended.exception() is not None
        if not (receipt.ok or lost) and workflow.patched(_WAITS_ON):
            self._wait_on(before)
        return None

    def _wait_on(self, before: SuspendedTurn) -> None:
        """Wait as before the turn was given up; but what became of its sub-agents has become of them."""
        waits = self._live.waits
        waits.wait_at(before.head)
        slept = {each.at for each in before.children}
        ended = {each.at: each for each in waits.known() if each.at in slept and each.result is not None}
        children = tuple(each for each in before.children if each.at not in ended)
        waits.end()
        self._live.turn, self.waits_on = None, True
        known = (*before.known, *ended.values())
        waits.begin(before.model_copy(update={"known": known, "children": children}))

    async def _given_up(self, turn: Turn, suspended: SuspendedTurn) -> bool:
        """Whether it has ended; raises where the record has lost it."""
        try:
            await turn.give_up(suspended, ExitReason.INTERRUPTED, again=False)
        except HeadMovedError:
            raise
        except HelixError as error:
            workflow.logger.warning("the suspended turn could not be ended: %s", type(error).__name__)
            return False
        self._live.turns += 1
        return True

    def _turn(self) -> Turn:
        self._live.waits.sleepers.ending = False
        self._calls.children.archive = self._live.options.archive
        turn = self._live.turn = Turn(
            self._calls,
            self._live.open,
            number=self._live.turns + 1,
            max_steps=self._live.options.max_steps or self._live.open.facts.max_steps,
            values=self._values.unsaved(),
            changed=self._values.changed(),
            waits=self._live.waits,
            archive=self._live.options.archive,
            settles=self._settle,
            adopts=self._live.inbox.adopt,
        )
        return turn

    def _most(self) -> int | None:
        """How many of the messages that wait become one turn: after a reset hundreds may, in one input."""
        fit = self._live.inbox.fitting(TURN_MESSAGES, TURN_BYTES)
        return fit if fit < len(self._live.inbox) and workflow.patched(_BOUNDED) else None

    def _settle(self, result: RunStepResult) -> bool:
        """Tell those whose messages were answered before; those that a step left have their turn next."""
        inbox = self._live.inbox
        if len(inbox.taken) < 2 or (result.left and not workflow.patched(_LEFT_TOGETHER)):
            return False
        answers = {each.message_id: each.answer for each in result.answers}
        for each in result.dropped:
            inbox.tell(each, answers.get(each))
        inbox.leave(result.left)
        return True

    async def _follow(
        self, turn: Turn, task: "asyncio.Task[TurnResult]", start: Head, entries: list[Entry]
    ) -> None:
        self._unended = turn
        await self._followed(turn, task, start, entries)
        self._unended = None

    async def _followed(
        self, turn: Turn, task: "asyncio.Task[TurnResult]", start: Head, entries: list[Entry]
    ) -> None:
        live, before = self._live, Known.of(self._values.now)
        live.turn_start, live.turn_task = start, task
        try:
            result = await task
        except (asyncio.CancelledError, SessionInterruptedError) as stopped:
            aborting = live.aborting or isinstance(stopped, SessionInterruptedError)
            if not aborting or is_cancelled():
                raise
            live.waits.end()
            await self._abandon(turn.run_id, start)
            return
        except ColdTierBehindError as behind:
            self._refuse_behind(behind)
            return
        except (PayloadNotFoundError, IdempotencyConflictError, TooLargeError) as failed:
            await self._fail_without(failed, turn.run_id, start)
            return
        finally:
            if turn.caught_up is not None:
                live.turns, live.usage = turn.caught_up.turns, turn.caught_up.usage
                live.waits.remember(turn.caught_up.answered)
            live.used, live.notes = live.used + turn.used, (*live.notes, *turn.notes)[-NOTES:]
            live.note_losses()
            live.turn, live.turn_task, live.aborting = None, None, False
            live.status, live.idle = Status.IDLE, False
            if workflow.in_workflow():  # not when a run left in the cache of an ended worker is collected
                live.quiet_since = workflow.now()
        if turn.took_values:
            self._values.known = before
        if turn.promoted is not None:
            self._values.now = taken(self._values.now, before.saved, turn.promoted)
            self._values.known = Known.of(turn.promoted, stale=True)
        if result.exit_reason is ExitReason.SUSPENDED:
            live.status = Status.SUSPENDED
            live.goes()
        else:
            await self._turn_over(turn, result, entries)

    def _refuse_behind(self, why: ColdTierBehindError) -> None:
        """Nothing of the turn is in the thread: what was sent waits for the archive, who asks is told."""
        refused = AskResult(status=AskStatus.FAILED, error=describe(why))
        if self._live.promised(self._live.inbox.taken) and workflow.patched(_HELD):
            self._live.wait_for_archive(refused)
        self._live.inbox.finish(refused)

    async def _fail_without(
        self, why: PayloadNotFoundError | IdempotencyConflictError | TooLargeError, run_id: str, start: Head
    ) -> None:
        """The message whose content is gone or too large, or whose id is another's, fails alone; the turn
        does where it is a result of a tool.
        """
        if not isinstance(why, PayloadNotFoundError) and "message_id" not in why.facts:
            raise why  # a store's, of the turn itself
        self._live.waits.end()
        inbox = self._live.inbox
        finished = await self._cut(run_id, start)
        lost = inbox.find(str(why.facts.get("message_id")))
        failed = AskResult(status=AskStatus.FAILED, error=describe(why))
        refused = [] if finished else inbox.taken if lost is None else [lost]
        self._live.refused(refused, type(why).__name__)
        if lost is None and not finished:
            inbox.finish(failed)
            return
        if lost is not None and not finished:
            inbox.drop(lost, failed)
        # Where a late attempt has finished the turn all the same, they are answered from the thread.
        inbox.leave([entry.message.id for entry in inbox.taken])
        inbox.finish(failed.model_copy(update={"in_thread": finished}))

    async def _abandon(self, run_id: str | None, start: Head) -> None:
        """Cut what the turn left in the thread, and tell those who asked that it was interrupted."""
        # What was finished before anybody could stop it stays.
        finished: dict[str, Any] = {"in_thread": True} if await self._cut(run_id, start) else {}
        interrupted = AskResult(status=AskStatus.INTERRUPTED, exit_reason=ExitReason.INTERRUPTED, **finished)
        self._live.inbox.finish(interrupted)

    async def _cut(self, run_id: str | None, start: Head) -> bool:
        """Cut what the turn left in the thread: a late attempt of its step must not bring it back.

        Returns:
            Whether the turn was finished before, so that it stays.
        """
        heads, talk = ReopenHeads(known=start, turn_start=start), self._live.open
        epoch = talk.handle.epoch
        opened = await reopen(self._calls, talk, heads, abandoned=run_id, cuts=True)
        if opened.reset:
            talk.went_on(start.position, epoch)
        return talk.head.position > start.position

    async def _turn_over(self, turn: Turn, result: TurnResult, entries: list[Entry]) -> None:
        self._calls.children.dismiss(self._live.open.request)
        entries = [*entries, *(each for each in self._live.inbox.taken if each not in entries)]
        if len(entries) > 1:
            # Each that was sent again gets its own answer, in a turn without a model call.
            self._live.inbox.put_back([*result.dropped, *result.left])
        self._live.inbox.finish(self._live.finish_result(ask_result(result)), answer=result.answer)
        apart = {*result.dropped, *result.left}
        if not apart and not self._live.inbox and not self._live.rewinds:
            # What was applied again after a reset came before this.
            self._live.open.since = None
        fresh = [entry for entry in entries if entry.message.id not in apart]
        if not fresh:
            return
        self._live.turns, self._live.run_turns = self._live.turns + 1, self._live.run_turns + 1
        self._live.usage, self._live.exit = self._live.usage + result.usage, result.exit_reason
        await self._events.turn_over(turn, result, fresh)
