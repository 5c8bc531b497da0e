"""What the state says of calls that wait, and of answers to them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helix_temporal.activities.state_changes import save_change
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.checkpoints import RunChange, RunStatus
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import SuspendedTurn
from helix_temporal.models.states import SessionState
from helix_temporal.models.steps import StepInput
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.waiting import AnswerReceipt, CallOutcome, Suspension, WaitingCall
from helix_temporal.session.projection import (
    list_still_pending,
    project_answers,
    project_no_suspension,
    project_resumption,
    project_suspension,
    project_waiting_children,
    read_answer,
)
from helix_temporal.stores.protocols.sessions import SessionStore


class SuspendedStates:
    """Keeps pending calls of sessions in their states.  A state that its store has lost is passed over."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def save_waiting(
        self,
        session_id: str,
        epoch: int,
        run_id: str | None,
        answer: Message,
        head: Head,
        waiting: Sequence[WaitingCall],
    ) -> None:
        """The session waits: all that says so is stored at once; a repeat finds it stored.

        Raises:
            FencedError: A newer open has the session.
        """
        await self._run_is(session_id, run_id, RunStatus.SUSPENDED_CLIENT_TOOL, epoch)
        await self._save_change(
            session_id, epoch, lambda state: project_suspension(state, run_id, answer, head, waiting)
        )

    async def save_resumption(
        self, session_id: str, epoch: int, run_id: str | None, inputs: Sequence[StepInput]
    ) -> None:
        """The turn goes on with these answers: nothing is pending any more.

        Raises:
            FencedError: A newer open has the session.
        """
        answers = [each.answered for each in inputs if each.answered is not None]

        await self._save_change(session_id, epoch, lambda state: project_resumption(state, answers))
        await self._run_is(session_id, run_id, RunStatus.RUNNING, epoch)

    async def save_suspension(self, session_id: str, epoch: int, suspension: Suspension) -> None:
        """The session waits for sub-agents, whose sessions have ended while they wait for people.

        Raises:
            FencedError: A newer open has the session.
        """
        if not suspension.calls:
            state = await self._store.load_state(session_id)
            run_id = None if state is None else state.current_run_id
            await self._run_is(session_id, run_id, RunStatus.SUSPENDED_AWAITING_CHILDREN, epoch)
        await self._save_change(session_id, epoch, lambda state: project_waiting_children(state, suspension))

    async def save_answers(self, session_id: str, epoch: int, outcomes: Sequence[CallOutcome]) -> None:
        """Some of the calls were answered; others are still wanted.

        Raises:
            FencedError: A newer open has the session.
        """
        answers = [each.answered for each in outcomes if each.answered is not None]
        if answers:
            await self._save_change(session_id, epoch, lambda state: project_answers(state, answers))

    async def restore_waiting(
        self, session_id: str, epoch: int, turn: SuspendedTurn, answered: Sequence[AnswerReceipt]
    ) -> None:
        """An open found the turn suspended: a store that does not say so has lost it.

        ``answered`` are the calls that the thread has answers of; a store that went back to before them still
        has them pending.
        """
        if turn.children:
            waits = Suspension(head=turn.head, calls=turn.waiting, children=turn.children)
            await self.save_suspension(session_id, epoch, waits)
        calls = Message(id=turn.head.last_id, role="assistant", tool_calls=turn.calls)
        answered_at = {each.at for each in turn.outcomes}
        waiting = [each for each in turn.waiting if each.at not in answered_at]
        if waiting:
            await self.save_waiting(session_id, epoch, turn.run_id, calls, turn.head, waiting)
        await self._save_change(
            session_id, epoch, lambda state: project_answers(state, list_still_pending(state, answered))
        )

    async def drop_waiting(self, session_id: str, epoch: int, answered: Sequence[AnswerReceipt] = ()) -> None:
        """No step waits: nothing is pending, and what the thread has answers of is answered."""
        await self._save_change(
            session_id, epoch, lambda state: project_no_suspension(state, list_still_pending(state, answered))
        )

    async def list_answers(self, session_id: str) -> Mapping[str, CallOutcome]:
        """Answers that were given to the store itself, by the calls' ids."""
        state = await self._store.load_state(session_id)
        pending = {} if state is None else state.pending_client_tool_calls
        return {name: read_answer(call) for name, call in pending.items() if call.response is not None}

    async def _save_change(
        self, session_id: str, epoch: int, changes: Callable[[SessionState], Mapping[str, Any]]
    ) -> None:
        await save_change(self._store, session_id, epoch, changes, "a suspension was saved")

    async def _run_is(self, session_id: str, run_id: str | None, status: RunStatus, epoch: int) -> None:
        run = None if run_id is None else await self._store.get_run(session_id, run_id)
        if run is None or run_id is None or not run.status.live or run.status is status:
            return
        change = RunChange(
            status=status, completion_reason="suspended" if status is not RunStatus.RUNNING else None
        )
        try:
            await self._store.update_run(session_id, run_id, change, epoch=epoch)
        except InvalidRequestError as error:
            if "run_id" not in error.facts:
                raise
            # A step that nobody waits for any more has ended it meanwhile.
