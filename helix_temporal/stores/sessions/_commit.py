"""Pure: the commit of a step."""

from dataclasses import dataclass, replace
from typing import Any, Final

from helix_temporal.errors import (
    IdempotencyConflictError,
    InvalidRequestError,
    StateBehindThreadError,
)
from helix_temporal.models.checkpoints import (
    CheckpointId,
    CheckpointMeta,
    CommitResult,
    StagedChange,
    StepCommit,
)
from helix_temporal.models.records import Head
from helix_temporal.models.runs import RunChange
from helix_temporal.models.states import MergeChanges, SessionState, StateChange
from helix_temporal.stores.protocols.checkpoints import AnyVersion
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.session_records import RecordKey, RecordKind, SessionRecord, Wanted
from helix_temporal.stores.sessions import _orders, _runs
from helix_temporal.stores.sessions._codec import decode, digest, encode
from helix_temporal.stores.sessions._decisions import Decision, Seen, next_version
from helix_temporal.stores.sessions._life import check_version, merged, replaced
from helix_temporal.stores.sessions._loop import encode_state
from helix_temporal.stores.sessions._orders import HasHead
from helix_temporal.stores.sessions._runs import ChangedRun
from helix_temporal.stores.sessions._staging import ClosedStep, cleared, closing, digests, folded

_NOT_CONTENT: Final = {"version", "created_at", "updated_at", "follows"}


@dataclass(frozen=True, slots=True)
class StepRequest:
    """All that is asked for with a step.

    Attributes:
        append: The step's messages, if they are given.
        at_end: They go to the end of the thread, wherever that is.
        appends: They are part of this very commit.
        head: Where the thread stands after them, if they were appended before.
        known_digest: See `digested`.
    """

    next_state: SessionState | StateChange
    step: StepCommit
    append: StepAppend | None = None
    run: RunChange | None = None
    expected: int | AnyVersion | None = None
    appends: bool = True
    head: Head | None = None
    known_digest: str = ""
    at_end: bool = False

    @property
    def key(self) -> str:
        """Of the record that closes the step."""
        return f"run:{self.step.run_id or ''}"

    def digested(self) -> "StepRequest":
        """The same with its digest at hand: it is asked for again and again."""
        return replace(self, known_digest=self.digest())

    def digest(self) -> str:
        """What tells a repeat from another commit.

        Of a step with a model's answer only where it stands and what it answers: attempts may each have
        their own answer, and the first one counts.
        """
        if self.known_digest:
            return self.known_digest
        append = self.append
        if append is None:
            return digest(self.step, self._content(), self.run)
        head = None if self.at_end else append.head
        place = (append.thread_id, head, [list(record) for record in append.inputs])
        if append.answer is None:
            return digest(self.step, self._content(), self.run, place)
        return digest(self.step, place)

    def _content(self) -> dict[str, Any]:
        return self.next_state.model_dump(mode="json", exclude=_NOT_CONTENT)


def check_request(session_id: str, request: StepRequest) -> None:
    """Refuse what contradicts itself.

    Raises:
        InvalidRequestError: A run is to be changed and none is named, or the step is of another thread.
    """
    if request.run is not None and request.step.run_id is None:
        raise InvalidRequestError(f"session {session_id!r}: a run is to be changed, but the step names none")
    if request.append is not None and request.append.thread_id != session_id:
        raise InvalidRequestError(
            f"session {session_id!r}: the step is of thread {request.append.thread_id!r}; a session's own "
            "thread has its id"
        )


def wanted(request: StepRequest, *, thread: bool) -> Wanted:
    """What a commit looks at."""
    step = request.step
    runs = _runs.wanted_for_change(step.run_id) if request.run is not None and step.run_id else ()
    # Whether a cut is pending matters only where the thread may know better than the caller.
    orders = _orders.KEYS if isinstance(request.next_state, SessionState) and not request.append else ()
    return Wanted(
        keys=(RecordKey(RecordKind.STEP, request.key, step.step_id), *runs, *orders),
        groups=((RecordKind.STAGED, step.step_id),),
        newest=(RecordKind.CHECKPOINT,),
        thread=thread,
    )


def first_result(seen: Seen, request: StepRequest) -> CommitResult | None:
    """The answer of the commit that was first, if this one is a repeat.

    Raises:
        IdempotencyConflictError: The step was committed with other content.
    """
    record = seen.view.find(RecordKind.STEP, request.key, request.step.step_id)
    if record is None:
        return None
    closed = decode(ClosedStep, record.body, "closed step")
    if closed.request != request.digest() or closed.result is None:
        raise IdempotencyConflictError(
            f"session {seen.session_id!r}: step {request.step.step_id!r} was committed with other content; "
            "a step is committed once",
            session_id=seen.session_id,
            step_id=request.step.step_id,
            run_id=request.step.run_id,
        )
    return closed.result


def commit(seen: Seen, request: StepRequest, head: Head | None) -> Decision[CommitResult]:
    """See `CheckpointStore.save_state_and_promote_staging`, where the step is not committed yet.

    ``head`` is where the thread stands after the commit; None if the state's own head counts.
    """
    step = request.step
    state, warnings = _next_state(seen, request)
    changes: list[StagedChange] = []
    custom = state.custom_state
    if step.promote:
        custom, changes = folded(seen, step.step_id, custom, step.results)
    run = _run(seen, request)
    state = state.model_copy(
        update={
            "custom_state": custom,
            "head": head or request.head or state.head,
            "current_run_id": run.current(state.current_run_id) if run else state.current_run_id,
        }
    )
    meta = _checkpoint(seen, step, state, changes)
    result = CommitResult(
        checkpoint_id=meta.id,
        new_version=state.version,
        head=state.head,
        promoted=len(changes),
        warnings=warnings,
    )
    body = encode_state(state)
    closed = ClosedStep(request=request.digest(), result=result, changes=digests(changes))
    return Decision(
        result,
        state,
        body,
        puts=(
            closing(closed, request.key, step.step_id),
            record_of(meta),
            state_record_of(meta, body),
            *(run.puts if run else ()),
        ),
        removes=run.removes if run else (),
        clears=cleared(seen, step.step_id) if step.promote else (),
        append=request.append if request.appends else None,
    )


def record_of(meta: CheckpointMeta) -> SessionRecord:
    """A checkpoint as it is stored, its state apart."""
    return SessionRecord(RecordKind.CHECKPOINT, meta.id, encode(meta, "checkpoint"), order=meta.seq)


def state_record_of(meta: CheckpointMeta, body: bytes) -> SessionRecord:
    """The state of a checkpoint as it is stored."""
    return SessionRecord(RecordKind.CHECKPOINT_STATE, meta.id, body, order=meta.seq)


def with_own_head(result: CommitResult, appended: Appended | None) -> CommitResult:
    """An answer that is given again: what stands in the thread may be another attempt's."""
    return result if appended is None else result.model_copy(update={"head": appended.head})


def _next_state(seen: Seen, request: StepRequest) -> tuple[SessionState, tuple[str, ...]]:
    given = request.next_state
    if isinstance(given, SessionState):
        return replaced(seen, given, request.expected), ()
    stored = seen.present
    check_version(stored, request.expected)
    _check_place(stored, given)
    names = ("head", "status", "failure_reason", "error", "output", "agent_type")
    changes = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    custom, warnings = merged(stored.custom_state, given.merge or MergeChanges())
    changes |= {"custom_state": custom, "step_count": stored.step_count + given.steps}
    return next_version(stored, stored, seen.now, **changes), warnings


def _check_place(stored: SessionState, change: StateChange) -> None:
    if change.follows is not None and stored.head.position < change.follows:
        raise StateBehindThreadError(
            f"session {stored.session_id!r}: the state stands at {stored.head.position}, and the change "
            f"builds on one at {change.follows} or beyond; bring it forward first",
            session_id=stored.session_id,
            held=stored.head.position,
            expected=change.follows,
        )


def further(seen: Seen, given: Head, thread: HasHead | None) -> Head:
    """The thread's committed head, if it is further than what the caller has seen."""
    if thread is None or _orders.pending(seen) is not None:
        return given
    return thread.head if thread.committed == thread.head.position > given.position else given


def _run(seen: Seen, request: StepRequest) -> ChangedRun | None:
    if request.run is None or request.step.run_id is None:
        return None
    return _runs.changed(seen, request.step.run_id, request.run)


def _checkpoint(
    seen: Seen, step: StepCommit, state: SessionState, changes: list[StagedChange]
) -> CheckpointMeta:
    last = max((each.order for each in seen.view.all(RecordKind.CHECKPOINT)), default=0)
    steps = step.step_count or state.step_count
    return CheckpointMeta(
        id=CheckpointId.make(seen.session_id, steps, seen.now),
        session_id=seen.session_id,
        run_id=step.run_id,
        step_id=step.step_id,
        step_count=steps,
        seq=last + 1,
        version=state.version,
        head=state.head,
        stream_sequence=step.stream_sequence,
        status=state.status,
        promoted_tool_call_ids=tuple(change.tool_call_id for change in changes),
        at=seen.now,
    )


def with_head(request: StepRequest, head: Head) -> StepRequest:
    """The request after its messages were appended elsewhere."""
    return replace(request, appends=False, head=head)
