"""Stops turns of one session, and of those below it."""

from temporalio import workflow

from helix_temporal.models.sessions import SessionInput, StopRequest, StopResult
from helix_temporal.workflows.calls import TemporalCalls
from helix_temporal.workflows.execution import Execution, ask_again
from helix_temporal.workflows.handlers import accept_request


class Stops:
    """The update ``stop``, and the signal by which a caller interrupts its sub-agents."""

    def __init__(self, input: SessionInput, execution: Execution, calls: TemporalCalls) -> None:
        self._input, self._execution, self._calls = input, execution, calls

    def register(self) -> None:
        """Make the update and the parent's signal known to the workflow."""
        workflow.set_update_handler("stop", self._on_stop, validator=accept_request)
        workflow.set_signal_handler("interrupt", self._on_interrupt)

    async def supersede_below(self) -> None:
        """A message ends a turn whose sub-agents wait, where the session is set so."""
        if self._execution.supersedes and self._execution.waits_below and self._execution.inbox:
            await self._interrupt_turn()

    async def _interrupt_turn(self) -> None:
        """Let the turn, and those of its sub-agents, end after the present step."""
        if self._execution.turn is not None:
            self._execution.turn.interrupted = True
            await self._calls.children.interrupt_turn(self._execution.turn.run_id)

    async def _on_stop(self, request: StopRequest) -> StopResult:
        if not self._is_turn_known(request):
            await workflow.wait_condition(lambda: self._is_turn_known(request))
        if self._execution.thread is None and (request.suspended or self._execution.finalised):
            raise self._execution.build_refusal()
        if self._execution.is_suspended:
            return self._stop_suspended(request)
        if self._execution.turn is None or self._execution.turn_task is None:
            if self._execution.inbox:
                # Whose turn was about to begin has it in the next execution.
                self._execution.refuse_if_closing()
            return StopResult(stopping=False)
        under_way = self._execution.turn.run_id
        if not _is_for_turn(request, under_way):
            return StopResult(stopping=False, run_id=under_way)
        if request.mode == "interrupt":
            await self._interrupt_turn()
        else:
            self._execution.aborting = True
            self._execution.turn_task.cancel()
        return StopResult(stopping=True, run_id=under_way)

    def _is_turn_known(self, request: StopRequest) -> bool:
        """Whether there is a turn, or none is about to begin: the session may still be opening."""
        execution = self._execution
        if execution.closing or execution.turn is not None or execution.is_suspended:
            return True
        if execution.thread is None and request.suspended:
            return False
        return not execution.inbox or execution.inbox.waits_for_archive

    def _stop_suspended(self, request: StopRequest) -> StopResult:
        assert self._execution.pending_calls.suspended is not None
        under_way = self._execution.pending_calls.suspended.run_id
        if not _is_for_turn(request, under_way):
            return StopResult(stopping=False, run_id=under_way)
        if self._execution.closing:
            # It could not be ended, since a store does not answer: the next execution has it.
            raise ask_again()
        self._execution.stopping = request.mode
        return StopResult(stopping=True, run_id=under_way)

    async def _on_interrupt(self) -> None:
        """A parent ends its turn."""
        if self._execution.is_suspended:
            self._execution.stopping = "interrupt"
            return
        if self._execution.turn is None and self._input.parent is not None:
            self._execution.interrupted = True
        await self._interrupt_turn()


def _is_for_turn(request: StopRequest, under_way: str | None) -> bool:
    """Whether it is this run's turn that is to be stopped."""
    # A turn that is run again goes by another name; those who stop it know the first one.
    return request.run_id in {None, under_way, (under_way or "").split(".", 1)[0]}
