"""The session store's part of a suspension: pending calls, the context to go on with, the run's status."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from helix_temporal.activities._state_saves import save_change
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models._json import canonical
from helix_temporal.models.messages import Message
from helix_temporal.models.records import Head
from helix_temporal.models.runs import RunChange, RunStatus
from helix_temporal.models.sessions import SuspendedTurn
from helix_temporal.models.states import (
    CompletedClientToolCall,
    PendingClientToolCall,
    SessionState,
    SessionStatus,
    SuspendedChildWait,
    SuspensionContext,
    newest_completed,
)
from helix_temporal.models.steps import StepInput
from helix_temporal.models.suspensions import (
    DENIED,
    AnsweredCall,
    KnownCall,
    Outcome,
    Suspension,
    WaitingCall,
)
from helix_temporal.models.tool_results import ToolResult
from helix_temporal.stores.protocols.sessions import SessionStore

_MINE: Final = frozenset({"client_tool", "approval", "awaiting_children"})
_LARGEST_INPUT: Final = 64 * 1024
"""Bytes of a call's arguments that the state takes; larger ones are in the thread alone."""


class SuspendedStates:
    """Keeps pending calls of sessions in their states.  A state that its store has lost is passed over."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def record(
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

        def suspended(state: SessionState) -> dict[str, Any]:
            known = state.pending_client_tool_calls
            pending = {each.id: known.get(each.id) or _pending(each, answer, run_id) for each in waiting}
            context = SuspensionContext(
                kind="client_tool" if any(each.kind == "client" for each in waiting) else "approval",
                run_id=run_id,
                step_id=answer.id,
                tool_call_ids=tuple(pending),
                assistant_message_position=head.position - 1,
                suspended_at=waiting[0].since,
            )
            return {
                "status": SessionStatus.PAUSED,
                "pending_client_tool_calls": {**known, **pending},
                "suspension_context": context,
                "suspended_step_id": answer.id,
            }

        await self._run_is(session_id, run_id, RunStatus.SUSPENDED_CLIENT_TOOL, epoch)
        await self._change(session_id, epoch, suspended)

    async def answered(
        self, session_id: str, epoch: int, run_id: str | None, inputs: Sequence[StepInput]
    ) -> None:
        """The turn goes on with these answers: nothing is pending any more.

        Raises:
            FencedError: A newer open has the session.
        """
        answers = [each.answered for each in inputs if each.answered is not None]

        def resumed(state: SessionState) -> dict[str, Any]:
            changes = _settled(state, answers)
            # A repeat finds nothing that waits.
            goes_on = "suspension_context" in changes
            return changes | ({"resume_count": state.resume_count + 1} if goes_on else {})

        await self._change(session_id, epoch, resumed)
        await self._run_is(session_id, run_id, RunStatus.RUNNING, epoch)

    async def sleeps(self, session_id: str, epoch: int, suspension: Suspension) -> None:
        """The session waits for sub-agents, whose sessions have ended while they wait for people.

        Raises:
            FencedError: A newer open has the session.
        """
        if not suspension.calls:
            state = await self._store.load_state(session_id)
            run_id = None if state is None else state.current_run_id
            await self._run_is(session_id, run_id, RunStatus.SUSPENDED_AWAITING_CHILDREN, epoch)
        await self._change(session_id, epoch, lambda state: _awaiting(state, suspension))

    async def known(self, session_id: str, epoch: int, known: Sequence[KnownCall]) -> None:
        """Some of the calls were answered; others are still wanted.

        Raises:
            FencedError: A newer open has the session.
        """
        answers = [each.answered for each in known if each.answered is not None]
        if answers:
            await self._change(session_id, epoch, lambda state: _answered(state, answers))

    async def found(
        self, session_id: str, epoch: int, turn: SuspendedTurn, answered: Sequence[AnsweredCall]
    ) -> None:
        """An open found the turn suspended: a store that does not say so has lost it.

        ``answered`` are the calls that the thread has answers of; a store that went back to before them still
        has them pending.
        """
        if turn.children:
            waits = Suspension(head=turn.head, calls=turn.waiting, children=turn.children)
            await self.sleeps(session_id, epoch, waits)
        calls = Message(id=turn.head.last_id, role="assistant", tool_calls=turn.calls)
        known = {each.at for each in turn.known}
        waiting = [each for each in turn.waiting if each.at not in known]
        if waiting:
            await self.record(session_id, epoch, turn.run_id, calls, turn.head, waiting)
        await self._change(session_id, epoch, lambda state: _answered(state, _pending_of(state, answered)))

    async def dropped(self, session_id: str, epoch: int, answered: Sequence[AnsweredCall] = ()) -> None:
        """No step waits: nothing is pending, and what the thread has answers of is answered."""
        await self._change(session_id, epoch, lambda state: _settled(state, _pending_of(state, answered)))

    async def responses(self, session_id: str) -> Mapping[str, KnownCall]:
        """Answers that were given to the store itself, by the calls' ids."""
        state = await self._store.load_state(session_id)
        pending = {} if state is None else state.pending_client_tool_calls
        return {name: _known(call) for name, call in pending.items() if call.response is not None}

    async def _change(
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


def _awaiting(state: SessionState, suspension: Suspension) -> dict[str, Any]:
    """Pure: the state of a session that waits for sub-agents, and perhaps for people itself."""
    waits = {
        each.session_id: SuspendedChildWait(
            sub_session_id=each.session_id,
            tool_call_id=each.calls[0].id,
            agent_type=each.agent,
            since=each.since,
            until=each.until,
        )
        for each in suspension.children
        if each.calls
    }
    others = [each for each in state.suspended_awaiting_children if each.sub_session_id not in waits]
    changes: dict[str, Any] = {
        "status": SessionStatus.PAUSED,
        "suspended_awaiting_children": (*others, *waits.values()),
    }
    if not suspension.calls:
        step = suspension.head.last_id
        changes |= {
            "suspended_step_id": step,
            "suspension_context": SuspensionContext(
                kind="awaiting_children",
                run_id=state.current_run_id,
                step_id=step,
                assistant_message_position=suspension.head.position - 1,
                suspended_at=min(each.since for each in suspension.children),
            ),
        }
    return changes


def _pending(waiting: WaitingCall, answer: Message, run_id: str | None) -> PendingClientToolCall:
    call = answer.tool_calls[waiting.at]
    small = len(canonical(call.arguments)) <= _LARGEST_INPUT
    return PendingClientToolCall(
        tool_call_id=waiting.id,
        tool_name=call.name,
        input=call.arguments if small else None,
        kind=waiting.kind,
        approval_id=waiting.id if waiting.kind == "approval" else None,
        run_id=run_id,
        step_id=answer.id,
        created_at=waiting.since,
        deadline_at=waiting.until,
    )


def _pending_of(state: SessionState, answered: Sequence[AnsweredCall]) -> list[AnsweredCall]:
    """Those that the state has still pending."""
    return [each for each in answered if each.id in state.pending_client_tool_calls]


def _settled(state: SessionState, answers: Sequence[AnsweredCall]) -> dict[str, Any]:
    context = state.suspension_context
    mine = context is not None and context.kind in _MINE and context.step_id == state.suspended_step_id
    if not mine and not answers:
        return {}
    changes = _answered(state, answers)
    # What an application keeps there itself is its own.
    ours = context.tool_call_ids if context and mine else ()
    pending = changes["pending_client_tool_calls"]
    changes["pending_client_tool_calls"] = {name: pending[name] for name in pending if name not in ours}
    if mine:
        changes |= {
            "suspension_context": None,
            "suspended_step_id": None,
            "suspended_awaiting_children": (),
        }
        if state.status is SessionStatus.PAUSED:
            changes["status"] = SessionStatus.ACTIVE
    return changes


def _answered(state: SessionState, answers: Sequence[AnsweredCall]) -> dict[str, Any]:
    completed = dict(state.completed_client_tool_calls)
    for each in answers:
        first = CompletedClientToolCall(tool_call_id=each.id, outcome=each.outcome, completed_at=each.when)
        stored = completed.get(each.id)
        if stored is None or stored.outcome != first.outcome:
            # What the turn took counts, also where another answer came to the store meanwhile.
            completed[each.id] = first
    ids, pending = {each.id for each in answers}, state.pending_client_tool_calls
    return {
        "pending_client_tool_calls": {name: call for name, call in pending.items() if name not in ids},
        "completed_client_tool_calls": newest_completed(completed),
    }


def _known(call: PendingClientToolCall) -> KnownCall:
    """An answer in the store as the turn takes it."""
    response = call.response
    assert response is not None
    outcome: Outcome = response.outcome
    answered = AnsweredCall(id=call.tool_call_id, outcome=outcome, when=call.responded_at or 0)
    said = response.result if isinstance(response.result, str) else None
    if call.kind == "approval":
        if outcome == "approved":
            return KnownCall(at=0, answered=answered)
        text = f"{DENIED} {response.error or said or ''}".strip()
        return KnownCall(at=0, result=ToolResult(text=text, is_error=True), answered=answered)
    if outcome == "result":
        text = said if said is not None else canonical(response.result).decode()
        return KnownCall(at=0, result=ToolResult(text=text), answered=answered)
    return KnownCall(
        at=0, result=ToolResult(text=response.error or said or "", is_error=True), answered=answered
    )
