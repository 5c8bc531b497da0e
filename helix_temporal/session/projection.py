"""What the session store is to say of a session: its state, as the record and the thread have it.  Pure.

Functions that begin with ``project`` return the fields of a `SessionState` that change.  A repeat changes
nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pydantic import JsonValue

from helix_temporal.errors import InvalidMessageError, TooLargeError
from helix_temporal.models.base import canonical_json, check_json, only_set
from helix_temporal.models.checkpoints import RunChange, RunStatus
from helix_temporal.models.messages import Message, decode_message
from helix_temporal.models.sessions import ExitReason
from helix_temporal.models.states import (
    ClientToolResponse,
    CompletedClientToolCall,
    CreateSession,
    ErrorInfo,
    ForkOrigin,
    MergeChanges,
    PendingClientToolCall,
    SessionState,
    SessionStatus,
    StateChange,
    SubSessionRef,
    SuspendedChildWait,
    SuspensionContext,
    newest_completed,
)
from helix_temporal.models.steps import (
    EndTurnInput,
    OpenSessionInput,
    RunStepInput,
    SaveValuesInput,
    StepInput,
)
from helix_temporal.models.stored_messages import Head, Kind, StoredMessage
from helix_temporal.models.waiting import AnswerReceipt, CallOutcome, Outcome, Suspension, WaitingCall
from helix_temporal.session.call_answers import result_of_answer
from helix_temporal.session.record import SessionRecord, check_values

MAX_OUTPUT: Final = 8 * 1024
"""Bytes of an answer that the state has itself."""
_LARGEST_INPUT: Final = 64 * 1024
"""Bytes of a call's arguments that the state takes; larger ones are in the thread alone."""
_MAX_OWNED: Final = 256
"""Calls of sub-agents that a root remembers the owners of."""
_MAX_ANSWERED: Final = 32
"""Of them, answered ones of one sub-agent."""
_OWN_KINDS: Final = frozenset({"client_tool", "approval", "awaiting_children"})
BEFORE_FIRST_TURN: Final[Mapping[str, Any]] = MappingProxyType(
    {"custom_state": {}, "output": None, "error": None, "step_count": 0}
)
"""What a state says that turns change, where the thread has none."""
_AWAITING: Final = "suspended_awaiting_children"
GIVEN_UP: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "status": SessionStatus.INTERRUPTED,
        "failure_reason": "parent_suspended",
        "pending_client_tool_calls": {},
        "suspension_context": None,
        "suspended_step_id": None,
        _AWAITING: (),
    }
)
"""What changes in the state of a session that waits for people, and that nobody will wake."""


# -- a new session, and the end of one


def fields_of_record(record: SessionRecord) -> dict[str, Any]:
    """What the session's record knows of its state, by the state's names."""
    return {
        "agent_type": record.agent,
        "custom_state": record.values,
        "metadata": dict(record.metadata),
    }


def inherited_by_fork(source: SessionState) -> dict[str, Any]:
    """What the state of a fork takes over from the state that it begins with."""
    return {
        "custom_state": source.custom_state,
        "tags": source.tags,
        "user_id": source.user_id,
        "title": source.title,
    }


def make_new_session(
    request: OpenSessionInput,
    record: SessionRecord,
    source: SessionState | None,
    *,
    at: Head,
    forked_at: Head,
    user_id: str | None = None,
) -> CreateSession:
    """The state that a session begins with.

    Args:
        request: That opens it.
        record: Its record.
        source: The state of the session that it is a fork of.
        at: Where its thread's finished turns end.
        forked_at: Where its thread stands.
        user_id: Whose a sub-agent's session is: its caller's user.
    """
    fields: dict[str, Any] = {} if request.properties is None else request.properties.changes()
    fields.pop("tracing_context", None)  # set once the session is there
    if request.thread_id != request.session_id:
        fields["thread_id"] = request.thread_id
    if request.parent is not None:
        fields |= {
            "parent_session_id": request.parent.session_id,
            "root_session_id": request.parent.root_session_id,
        }
    if user_id is not None:
        fields.setdefault("user_id", user_id)
    if source is not None:
        fields = inherited_by_fork(source) | fields
        fields["forked_from"] = ForkOrigin(session_id=source.session_id, head=forked_at)
    # A thread that was imported has a record without an agent, and without metadata.
    known = {name: each for name, each in fields_of_record(record).items() if each}
    asked = {"agent_type": request.agent, "metadata": dict(request.metadata)}
    return CreateSession(
        **(asked | known | fields),
        mode="standard" if record.options is not None and not record.options.persistent else "persistent",
        head=at,
        stream_id=request.session_id,
    )


def project_end(state: SessionState, request: SaveValuesInput, status: SessionStatus) -> dict[str, Any]:
    """How the session ended, with the values that it saved last."""
    changes: dict[str, Any] = {"status": status, "failure_reason": None, "error": None}
    if request.error is not None:
        changes |= {"failure_reason": "error", "error": ErrorInfo(message=request.error)}
    if request.values is not None:
        changes["custom_state"] = merge_values(state.custom_state, request.values, request.changed)
    return changes


def merge_values(
    custom: Mapping[str, Any], values: Mapping[str, Any], changed: Sequence[str] | None
) -> dict[str, Any]:
    """A custom state with the application's changes in it; what it did not change is others'."""
    if changed is None:
        return dict(values)
    kept = {key: value for key, value in custom.items() if key not in changed}
    return kept | {key: values[key] for key in changed if key in values}


def values_if_small(values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The custom state as the application sees it; None if it is too large to travel."""
    try:
        check_values(values)
    except TooLargeError:
        return None
    return values


# -- a turn that is committed


class FinalAnswer(NamedTuple):
    """The answer that a turn ends with, and where it stands in the thread."""

    message: StoredMessage
    position: int

    @classmethod
    def at(cls, message: StoredMessage | None, position: int) -> "FinalAnswer | None":
        """That of a step; None where it asks for tools, or ends the turn without one."""
        return cls(message, position) if message is not None and message.kind == Kind.ANSWER else None


@dataclass(frozen=True, slots=True)
class MissingTurns:
    """What a state that stands at ``at`` lacks, up to the end of the newest turn."""

    at: int
    keys: tuple[str, ...]
    steps: int


@dataclass(frozen=True, slots=True)
class TurnToCommit:
    """A turn to commit: where it ends, the slice that says what it changed, and how its run ended.

    Attributes:
        behind: The state lacks turns before it, too.
        answer: That it ends with, if it ends with one.
    """

    session_id: str
    thread_id: str
    epoch: int
    head: Head | None
    record: SessionRecord
    status: RunStatus = RunStatus.COMPLETED
    reason: str | None = None
    behind: MissingTurns | None = None
    answer: FinalAnswer | None = None

    @property
    def _was_cut(self) -> bool:
        """The newest turn that the slice knows is not in the thread any more."""
        changes = self.record.changes
        return changes is not None and self.head is not None and self.head.position <= changes.turn

    @property
    def run_id(self) -> str | None:
        """The turn's run; sessions from before the runs have none."""
        return None if self._was_cut else self.record.run

    @property
    def step_id(self) -> str:
        """The turn's name in the session store; sessions from before the runs only count theirs."""
        return self.run_id or (f"forward/{self.epoch}" if self._was_cut else f"turn-{self.record.turns}")

    @property
    def run(self) -> RunChange | None:
        """What becomes of the run; None where it has none."""
        if self.run_id is None:
            return None
        reason = self.reason or self.status.value
        return RunChange(status=self.status, step_count=self.record.turn_steps, completion_reason=reason)

    @property
    def results(self) -> tuple[str, ...] | None:
        """Results of tools in the thread that came with changes of the state; None where nobody knows."""
        return None if self.record.changes is None or self.run_id is None else self.record.changes.staged

    @property
    def change(self) -> StateChange:
        """What the turn changes of the state."""
        record, behind = self.record, self.behind
        keys = record.changed if behind is None else behind.keys
        changed = {key: record.values[key] for key in keys if key in record.values}
        removed = tuple(key for key in keys if key not in record.values)
        return StateChange(
            head=self.head,
            follows=self._follows,
            merge=MergeChanges(values=changed, removes=removed) if keys else None,
            status=SessionStatus.ACTIVE,
            steps=record.turn_steps if behind is None else behind.steps,
            output=None if self.answer is None else output_of(self.answer),
        )

    @property
    def _follows(self) -> int | None:
        if self.behind is not None:
            return self.behind.at
        return None if self.record.changes is None else self.record.changes.turn


def end_of_run(request: RunStepInput | EndTurnInput) -> tuple[RunStatus, str | None]:
    """How the run of a turn ends, and why."""
    if isinstance(request, RunStepInput) or request.reason is None:
        return RunStatus.COMPLETED, None
    interrupted = request.reason is ExitReason.INTERRUPTED
    return RunStatus.INTERRUPTED if interrupted else RunStatus.COMPLETED, request.reason.value


def output_of(answer: FinalAnswer) -> JsonValue:
    """What the state says of a turn's answer: its text, or of a long one where it is in the thread."""
    text = decode_message(answer.message).text
    if len(text.encode(errors="surrogatepass")) <= MAX_OUTPUT and _is_storable(text):
        return text
    return {"message_id": answer.message.id, "position": answer.position}


def _is_storable(text: str) -> bool:
    try:
        check_json(text)
    except InvalidMessageError:
        return False
    return True


def count_unknown_turns(record: SessionRecord, starts: Sequence[int]) -> int:
    """Turns whose changes the slice does not know, or not all of them."""
    if record.changes is None:
        return len(starts) - 1
    return sum(1 for each in starts if each < record.changes.since)


# -- calls that wait


def project_suspension(
    state: SessionState, run_id: str | None, answer: Message, head: Head, waiting: Sequence[WaitingCall]
) -> dict[str, Any]:
    """The session waits for these calls of ``answer``, whose step ends at ``head``."""
    pending_before = state.pending_client_tool_calls
    pending = {
        each.id: pending_before.get(each.id) or _make_pending_call(each, answer, run_id) for each in waiting
    }
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
        "pending_client_tool_calls": {**pending_before, **pending},
        "suspension_context": context,
        "suspended_step_id": answer.id,
    }


def project_resumption(state: SessionState, answers: Sequence[AnswerReceipt]) -> dict[str, Any]:
    """The turn goes on with these answers: nothing is pending any more."""
    changes = project_no_suspension(state, answers)
    # A repeat finds nothing that waits.
    goes_on = "suspension_context" in changes
    return changes | ({"resume_count": state.resume_count + 1} if goes_on else {})


def project_no_suspension(state: SessionState, answers: Sequence[AnswerReceipt]) -> dict[str, Any]:
    """Nothing is pending any more, and these calls were answered.  What an application keeps there stays."""
    context = state.suspension_context
    mine = context is not None and context.kind in _OWN_KINDS and context.step_id == state.suspended_step_id
    if not mine and not answers:
        return {}
    changes = project_answers(state, answers)
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


def project_answers(state: SessionState, answers: Sequence[AnswerReceipt]) -> dict[str, Any]:
    """These calls were answered; others may still wait."""
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


def list_still_pending(state: SessionState, answered: Sequence[AnswerReceipt]) -> list[AnswerReceipt]:
    """Those that the state has still pending."""
    return [each for each in answered if each.id in state.pending_client_tool_calls]


def _make_pending_call(waiting: WaitingCall, answer: Message, run_id: str | None) -> PendingClientToolCall:
    call = answer.tool_calls[waiting.at]
    small = len(canonical_json(call.arguments)) <= _LARGEST_INPUT
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


def read_answer(call: PendingClientToolCall) -> CallOutcome:
    """An answer in the store as the turn takes it."""
    response = call.response
    assert response is not None
    outcome: Outcome = response.outcome
    answered = AnswerReceipt(id=call.tool_call_id, outcome=outcome, when=call.responded_at or 0)
    result = result_of_answer(call.kind, outcome, _text_of(response))
    return CallOutcome(at=0, answered=answered, **only_set(result=result))


def _text_of(response: ClientToolResponse) -> str:
    said = response.result if isinstance(response.result, str) else None
    if response.outcome != "result":
        return response.error or said or ""
    return said if said is not None else canonical_json(response.result).decode()


# -- sub-agents


def project_waiting_children(state: SessionState, suspension: Suspension) -> dict[str, Any]:
    """The state of a session that waits for sub-agents, and perhaps for people itself."""
    waits = {
        each.session_id: _make_child_wait(
            each.session_id, each.agent, {call.id: call.since for call in each.calls}, each.until
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


def _make_child_wait(
    session_id: str, agent: str, calls: Mapping[str, int], until: int | None
) -> SuspendedChildWait:
    """Of a sub-agent's session that waits for these calls, by when they were made: its first one is named."""
    first = min(calls, key=lambda call: (calls[call], call))
    return SuspendedChildWait(
        sub_session_id=session_id,
        tool_call_id=first,
        agent_type=agent,
        since=calls[first],
        until=until,
    )


def project_waiting_child(parent: SessionState, child: SessionState) -> dict[str, Any]:
    """The parent's children that wait, with this one if it does."""
    others: tuple[SuspendedChildWait, ...] = project_without_children(parent, {child.session_id})[_AWAITING]
    if child.pending_client_tool_calls:
        before = (each.until for each in parent.suspended_awaiting_children if each not in others)
        calls = {call: each.created_at for call, each in child.pending_client_tool_calls.items()}
        wait = _make_child_wait(child.session_id, child.agent_type, calls, next(before, None))
        others = (*others, wait)
    return {_AWAITING: others}


def project_without_children(parent: SessionState, children: Collection[str]) -> dict[str, Any]:
    """The parent's children that wait, without these."""
    waiting = parent.suspended_awaiting_children
    return {_AWAITING: tuple(each for each in waiting if each.sub_session_id not in children)}


def project_call_owners(root: SessionState, child: SessionState) -> dict[str, Any]:
    """Whose a call is, as far as the root has to know; late answers find those that were answered."""
    others = {
        call: owner for call, owner in root.client_tool_call_ownership.items() if owner != child.session_id
    }
    completed = sorted(child.completed_client_tool_calls.values(), key=lambda each: each.completed_at)
    mine = (
        *(each.tool_call_id for each in completed[-_MAX_ANSWERED:]),
        *child.pending_client_tool_calls,
    )
    # The first go where there are too many: the oldest, where the store keeps the order of a mapping.
    kept = dict(list(others.items())[-max(_MAX_OWNED - len(mine), 1) :])
    return {"client_tool_call_ownership": kept | dict.fromkeys(mine, child.session_id)}


def list_told_calls(child: SessionState) -> tuple[object, object]:
    """What others are told of a session that waits for people."""
    return child.pending_client_tool_calls, child.completed_client_tool_calls


def list_cut_refs(refs: Sequence[SubSessionRef], called: Collection[str]) -> list[SubSessionRef]:
    """Those whose calls are not among the open ones."""
    return [ref for ref in refs if ref.sub_session_id not in called]


def is_at_work(ref: SubSessionRef) -> bool:
    """Whether a caller waits for that session, and it has not ended."""
    return ref.status is SessionStatus.ACTIVE and ref.wait_mode == "blocking"


def make_ended_ref(each: StepInput, run_id: str | None) -> SubSessionRef:
    """The reference as the result leaves it; without an agent where none was called."""
    assert each.child is not None
    return SubSessionRef(
        sub_session_id=each.child.session_id,
        agent_type=each.child.agent,
        tool=each.name or "",
        run_id=run_id,
        parent_tool_call_id=each.call,
        status=SessionStatus(each.child.status),
    )
