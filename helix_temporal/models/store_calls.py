"""Inputs of the activities over the session store and its locks; pages and filters."""

from collections.abc import Collection
from enum import Enum
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, get_args

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
)

from helix_temporal.models.base import CheckedObject, KnownFields, WireModel
from helix_temporal.models.checkpoints import (
    Checkpoint,
    NewRun,
    Run,
    RunChange,
    RunRecorded,
    RunStartRefused,
    StagedChange,
    StagedRow,
    StepCommit,
    StopKind,
    StopRecord,
)
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import Message
from helix_temporal.models.states import (
    CasConflict,
    CasOk,
    Count,
    CreateSession,
    MergeChanges,
    Millis,
    SessionState,
    SessionStatus,
    StateChange,
    StoredModel,
    SubSessionRef,
    Text,
    ToolResultSubmission,
)
from helix_temporal.models.stored_messages import Epoch, Head

DEFAULT_TTL_MS: Final = 30_000
MAX_TTL_MS: Final = 400 * 24 * 3600 * 1000
"""400 days."""

FencingToken = Annotated[int, Field(strict=True, ge=1, lt=2**63)]
"""Grows with every grant of a key, for ever; the microsecond of the grant, or one more than the last."""

TtlMs = Annotated[int, Field(strict=True)]
"""Milliseconds; the store checks the range."""


class LockInfo(WireModel):
    """A lease as the store granted it.

    Attributes:
        fencing_token: What the holder writes under (as ``epoch``): a store refuses a lower one.
        ttl_ms: Milliseconds from a grant or refresh to its end.
        acquired_at, expires_at: Milliseconds since 1970 by the store's clock.
    """

    key: str
    owner: str
    fencing_token: FencingToken
    ttl_ms: int
    acquired_at: int
    expires_at: int


class AcquireLockInput(WireModel):
    """Take a lease.

    Attributes:
        operation_id: Minted in the workflow; all attempts with the same one get the same token.
        owner: Defaults to the calling workflow's first execution.
    """

    key: Id
    operation_id: Id
    ttl_ms: TtlMs | None = None
    owner: Id | None = None


class AcquireLockResult(WireModel):
    """The lease, or none if somebody else holds one."""

    lock: LockInfo | None = None


class RefreshLockInput(WireModel):
    """Make a lease last ``ttl_ms`` from now; by default as long as it was taken for."""

    key: Id
    fencing_token: FencingToken
    ttl_ms: TtlMs | None = None


class RefreshLockResult(WireModel):
    """Whether the token still held the lock; false is for good."""

    held: bool


class ReleaseLockInput(WireModel):
    """Give a lease back."""

    key: Id
    fencing_token: FencingToken


class ReleaseLockResult(WireModel):
    """Whether this call freed the lock; a repeat, or one that comes after the end, did not."""

    released: bool


T = TypeVar("T")

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 200

Limit = Annotated[int, Field(strict=True, ge=1, le=MAX_LIMIT)]


class Unset(Enum):
    """For filters where None means something."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


def _or_unset(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    return value if isinstance(value, Unset) else validate(value)


class Page(StoredModel, Generic[T]):
    """A page and where to go on.

    Attributes:
        total: How many there are on all pages; None where only reading them all would tell.
    """

    items: tuple[T, ...]
    next_cursor: str | None = None
    has_more: bool = False
    total: int | None = None


class PageMessagesResult(StoredModel):
    """Messages by position, as the session store pages them."""

    messages: tuple[Message, ...]
    offset: int
    limit: int
    total: int
    has_more: bool


class AppendResult(StoredModel):
    """Where messages stand; a repeat gets the same answer.

    Attributes:
        first_index: The position of the first message; where none was given, that of the next one.
        count: How many messages were given.
        head: The place after the last message.
        new_version: Of the state, if a change of it was asked for.
        warnings: Of that change: each names a key that was not what it expected.
    """

    first_index: int
    count: int
    head: Head
    new_version: int | None = None
    warnings: tuple[str, ...] = ()


class CutMessages(StoredModel):
    """The newest messages, taken back.

    Attributes:
        messages: Those that were, oldest first.
        head: Where the rest ends.
    """

    messages: tuple[Message, ...]
    head: Head


class OrderBy(StoredModel):
    """The order of a list; equal times go by session id."""

    field: Literal["created_at", "updated_at"] = "updated_at"
    direction: Literal["asc", "desc"] = "desc"

    @property
    def cursor_scope(self) -> str:
        """The kind of cursor that pages in this order have."""
        return f"sessions.{self.field}.{self.direction}"


ListedField = Literal["custom_state"]
"""What lists show only if it is asked for, because it may be large."""


class SessionQuery(StoredModel, KnownFields):
    """Which sessions to list; all filters must match.

    Attributes:
        parent_session_id: None lists roots only; unset does not filter.
        tags: All must be there.
        metadata: All pairs must be there; compares text values.
        date_from, date_to: Of ``date_field``, from inclusive, to exclusive.
        offset: For numbered pages.  A ``cursor`` stays complete while sessions change.
        include: What the summaries are to have besides.  A custom state may have 16 MiB: take a small
            ``limit``.
        count: Count all that match, for `SessionPage.total`; a million takes a database seconds.
    """

    user_id: Text | None = None
    agent_type: Text | None = None
    status: tuple[SessionStatus, ...] = ()
    parent_session_id: Annotated[Id | Unset | None, WrapValidator(_or_unset)] = UNSET
    tags: tuple[Text, ...] = ()
    metadata: dict[str, Text] = Field(default_factory=dict)
    date_field: Literal["created_at", "updated_at"] = "created_at"
    date_from: Millis | None = None
    date_to: Millis | None = None
    order_by: OrderBy = OrderBy()
    limit: Limit = DEFAULT_LIMIT
    offset: Count = 0
    cursor: str | None = None
    include: tuple[ListedField, ...] = ()
    count: bool = True

    @property
    def whole(self) -> bool:
        """Whether more is asked for than every summary has."""
        return bool(self.include)

    def named(self) -> dict[str, Any]:
        """The fields that were given."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @model_serializer(mode="wrap")
    def _without_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # As text it could not be told from the id "unset".
        fields: dict[str, Any] = write(self)
        if isinstance(self.parent_session_id, Unset):
            fields.pop("parent_session_id", None)
        return fields


class SessionSummary(StoredModel):
    """A session in a list: what a row of it shows, so that none has to be loaded for that.

    Attributes:
        custom_state: None unless `SessionQuery.include` asks for it.
        updated_at: When the state was last changed, or messages were last appended.
    """

    session_id: Id
    agent_type: Text = ""
    user_id: Text | None = None
    title: Text = ""
    status: SessionStatus
    version: int
    step_count: int
    tags: tuple[Text, ...] = ()
    metadata: CheckedObject = Field(default_factory=dict)
    custom_state: CheckedObject | None = None
    parent_session_id: Id | None = None
    expires_at: Millis | None = None
    created_at: Millis
    updated_at: Millis

    @classmethod
    def of(cls, state: SessionState, include: Collection[ListedField] = ()) -> "SessionSummary":
        """What a list shows of a state."""
        names = _SHOWN | set(include)
        return cls.model_validate({name: getattr(state, name) for name in names})

    @classmethod
    def of_bytes(cls, body: bytes, include: Collection[ListedField] = ()) -> "SessionSummary":
        """What a list shows of a state, or of a summary, as it is stored.

        Raises:
            ValidationError: The bytes are neither.
        """
        found = cls.model_validate_json(body)
        return found.model_copy(update=dict.fromkeys(_ASKED_FOR - set(include)))

    @classmethod
    def bytes_of(cls, state: SessionState) -> bytes:
        """What stores keep for lists beside a state, or in an index of theirs; `of_bytes` reads it."""
        return state.model_dump_json(include=_SHOWN).encode()


_ASKED_FOR: Final = frozenset(get_args(ListedField))
_SHOWN: Final = {*SessionSummary.model_fields} - _ASKED_FOR


class SessionPage(StoredModel):
    """A page of sessions.

    Attributes:
        total: Counts all that match; None where `SessionQuery.count` is off.
        damaged: How many of the page are left out, as what is stored of them cannot be read; the log says
            which.
    """

    sessions: tuple[SessionSummary, ...]
    total: int | None
    offset: int
    limit: int
    has_more: bool
    next_cursor: str | None = None
    damaged: Count = 0


class ExpiredSession(StoredModel):
    """A session past its time, or with a clean-up that is not finished."""

    session_id: Id
    expires_at: Millis | None
    cleanup_pending: bool = False


class DueSession(StoredModel):
    """A session that waits although a deadline has passed; ``due_at`` is the earliest of `call_deadlines`."""

    session_id: Id
    due_at: Millis


def call_deadlines(state: SessionState) -> tuple[int, ...]:
    """When somebody is to look after a session that waits, in no order.

    That is when a client tool call without an answer, or the call of a sub-agent that has ended while it
    waits, has used up its time.
    """
    calls = state.pending_client_tool_calls.values()
    below = state.suspended_awaiting_children
    times = (
        *(each.deadline_at for each in calls if each.response is None),
        *(each.until for each in below if not each.resolved),
    )
    return tuple(each for each in times if each is not None)


class SessionSnapshot(StoredModel):
    """One consistent view for a user interface: a checkpoint and the messages up to it."""

    state: SessionState
    checkpoint_id: str | None
    messages: tuple[Message, ...]
    head: Head
    stream_sequence: int
    status: SessionStatus


class SessionKey(WireModel):
    """Names a session."""

    session_id: Id


class SessionCall(SessionKey):
    """A change of a session.

    Attributes:
        epoch: The fence; None writes unfenced.
    """

    epoch: Epoch | None = None
    operation_id: Id | None = None


class CreateSessionInput(SessionCall):
    """Make a session."""

    options: CreateSession = CreateSession()
    if_not_exists: bool = False


class LoadSessionResult(WireModel):
    """The state; None if there is no such session."""

    state: SessionState | None = None


class SaveSessionInput(SessionCall):
    """Replace the state; without ``expected_version`` the state's own counts."""

    state: SessionState
    expected_version: int | None = None


class UpdateStatusInput(SessionCall):
    """Set the status whatever it was."""

    status: SessionStatus
    failure_reason: str | None = None


class CompareAndSetStatusInput(SessionCall):
    """Set the status if it is one of ``expected``."""

    expected: tuple[SessionStatus, ...]
    new: SessionStatus
    expected_version: int | None = None
    failure_reason: str | None = None


class CompareAndSetStatusResult(WireModel):
    """Whether it was set, and otherwise what is stored."""

    outcome: CasOk | CasConflict


class MergeCustomStateInput(SessionCall):
    """Change keys of the custom state."""

    changes: MergeChanges


class DeleteSessionInput(SessionCall):
    """Remove everything of a session but its usage."""

    expected_version: int | None = None


class DeleteSessionResult(WireModel):
    """Whether there was one."""

    deleted: bool


class ForkSessionInput(SessionCall):
    """Copy a session under a new id."""

    new_session_id: Id
    at_checkpoint: str | None = None
    at_message: Count | None = None


OnDuplicate = Literal["error", "keep_first"]
"""What becomes of a message whose id stands in the thread with other content: refused, or left out."""


class SessionMessagesInput(SessionCall):
    """Append messages, for sessions that no session workflow runs; as `SessionStore.append_messages`."""

    messages: tuple[Message, ...]
    touch: bool = True
    change: StateChange | None = None
    on_duplicate: OnDuplicate = "error"
    expected_version: int | None = None


class PageMessagesInput(SessionKey):
    """A page of messages by position."""

    offset: Count = 0
    limit: Limit = DEFAULT_LIMIT
    order: Literal["asc", "desc"] = "asc"


class TruncateMessagesInput(SessionCall):
    """Cut the thread back to its first ``count`` messages."""

    count: Count
    expected_version: int | None = None


class StartRunInput(SessionCall):
    """Start a run, if the session is where the caller planned from."""

    run: NewRun
    expect_current_run: str | None = None
    expect_status: tuple[SessionStatus, ...] = tuple(SessionStatus)


class StartRunResult(WireModel):
    """The run, or why it was not started."""

    outcome: RunRecorded | RunStartRefused


class UpdateRunInput(SessionCall):
    """Change a run."""

    run_id: Id
    change: RunChange


class CurrentRunResult(WireModel):
    """The run that is live, if any."""

    run: Run | None = None


class PageInput(SessionKey):
    """A page of what is listed of a session."""

    limit: Limit = DEFAULT_LIMIT
    cursor: str | None = None


class RequestStopInput(SessionKey):
    """Ask a run to stop: the current one, or just this one."""

    kind: StopKind = "interrupt"
    run_id: str | None = None
    reason: str | None = None


class GetStopInput(SessionKey):
    """What was asked of a run."""

    run_id: Id


class GetStopResult(WireModel):
    """The request, if the run is live and there is one."""

    request: StopRecord | None = None


class SubSessionRefsInput(SessionCall):
    """Insert or replace children."""

    refs: tuple[SubSessionRef, ...]


class SubSessionStatusInput(SessionCall):
    """Set a child's status."""

    sub_session_id: Id
    status: SessionStatus


class SubSessionRefsResult(WireModel):
    """Children in the order in which they were added."""

    refs: tuple[SubSessionRef, ...] = ()


class SubmitToolResultInput(SessionCall):
    """A client's answer to a tool call."""

    submission: ToolResultSubmission


class ListExpiredInput(WireModel):
    """Sessions past their time by the store's clock."""

    limit: Limit = DEFAULT_LIMIT
    cursor: str | None = None


class StageChangesInput(SessionCall):
    """Keep one tool call's change aside."""

    step_id: Id
    change: StagedChange


class StepKey(SessionCall):
    """Names a step."""

    step_id: Id


class ListStagedResult(WireModel):
    """What is staged, in the order in which it would be applied."""

    rows: tuple[StagedRow, ...] = ()


class CountedResult(WireModel):
    """How many."""

    count: int


class PromoteStagingInput(StepKey):
    """Fold a step's staged changes into the custom state; ``results`` as in `StepCommit`."""

    results: tuple[str, ...] | None = None
    expected_version: int | None = None
    on_conflict: Literal["error", "warn"] = "error"


class CommitStepInput(SessionCall):
    """Commit a step: a state that replaces the stored one, or a change of it.

    Attributes:
        messages: The step's, for the end of the session's thread.
    """

    state: SessionState | None = None
    change: StateChange | None = None
    step: StepCommit
    run: RunChange | None = None
    expected_version: int | None = None
    messages: tuple[Message, ...] = ()


class CheckpointKey(SessionCall):
    """Names a checkpoint."""

    checkpoint_id: str
    expected_version: int | None = None


class LatestCheckpointInput(SessionKey):
    """The one committed last, of a run if one is named."""

    run_id: str | None = None


class CheckpointResult(WireModel):
    """The checkpoint, if there is one."""

    checkpoint: Checkpoint | None = None


class SnapshotResult(WireModel):
    """A consistent view; None of a session that is not there."""

    snapshot: SessionSnapshot | None = None


class ListCheckpointsInput(PageInput):
    """Checkpoints in commit order."""

    order: Literal["asc", "desc"] = "desc"


class PruneCheckpointsInput(SessionCall):
    """Remove all but the newest."""

    keep_last: int
