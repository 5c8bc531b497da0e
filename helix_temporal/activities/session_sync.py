"""The session store follows the thread, turn by turn: the I/O around `session.projection`.

`SessionSync` is the door: it opens a session's state, commits turns (`TurnCommits`), keeps calls that wait
(`SuspendedStates`), references to sub-agents' sessions (`SubAgentReferences`), and closes.  A state that was
lost, restored or left behind is brought to where its thread is.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from helix_temporal.activities._runtime import executing_workflow
from helix_temporal.activities.checkpoints import (
    find_committed_head,
    forked_state,
    has_head,
    latest_reachable_checkpoint,
    restore_checkpoint_once,
    restore_requested_checkpoint,
    state_at,
)
from helix_temporal.activities.runs import (
    ANY_STATUS,
    CutRun,
    Place,
    begin_run,
    end_run,
    give_up_run,
    run_alongside,
    run_under_way,
    tell_nobody,
    unknown_place,
)
from helix_temporal.activities.staging import drop_beyond, promote_what_fits, stage_tool_changes
from helix_temporal.activities.state_changes import recreate_state, save_change
from helix_temporal.activities.state_commits import TurnCommits, catch_up_state, lost_staging_note
from helix_temporal.activities.state_suspensions import SuspendedStates
from helix_temporal.activities.step_facts import older_copy_error
from helix_temporal.activities.sub_agent_references import SubAgentReferences
from helix_temporal.activities.traces import TurnTraces
from helix_temporal.errors import (
    HelixError,
    IdempotencyConflictError,
    PatchConflictError,
    SessionNotFoundError,
    StateBehindThreadError,
    ThreadBehindStateError,
    TooLargeError,
)
from helix_temporal.models.base import JsonObject, only_set
from helix_temporal.models.checkpoints import NewRun, RunStatus, StopKind
from helix_temporal.models.sessions import Receipt
from helix_temporal.models.states import (
    SessionProperties,
    SessionState,
    SessionStatus,
    TracingContext,
    check_not_expired,
    check_thread,
)
from helix_temporal.models.steps import (
    EndTurnInput,
    OpenSessionInput,
    RunStepInput,
    SaveValuesInput,
    ToolInput,
)
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.session.projection import (
    BEFORE_FIRST_TURN,
    FinalAnswer,
    TurnToCommit,
    end_of_run,
    make_new_session,
    project_end,
    values_if_small,
)
from helix_temporal.session.record import SessionRecord, find_request_behind, parse_record
from helix_temporal.stores.protocols.hot import Appended, HotHeader, StepAppend
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore
from helix_temporal.telemetry import metrics

_NOT_TOGETHER: Final = (
    # Lost, committed for a hot thread that is gone, restored, or what tools staged does not fit: the step
    # first, then its state.
    SessionNotFoundError,
    IdempotencyConflictError,
    StateBehindThreadError,
    PatchConflictError,
    TooLargeError,
)


@dataclass(frozen=True, slots=True)
class OpenedState:
    """What an open found in the session store.

    Attributes:
        values: The custom state.
        notes: What had to be put right, for the session's receipts.
        left: The run of a turn that an earlier execution left behind; those who watch were told.
        expires_at: When the session expires.
        tracing_context: Its caller's.
    """

    values: Mapping[str, Any]
    notes: tuple[Receipt, ...] = ()
    left: str | None = None
    expires_at: int | None = None
    tracing_context: TracingContext | None = None


@dataclass(frozen=True, slots=True)
class CommittedTurn:
    """A turn's last step and its state, committed in one unit.

    Attributes:
        values: The custom state, if staged changes of tools went into it.
    """

    appended: Appended
    values: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """The state of a turn is committed.

    Attributes:
        values: The custom state, if staged changes of tools went into it.
        notes: What had to be put right, for the session's receipts.
    """

    values: Mapping[str, Any] | None = None
    notes: tuple[Receipt, ...] = ()


class SessionSync:
    """Keeps a session's state in step with its thread.

    Args:
        together: The store once more, with the threads in it, where they lie with the sessions and
            without an archive: a turn's last step and its state are committed in one unit.
        backend: Names the store in metrics.
        traces: Who tells of turns that came to nothing.
    """

    def __init__(
        self,
        store: SessionStore,
        threads: ThreadStore,
        *,
        together: SessionStore | None = None,
        backend: str = metrics.OTHER,
        traces: TurnTraces | None = None,
    ) -> None:
        self._traces = traces or TurnTraces()
        self._store, self._threads, self._together = store, threads, together
        self._commits = TurnCommits(store, threads, together, backend)
        self.children, self.suspended = SubAgentReferences(store, self._traces), SuspendedStates(store)

    # -- open

    async def admit_request(self, request: OpenSessionInput) -> OpenSessionInput:
        """Check a request, and return it as it may be carried out: on the thread that the session has.

        One that has expired is opened if it is renewed; its own execution goes on.

        Raises:
            SessionExpiredError: It has expired.
            InvalidRequestError: Another thread is named.
        """
        if request.reopen is not None:
            return request
        state = await self._store.load_state(request.session_id)
        if request.properties is None or not request.properties.renews:
            await self._refuse_expired(request, state)
        if state is None:
            return request
        thread_id = state.messages_thread_id
        if request.names_thread or request.thread_id != request.session_id:
            check_thread(request.session_id, thread_id, request.thread_id)
        return request.model_copy(update={"thread_id": thread_id})

    async def _refuse_expired(self, request: OpenSessionInput, state: SessionState | None) -> None:
        states = [state]
        if state is not None and state.root_session_id is not None and request.parent is None:
            # Somebody wants something of a sub-agent's session itself.
            states.append(await self._store.load_state(state.root_session_id))
        for each in states:
            if each is not None and each.expires_at is not None:
                check_not_expired(each, await self._store.now())

    async def set_properties(
        self, session_id: str, properties: SessionProperties, epoch: int | None
    ) -> SessionState:
        """Set what is named; the state then.

        Raises:
            SessionNotFoundError: There is no such session.
            FencedError: A newer open has it.
        """
        changes = properties.changes()
        state = await save_change(
            self._store, session_id, epoch, lambda _: changes, "its properties were set"
        )
        if state is None:
            raise SessionNotFoundError(f"session {session_id!r} has no state; start it with ask")
        return state

    async def open(
        self,
        request: OpenSessionInput,
        header: HotHeader,
        record: SessionRecord,
        source: SessionState | None,
        tell: Callable[[str], Awaitable[None]] | None = None,
    ) -> OpenedState:
        """Create the state, or bring it where the thread is; takes the epoch in the session store.

        ``record`` is the thread's slice, ``source`` the state of the session that this one is a fork of.
        ``tell`` is told of a run that was left behind, before its end is stored.

        Raises:
            FencedError: A newer open has the session.
        """
        session_id, epoch = request.session_id, header.epoch
        notes: tuple[Receipt, ...] = ()
        # The epoch first: what is read after it no late attempt changes.
        with contextlib.suppress(SessionNotFoundError):
            await self._store.compare_and_set_status(
                session_id, ANY_STATUS, SessionStatus.ACTIVE, epoch=epoch, operation_id=f"open/{epoch}"
            )
        state = await self._store.load_state(session_id)
        if state is None:
            source = source or await forked_state(self._store, self._threads, header)
            state = await self._create_state(request, header, record, source)
            notes = () if source is not None else lost_staging_note(record, session_id)
        else:
            if await restore_requested_checkpoint(self._store, request, header, record):
                state = await self._load_state(session_id)
            if request.reopen is not None:
                state, notes = await self._follow_cut(request, state, header)
            elif header.head.position == header.committed:
                state, notes = await self._catch_up(request, state, header, record)
        if request.properties is not None and request.reopen is None:
            state = await self.set_properties(session_id, request.properties, epoch)
        left = await self._end_left_run(request, state, header, tell)
        values = values_if_small(state.custom_state)
        if values is None:
            note = f"{TooLargeError.__name__}: the custom state is too large to be shown; the thread's is"
            notes = (*notes, Receipt(name="state", ok=False, detail=note))
            values = record.values
        return OpenedState(values, notes, left, state.expires_at, state.tracing_context)

    async def _end_left_run(
        self,
        request: OpenSessionInput,
        state: SessionState,
        header: HotHeader,
        tell: Callable[[str], Awaitable[None]] | None,
    ) -> str | None:
        """Bring the session's run where the thread is; the run that an earlier execution left unfinished."""
        session_id, epoch, run_id = request.session_id, header.epoch, state.current_run_id
        await self.children.mark_cut(session_id, request.cut_children, epoch)
        if request.abandoned is not None:
            agent = None if has_whole_turn(request, header) else request.agent
            # A turn that was about to be run again has another run in the store.
            for each in {request.abandoned, run_id or request.abandoned}:
                cut = self._make_cut_run(session_id, each, RunStatus.ABORTED, epoch, agent)
                await give_up_run(self._store, cut)
            if agent is not None and run_id is None and await self.lacks_run(session_id, request.abandoned):
                metrics.record_turn(agent, RunStatus.ABORTED.value, 0)
            await self.children.abandon_all(session_id, epoch)
        elif run_id is not None and request.reopen is None and header.head.position == header.committed:
            if tell is not None:
                # First: an open that dies on its way is done again, and knows of the run no longer.
                await tell(run_id)
            cut = self._make_cut_run(session_id, run_id, RunStatus.SUPERSEDED, epoch, request.agent)
            await give_up_run(self._store, cut)
            await self.children.abandon_all(session_id, epoch)
            return run_id
        elif run_id is not None:
            await drop_beyond(self._store, session_id, run_id, header.head.position, epoch)
        return None

    def _make_cut_run(
        self, session_id: str, run_id: str, status: RunStatus, epoch: int, agent: str | None
    ) -> CutRun:
        """A run that is to be ended; without ``agent`` all of its turn is in the thread.

        Then the step that appended the turn's end tells of the turn, and nobody here does.
        """
        tell = tell_nobody if agent is None else self._traces.tell_cut
        return CutRun(session_id, run_id, status, epoch, agent, tell)

    async def _follow_cut(
        self, request: OpenSessionInput, state: SessionState, header: HotHeader
    ) -> tuple[SessionState, tuple[Receipt, ...]]:
        """The thread was opened again within a turn: it may have been cut below what was committed."""
        if state.head.position <= header.committed and await has_head(
            self._threads, header.thread_id, state.head, epoch=header.epoch
        ):
            return state, ()
        return await self._restore_latest_checkpoint(state, header, asked=request.abandoned is not None)

    async def find_fork_source(self, request: OpenSessionInput, header: HotHeader) -> SessionState | None:
        """The state of the session that is forked, as it was at that place; None if it has none."""
        if request.fork_from is None:
            return None
        return await state_at(self._store, self._threads, request.fork_from, header)

    async def _create_state(
        self, request: OpenSessionInput, header: HotHeader, record: SessionRecord, source: SessionState | None
    ) -> SessionState:
        options = make_new_session(
            request,
            record,
            source,
            at=await self._find_committed_head(header),
            forked_at=header.head,
            user_id=await self._find_user_of_caller(request),
        )
        return await self._store.create_session(
            request.session_id, options, if_not_exists=True, epoch=header.epoch
        )

    async def _find_user_of_caller(self, request: OpenSessionInput) -> str | None:
        """The user of the session that calls this one; None without a caller, or without its state."""
        if request.parent is None:
            return None
        caller = await self._store.load_state(request.parent.session_id)
        return None if caller is None else caller.user_id

    async def _catch_up(
        self, request: OpenSessionInput, state: SessionState, header: HotHeader, record: SessionRecord
    ) -> tuple[SessionState, tuple[Receipt, ...]]:
        if state.head == header.head:
            return state, ()
        behind = state.head.position < header.head.position
        if behind and await has_head(self._threads, header.thread_id, state.head, epoch=header.epoch):
            return await self._commit_missing_turns(state, header, record)
        # Asked for by this open, or by one that cut the thread and died.
        asked = request.rewind_to is not None or find_request_behind(record, header) is not None
        return await self._restore_latest_checkpoint(state, header, asked=asked)

    async def _commit_missing_turns(
        self, state: SessionState, header: HotHeader, record: SessionRecord
    ) -> tuple[SessionState, tuple[Receipt, ...]]:
        """The last turns are in the thread and their commits were lost: commit them from the slice."""
        answer = await self._answer_before(header)
        turn = TurnToCommit(
            state.session_id, header.thread_id, header.epoch, header.head, record, answer=answer
        )
        turn, notes = await catch_up_state(
            self._store, self._threads, turn, header.head.position, state.head.position
        )
        try:
            done = await self._commits.commit_turn(turn)
        except IdempotencyConflictError:
            await self._committed_before(state.session_id, header.epoch, header.head)
        else:
            notes = notes or done.notes
        return await self._load_state(state.session_id), notes

    async def _answer_before(self, header: HotHeader) -> FinalAnswer | None:
        """The answer that the thread ends with, if it does."""
        end = header.head.position
        page = await self._threads.read(
            ReadPage(header.thread_id, end - 1, end, limit=1, whole=False, epoch=header.epoch)
        )
        return FinalAnswer.at(page.messages[0] if page.messages else None, end - 1)

    async def _find_committed_head(self, header: HotHeader) -> Head:
        return await find_committed_head(self._threads, header)

    async def _restore_latest_checkpoint(
        self, state: SessionState, header: HotHeader, *, asked: bool
    ) -> tuple[SessionState, tuple[Receipt, ...]]:
        """The thread was cut, or lost turns: the newest checkpoint that it still holds counts.

        Raises:
            StoreUnavailableError: Not the thread as it was opened lacks them, but an older copy of it.
        """
        facts = await self._threads.read_facts(header.thread_id)
        if facts.head != header.head:
            raise older_copy_error(header.thread_id, header.head, facts.head)
        checkpoint = await latest_reachable_checkpoint(self._store, self._threads, state.session_id, header)
        if checkpoint is not None:
            await restore_checkpoint_once(self._store, state.session_id, checkpoint.id, header.epoch)
        if asked or checkpoint is None:
            # Whatever the thread has between, the state is that of this place now.
            at = await self._find_committed_head(header)
            changes = {"head": at} | (dict(BEFORE_FIRST_TURN) if asked and at == EMPTY else {})
            await save_change(self._store, state.session_id, header.epoch, lambda _: changes, "it went back")
        note = (
            f"{ThreadBehindStateError.__name__}: the state was at {state.head.position}, the thread holds "
            f"{header.head.position}; went back to "
            f"{'the checkpoint at ' + str(checkpoint.head.position) if checkpoint else 'the thread alone'}"
        )
        is_as_asked = asked and (checkpoint is not None or header.committed == 0)
        notes = () if is_as_asked else (Receipt(name="state", ok=False, detail=note),)
        return await self._load_state(state.session_id), notes

    async def _load_state(self, session_id: str) -> SessionState:
        state = await self._store.load_state(session_id)
        if state is None:
            raise _session_deleted_error(session_id)
        return state

    # -- turns

    async def begin_run(
        self, request: RunStepInput, record: SessionRecord, place: Place = unknown_place
    ) -> None:
        """Record the run of a turn; see `begin_run`.

        Raises:
            FencedError: A newer open has the session.
        """
        if request.run_id is not None:
            run = NewRun(
                run_id=request.run_id,
                start_sequence=await place(),
                start_head=request.head,
                **only_set(trace=self._traces.find_turn(request, record)),
                **executing_workflow(),
            )
            await begin_run(self._store, request, run, record, self._traces.tell_cut)

    @contextlib.asynccontextmanager
    async def recording_run(
        self, request: RunStepInput, record: SessionRecord, place: Place = unknown_place
    ) -> AsyncIterator[None]:
        """Record the run of a turn while the block asks the model and appends its answer.

        An answer that was appended stays, even where this store is down: a repeat of the step finds it and
        records the run.  Where the answer is committed together with the state, the run is recorded first.

        Raises:
            FencedError: A newer open has the session.
        """
        if self._together is not None:
            await self.begin_run(request, record, place)
            yield
            return
        async with run_alongside(self.begin_run(request, record, place)):
            yield

    async def is_live(self, session_id: str, run_id: str) -> bool:
        """Whether a run has not ended, as far as this store knows."""
        run = await self._store.get_run(session_id, run_id)
        return run is None or run.status.live

    async def find_stop_request(self, request: RunStepInput) -> StopKind | None:
        """Whether somebody asked the store to stop this run."""
        if request.run_id is None:
            return None
        asked = await self._store.get_stop_request(request.session_id, request.run_id)
        return None if asked is None else asked.kind

    async def stage_changes(self, request: ToolInput, changes: JsonObject) -> str:
        """Keep aside what a tool changes of the state; the same call again replaces it."""
        return await stage_tool_changes(self._store, self._threads, request, changes)

    async def append_last_step(
        self, step: StepAppend, request: RunStepInput | EndTurnInput
    ) -> CommittedTurn | None:
        """Append the last step of a turn and commit its state with it; None where that is not possible."""
        own = step.commits and step.thread_id == request.session_id
        if self._together is None or not own or not step.slice:
            return None
        record, session_id = parse_record(step.slice), request.session_id
        try:
            turn = TurnToCommit(
                session_id, session_id, request.epoch, None, record, *end_of_run(request),
                answer=FinalAnswer.at(step.answer, step.head.position + len(step.inputs)),
            )  # fmt: skip
            done = await self._commits.commit_turn(turn, step)
        except _NOT_TOGETHER:
            return None
        if done.appended is None:
            return None
        return CommittedTurn(done.appended, await self._load_promoted_values(session_id, done.promoted))

    async def finish_turn(
        self, request: RunStepInput | EndTurnInput, appended: Appended, record: SessionRecord
    ) -> FinishedTurn:
        """Commit the state of a turn that is in the thread; a repeat finds it committed.

        Raises:
            FencedError: A newer open has the session.
        """
        if appended.head.position < appended.header.committed:
            # Found again after a reset: the turns after it were committed, and it with them.
            return FinishedTurn()
        session_id, epoch = request.session_id, request.epoch
        thread_id = request.thread_id or session_id
        last = appended.messages[-1] if appended.messages else None
        answer = FinalAnswer.at(last, appended.head.position - 1)
        turn = TurnToCommit(
            session_id, thread_id, epoch, appended.head, record, *end_of_run(request), answer=answer
        )
        try:
            done = await self._commits.commit_turn(turn)
        except SessionNotFoundError:
            await recreate_state(self._store, session_id, epoch, record, appended.head)
            done = await self._commits.commit_turn(turn)
        except IdempotencyConflictError:
            # An attempt that died half way may have left what it had to promote by itself.
            await promote_what_fits(self._store, turn)
            return FinishedTurn(await self._committed_before(session_id, epoch, appended.head))
        return FinishedTurn(await self._load_promoted_values(session_id, done.promoted), done.notes)

    async def _committed_before(self, session_id: str, epoch: int, head: Head) -> Mapping[str, Any] | None:
        """The turn was committed: with this very step, or with one that the thread has lost since."""
        state = await save_change(
            self._store, session_id, epoch, lambda _: {"head": head}, "its turn was committed"
        )
        if state is None:
            raise _session_deleted_error(session_id)
        return values_if_small(state.custom_state)

    async def _load_promoted_values(self, session_id: str, promoted: int) -> Mapping[str, Any] | None:
        return values_if_small((await self._load_state(session_id)).custom_state) if promoted else None

    # -- end

    async def run_under_way(self, session_id: str, named_run: str | None = None) -> str | None:
        """See `run_under_way`."""
        return await run_under_way(self._store, session_id, named_run)

    async def lacks_run(self, session_id: str, run_id: str) -> bool:
        """Whether a turn came to its end before its run was begun: metrics alone ask, so not without them."""
        return metrics.find_meter() is not None and await self._store.get_run(session_id, run_id) is None

    async def save_end(self, request: SaveValuesInput) -> None:
        """Store how the session ended.

        Where a step may still be running somewhere, its epoch is shut here as it is in the thread.
        """
        if request.status is None or request.session_id is None:
            return
        status = SessionStatus(request.status)
        epoch = request.epoch + 1 if request.ends_run else request.epoch
        await self.children.mark_cut(request.session_id, request.cut_children, epoch)
        state = await self._store.load_state(request.session_id)
        if state is None:
            return  # lost by its store, or deleted: an open would make it again
        if request.ends_run:
            await self.children.abandon_all(request.session_id, epoch)
        if state.current_run_id is not None and request.ends_run:
            ended = RunStatus.FAILED if status is SessionStatus.FAILED else RunStatus.INTERRUPTED
            is_whole = await self._is_whole(request.thread_id, state.current_run_id)
            agent = None if is_whole else state.agent_type
            cut = self._make_cut_run(request.session_id, state.current_run_id, ended, epoch, agent)
            await end_run(self._store, cut)

        await save_change(
            self._store,
            request.session_id,
            epoch,
            lambda state: project_end(state, request, status),
            "its end was saved",
        )
        if request.ends_run:
            # A late step may have said that its calls wait, when nobody waited for it any more.
            await self.suspended.drop_waiting(request.session_id, epoch)

    async def _is_whole(self, thread_id: str, run_id: str) -> bool:
        """Whether all of a turn is in the thread: then the step that appended its end tells of it.

        Telemetry alone asks, so nobody else waits for the answer, or fails for want of one.
        """
        if self._traces.emitter is None and metrics.find_meter() is None:
            return False
        try:
            facts = await self._threads.read_facts(thread_id)
        except HelixError:
            return False
        return facts.head.position == facts.committed and parse_record(facts.slice).run == run_id


def has_whole_turn(request: OpenSessionInput, header: HotHeader) -> bool:
    """Whether the turn that an open was to cut had come to its end before: then all of it stays."""
    return request.reopen is not None and header.committed > request.reopen.turn_start.position


def _session_deleted_error(session_id: str) -> SessionNotFoundError:
    return SessionNotFoundError(f"session {session_id!r} was deleted while it was being opened")
