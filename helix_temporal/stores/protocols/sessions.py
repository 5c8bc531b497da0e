"""What a session store does: `SessionStore`.

Its parts: runs, stop requests and children (`RunStore`), and checkpoints (`CheckpointStore`).
"""

from collections.abc import AsyncIterator, Collection, Sequence
from enum import Enum
from typing import Final, Literal, Protocol

from helix_temporal.models.checkpoints import (
    Checkpoint,
    CheckpointMeta,
    CommitResult,
    NewRun,
    PromoteResult,
    Run,
    RunChange,
    RunRecorded,
    RunStartRefused,
    StagedChange,
    StagedRow,
    StepCommit,
    StopKind,
    StopOutcome,
    StopRecord,
)
from helix_temporal.models.messages import Message
from helix_temporal.models.states import (
    CasConflict,
    CasOk,
    CountResult,
    CreateSession,
    MergeChanges,
    MergeResult,
    OwnedPendingCall,
    SaveResult,
    SessionState,
    SessionStatus,
    StateChange,
    Submission,
    SubSessionRef,
    ToolResultSubmission,
)
from helix_temporal.models.store_calls import (
    UNSET,
    AppendResult,
    CutMessages,
    DueSession,
    ExpiredSession,
    OnDuplicate,
    Page,
    PageMessagesResult,
    SessionPage,
    SessionQuery,
    SessionSnapshot,
    Unset,
)
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.hot import Appended, StepAppend


class RunStore(Protocol):
    """What `SessionStore` does with runs and sub-sessions."""

    # -- runs

    async def start_run(
        self,
        session_id: str,
        run: NewRun,
        *,
        expect_current_run: str | None = None,
        expect_status: Collection[SessionStatus] = ...,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> RunRecorded | RunStartRefused:
        """Start a run if no run is live and the session is where the caller planned from.

        ``expect_current_run`` may name a run that is over: the one that was last when the caller planned.
        The same ``run_id`` again returns the run.  Without ``expect_status`` a session of every status but
        ``failed`` starts one; it is active from then on.
        """
        ...

    async def update_run(
        self,
        session_id: str,
        run_id: str,
        change: RunChange,
        *,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> Run:
        """Change a run; one that ends is no longer the current one, and its stop request is removed.

        Raises:
            InvalidRequestError: There is no such run, or it is over and the change says otherwise.
        """
        ...

    async def get_run(self, session_id: str, run_id: str) -> Run | None:
        """One run."""
        ...

    async def get_current_run(self, session_id: str) -> Run | None:
        """The run that is live, if any."""
        ...

    async def list_runs(
        self,
        session_id: str,
        *,
        limit: int = 50,
        cursor: str | None = None,
        through_turn: int | None = None,
        count: bool = True,
    ) -> Page[Run]:
        """Runs by turn, newest first.

        Args:
            session_id: Whose.
            limit: Of a page, 1 to 200.
            cursor: ``next_cursor`` of the page before.
            through_turn: Begin with this turn, or the last one before it, instead of the newest; with a
                cursor it does not count.
            count: Count them all, for `Page.total`, which takes the longer the more there are.

        Raises:
            InvalidCursorError: The cursor is none of this list.
        """
        ...

    async def request_stop(
        self, session_id: str, *, kind: StopKind, run_id: str | None = None, reason: str | None = None
    ) -> StopOutcome:
        """Ask the current run (or just this one) to stop; an interrupt may rise to an abort."""
        ...

    async def get_stop_request(self, session_id: str, run_id: str) -> StopRecord | None:
        """What was asked of a run that is live."""
        ...

    # -- sub-sessions

    async def add_sub_session_refs(
        self, session_id: str, refs: Sequence[SubSessionRef], *, epoch: int | None = None
    ) -> None:
        """Insert or replace, by the child's id."""
        ...

    async def update_sub_session_ref(
        self, session_id: str, sub_session_id: str, status: SessionStatus, *, epoch: int | None = None
    ) -> SubSessionRef:
        """Set a child's status.

        Raises:
            SessionNotFoundError: The session has no such child.
        """
        ...

    async def remove_sub_session_ref(
        self, session_id: str, sub_session_id: str, *, epoch: int | None = None
    ) -> bool:
        """Forget a child; False if the session has no such child.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        ...

    async def list_sub_session_refs(self, session_id: str) -> list[SubSessionRef]:
        """Children in the order in which they were added."""
        ...


class AnyVersion(Enum):
    """Marks a blind write."""

    ANY_VERSION = "any"


ANY_VERSION: Final = AnyVersion.ANY_VERSION


class CheckpointStore(Protocol):
    """What `SessionStore` does with staged changes and checkpoints."""

    # -- staging

    async def stage_changes(
        self, session_id: str, step_id: str, change: StagedChange, *, epoch: int | None = None
    ) -> None:
        """Keep one tool call's change aside; the same call again replaces it.

        Raises:
            StepClosedError: The step is committed, and not with this very change.
        """
        ...

    async def list_staged(self, session_id: str, step_id: str | None = None) -> list[StagedRow]:
        """What is staged, in the order in which it would be applied."""
        ...

    async def discard_staging(self, session_id: str, step_id: str, *, epoch: int | None = None) -> int:
        """Drop a step's staged changes; how many."""
        ...

    async def promote_staging(
        self,
        session_id: str,
        step_id: str,
        *,
        results: Sequence[str] | None = None,
        expected_version: int | None = None,
        on_conflict: Literal["error", "warn"] = "error",
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> PromoteResult:
        """Fold a step's staged changes into the custom state; version +1 if there were any.

        ``results`` as in `StepCommit`.

        Raises:
            PatchConflictError: A patch can't be applied; nothing was changed.
        """
        ...

    async def save_state_and_promote_staging(
        self,
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
        """Commit a step: state, staged changes, checkpoint, run, and messages where they lie here.

        ``next_state`` comes without the staged effects; a `StateChange` is applied to whatever is
        stored, without a look at the version unless one is expected.  (session, run, step) is the
        natural key: a repeat returns the first answer though the version has moved on.  ``append`` are
        the step's messages: in the same unit where threads lie in the same store (`HotTier.append`),
        else appended and flushed before.  With an answer in it, the first answer wins, and what
        follows from another one does not count.  ``run`` changes the step's run in the same unit.

        ``messages`` instead of ``append``: they go to the end of the session's thread, which is opened for
        the session if nobody has it; for sessions that no session workflow runs.  A message whose id is
        among the newest 200 stands there already.

        The head that is committed is that of ``append``, else that of a `StateChange`, else the
        thread's where that is further than the head in ``next_state``.

        Raises:
            StaleStateError: The version is another; nothing was changed.
            IdempotencyConflictError: The step was committed with other content.
            PatchConflictError: A staged patch can't be applied; nothing was changed.
            StateBehindThreadError: The state's head is before what the change ``follows``.
            InvalidRequestError: ``append`` and ``messages`` are both given.
        """
        ...

    # -- checkpoints

    async def get_checkpoint(self, session_id: str, checkpoint_id: str) -> Checkpoint | None:
        """One checkpoint; None if it is not this session's."""
        ...

    async def get_latest_checkpoint(self, session_id: str, *, run_id: str | None = None) -> Checkpoint | None:
        """The one committed last."""
        ...

    async def list_checkpoints(
        self,
        session_id: str,
        *,
        limit: int = 50,
        cursor: str | None = None,
        order: Literal["asc", "desc"] = "desc",
    ) -> Page[CheckpointMeta]:
        """Checkpoints in commit order, by a cursor that stays complete while others are added.

        Raises:
            InvalidCursorError: See there.
        """
        ...

    async def restore_checkpoint(
        self,
        session_id: str,
        checkpoint_id: str,
        *,
        expected_version: int | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> SessionState:
        """Make a checkpoint's state the present one; version +1, later checkpoints marked.

        The thread is cut to the checkpoint's head where this store has it, unless the caller has it open
        under ``epoch``: then the cut is the caller's.  Counters of the session's life do not go back.

        Raises:
            CheckpointNotFoundError, StaleStateError, ThreadBehindStateError: See there.
        """
        ...

    async def prune_checkpoints(self, session_id: str, *, keep_last: int, epoch: int | None = None) -> int:
        """Remove all but the newest; never one that a suspension refers to.  How many went.

        Raises:
            InvalidRequestError: ``keep_last`` is 0.
        """
        ...

    async def build_snapshot(self, session_id: str) -> SessionSnapshot | None:
        """The newest checkpoint with its messages, consistent whatever goes on meanwhile."""
        ...


class SessionStore(CheckpointStore, RunStore, Protocol):
    """Sessions: state, checkpoints, staging, runs, references, client tool calls."""

    # -- life

    async def create_session(
        self,
        session_id: str,
        options: CreateSession = ...,
        *,
        if_not_exists: bool = False,
        revive: bool = True,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> SessionState:
        """Make a session with version 1; with ``revive`` off, not under the id of one that was deleted.

        Raises:
            SessionExistsError: It exists, and ``if_not_exists`` was not asked for.
            SessionNotFoundError: It was deleted, and ``revive`` is off.
        """
        ...

    async def load_state(self, session_id: str) -> SessionState | None:
        """The state; None if there is no such session."""
        ...

    async def session_exists(self, session_id: str) -> bool:
        """Whether it was created and not deleted."""
        ...

    async def save_state(
        self,
        session_id: str,
        state: SessionState,
        *,
        expected_version: int | AnyVersion | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> SaveResult:
        """Replace the state; version +1.

        ``expected_version`` None takes that of ``state``; `ANY_VERSION` writes blindly.

        Raises:
            StaleStateError: The version is another.
            InvalidRequestError: ``state`` is of another session, or changes ``mode`` once written.
        """
        ...

    async def update_status(
        self,
        session_id: str,
        status: SessionStatus,
        *,
        failure_reason: str | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> SaveResult:
        """Set the status whatever it was; version +1."""
        ...

    async def compare_and_set_status(
        self,
        session_id: str,
        expected: Collection[SessionStatus],
        new: SessionStatus,
        *,
        expected_version: int | None = None,
        failure_reason: str | None = None,
        expires_at: int | Unset | None = UNSET,
        cleanup_pending: bool | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> CasOk | CasConflict:
        """Set the status if it is one of ``expected`` (and the version is that); version +1 then."""
        ...

    async def merge_custom_state(
        self,
        session_id: str,
        changes: MergeChanges,
        *,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> MergeResult:
        """Change keys of the custom state without reading it first; version +1."""
        ...

    async def increment_step_count(
        self, session_id: str, *, epoch: int | None = None, operation_id: str | None = None
    ) -> CountResult:
        """Count a step; version +1."""
        ...

    async def increment_resume_count(
        self, session_id: str, *, epoch: int | None = None, operation_id: str | None = None
    ) -> CountResult:
        """Count a resumption; version +1."""
        ...

    async def finish_cleanup(self, session_id: str, *, operation_id: str | None = None) -> SaveResult:
        """Take the mark ``cleanup_pending`` away; version +1, or nothing if it is not there."""
        ...

    async def delete_session(
        self, session_id: str, *, expected_version: int | None = None, epoch: int | None = None
    ) -> bool:
        """Remove everything of the session but its usage; False if there was none.

        Its thread and its stream go too, if this store has them, and the sessions of its sub-agents: those
        that it refers to and that have it as their parent.

        Raises:
            StaleStateError: ``expected_version`` is given and another.
            StoreUnavailableError: Something of it may be left; a repeat removes that.
        """
        ...

    async def fork_session(
        self,
        session_id: str,
        new_session_id: str,
        *,
        at_checkpoint: str | None = None,
        at_message: int | None = None,
        operation_id: str | None = None,
    ) -> SessionState:
        """Copy a session under a new id, with its messages up to a finished turn.

        Copies title, custom state, tags and metadata; not runs, staging, pending calls, suspension or
        operations.  The same source and new id again find the first fork.

        Messages that `append_messages` added after the last commit of the state are copied where hot
        threads lie with the sessions.  Elsewhere a commit may be under way, whose state is not there
        yet: a state that has a head is copied with the messages up to it; ``at_message`` takes more.

        Raises:
            CheckpointNotFoundError, SessionExistsError: See there.
        """
        ...

    # -- messages, for those who use the store without the session workflow

    async def append_messages(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        touch: bool = True,
        change: StateChange | None = None,
        on_duplicate: OnDuplicate = "error",
        head: Head | None = None,
        expected_version: int | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> AppendResult:
        """Append in order, all or nothing; without a ``change`` no new version of the state.

        A message whose id is among the newest 200 with the same content is there already: it is left
        out, and the answer is as if it had been appended now.  Older ids are not looked for, and stand
        twice then.

        The state follows in the same unit where hot threads lie with the sessions.  Elsewhere it follows
        the messages: if the caller dies between the two, a repeat with the same ``operation_id`` ends it.
        The state's ``head`` stays; `save_state_and_promote_staging` moves it, and makes a checkpoint.

        Args:
            session_id: Which.
            messages: In their order.
            touch: The state's ``updated_at`` becomes the time of the append, if anything was appended, so
                that the session rises in lists.  The state is written for that: leave it out where a
                large one has many small appends.
            change: Of the state, with the messages; version +1, also if all messages are there already.
                Only an ``operation_id`` makes it repeatable.
            on_duplicate: ``keep_first``: a message whose id is among the newest 200 with other content, or
                comes twice in this call, is left out as if it were the same.
            head: Only if the messages end here, or these stand right behind it: how many they are, and
                the id of the last one.  The place decides wherever threads lie: of two that append behind the
                same message one succeeds.
            expected_version: Only if the state has this version.  Where threads lie elsewhere somebody may
                change the state after the messages are there: the error comes then, and a repeat at the
                new version finds them.
            epoch: The fence; None writes unfenced.
            operation_id: A repeat with the same one gets the first answer.

        Raises:
            IdempotencyConflictError: An id stands there with other content; or the operation id was another
                request's.
            HeadMovedError: The messages end elsewhere than at ``head``; nothing was appended.
            StaleStateError: The version is another.
            StateBehindThreadError: The state's head is before what the change ``follows``.
            InvalidRequestError: Two messages have the same id; or an argument is none that there is.
            TooLargeError: A message is too large, or the state is then.
        """
        ...

    async def get_messages(
        self, session_id: str, *, offset: int = 0, limit: int = 50, order: Literal["asc", "desc"] = "asc"
    ) -> PageMessagesResult:
        """A page by position; an empty one for an unknown session.

        Raises:
            InvalidRequestError: ``limit`` is not 1–200, or ``offset`` is negative.
        """
        ...

    async def get_message_count(self, session_id: str) -> int:
        """Messages of finished turns."""
        ...

    async def truncate_messages(
        self,
        session_id: str,
        count: int,
        *,
        expected_version: int | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> SaveResult:
        """Cut the thread back to its first ``count`` messages; version +1.

        Raises:
            InvalidRequestError: There are fewer, or the cut lies between a tool call and its result.
            StaleStateError: The version is another.
        """
        ...

    async def cut_messages(
        self,
        session_id: str,
        count: int,
        *,
        head: Head | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> CutMessages:
        """Take back the newest ``count`` messages, and return them; no new version of the state.

        Of several that take messages back at once none gets what another got.  May leave a call without its
        result, as frameworks undo item by item.  A message whose append was unclear to its writer, and that
        another one takes back before it is repeated, is appended again by the repeat.

        Args:
            session_id: Whose.
            count: How many, 200 at most.
            head: Only if the messages end here: how many they are, and the id of the last one.
            epoch: The fence of whoever writes; see `save_state`.
            operation_id: The same again finds the first answer, though others have appended since.

        Raises:
            HeadMovedError: They end elsewhere than at ``head``; nothing was cut.
            TooLargeError: They are several, and have more than 4 MiB.
            InvalidRequestError: There are fewer; or more than 200 are asked for; or the state was committed
                with one of them; or a session workflow has a turn under way.
        """
        ...

    # -- client tool calls

    async def submit_tool_result(
        self, session_id: str, submission: ToolResultSubmission, *, operation_id: str | None = None
    ) -> Submission:
        """Take a client's answer once; version +1 then.  Routed by ownership where this is a root.

        Raises:
            SessionExpiredError: The session, or this root of it, has expired.
            InvalidRequestError: An approval is answered by the outcomes ``approved`` and ``denied`` alone,
                anything else by ``result`` and ``error``.
            TooLargeError: The result exceeds 1 MiB.
            RemoteClientToolUnsupportedError: By the root's map it is that of a sub-session elsewhere.
            SessionNotFoundError: It is that of a session that is not there.
        """
        ...

    async def resolve_tool_call_owner(self, root_session_id: str, tool_call_id: str) -> str | None:
        """Whose call it is, by the root's map; None if unknown."""
        ...

    async def find_expired_pending(self, now: int, *, limit: int = 200) -> list[OwnedPendingCall]:
        """Pending calls whose deadline has passed."""
        ...

    async def list_due(
        self, now: int | None = None, *, limit: int = 200, cursor: str | None = None
    ) -> Page[DueSession]:
        """Sessions with such calls by the store's clock (or ``now``), the earliest deadline first.

        Also those that wait for a sub-agent's call whose time is over, where all of them have ended.
        """
        ...

    # -- lists

    async def list_sessions(self, query: SessionQuery = ...) -> SessionPage:
        """Sessions that match, by an index, with their titles and metadata; nothing else is read.

        Raises:
            InvalidCursorError: See there.
        """
        ...

    def iter_session_ids(self) -> AsyncIterator[str]:
        """Ids of all sessions, in no order."""
        ...

    async def list_expired(
        self, now: int | None = None, *, limit: int = 200, cursor: str | None = None
    ) -> Page[ExpiredSession]:
        """Sessions past their time by the store's clock (or ``now``), oldest first."""
        ...

    async def list_cleanup_pending(
        self, *, limit: int = 200, cursor: str | None = None
    ) -> Page[ExpiredSession]:
        """Sessions that were ended and have workspace snapshots left."""
        ...

    async def purge_operations(self, *, older_than_ms: int, limit: int = 1000) -> int:
        """Forget operations of long ago; how many."""
        ...

    async def now(self) -> int:
        """The store's clock."""
        ...
