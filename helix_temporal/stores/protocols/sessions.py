"""The session store: the durable side of a session beside its thread.

Every mutation takes ``epoch`` (the fence: the store remembers the highest one of a session and refuses
lower ones with `FencedError`; None writes unfenced unless the store requires fences) and
``operation_id`` (a repeat with the same request returns the first answer, with another request it is an
`IdempotencyConflictError`; the record is written with its effect).  All raise `StoreUnavailableError`
on connection trouble and `SessionNotFoundError` where nothing else is said.  Bad input changes nothing.
Times are ms since 1970.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from enum import Enum
from typing import Final, Literal, Protocol

from helix_temporal.models.checkpoints import (
    Checkpoint,
    CheckpointMeta,
    CommitResult,
    PromoteResult,
    StagedChange,
    StagedRow,
    StepCommit,
)
from helix_temporal.models.messages import Message
from helix_temporal.models.queries import (
    UNSET,
    AppendResult,
    ExpiredSession,
    MessagePage,
    Page,
    SessionPage,
    SessionQuery,
    SessionSnapshot,
    Unset,
)
from helix_temporal.models.runs import (
    NewRun,
    Run,
    RunChange,
    RunStarted,
    RunStartRefused,
    StopKind,
    StopOutcome,
    StopRecord,
)
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
    Submission,
    SubSessionRef,
    ToolResultSubmission,
)
from helix_temporal.stores.protocols.hot import Appended, StepAppend


class AnyVersion(Enum):
    """Marks a blind write."""

    ANY_VERSION = "any"


ANY_VERSION: Final = AnyVersion.ANY_VERSION


class SessionStore(Protocol):
    """Sessions: state, checkpoints, staging, runs, references, client tool calls."""

    # -- life

    async def create_session(
        self,
        session_id: str,
        options: CreateSession = ...,
        *,
        if_not_exists: bool = False,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> SessionState:
        """Make a session with version 1.

        Raises:
            SessionExistsError: It exists, and ``if_not_exists`` was not asked for.
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

        Args:
            expected_version: None takes that of ``state``; `ANY_VERSION` writes blindly.

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

        Its thread goes too, if this store has one for it.

        Raises:
            StaleStateError: ``expected_version`` is given and another.
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

        Copies custom state, tags and metadata; not runs, staging, pending calls, suspension or
        operations.  The same source and new id again find the first fork.

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
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> AppendResult:
        """Append in order, all or nothing; no new version of the state.

        A message whose id is among the newest 200 with the same content is there already.

        Raises:
            IdempotencyConflictError: An id stands there with other content; nothing was appended.
        """
        ...

    async def get_messages(
        self, session_id: str, *, offset: int = 0, limit: int = 50, order: Literal["asc", "desc"] = "asc"
    ) -> MessagePage:
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
        expected_version: int | None = None,
        on_conflict: Literal["error", "warn"] = "error",
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> PromoteResult:
        """Fold a step's staged changes into the custom state; version +1 if there were any.

        Raises:
            PatchConflictError: A patch can't be applied; nothing was changed.
        """
        ...

    async def save_state_and_promote_staging(
        self,
        session_id: str,
        next_state: SessionState,
        step: StepCommit,
        *,
        append: StepAppend | None = None,
        run: RunChange | None = None,
        expected_version: int | AnyVersion | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> tuple[CommitResult, Appended | None]:
        """Commit a step: state, staged changes, checkpoint, run, and messages where they lie here.

        ``next_state`` comes without the staged effects.  (session, run, step) is the natural key: a
        repeat returns the first answer though the version has moved on.

        Args:
            append: The step's messages, where threads lie in the same store; see `HotTier.append`.
            run: Changes of the step's run, in the same unit.

        Raises:
            StaleStateError: The version is another; nothing was changed.
            IdempotencyConflictError: The step was committed with other content.
            PatchConflictError: A staged patch can't be applied; nothing was changed.
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

        The thread is cut to the checkpoint's head where this store has it.

        Raises:
            CheckpointNotFoundError, StaleStateError, ThreadBehindStateError: See there.
        """
        ...

    async def prune_checkpoints(self, session_id: str, *, keep_last: int, epoch: int | None = None) -> int:
        """Remove all but the newest; never one that a suspension refers to.  How many went."""
        ...

    async def build_snapshot(self, session_id: str) -> SessionSnapshot | None:
        """The newest checkpoint with its messages, consistent whatever goes on meanwhile."""
        ...

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
    ) -> RunStarted | RunStartRefused:
        """Start a run if no run is live and the session is where the caller planned from.

        ``expect_current_run`` may name a run that is over; the same ``run_id`` again returns the run.
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
        """Change a run; one that ends is no longer the current one, and its stop request is settled.

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

    async def list_runs(self, session_id: str, *, limit: int = 50, cursor: str | None = None) -> Page[Run]:
        """Runs by turn, newest first."""
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

    async def list_sub_session_refs(self, session_id: str) -> list[SubSessionRef]:
        """Children in the order in which they were added."""
        ...

    # -- client tool calls

    async def submit_tool_result(
        self, session_id: str, submission: ToolResultSubmission, *, operation_id: str | None = None
    ) -> Submission:
        """Take a client's answer once; version +1 then.  Routed by ownership where this is a root.

        Raises:
            TooLargeError: The result exceeds 1 MiB.
        """
        ...

    async def resolve_tool_call_owner(self, root_session_id: str, tool_call_id: str) -> str | None:
        """Whose call it is, by the root's map; None if unknown."""
        ...

    async def find_expired_pending(self, now: int, *, limit: int = 200) -> list[OwnedPendingCall]:
        """Pending calls whose deadline has passed."""
        ...

    # -- lists

    async def list_sessions(self, query: SessionQuery = ...) -> SessionPage:
        """Sessions that match, by an index.

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
