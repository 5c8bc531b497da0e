"""Inputs of the activities over the session store: ``helix.sessions.*`` and ``helix.checkpoints.*``.

``operation_id`` need not be given: the activity itself stands for it, the same for all its attempts.
These models are in workflow histories: fields are added with defaults, never renamed or removed.
"""

from typing import Literal

from helix_temporal.models._base import Model
from helix_temporal.models.checkpoints import Checkpoint, StagedChange, StagedRow, StepCommit
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import Message
from helix_temporal.models.queries import DEFAULT_LIMIT, Limit, SessionSnapshot
from helix_temporal.models.records import Epoch
from helix_temporal.models.runs import (
    NewRun,
    Run,
    RunChange,
    RunStarted,
    RunStartRefused,
    StopKind,
    StopRecord,
)
from helix_temporal.models.states import (
    CasConflict,
    CasOk,
    Count,
    CreateSession,
    MergeChanges,
    SessionState,
    SessionStatus,
    StateChange,
    SubSessionRef,
    ToolResultSubmission,
)


class SessionKey(Model):
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


class LoadSessionResult(Model):
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


class CompareAndSetStatusResult(Model):
    """Whether it was set, and otherwise what is stored."""

    outcome: CasOk | CasConflict


class MergeCustomStateInput(SessionCall):
    """Change keys of the custom state."""

    changes: MergeChanges


class DeleteSessionInput(SessionCall):
    """Remove everything of a session but its usage."""

    expected_version: int | None = None


class DeleteSessionResult(Model):
    """Whether there was one."""

    deleted: bool


class ForkSessionInput(SessionCall):
    """Copy a session under a new id."""

    new_session_id: Id
    at_checkpoint: str | None = None
    at_message: Count | None = None


class SessionMessagesInput(SessionCall):
    """Append messages, for sessions that no session workflow runs."""

    messages: tuple[Message, ...]


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


class StartRunResult(Model):
    """The run, or why it was not started."""

    outcome: RunStarted | RunStartRefused


class UpdateRunInput(SessionCall):
    """Change a run."""

    run_id: Id
    change: RunChange


class CurrentRunResult(Model):
    """The run that is live, if any."""

    run: Run | None = None


class PageInput(SessionKey):
    """A page of a session's records."""

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


class GetStopResult(Model):
    """The request, if the run is live and there is one."""

    request: StopRecord | None = None


class SubSessionRefsInput(SessionCall):
    """Insert or replace children."""

    refs: tuple[SubSessionRef, ...]


class SubSessionStatusInput(SessionCall):
    """Set a child's status."""

    sub_session_id: Id
    status: SessionStatus


class SubSessionRefsResult(Model):
    """Children in the order in which they were added."""

    refs: tuple[SubSessionRef, ...] = ()


class SubmitToolResultInput(SessionCall):
    """A client's answer to a tool call."""

    submission: ToolResultSubmission


class ListExpiredInput(Model):
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


class ListStagedResult(Model):
    """What is staged, in the order in which it would be applied."""

    rows: tuple[StagedRow, ...] = ()


class CountedResult(Model):
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


class CheckpointResult(Model):
    """The checkpoint, if there is one."""

    checkpoint: Checkpoint | None = None


class SnapshotResult(Model):
    """A consistent view; None of a session that is not there."""

    snapshot: SessionSnapshot | None = None


class ListCheckpointsInput(PageInput):
    """Checkpoints in commit order."""

    order: Literal["asc", "desc"] = "desc"


class PruneCheckpointsInput(SessionCall):
    """Remove all but the newest."""

    keep_last: int
