"""The session store follows the thread, turn by turn: the I/O around `session.projection`.

`StateKeeper` is the door: it opens a session's state, commits turns (`TurnCommits`), keeps calls that wait
(`SuspendedStates`) and references to sub-agents' sessions (`ChildRefs`), and closes.  A state that was lost,
restored or left behind is brought to where its thread is.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from helix_temporal.activities.standing_step import went_elsewhere
from helix_temporal.activities.subagents import agent_calls
from helix_temporal.agents import Agent
from helix_temporal.errors import (
    CheckpointNotFoundError,
    IdempotencyConflictError,
    InvalidRequestError,
    PatchConflictError,
    SessionNotFoundError,
    StaleStateError,
    StateBehindThreadError,
    StoreUnavailableError,
    ThreadBehindStateError,
    TooLargeError,
)
from helix_temporal.models.base import JsonObject, canonical_json
from helix_temporal.models.checkpoints import (
    CheckpointMeta,
    NewRun,
    RunChange,
    RunRecorded,
    RunStatus,
    StagedChange,
    StepCommit,
    StopKind,
)
from helix_temporal.models.messages import Message
from helix_temporal.models.records import EMPTY, Head, Kind
from helix_temporal.models.sessions import ForkFrom, Receipt, SuspendedTurn
from helix_temporal.models.states import (
    CreateSession,
    SessionProperties,
    SessionState,
    SessionStatus,
    SubSessionRef,
    TracingContext,
    check_not_expired,
    check_thread,
)
from helix_temporal.models.steps import (
    EndTurnInput,
    OpenSessionInput,
    RunStepInput,
    SaveValuesInput,
    StepInput,
    ToolInput,
)
from helix_temporal.models.store_calls import MAX_LIMIT
from helix_temporal.models.waiting import (
    AnswerReceipt,
    CallOutcome,
    Suspension,
    WaitingCall,
    is_child_id,
)
from helix_temporal.session.projection import (
    BEFORE_FIRST_TURN,
    GIVEN_UP,
    FinalAnswer,
    MissingTurns,
    TurnToCommit,
    count_unknown_turns,
    end_of_run,
    is_at_work,
    list_cut_refs,
    list_still_pending,
    list_told_calls,
    make_ended_ref,
    make_new_session,
    project_answers,
    project_call_owners,
    project_end,
    project_no_suspension,
    project_resumption,
    project_suspension,
    project_waiting_child,
    project_waiting_children,
    project_without_children,
    read_answer,
    values_if_small,
)
from helix_temporal.session.record import (
    SessionRecord,
    check_values,
    find_request_behind,
    list_missing_changes,
    parse_record,
)
from helix_temporal.stores.protocols.hot import Appended, HotHeader, StepAppend
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore
from helix_temporal.stores.threads.hot_only import made_as


async def went_back(
    store: SessionStore, request: OpenSessionInput, header: HotHeader, kept: SessionRecord
) -> bool:
    """Go back to the checkpoint that was asked for, by this open or by one that cut the thread and died.

    Returns:
        Whether there is such a checkpoint.

    Raises:
        CheckpointNotFoundError: The one that this open names was removed meanwhile.
    """
    asked = find_request_behind(kept, header)
    checkpoint_id = request.checkpoint or (asked.checkpoint if asked is not None else None)
    if checkpoint_id is None:
        return False
    first = header.epoch if asked is None else asked.epoch
    try:
        await go_back(store, request.session_id, checkpoint_id, header.epoch, first=first)
    except CheckpointNotFoundError:
        if request.checkpoint is not None:
            raise
        return False
    return True


async def go_back(
    store: SessionStore, session_id: str, checkpoint_id: str, epoch: int, *, first: int | None = None
) -> None:
    """Restore a checkpoint, once for the open of epoch ``first`` (this one) and those that finish it."""
    await store.restore_checkpoint(
        session_id, checkpoint_id, epoch=epoch, operation_id=f"back/{first or epoch}"
    )


_PAGE: Final = 500
_PAGE_BYTES: Final = 4 * 1024 * 1024
_MAX_PAGES: Final = 40
"""Turns beyond so many pages of messages are brought forward, but not counted."""
_STEPS: Final = frozenset({Kind.ANSWER, Kind.CALLS})

_log: Final = logging.getLogger(__name__)


async def catch_up_state(
    store: SessionStore, threads: ThreadStore, turn: TurnToCommit, stop: int, at: int
) -> tuple[TurnToCommit, tuple[Receipt, ...]]:
    """The newest turn, which ends at ``stop``, with what those before it changed since ``at``.

    Returns:
        The turn to commit, and what is to be said of it; nothing where only the newest
        turn was missing, and the slice has all of its changes.
    """
    kept = turn.kept
    starts, steps = await _scan_turns(threads, turn.thread_id, at, stop)
    if kept.changes is None and len(starts) <= 1:
        return turn, ()
    unknown = count_unknown_turns(kept, starts) + await _lost_staging(store, turn)
    behind = MissingTurns(at, list_missing_changes(kept, at, stop), steps)
    is_news = len(starts) > 1 or unknown
    notes = (_report_catch_up(turn.session_id, at, len(starts), unknown),) if is_news else ()
    return replace(turn, behind=behind), notes


def lost_staging_note(kept: SessionRecord, session_id: str) -> tuple[Receipt, ...]:
    """What a state lacks that is made again from its thread's slice: what tools of the newest turn staged."""
    if kept.changes is None or not kept.changes.staged:
        return ()
    found = (
        f"{StateBehindThreadError.__name__}: the state was gone, and was made again from its thread; what "
        "tools changed in it in the newest turn is not, or not all, known"
    )
    _log.warning("session %r: %s", session_id, found)
    return (Receipt(name="state", ok=False, detail=found),)


async def _lost_staging(store: SessionStore, turn: TurnToCommit) -> bool:
    """Whether tools of the newest turn changed the state, and its store has lost that."""
    changes = turn.kept.changes
    if changes is None or not changes.staged or turn.run_id is None:
        return False
    rows = await store.list_staged(turn.session_id, turn.run_id)
    return not {*changes.staged} <= {row.change.result for row in rows}


def _report_catch_up(session_id: str, at: int, turns: int, unknown: int) -> Receipt:
    found = f"the state stood at {at}, {turns} turns before its thread, and was brought forward"
    if unknown:
        missing = f"; what {unknown} of them changed in it is not, or not all, known"
        found = f"{StateBehindThreadError.__name__}: {found}{missing}"
    _log.warning("session %r: %s", session_id, found)
    return Receipt(name="state", ok=not unknown, detail=found)


async def _scan_turns(threads: ThreadStore, thread_id: str, at: int, stop: int) -> tuple[list[int], int]:
    """Where the turns between two places begin, and how many model calls they have."""
    starts, steps, position, last = [at] if at < stop else [], 0, at, Kind.USER
    for _ in range(_MAX_PAGES):
        page = await threads.read(
            ReadPage(
                thread_id,
                position,
                stop,
                limit=_PAGE,
                max_bytes=_PAGE_BYTES,
                committed_only=False,
                whole=False,
            )
        )
        for record in page.records:
            if record.kind == Kind.USER != last:
                starts.append(position)
            steps += record.kind in _STEPS
            last, position = record.kind, position + 1
        if position >= stop or not page.records:
            break
    return starts, steps


async def held_checkpoint(
    store: SessionStore, threads: ThreadStore, session_id: str, header: HotHeader
) -> CheckpointMeta | None:
    """The newest checkpoint whose head is among the thread's finished turns."""
    cursor = None
    while True:
        page = await store.list_checkpoints(session_id, limit=MAX_LIMIT, cursor=cursor)
        for each in page.items:
            reached = each.superseded_by is None and each.head.position <= header.committed
            if reached and await has_head(threads, header.thread_id, each.head):
                return each
        if page.next_cursor is None:
            return None
        cursor = page.next_cursor


async def state_at(
    store: SessionStore, threads: ThreadStore, origin: ForkFrom, header: HotHeader
) -> SessionState | None:
    """The state of a session that is forked as it was where the fork, ``header``, ends.

    It is that of the newest checkpoint that the fork holds, the present one where no checkpoint tells,
    and at the beginning one that no turn has changed.
    """
    present = await store.load_state(origin.thread_id)
    if present is None or origin.at is None or origin.at >= present.head.position:
        return present
    if origin.at == 0:
        return present.model_copy(update=BEFORE_FIRST_TURN)
    found = await held_checkpoint(store, threads, origin.thread_id, header)
    if found is None:
        return present
    checkpoint = await store.get_checkpoint(origin.thread_id, found.id)
    return present if checkpoint is None else checkpoint.state


async def forked_state(store: SessionStore, threads: ThreadStore, header: HotHeader) -> SessionState | None:
    """The state for a thread that was forked before there was a session, unless it has gone on since."""
    made = made_as(header.origin)
    if made is None or made.head != header.head:
        return None
    origin = ForkFrom(thread_id=made.source_id, at=made.head.position)
    return await state_at(store, threads, origin, header)


async def has_head(threads: ThreadStore, thread_id: str, head: Head) -> bool:
    """Whether the thread has the head's message at its place."""
    if head.position == 0:
        return True
    at = head.position - 1
    page = await threads.read(
        ReadPage(thread_id, at, head.position, limit=1, committed_only=False, whole=False)
    )
    return bool(page.records) and page.records[0].id == head.last_id


async def find_committed_head(threads: ThreadStore, thread_id: str, head: Head, committed: int) -> Head:
    """Where the finished turns of a thread end, which stands at ``head``."""
    if head.position == committed:
        return head
    if committed == 0:
        return EMPTY
    page = await threads.read(
        ReadPage(thread_id, committed - 1, committed, limit=1, committed_only=False, whole=False)
    )
    return Head(position=committed, last_id=page.records[0].id) if page.records else EMPTY


_TRIES: Final = 5


async def save_change(
    store: SessionStore,
    session_id: str,
    epoch: int | None,
    change: Callable[[SessionState], Mapping[str, Any]],
    during: str,
) -> SessionState | None:
    """Save what ``change`` makes of the state; the state then, or None where there is none.

    Raises:
        FencedError: A newer open has the session.
        StoreUnavailableError: Somebody was faster each time.
    """
    for _ in range(_TRIES):
        state = await store.load_state(session_id)
        if state is None:
            return None
        changed = state.model_copy(update=change(state))
        if changed == state:
            return state
        try:
            await store.save_state(session_id, changed, epoch=epoch)
        except StaleStateError:
            continue
        return changed
    raise StoreUnavailableError(f"session {session_id!r}: its state changed {_TRIES} times while {during}")


_TELLINGS: Final = 5


class ChildRefs:
    """Keeps the references of parents to their sub-agents' sessions; every call may be repeated."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def called(self, agent: Agent, request: RunStepInput, answer: Message) -> None:
        """An answer asks for tools: those that are agents have sessions from now on."""
        refs = _build_child_refs(agent, request, answer)
        if refs:
            # A store that has lost the session gets it back with its next turn.
            with contextlib.suppress(SessionNotFoundError):
                await self._store.add_sub_session_refs(request.session_id, refs, epoch=request.epoch)

    async def answered(self, request: RunStepInput | EndTurnInput) -> None:
        """Results that are in the thread now: the sessions that gave them have ended."""
        session_id, epoch = request.session_id, request.epoch
        ends = [make_ended_ref(each, request.run_id) for each in request.inputs if each.child is not None]
        refs = [each for each in ends if each.agent_type]
        if refs:
            with contextlib.suppress(SessionNotFoundError):
                await self._store.add_sub_session_refs(session_id, refs, epoch=epoch)
        for each in ends:
            if not each.agent_type:
                await self._set_child_status(session_id, each.sub_session_id, each.status, epoch)
        await self._drop_child_waits(
            session_id, [each for each in ends if each.status is not SessionStatus.COMPLETED]
        )
        killed = [each.child for each in request.inputs if each.child is not None and each.child.killed]
        for child in killed:
            await self._pass_over(child.session_id)

    async def cut(self, session_id: str, children: Sequence[str], epoch: int) -> None:
        """Calls that were cut off with their turn."""
        for child in children:
            await self._set_child_status(session_id, child, SessionStatus.INTERRUPTED, epoch)
        await self._drop_child_waits(session_id, [SubSessionRef(sub_session_id=child) for child in children])

    async def left(self, session_id: str, epoch: int | None) -> None:
        """A run was left without its end: its children have ended, or whoever ended it ended them.

        One that had answered says so itself: its answer is in no step of the run.  One whose session had
        ended since it waits for people is waited for by nobody any more, nor are those below it.
        """
        for ref in await self._store.list_sub_session_refs(session_id):
            if is_at_work(ref):
                await self._abandon_child(session_id, ref, epoch)

    async def settle(
        self, session_id: str, epoch: int, called: Callable[[], Awaitable[Collection[str]]]
    ) -> None:
        """Let the references follow the thread: work goes on for those alone whose calls it has open.

        Whatever cut the others, and whoever was to say so: nobody takes their results any more.  ``called``
        is asked for the sessions of the open calls where that matters.
        """
        refs = [ref for ref in await self._store.list_sub_session_refs(session_id) if is_at_work(ref)]
        # What an application refers to itself is its own.
        refs = [ref for ref in refs if is_child_id(ref.sub_session_id)]
        gone = list_cut_refs(refs, await called()) if refs else []
        for ref in gone:
            await self._abandon_child(session_id, ref, epoch)

    async def _abandon_child(self, session_id: str, ref: SubSessionRef, epoch: int | None) -> None:
        """From below, and the reference last: whoever dies on the way is followed by one who finds it.

        Sessions of sub-agents know of no epoch of ours: the fence is asked before they are touched.
        """
        name = ref.sub_session_id
        await self._set_child_status(session_id, name, ref.status, epoch)
        answered = await self._has_answered(name)
        if not answered:
            await self._pass_over(name)
        await self._drop_child_waits(session_id, [ref])
        status = SessionStatus.COMPLETED if answered else SessionStatus.INTERRUPTED
        await self._set_child_status(session_id, name, status, epoch)

    async def _pass_over(self, session_id: str) -> None:
        """Nobody waits for a session any more, nor for those below it."""
        await self.left(session_id, None)
        await self._save_change(
            session_id, lambda state: GIVEN_UP if state.status is SessionStatus.PAUSED else {}
        )

    async def waits(self, session_id: str, since: int) -> None:
        """A session waits for people, or no more: its root knows whose its calls are, its parent of it.

        Theirs are other writers: what they have stored meanwhile stays.  They know no epoch of this one, so
        that a late attempt can't be refused: whoever has told looks whether it was the newest.
        """
        told: SessionState | None = None
        for _ in range(_TELLINGS):
            state = await self._store.load_state(session_id)
            if state is None or state.parent_session_id is None or state.root_session_id is None:
                return
            if told is not None and list_told_calls(told) == list_told_calls(state):
                return
            told = state
            await self._save_change(
                state.parent_session_id, partial(project_waiting_child, child=state, since=since)
            )
            await self._save_change(state.root_session_id, partial(project_call_owners, child=state))

    async def _drop_child_waits(self, session_id: str, refs: Sequence[SubSessionRef]) -> None:
        """Sessions that ended otherwise than by an answer may have been waiting until then."""
        names = {each.sub_session_id for each in refs}
        if names:
            await self._save_change(session_id, lambda parent: project_without_children(parent, names))

    async def _has_answered(self, session_id: str) -> bool:
        child = await self._store.load_state(session_id)
        return child is not None and child.status is SessionStatus.COMPLETED

    async def _save_change(
        self, session_id: str, change: Callable[[SessionState], Mapping[str, Any]]
    ) -> None:
        await save_change(self._store, session_id, None, change, "a sub-agent's wait was noted")

    async def _set_child_status(
        self, session_id: str, child: str, status: SessionStatus, epoch: int | None
    ) -> None:
        with contextlib.suppress(SessionNotFoundError):
            await self._store.update_sub_session_ref(session_id, child, status, epoch=epoch)


def _build_child_refs(agent: Agent, request: RunStepInput, answer: Message) -> list[SubSessionRef]:
    refs: dict[str, SubSessionRef] = {}
    for each in agent_calls(agent, request.session_id, answer):
        if not each.facts.approval:  # that has none before somebody agrees
            refs[each.session_id] = SubSessionRef(
                sub_session_id=each.session_id,
                agent_type=each.facts.agent or "",
                tool=each.facts.name,
                run_id=request.run_id,
                parent_tool_call_id=each.call.id,
            )
    return list(refs.values())


_NAME_LETTERS: Final = 8
"""Of the hash that names changes: what it is told from are other attempts of calls of the same turn."""


async def stage_tool_changes(
    store: SessionStore, threads: ThreadStore, request: ToolInput, changes: JsonObject
) -> str:
    """Keep aside what a tool changes; a state that its store has lost is made from the thread's slice.

    Returns:
        The name of the changes, for the tool's result: of several attempts, and runs after a reset, the
        changes of that one count whose result comes into the thread.

    Raises:
        FencedError: The session was opened again since the tool was asked for.
        TooLargeError: The changes are too large to travel.
    """
    if request.run_id is None:
        return ""
    check_values(changes)
    # The key's last parts name the call; its position orders the calls of a turn.
    call = "/".join(request.key.rsplit("/", 2)[-2:])
    name = hashlib.sha256(canonical_json([call, changes])).hexdigest()[:_NAME_LETTERS]
    change = StagedChange(
        tool_call_id=f"{call}/{name}", merge_changes=changes, timestamp=request.position, result=name
    )
    session_id, run_id = request.session_id, request.run_id
    try:
        await store.stage_changes(session_id, run_id, change, epoch=request.epoch)
    except SessionNotFoundError:
        facts = await threads.facts(request.thread_id)
        at = await find_committed_head(threads, request.thread_id, facts.head, facts.committed)
        await recreate_state(store, session_id, request.epoch, parse_record(facts.slice), at)
        await store.stage_changes(session_id, run_id, change, epoch=request.epoch)
    return name


async def recreate_state(
    store: SessionStore, session_id: str, epoch: int | None, kept: SessionRecord, head: Head
) -> None:
    """Make the state again that a store without persistence has lost; its checkpoints are gone."""
    options = CreateSession(
        agent_type=kept.agent, custom_state=kept.values, metadata=dict(kept.metadata), head=head
    )
    await store.create_session(session_id, options, if_not_exists=True, epoch=epoch)


async def drop_beyond(store: SessionStore, session_id: str, run_id: str, position: int, epoch: int) -> None:
    """Take away what a turn's tools staged in steps that the thread no longer holds."""
    rows = [row.change for row in await store.list_staged(session_id, run_id)]
    gone = [change for change in rows if change.timestamp > position]
    if gone and len(gone) == len(rows):
        await store.discard_staging(session_id, run_id, epoch=epoch)
        return
    for change in gone:
        # One by one, so that no crash takes those that stay: a change of nothing in the place of each.
        nothing = change.model_copy(update={"merge_changes": {}, "patches": ()})
        await store.stage_changes(session_id, run_id, nothing, epoch=epoch)


async def promote_what_fits(store: SessionStore, turn: TurnToCommit) -> int:
    """Promote a committed turn's staged changes, without those that can't be applied; how many."""
    try:
        found = await store.promote_staging(
            turn.session_id, turn.step_id, results=turn.results, on_conflict="warn", epoch=turn.epoch
        )
    except TooLargeError:
        await store.discard_staging(turn.session_id, turn.step_id, epoch=turn.epoch)
        return 0
    return found.promoted


_NONE: Final[tuple[Receipt, ...]] = ()


@dataclass(frozen=True, slots=True)
class CommittedState:
    """A turn's state is committed.

    Attributes:
        promoted: Staged changes that went into it.
        notes: What had to be put right, for the session's receipts.
    """

    promoted: int
    appended: Appended | None = None
    notes: tuple[Receipt, ...] = ()


class TurnCommits:
    """Commits turns; see `StateKeeper`."""

    def __init__(self, store: SessionStore, threads: ThreadStore, together: SessionStore | None) -> None:
        self._store, self._threads, self._together = store, threads, together

    async def commit(self, turn: TurnToCommit, append: StepAppend | None = None) -> CommittedState:
        """Commit a turn that is in the thread, with those before it that the state lacks.

        Args:
            turn: The turn.
            append: Its last step, to be appended in the same unit; None if it is in the thread.

        Raises:
            StateBehindThreadError, PatchConflictError, TooLargeError: It can't be committed as it is, and its
                step is to be part of the commit.
            IdempotencyConflictError: It was committed before.
            SessionNotFoundError: The store has lost the state.
        """
        wanted, notes = turn, _NONE
        for _ in range(_TRIES):
            try:
                promoted, appended = await self._commit_turn(wanted, append)
            except StateBehindThreadError as behind:
                if append is not None or turn.head is None:
                    raise
                held = int(behind.facts["held"] or 0)
                wanted, notes = await self.bring(turn, turn.head.position, held)
            else:
                return CommittedState(promoted, appended, notes)
        raise StoreUnavailableError(f"session {turn.session_id!r}: its state was moved back again and again")

    async def bring(self, turn: TurnToCommit, stop: int, at: int) -> tuple[TurnToCommit, tuple[Receipt, ...]]:
        """See `catch_up_state`."""
        return await catch_up_state(self._store, self._threads, turn, stop, at)

    async def _commit_turn(
        self, turn: TurnToCommit, append: StepAppend | None
    ) -> tuple[int, Appended | None]:
        try:
            return await self._commit_counting(turn, append)
        except (PatchConflictError, TooLargeError):
            if append is not None:
                raise
        # The turn is in the thread and counts, whatever its tools left.
        await self._commit_counting(turn, None, promote=False)
        return await promote_what_fits(self._store, turn), None

    async def _commit_counting(
        self, turn: TurnToCommit, append: StepAppend | None, *, promote: bool = True
    ) -> tuple[int, Appended | None]:
        try:
            return await self._commit_with(turn, turn.run, append, promote=promote)
        except InvalidRequestError as error:
            if "run_id" not in error.facts:
                raise
            # The run ended before its turn was found, or its store has lost it: the turn counts all the same.
            return await self._commit_with(turn, None, append, promote=promote)

    async def _commit_with(
        self, turn: TurnToCommit, run: RunChange | None, append: StepAppend | None, *, promote: bool
    ) -> tuple[int, Appended | None]:
        store = self._store if append is None or self._together is None else self._together
        result, appended = await store.save_state_and_promote_staging(
            turn.session_id,
            turn.change,
            StepCommit(
                step_id=turn.step_id,
                run_id=turn.run_id,
                step_count=turn.kept.steps,
                promote=promote,
                results=turn.results,
            ),
            append=append,
            run=run,
            epoch=turn.epoch,
        )
        return result.promoted, appended


_ANY: Final = frozenset(SessionStatus)


Place = Callable[[], Awaitable[int]]
"""Tells after which sequence of the session's stream a turn's chunks come."""


async def unknown_place() -> int:
    """Nobody knows: all that is kept may be the turn's."""
    return 0


async def begin_run(
    store: SessionStore, request: RunStepInput, run_id: str, kept: SessionRecord, place: int
) -> None:
    """Record the run of a turn; one that was left behind by an earlier turn has ended.

    ``kept`` is the thread's slice: a state that its store has lost is made from it.  ``place`` is where the
    turn begins on the session's stream.

    Raises:
        FencedError: A newer open has the session.
    """
    session_id, epoch = request.session_id, request.epoch
    run = NewRun(run_id=run_id, start_sequence=place, start_head=request.head)
    for _ in range(_TRIES):
        try:
            started = await store.start_run(session_id, run, expect_status=_ANY, epoch=epoch)
        except SessionNotFoundError:
            if request.values is not None:
                # What tools of the turn before changed is not in the slice yet; the workflow was told of it.
                kept = kept.model_copy(update={"values": request.values})
            await recreate_state(store, session_id, epoch, kept, request.head)
            continue
        if isinstance(started, RunRecorded) or started.current_run_id is None:
            return
        await give_up_run(store, session_id, started.current_run_id, RunStatus.SUPERSEDED, epoch)


async def run_under_way(store: SessionStore, session_id: str, known: str | None) -> str | None:
    """A session's run that has not ended; None for one that waits for people, which may go on.

    It is the ``known`` one if that was never recorded.
    """
    state = await store.load_state(session_id)
    if state is None or state.suspension_context is not None:
        return None
    if state.current_run_id is None and known is not None:
        return known if await store.get_run(session_id, known) is None else None
    return state.current_run_id


@contextlib.asynccontextmanager
async def run_alongside(act: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do this while what is within goes on; both have ended at the end.

    A failure within is told rather than this one's, which then is given the time that it takes; a
    cancellation ends both.
    """
    task = asyncio.create_task(act)
    try:
        yield
    except Exception:
        await asyncio.wait([task])
        raise
    except BaseException:
        task.cancel()
        await asyncio.wait([task])
        raise
    else:
        await task
    finally:
        if task.done() and not task.cancelled():
            task.exception()  # retrieved, whoever is told


async def give_up_run(
    store: SessionStore, session_id: str, run_id: str, status: RunStatus, epoch: int
) -> None:
    """End a run that came to nothing, and drop what its tools staged."""
    await end_run(store, session_id, run_id, status, epoch)
    await store.discard_staging(session_id, run_id, epoch=epoch)


async def end_run(store: SessionStore, session_id: str, run_id: str, status: RunStatus, epoch: int) -> None:
    """End a run, if it has not ended."""
    run = await store.get_run(session_id, run_id)
    if run is not None and run.status.live:
        change = RunChange(status=status, completion_reason=status.value)
        try:
            await store.update_run(session_id, run_id, change, epoch=epoch)
        except InvalidRequestError as error:
            if "run_id" not in error.facts:
                raise
            # A step that nobody waits for any more has ended it meanwhile, and its turn counts.


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
        await self._run_is(session_id, run_id, RunStatus.SUSPENDED_CLIENT_TOOL, epoch)
        await self._save_change(
            session_id, epoch, lambda state: project_suspension(state, run_id, answer, head, waiting)
        )

    async def answered(
        self, session_id: str, epoch: int, run_id: str | None, inputs: Sequence[StepInput]
    ) -> None:
        """The turn goes on with these answers: nothing is pending any more.

        Raises:
            FencedError: A newer open has the session.
        """
        answers = [each.answered for each in inputs if each.answered is not None]

        await self._save_change(session_id, epoch, lambda state: project_resumption(state, answers))
        await self._run_is(session_id, run_id, RunStatus.RUNNING, epoch)

    async def suspend(self, session_id: str, epoch: int, suspension: Suspension) -> None:
        """The session waits for sub-agents, whose sessions have ended while they wait for people.

        Raises:
            FencedError: A newer open has the session.
        """
        if not suspension.calls:
            state = await self._store.load_state(session_id)
            run_id = None if state is None else state.current_run_id
            await self._run_is(session_id, run_id, RunStatus.SUSPENDED_AWAITING_CHILDREN, epoch)
        await self._save_change(session_id, epoch, lambda state: project_waiting_children(state, suspension))

    async def known(self, session_id: str, epoch: int, known: Sequence[CallOutcome]) -> None:
        """Some of the calls were answered; others are still wanted.

        Raises:
            FencedError: A newer open has the session.
        """
        answers = [each.answered for each in known if each.answered is not None]
        if answers:
            await self._save_change(session_id, epoch, lambda state: project_answers(state, answers))

    async def found(
        self, session_id: str, epoch: int, turn: SuspendedTurn, answered: Sequence[AnswerReceipt]
    ) -> None:
        """An open found the turn suspended: a store that does not say so has lost it.

        ``answered`` are the calls that the thread has answers of; a store that went back to before them still
        has them pending.
        """
        if turn.children:
            waits = Suspension(head=turn.head, calls=turn.waiting, children=turn.children)
            await self.suspend(session_id, epoch, waits)
        calls = Message(id=turn.head.last_id, role="assistant", tool_calls=turn.calls)
        known = {each.at for each in turn.known}
        waiting = [each for each in turn.waiting if each.at not in known]
        if waiting:
            await self.record(session_id, epoch, turn.run_id, calls, turn.head, waiting)
        await self._save_change(
            session_id, epoch, lambda state: project_answers(state, list_still_pending(state, answered))
        )

    async def dropped(self, session_id: str, epoch: int, answered: Sequence[AnswerReceipt] = ()) -> None:
        """No step waits: nothing is pending, and what the thread has answers of is answered."""
        await self._save_change(
            session_id, epoch, lambda state: project_no_suspension(state, list_still_pending(state, answered))
        )

    async def responses(self, session_id: str) -> Mapping[str, CallOutcome]:
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
        kept: SessionRecord,
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
            state = await self._create_state(request, header, kept, source)
            notes = () if source is not None else lost_staging_note(kept, session_id)
        else:
            if await went_back(self._store, request, header, kept):
                state = await self._load_state(session_id)
            if request.reopen is not None:
                state, notes = await self._follow_cut(request, state, header)
            elif header.head.position == header.committed:
                state, notes = await self._catch_up(request, state, header, kept)
        if request.properties is not None and request.reopen is None:
            state = await self.set_properties(session_id, request.properties, epoch)
        left = await self._settle_run(request, state, header, tell)
        values = values_if_small(state.custom_state)
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
                await give_up_run(self._store, session_id, each, RunStatus.ABORTED, epoch)
            await self.children.left(session_id, epoch)
        elif run_id is not None and request.reopen is None and header.head.position == header.committed:
            if tell is not None:
                # First: an open that dies on its way is done again, and knows of the run no longer.
                await tell(run_id)
            await give_up_run(self._store, session_id, run_id, RunStatus.SUPERSEDED, epoch)
            await self.children.left(session_id, epoch)
            return run_id
        elif run_id is not None:
            await drop_beyond(self._store, session_id, run_id, header.head.position, epoch)
        return None

    async def _follow_cut(
        self, request: OpenSessionInput, state: SessionState, header: HotHeader
    ) -> tuple[SessionState, tuple[Receipt, ...]]:
        """The thread was opened again within a turn: it may have been cut below what was committed."""
        if state.head.position <= header.committed and await has_head(
            self._threads, request.thread_id, state.head
        ):
            return state, ()
        return await self._restore_latest_checkpoint(state, header, asked=request.abandoned is not None)

    async def source(self, request: OpenSessionInput, header: HotHeader) -> SessionState | None:
        """The state of the session that is forked, as it was at that place; None if it has none."""
        if request.fork_from is None:
            return None
        return await state_at(self._store, self._threads, request.fork_from, header)

    async def _create_state(
        self, request: OpenSessionInput, header: HotHeader, kept: SessionRecord, source: SessionState | None
    ) -> SessionState:
        options = make_new_session(
            request, kept, source, at=await self._find_committed_head(header), forked_at=header.head
        )
        return await self._store.create_session(
            request.session_id, options, if_not_exists=True, epoch=header.epoch
        )

    async def _catch_up(
        self, request: OpenSessionInput, state: SessionState, header: HotHeader, kept: SessionRecord
    ) -> tuple[SessionState, tuple[Receipt, ...]]:
        if state.head == header.head:
            return state, ()
        behind = state.head.position < header.head.position
        if behind and await has_head(self._threads, request.thread_id, state.head):
            return await self._commit_missing_turns(state, header, kept)
        # Asked for by this open, or by one that cut the thread and died.
        asked = request.rewind_to is not None or find_request_behind(kept, header) is not None
        return await self._restore_latest_checkpoint(state, header, asked=asked)

    async def _commit_missing_turns(
        self, state: SessionState, header: HotHeader, kept: SessionRecord
    ) -> tuple[SessionState, tuple[Receipt, ...]]:
        """The last turns are in the thread and their commits were lost: commit them from the slice."""
        answer = await self._answer_before(header)
        turn = TurnToCommit(
            state.session_id, header.thread_id, header.epoch, header.head, kept, answer=answer
        )
        turn, notes = await self._commits.bring(turn, header.head.position, state.head.position)
        try:
            done = await self._commits.commit(turn)
        except IdempotencyConflictError:
            await self._committed_before(state.session_id, header.epoch, header.head)
        else:
            notes = notes or done.notes
        return await self._load_state(state.session_id), notes

    async def _answer_before(self, header: HotHeader) -> FinalAnswer | None:
        """The answer that the thread ends with, if it does."""
        end = header.head.position
        page = await self._threads.read(ReadPage(header.thread_id, end - 1, end, limit=1, whole=False))
        return FinalAnswer.at(page.records[0] if page.records else None, end - 1)

    async def _find_committed_head(self, header: HotHeader) -> Head:
        return await find_committed_head(self._threads, header.thread_id, header.head, header.committed)

    async def _restore_latest_checkpoint(
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

    async def begin(self, request: RunStepInput, kept: SessionRecord, place: Place = unknown_place) -> None:
        """Record the run of a turn; see `begin_run`.

        Raises:
            FencedError: A newer open has the session.
        """
        if request.run_id is not None:
            await begin_run(self._store, request, request.run_id, kept, await place())

    @contextlib.asynccontextmanager
    async def beginning(
        self, request: RunStepInput, kept: SessionRecord, place: Place = unknown_place
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
        async with run_alongside(self.begin(request, kept, place)):
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
        return await stage_tool_changes(self._store, self._threads, request, changes)

    async def append(self, step: StepAppend, request: RunStepInput | EndTurnInput) -> CommittedTurn | None:
        """Append the last step of a turn and commit its state with it; None where that is not possible."""
        own = step.commits and step.thread_id == request.session_id
        if self._together is None or not own or not step.slice:
            return None
        kept, session_id = parse_record(step.slice), request.session_id
        try:
            turn = TurnToCommit(
                session_id, session_id, request.epoch, None, kept, *end_of_run(request),
                answer=FinalAnswer.at(step.answer, step.head.position + len(step.inputs)),
            )  # fmt: skip
            done = await self._commits.commit(turn, step)
        except _NOT_TOGETHER:
            return None
        if done.appended is None:
            return None
        return CommittedTurn(done.appended, await self._load_promoted_values(session_id, done.promoted))

    async def finish(
        self, request: RunStepInput | EndTurnInput, appended: Appended, kept: SessionRecord
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
        turn = TurnToCommit(
            session_id, thread_id, epoch, appended.head, kept, *end_of_run(request), answer=answer
        )
        try:
            done = await self._commits.commit(turn)
        except SessionNotFoundError:
            await recreate_state(self._store, session_id, epoch, kept, appended.head)
            done = await self._commits.commit(turn)
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

    async def run_under_way(self, session_id: str, known: str | None = None) -> str | None:
        """See `run_under_way`."""
        return await run_under_way(self._store, session_id, known)

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
            await end_run(self._store, request.session_id, state.current_run_id, ended, epoch)

        await save_change(
            self._store,
            request.session_id,
            epoch,
            lambda state: project_end(state, request, status),
            "its end was saved",
        )
        if request.ends_run:
            # A step that asks may have come to saying so when nobody waited for it: not from here on.
            await self.suspended.dropped(request.session_id, epoch)


def _session_deleted_error(session_id: str) -> SessionNotFoundError:
    return SessionNotFoundError(f"session {session_id!r} was deleted while it was being opened")
