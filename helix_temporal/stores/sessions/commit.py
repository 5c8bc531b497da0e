"""The commit of a step: thread and session in one change where one store has both, else one by one.

`save_state_and_promote_staging` makes the request.  `_commit_step` picks one of three ways: `_commit_state`
(no step of the thread), `_commit_with_thread` or `_append_then_commit`.  All decide with `decide_commit`.

A step whose answer was lost is found by its place in the thread (`ThreadStore.step_view`), or by its
operation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from helix_temporal.errors import (
    FencedError,
    HeadMovedError,
    IdempotencyConflictError,
    InvalidRequestError,
    StoreUnavailableError,
    ThreadNotFoundError,
)
from helix_temporal.models.checkpoints import (
    CheckpointId,
    CheckpointMeta,
    CommitResult,
    RunChange,
    StagedChange,
    StepCommit,
)
from helix_temporal.models.limits import DEDUP_WINDOW
from helix_temporal.models.messages import Message
from helix_temporal.models.states import SessionState, StateChange
from helix_temporal.models.stored_messages import Head, StoredMessage, head_after
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.session_rows import RowKey, RowKind, WantedRows
from helix_temporal.stores.protocols.sessions import AnyVersion
from helix_temporal.stores.protocols.threads import FlushThread
from helix_temporal.stores.sessions import checkpoints, threads
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.checks import checked_version, revalidate_model
from helix_temporal.stores.sessions.decisions import (
    Call,
    ChangeDone,
    Decision,
    SeenSession,
    checkpoint_row,
    checkpoint_state_row,
    decode_model,
    digest_parts,
)
from helix_temporal.stores.sessions.life import apply_state_change, check_version, replace_state
from helix_temporal.stores.sessions.loop import check_fence, encode_state, pause_before_retry
from helix_temporal.stores.sessions.messages import encode_new_messages, known_positions
from helix_temporal.stores.sessions.runs import ChangedRun, change_run, wanted_for_change
from helix_temporal.stores.sessions.staging import (
    ClosedStep,
    apply_staged_changes,
    closed_step_row,
    digests_by_call,
    groups_to_clear,
)
from helix_temporal.stores.sessions.threads import HasHead
from helix_temporal.stores.threads.standing_step import ends_turn, head_moved_error, is_repeated_step

_NOT_CONTENT: Final = {"version", "created_at", "updated_at", "follows"}


@dataclass(frozen=True, slots=True)
class StepRequest:
    """All that is asked for with a step.

    Attributes:
        append: The step's messages, if they are given.
        at_end: They go to the end of the thread, wherever that is.
        appends: They are part of this very commit.
        head: Where the thread stands after them, if they were appended before.
        known_digest: See `with_digest`.
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
        """Of the row that closes the step."""
        return f"run:{self.step.run_id or ''}"

    def with_digest(self) -> "StepRequest":
        """The same with its digest at hand: it is asked for again and again."""
        return replace(self, known_digest=self.compute_digest())

    def compute_digest(self) -> str:
        """What tells a repeat from another commit.

        Of a step with a model's answer only where it stands and what it answers: attempts may each have
        their own answer, and the first one counts.
        """
        if self.known_digest:
            return self.known_digest
        append = self.append
        if append is None:
            return digest_parts(self.step, self._state_content(), self.run)
        head = None if self.at_end else append.head
        place = (append.thread_id, head, [list(message) for message in append.inputs])
        if append.answer is None:
            return digest_parts(self.step, self._state_content(), self.run, place)
        return digest_parts(self.step, place)

    def _state_content(self) -> dict[str, Any]:
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


def wanted_for_commit(request: StepRequest, *, thread: bool) -> WantedRows:
    """What a commit looks at."""
    step = request.step
    runs = wanted_for_change(step.run_id) if request.run is not None and step.run_id else ()
    # Whether a cut is pending matters only where the thread may know better than the caller.
    orders = threads.KEYS if isinstance(request.next_state, SessionState) and not request.append else ()
    return WantedRows(
        keys=(RowKey(RowKind.STEP, request.key, step.step_id), *runs, *orders),
        groups=((RowKind.STAGED, step.step_id),),
        newest=(RowKind.CHECKPOINT,),
        thread=thread,
    )


def first_result(seen: SeenSession, request: StepRequest) -> CommitResult | None:
    """The answer of the commit that was first, if this one is a repeat.

    Raises:
        IdempotencyConflictError: The step was committed with other content.
    """
    row = seen.view.find_row(RowKind.STEP, request.key, request.step.step_id)
    if row is None:
        return None
    closed = decode_model(ClosedStep, row.body, "closed step")
    if closed.request != request.compute_digest() or closed.result is None:
        raise IdempotencyConflictError(
            f"session {seen.session_id!r}: step {request.step.step_id!r} was committed with other content; "
            "a step is committed once",
            session_id=seen.session_id,
            step_id=request.step.step_id,
            run_id=request.step.run_id,
        )
    return closed.result


def decide_commit(seen: SeenSession, request: StepRequest, head: Head | None) -> Decision[CommitResult]:
    """See `CheckpointStore.save_state_and_promote_staging`, where the step is not committed yet.

    ``head`` is where the thread stands after the commit; None if the state's own head counts.
    """
    step = request.step
    state, warnings = _next_state(seen, request)
    changes: list[StagedChange] = []
    custom = state.custom_state
    if step.promote:
        custom, changes = apply_staged_changes(seen, step.step_id, custom, step.results)
    run = _change_run(seen, request)
    state = state.model_copy(
        update={
            "custom_state": custom,
            "head": head or request.head or state.head,
            "current_run_id": run.current_after(state.current_run_id) if run else state.current_run_id,
        }
    )
    meta = _build_checkpoint_meta(seen, step, state, changes)
    result = CommitResult(
        checkpoint_id=meta.id,
        new_version=state.version,
        head=state.head,
        promoted=len(changes),
        warnings=warnings,
    )
    body = encode_state(state)
    closed = ClosedStep(request=request.compute_digest(), result=result, changes=digests_by_call(changes))
    return Decision(
        result,
        state,
        body,
        puts=(
            closed_step_row(closed, request.key, step.step_id),
            checkpoint_row(meta),
            checkpoint_state_row(meta, body),
            *(run.puts if run else ()),
        ),
        removes=run.removes if run else (),
        clears=groups_to_clear(seen, step.step_id) if step.promote else (),
        append=request.append if request.appends else None,
    )


def with_own_head(result: CommitResult, appended: Appended | None) -> CommitResult:
    """An answer that is given again: what stands in the thread may be another attempt's."""
    return result if appended is None else result.model_copy(update={"head": appended.head})


def _next_state(seen: SeenSession, request: StepRequest) -> tuple[SessionState, tuple[str, ...]]:
    given = request.next_state
    if isinstance(given, SessionState):
        return replace_state(seen, given, request.expected), ()
    check_version(seen.present, request.expected)
    return apply_state_change(seen, given)


def furthest_head(seen: SeenSession, given: Head, thread: HasHead | None) -> Head:
    """The thread's committed head, if it is further than what the caller has seen."""
    if thread is None or threads.pending_order(seen) is not None:
        return given
    return thread.head if thread.committed == thread.head.position > given.position else given


def _change_run(seen: SeenSession, request: StepRequest) -> ChangedRun | None:
    if request.run is None or request.step.run_id is None:
        return None
    return change_run(seen, request.step.run_id, request.run)


def _build_checkpoint_meta(
    seen: SeenSession, step: StepCommit, state: SessionState, changes: list[StagedChange]
) -> CheckpointMeta:
    last = max((each.order for each in seen.view.list_rows(RowKind.CHECKPOINT)), default=0)
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


_TRIES = 100


async def save_state_and_promote_staging(
    store: SessionStoreBase,
    session_id: str,
    next_state: SessionState | StateChange,
    step: StepCommit,
    *,
    append: StepAppend | None = None,
    messages: Sequence[Message] = (),
    run: RunChange | None = None,
    expected_version: int | AnyVersion | None = None,
    epoch: int | None = None,
    operation_id: str | None = None,
) -> tuple[CommitResult, Appended | None]:
    """See `CheckpointStore.save_state_and_promote_staging`: one view and one commit.

    Where threads lie in another store the step is appended and flushed first, so that the state is
    never ahead of its messages; a crash between the two leaves the step in the thread without its
    state, and a repeat of this call commits it.
    """
    kind = SessionState if isinstance(next_state, SessionState) else StateChange
    request = StepRequest(
        revalidate_model(next_state, kind),
        revalidate_model(step, StepCommit),
        append,
        None if run is None else revalidate_model(run, RunChange),
        checked_version(expected_version),
    )
    if append is not None and messages:
        raise InvalidRequestError("append and messages are both given; a step's messages come once")
    if not messages:
        return await _commit_step(store, session_id, request, epoch, operation_id)
    return await _commit_messages_at_end(
        store, session_id, request, encode_new_messages(messages), epoch, operation_id
    )


async def _commit_step(
    store: SessionStoreBase,
    session_id: str,
    request: StepRequest,
    epoch: int | None,
    operation_id: str | None,
) -> tuple[CommitResult, Appended | None]:
    """Check the request, then commit it: the state alone, with its thread, or after its thread."""
    request = request.with_digest()
    check_request(session_id, request)
    call = Call("commit", session_id, (request.compute_digest(),), epoch, operation_id)
    if request.append is None:
        return (await _commit_state(store, call, request)).answer, None
    if store.threads.in_one_unit:
        return await _commit_with_thread(store, call, request, request.append)
    return await _append_then_commit(store, call, request, request.append)


async def _commit_messages_at_end(
    store: SessionStoreBase,
    session_id: str,
    request: StepRequest,
    messages: tuple[StoredMessage, ...],
    epoch: int | None,
    operation_id: str | None,
) -> tuple[CommitResult, Appended | None]:
    """Commit a step whose messages follow the newest ones, whoever else appends meanwhile."""
    for number in range(_TRIES):
        try:
            append = await _append_at_end(store, session_id, messages)
            return await _commit_step(
                store, session_id, replace(request, append=append, at_end=True), epoch, operation_id
            )
        except (HeadMovedError, FencedError) as error:
            if "session_id" in error.facts:
                raise
            # Somebody else appended to the thread, or opened it, between look and commit.
            await pause_before_retry(number)
    raise StoreUnavailableError(f"session {session_id!r}: a commit was overtaken {_TRIES} times")


async def _append_at_end(
    store: SessionStoreBase, session_id: str, messages: tuple[StoredMessage, ...]
) -> StepAppend:
    """The messages as a step at the end of the thread, or where they stand already."""
    await store.threads.carry_out_pending(session_id)
    seen = await store.view_session(session_id, WantedRows(thread=store.threads.in_one_unit))
    _ = seen.present
    there = await store.threads.join_thread(seen)
    newest = await store.threads.list_newest_ids(session_id, there, DEDUP_WINDOW + len(messages))
    place = known_positions(newest, there.head, messages[:1]).get(messages[0].id, there.head.position)
    head = there.head
    if place < head.position:
        before = await store.threads.read(session_id, place - 1, place, epoch=there.epoch) if place else []
        head = Head(position=place, last_id=before[0].id if before else "")
    return StepAppend(session_id, there.epoch, head, messages, commits=True)


async def _commit_state(
    store: SessionStoreBase, call: Call, request: StepRequest
) -> ChangeDone[CommitResult]:
    """State, run, checkpoint and staged changes, with the step if there is one: one view, one commit."""

    async def decide(seen: SeenSession) -> Decision[CommitResult]:
        _ = seen.present
        first = first_result(seen, request)
        if first is not None:
            return Decision(first)
        return decide_commit(seen, request, await _head_after_commit(store, seen, request))

    given = isinstance(request.next_state, SessionState)
    thread = store.threads.in_one_unit and (given or request.append is not None)
    wanted = wanted_for_commit(request, thread=thread)
    return await store.loop.make_change(call, wanted, decide, CommitResult, keeps=True)


async def _head_after_commit(store: SessionStoreBase, seen: SeenSession, request: StepRequest) -> Head | None:
    """Where the thread will stand with this commit; None if the state's own head counts."""
    if request.append is not None and request.appends:
        return await _find_head_after_append(store, seen, request.append)
    if request.head is None and isinstance(request.next_state, SessionState) and store.threads.here:
        there = await store.threads.find_standing(seen)
        return furthest_head(seen, request.next_state.head, there)
    return None


async def _find_head_after_append(store: SessionStoreBase, seen: SeenSession, append: StepAppend) -> Head:
    """Where a thread of the same store ends once the step is in it."""
    there = seen.view.thread
    if there is None or there.head == append.head or not store.threads.here:
        return head_after(append.head, append.messages)
    return (await _read_standing_step(store, append)).head


async def _read_standing_step(store: SessionStoreBase, append: StepAppend) -> Appended:
    """The step as it stands in the thread; nothing is written.

    Raises:
        HeadMovedError, IdempotencyConflictError: Something else stands there, or nothing.
        FencedError: A newer epoch has the thread.
    """
    view = await store.threads.store.step_view(
        append.thread_id,
        append.epoch,
        append.head,
        after=len(append.messages),
        limit=1,
        max_bytes=1,
        ids=0,
    )
    if not is_repeated_step(view.header, view.last_id_at_head, view.after, append):
        raise head_moved_error(view.header, append.head)
    if append.commits and not ends_turn(append, view.after):
        raise HeadMovedError(
            f"session {append.thread_id!r}: an earlier answer to this step stands, and asks for tools; "
            "the turn goes on from there",
            thread_id=append.thread_id,
        )
    return Appended(view.after, head_after(append.head, view.after), True, view.header)


async def _commit_with_thread(
    store: SessionStoreBase, call: Call, request: StepRequest, append: StepAppend
) -> tuple[CommitResult, Appended | None]:
    """Thread and session lie in one store: the step is part of the commit."""
    try:
        done = await _commit_state(store, call, request)
    except ThreadNotFoundError:
        # The thread may be cold.
        if (
            not store.threads.here
            or await store.threads.store.hydrate(append.thread_id, append.epoch) is None
        ):
            raise
        done = await _commit_state(store, call, request)
    if done.appended is not None and done.appended.head != done.answer.head:
        return await _correct_head(store, call, done.answer, done.appended), done.appended
    if done.appended is not None or not store.threads.here:
        return done.answer, done.appended
    appended = await _find_repeated_step(store, append)
    return with_own_head(done.answer, appended), appended


async def _correct_head(
    store: SessionStoreBase, call: Call, result: CommitResult, appended: Appended
) -> CommitResult:
    """Another attempt's answer came between look and commit, and stands: its head is what counts."""

    def decide(seen: SeenSession) -> Decision[int]:
        state = seen.present
        checkpoint = checkpoints.find_checkpoint(seen, result.checkpoint_id)
        puts = () if checkpoint is None else checkpoints.rows_with_head(checkpoint, appended.head)
        if state.head != result.head:
            return Decision(state.version, puts=puts)
        after = seen.next_state(head=appended.head)
        return Decision(after.version, after, puts=puts)

    wanted = WantedRows(keys=checkpoints.checkpoint_keys(result.checkpoint_id))
    version = await store.make_change(replace(call, operation_id=None), wanted, decide, int)
    return result.model_copy(update={"head": appended.head, "new_version": version})


async def _find_repeated_step(store: SessionStoreBase, append: StepAppend) -> Appended | None:
    """The step of a commit that was made before; None if the thread has been cut since."""
    try:
        return await _read_standing_step(store, append)
    except (HeadMovedError, ThreadNotFoundError):
        return None


async def _append_then_commit(
    store: SessionStoreBase, call: Call, request: StepRequest, append: StepAppend
) -> tuple[CommitResult, Appended | None]:
    """Threads lie elsewhere: the step is appended and flushed first, then the state is committed."""
    seen = await store.view_session(call.session_id, wanted_for_commit(request, thread=False))
    if call.operation_id is None or seen.state is None:
        # As in one unit: who was replaced learns that, whatever else is wrong.
        check_fence(seen, call)
    _ = seen.present
    first = first_result(seen, request)
    if first is not None:
        return first, await _find_repeated_step(store, append)
    # What would be refused is refused before the messages are there.
    check_fence(seen, call)
    decide_commit(seen, request, append.head)
    appended = await store.threads.append(append)
    await store.threads.store.flush(
        FlushThread(append.thread_id, append.epoch, mine=appended.head, commits=append.commits)
    )
    done = await _commit_state(store, call, with_head(request, appended.head))
    return done.answer, appended
