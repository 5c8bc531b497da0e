"""The session store: the durable side of a session beside its thread.

Every mutation takes ``epoch`` (the fence: the store remembers the highest one of a session and refuses
lower ones with `FencedError`; None writes unfenced unless the store requires fences) and
``operation_id`` (a repeat with the same request returns the first answer, with another request it is an
`IdempotencyConflictError`; the record is written with its effect).  All raise `StoreUnavailableError`
on connection trouble and `SessionNotFoundError` where nothing else is said.  Bad input changes nothing.
Times are ms since 1970.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Literal, Protocol

from helix_temporal.models.messages import Message
from helix_temporal.models.queries import (
    UNSET,
    AppendResult,
    DueSession,
    ExpiredSession,
    MessagePage,
    Page,
    SessionPage,
    SessionQuery,
    Unset,
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
    ToolResultSubmission,
)
from helix_temporal.stores.protocols.checkpoints import ANY_VERSION, AnyVersion, CheckpointStore
from helix_temporal.stores.protocols.runs import RunStore

__all__ = ["ANY_VERSION", "AnyVersion", "SessionStore"]


class SessionStore(CheckpointStore, RunStore, Protocol):
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
