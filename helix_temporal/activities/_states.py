"""The session store's part in a session: its state follows the thread, turn by turn.

The thread is appended first, with the slice that says what the turn changed; the state is committed
after it.  So a state may lag behind its thread by the turn whose commit was lost, and is then brought
forward from the slice; it is ahead only of a thread that lost what it had acknowledged (an unsafe
Redis, ``flush="exit"``), and then goes back to a checkpoint that the thread still holds.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from helix_temporal.activities import _state_runs, _state_staging
from helix_temporal.activities._state_back import go_back, went_back
from helix_temporal.activities._state_behind import lost_staging_note
from helix_temporal.activities._state_children import ChildRefs, new_session
from helix_temporal.activities._state_commits import TurnCommits
from helix_temporal.activities._state_place import (
    BEFORE_FIRST_TURN,
    finished,
    forked_state,
    held_checkpoint,
    holds,
    state_at,
)
from helix_temporal.activities._state_saves import save_change
from helix_temporal.activities._state_suspensions import SuspendedStates
from helix_temporal.activities._state_turns import FinalAnswer, Turn, ending, with_changes
from helix_temporal.activities._step_rules import went_elsewhere
from helix_temporal.activities._tidying import asked_for
from helix_temporal.errors import (
    IdempotencyConflictError,
    PatchConflictError,
    SessionNotFoundError,
    StateBehindThreadError,
    ThreadBehindStateError,
    TooLargeError,
)
from helix_temporal.models._json import JsonObject
from helix_temporal.models.records import EMPTY, Head
from helix_temporal.models.runs import RunStatus, StopKind
from helix_temporal.models.sessions import Receipt, SliceState
from helix_temporal.models.states import (
    ErrorInfo,
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
from helix_temporal.stores.protocols.hot import Appended, HotHeader, StepAppend
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore

_ANY: Final = frozenset(SessionStatus)
_NOT_TOGETHER: Final = (
    # Lost, committed for a record that is gone, restored, or what tools staged does not fit: the step first,
    # then its state.
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


class StateKeeper:
    """Keeps a session's state in step with its thread.

    Args:
        together: The store once more, with the threads in it, where they lie with the sessions and
            without an archive: a turn's last step and its state are committed in one unit.
    """

    def __init__(
        self, store: SessionStore, threads: ThreadStore, *, together: SessionStore | None = None
    ) -> None:
        self._store, self._threads, self._together = store, threads, together
        self._commits = TurnCommits(store, threads, together)
        self.children, self.suspended = ChildRefs(store), SuspendedStates(store)

    # -- open

    async def admitted(self, request: OpenSessionInput) -> OpenSessionInput:
        """The request as it may be carried out: on the thread that the session has.

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
        thread_id = state.thread_id or request.session_id
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
        kept: SliceState,
        source: SessionState | None,
        tell: Callable[[str], Awaitable[None]] | None = None,
    ) -> OpenedState:
        """Create the state, or bring it where the thread is; takes the epoch in the session store.

        ``kept`` is the thread's slice, ``source`` the state of the session that this one is a fork of.
        ``tell`` is told of a run that was left behind, before its end is stored.

        Raises:
            FencedError: A newer open has the session.
        """
        session_id, epoch = request.session_id, header.epoch
        notes: tuple[Receipt, ...] = ()
        # The epoch first: what is read after it no late attempt changes.
        with contextlib.suppress(SessionNotFoundError):
            await self._store.compare_and_set_status(
                session_id, _ANY, SessionStatus.ACTIVE, epoch=epoch, operation_id=f"open/{epoch}"
            )
        state = await self._store.load_state(session_id)
        if state is None:
            source = source or await forked_state(self._store, self._threads, header)
            state = await self._create(request, header, kept, source)
            notes = () if source is not None else lost_staging_note(kept, session_id)
        else:
            if await went_back(self._store, request, header, kept):
                state = await self._loaded(session_id)
            if request.reopen is not None:
                state, notes = await self._follow_cut(request, state, header)
            elif header.head.position == header.committed:
                state, notes = await self._catch_up(request, state, header, kept)
        if request.properties is not None and request.reopen is None:
            state = await self.set_properties(session_id, request.properties, epoch)
        left = await self._settle_run(request, state, header, tell)
        values = _state_staging.shown(state.custom_state)
        if values is None:
            note = f"{TooLargeError.__name__}: the custom state is too large to be shown; the thread's is"
            notes = (*notes, Receipt(name="state", ok=False, detail=note))
            values = kept.values
        return OpenedState(values, notes, left, state.expires_at, state.tracing_context)

    async def _settle_run(
        self,
        request: OpenSessionInput,
        state: SessionState,
        header: HotHeader,
        tell: Callable[[str], Awaitable[None]] | None,
    ) -> str | None:
        session_id, epoch, run_id = request.session_id, header.epoch, state.current_run_id
        await self.children.cut(session_id, request.cut_children, epoch)
        if request.abandoned is not None:
            # A turn that was about to be run again has another run in the store.
            for each in {request.abandoned, run_id or request.abandoned}:
                await _state_runs.give_up_run(self._store, session_id, each, RunStatus.ABORTED, epoch)
            await self.children.left(session_id, epoch)
        elif run_id is not None and request.reopen is None and header.head.position == header.committed:
            if tell is not None:
                # First: an open that dies on its way is done again, and knows of the run no longer.
                await tell(run_id)
            await _state_runs.give_up_run(self._store, session_id, run_id, RunStatus.SUPERSEDED, epoch)
            await self.children.left(session_id, epoch)
            return run_id
        elif run_id is not None:
            await _state_staging.drop_beyond(self._store, session_id, run_id, header.head.position, epoch)
        return None

    async def _follow_cut(
        self, request: OpenSessionInput, state: SessionState, header: HotHeader
    ) -> tuple[SessionState, tuple[Receipt, ...]]:
        """The thread was opened again within a turn: it may have been cut below what was committed."""
        if state.head.position <= header.committed and await holds(
            self._threads, request.thread_id, state.head
        ):
            return state, ()
        return await self._back(state, header, asked=request.abandoned is not None)

    async def source(self, request: OpenSessionInput, header: HotHeader) -> SessionState | None:
        """The state of the session that is forked, as it was at that place; None if it has none."""
        if request.fork_from is None:
            return None
        return await state_at(self._store, self._threads, request.fork_from, header)

    async def _create(
        self, request: OpenSessionInput, header: HotHeader, kept: SliceState, source: SessionState | None
    ) -> SessionState:
        options = new_session(request, header, kept, source, await self._finished(header))
        return await self._store.create_session(
            request.session_id, options, if_not_exists=True, epoch=header.epoch
        )

    async def _catch_up(
        self, request: OpenSessionInput, state: SessionState, header: HotHeader, kept: SliceState
    ) -> tuple[SessionState, tuple[Receipt, ...]]:
        if state.head == header.head:
            return state, ()
        behind = state.head.position < header.head.position
        if behind and await holds(self._threads, request.thread_id, state.head):
            return await self._forward(state, header, kept)
        # Asked for by this open, or by one that cut the thread and died.
        asked = request.rewind_to is not None or asked_for(kept, header) is not None
        return await self._back(state, header, asked=asked)

    async def _forward(
        self, state: SessionState, header: HotHeader, kept: SliceState
    ) -> tuple[SessionState, tuple[Receipt, ...]]:
        """The last turns are in the thread and their commits were lost: commit them from the slice."""
        answer = await self._answer_before(header)
        turn = Turn(state.session_id, header.thread_id, header.epoch, header.head, kept, answer=answer)
        turn, notes = await self._commits.bring(turn, header.head.position, state.head.position)
        try:
            done = await self._commits.commit(turn)
        except IdempotencyConflictError:
            await self._committed_before(state.session_id, header.epoch, header.head)
        else:
            notes = notes or done.notes
        return await self._loaded(state.session_id), notes

    async def _answer_before(self, header: HotHeader) -> FinalAnswer | None:
        """The answer that the thread ends with, if it does."""
        end = header.head.position
        page = await self._threads.read(ReadPage(header.thread_id, end - 1, end, limit=1, whole=False))
        return FinalAnswer.at(page.records[0] if page.records else None, end - 1)

    async def _finished(self, header: HotHeader) -> Head:
        return await finished(self._threads, header.thread_id, header.head, header.committed)

    async def _back(
        self, state: SessionState, header: HotHeader, *, asked: bool
    ) -> tuple[SessionState, tuple[Receipt, ...]]:
        """The thread was cut, or lost turns: the newest checkpoint that it still holds counts.

        Raises:
            StoreUnavailableError: Not the thread as it was opened lacks them, but an older copy of it.
        """
        facts = await self._threads.facts(header.thread_id)
        if facts.head != header.head:
            raise went_elsewhere(header.thread_id, header.head, facts.head)
        checkpoint = await held_checkpoint(self._store, self._threads, state.session_id, header)
        if checkpoint is not None:
            await go_back(self._store, state.session_id, checkpoint.id, header.epoch)
        if asked or checkpoint is None:
            # Whatever the thread has between, the state is that of this place now.
            at = await self._finished(header)
            changes = {"head": at} | (dict(BEFORE_FIRST_TURN) if asked and at == EMPTY else {})
            await save_change(self._store, state.session_id, header.epoch, lambda _: changes, "it went back")
        note = (
            f"{ThreadBehindStateError.__name__}: the state was at {state.head.position}, the thread holds "
            f"{header.head.position}; went back to "
            f"{'the checkpoint at ' + str(checkpoint.head.position) if checkpoint else 'the thread alone'}"
        )
        is_as_asked = asked and (checkpoint is not None or header.committed == 0)
        notes = () if is_as_asked else (Receipt(name="state", ok=False, detail=note),)
        return await self._loaded(state.session_id), notes

    async def _loaded(self, session_id: str) -> SessionState:
        state = await self._store.load_state(session_id)
        if state is None:
            raise _deleted(session_id)
        return state

    # -- turns

    async def begin(
        self, request: RunStepInput, kept: SliceState, place: _state_runs.Place = _state_runs.unknown
    ) -> None:
        """Record the run of a turn; see `begin_run`.

        Raises:
            FencedError: A newer open has the session.
        """
        if request.run_id is not None:
            await _state_runs.begin_run(self._store, request, request.run_id, kept, await place())

    @contextlib.asynccontextmanager
    async def beginning(
        self, request: RunStepInput, kept: SliceState, place: _state_runs.Place = _state_runs.unknown
    ) -> AsyncIterator[None]:
        """Record the run of a turn while what is done within goes on; at the end it is recorded.

        What is done within asks the model and appends its answer: one that is there has been paid for once,
        even where this store is down, and a repeat of the step, which finds it, records the run.  Where
        the answer is committed with the state, the run comes first.

        Raises:
            FencedError: A newer open has the session.
        """
        if self._together is not None:
            await self.begin(request, kept, place)
            yield
            return
        async with _state_runs.beside(self.begin(request, kept, place)):
            yield

    async def is_live(self, session_id: str, run_id: str) -> bool:
        """Whether a run has not ended, as far as this store knows."""
        run = await self._store.get_run(session_id, run_id)
        return run is None or run.status.live

    async def stop_asked(self, request: RunStepInput) -> StopKind | None:
        """Whether somebody asked the store to stop this run."""
        if request.run_id is None:
            return None
        asked = await self._store.get_stop_request(request.session_id, request.run_id)
        return None if asked is None else asked.kind

    async def stage(self, request: ToolInput, changes: JsonObject) -> str:
        """Keep aside what a tool changes of the state; the same call again replaces it."""
        return await _state_staging.stage(self._store, self._threads, request, changes)

    async def append(self, step: StepAppend, request: RunStepInput | EndTurnInput) -> CommittedTurn | None:
        """Append the last step of a turn and commit its state with it; None where that is not possible."""
        own = step.commits and step.thread_id == request.session_id
        if self._together is None or not own or not step.slice:
            return None
        kept, session_id = SliceState.model_validate_json(step.slice), request.session_id
        try:
            turn = Turn(
                session_id, session_id, request.epoch, None, kept, *ending(request),
                append=step, answer=FinalAnswer.at(step.answer, step.head.position + len(step.inputs)),
            )  # fmt: skip
            done = await self._commits.commit(turn)
        except _NOT_TOGETHER:
            return None
        if done.appended is None:
            return None
        return CommittedTurn(done.appended, await self._promoted(session_id, done.promoted))

    async def finish(
        self, request: RunStepInput | EndTurnInput, appended: Appended, kept: SliceState
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
        last = appended.records[-1] if appended.records else None
        answer = FinalAnswer.at(last, appended.head.position - 1)
        turn = Turn(session_id, thread_id, epoch, appended.head, kept, *ending(request), answer=answer)
        try:
            done = await self._commits.commit(turn)
        except SessionNotFoundError:
            await _state_staging.revive(self._store, session_id, epoch, kept, appended.head)
            done = await self._commits.commit(turn)
        except IdempotencyConflictError:
            # An attempt that died half way may have left what it had to promote by itself.
            await _state_staging.promote_what_fits(self._store, turn)
            return FinishedTurn(await self._committed_before(session_id, epoch, appended.head))
        return FinishedTurn(await self._promoted(session_id, done.promoted), done.notes)

    async def _committed_before(self, session_id: str, epoch: int, head: Head) -> Mapping[str, Any] | None:
        """The turn was committed: with this very step, or with one that the thread has lost since."""
        state = await save_change(
            self._store, session_id, epoch, lambda _: {"head": head}, "its turn was committed"
        )
        if state is None:
            raise _deleted(session_id)
        return _state_staging.shown(state.custom_state)

    async def _promoted(self, session_id: str, promoted: int) -> Mapping[str, Any] | None:
        return _state_staging.shown((await self._loaded(session_id)).custom_state) if promoted else None

    # -- end

    async def run_under_way(self, session_id: str, known: str | None = None) -> str | None:
        """See `run_under_way`."""
        return await _state_runs.run_under_way(self._store, session_id, known)

    async def close(self, request: SaveValuesInput) -> None:
        """Store how the session ended.

        Where a step may still be running somewhere, its epoch is shut here as it is in the thread.
        """
        if request.status is None or request.session_id is None:
            return
        status = SessionStatus(request.status)
        epoch = request.epoch + 1 if request.ends_run else request.epoch
        await self.children.cut(request.session_id, request.cut_children, epoch)
        state = await self._store.load_state(request.session_id)
        if state is None:
            return  # lost by its store, or deleted: an open would make it again
        if request.ends_run:
            await self.children.left(request.session_id, epoch)
        if state.current_run_id is not None and request.ends_run:
            ended = RunStatus.FAILED if status is SessionStatus.FAILED else RunStatus.INTERRUPTED
            await _state_runs.end_run(self._store, request.session_id, state.current_run_id, ended, epoch)

        def closed(state: SessionState) -> Mapping[str, Any]:
            update: dict[str, Any] = {"status": status, "failure_reason": None, "error": None}
            if request.error is not None:
                update |= {"failure_reason": "error", "error": ErrorInfo(message=request.error)}
            if request.values is not None:
                update["custom_state"] = with_changes(state.custom_state, request.values, request.changed)
            return update

        await save_change(self._store, request.session_id, epoch, closed, "its end was saved")
        if request.ends_run:
            # A step that asks may have come to saying so when nobody waited for it: not from here on.
            await self.suspended.dropped(request.session_id, epoch)


def _deleted(session_id: str) -> SessionNotFoundError:
    return SessionNotFoundError(f"session {session_id!r} was deleted while it was being opened")
