"""Checkpoints, staged changes and commits; runs, one a turn, and requests to stop one."""

import re
import secrets
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AliasChoices, Field

from helix_temporal.errors import InvalidIdError
from helix_temporal.models.base import CheckedObject, CheckedValue
from helix_temporal.models.ids import Id, validate_id
from helix_temporal.models.states import (
    Count,
    ErrorInfo,
    Millis,
    SessionState,
    SessionStatus,
    StoredModel,
    Text,
)
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.models.traces import TurnTrace

_CHECKPOINT: Final = re.compile(r"cpv1-(?P<session>.+)-s(?P<steps>\d+)-t(?P<at>\d+)-[0-9a-f]{6}", re.DOTALL)


class CheckpointId(NamedTuple):
    """The parts of ``cpv1-{session}-s{steps}-t{ms}-{6 hex}``, parsed from the right."""

    session_id: str
    step_count: int
    at: int

    @classmethod
    def make(cls, session_id: str, step_count: int, at: int) -> str:
        """A new id; each has 24 random bits."""
        return f"cpv1-{session_id}-s{step_count}-t{at}-{secrets.token_hex(3)}"

    @classmethod
    def parse(cls, checkpoint_id: str) -> "CheckpointId":
        """Take an id apart.

        Raises:
            InvalidIdError: It has another form.
        """
        found = _CHECKPOINT.fullmatch(checkpoint_id)
        if found is None:
            raise InvalidIdError("checkpoint id: cpv1-<session>-s<steps>-t<ms>-<6 hex> expected")
        return cls(validate_id(found["session"], "session id"), int(found["steps"]), int(found["at"]))


class CheckpointMeta(StoredModel):
    """A checkpoint without its state.

    Attributes:
        seq: Commit order in the session, from 1; ``latest`` is the highest, whatever clocks say.
        version: Of the state in this commit.
        head: The thread's committed head: messages are not copied.
        stream_sequence: Last chunk of the session's stream that is included, 0 for none.
        superseded_by: The checkpoint that a later restore went back to.
    """

    id: Text
    session_id: Id
    run_id: Text | None = None
    step_id: Text | None = None
    step_count: Count = 0
    seq: int = 0
    version: int = 1
    head: Head = EMPTY
    stream_sequence: Count = 0
    status: SessionStatus = SessionStatus.ACTIVE
    promoted_tool_call_ids: tuple[Text, ...] = ()
    at: Millis = 0
    superseded_by: Text | None = None


class Checkpoint(CheckpointMeta):
    """The state as it was committed."""

    state: SessionState

    def meta(self) -> CheckpointMeta:
        """Everything but the state."""
        return CheckpointMeta.model_validate(self.model_dump(exclude={"state"}))


class JsonPatchOp(StoredModel):
    """One operation of RFC 6902."""

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    path: Text
    value: CheckedValue = None
    from_: Annotated[
        Text | None, Field(validation_alias=AliasChoices("from", "from_"), serialization_alias="from")
    ] = None

    def as_rfc6902(self) -> dict[str, Any]:
        """The operation as a patch library wants it."""
        made: dict[str, Any] = {"op": self.op, "path": self.path}
        if self.op in ("add", "replace", "test"):
            made["value"] = self.value
        if self.op in ("move", "copy"):
            made["from"] = self.from_
        return made


class StagedChange(StoredModel):
    """One tool call's change of the custom state, kept aside until its step is committed.

    Attributes:
        patches: RFC 6902; when given, they alone count.
        merge_changes: The same change by key, for callers without patches: a list is added to the list
            that is there, anything else replaces what is there.
        replaces_lists: A list of ``merge_changes`` replaces what is there as well.
        timestamp: Changes are promoted in the order of (timestamp, tool call id).
        result: Name of the tool's result that came with the change.  The change counts if the commit names
            the result (`StepCommit.results`); with None it always counts.
    """

    tool_call_id: Id
    patches: tuple[JsonPatchOp, ...] = ()
    merge_changes: CheckedObject = Field(default_factory=dict)
    replaces_lists: bool = False
    timestamp: Millis = 0
    result: Text | None = None


class StagedRow(StoredModel):
    """A staged change and the step that it belongs to."""

    step_id: Id
    change: StagedChange


class PromoteResult(StoredModel):
    """Staged changes went into the state; with ``on_conflict="warn"`` some may not have."""

    promoted: int
    new_version: int
    warnings: tuple[str, ...] = ()


class StepCommit(StoredModel):
    """Which step a commit belongs to; (session, run, step) is its natural key.

    Attributes:
        promote: Apply and remove the step's staged changes.
        results: Names of the results that are in the thread.  A staged change that names another result is
            dropped; with None nothing is dropped.
    """

    step_id: Id
    run_id: Id | None = None
    step_count: Count = 0
    stream_sequence: Count = 0
    promote: bool = True
    results: tuple[Text, ...] | None = None


class CommitResult(StoredModel):
    """A step was committed; a repeat returns the same."""

    checkpoint_id: str
    new_version: int
    head: Head = EMPTY
    promoted: int = 0
    warnings: tuple[str, ...] = ()


class RunStatus(StrEnum):
    """How far a run is."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    ABORTED = "aborted"
    SUSPENDED_CLIENT_TOOL = "suspended_client_tool"
    SUSPENDED_AWAITING_CHILDREN = "suspended_awaiting_children"
    SUSPENDED_STEP_PARTIAL = "suspended_step_partial"
    SUPERSEDED = "superseded"

    @property
    def live(self) -> bool:
        """Not over: running, or suspended."""
        return self is RunStatus.RUNNING or self.value.startswith("suspended_")

    @property
    def is_discarded(self) -> bool:
        """Its messages were taken out of the thread, or a later attempt stands in their place."""
        return self in {RunStatus.ABORTED, RunStatus.SUPERSEDED}


class NewRun(StoredModel):
    """A run to start.

    Attributes:
        start_sequence: After this sequence of the session's stream the run's chunks come; 0 where that is
            not known.
        trace: The turn's, where it has one: a backfill makes its root from this.
    """

    run_id: Id
    start_sequence: Count = 0
    start_head: Head = EMPTY
    workflow_id: Text | None = None
    workflow_run_id: Text | None = None
    trace: TurnTrace | None = None


class Run(NewRun):
    """One turn.

    Attributes:
        turn: 1-based, dense in a session.
        completion_reason: ``completed``, ``max_steps``, ``interrupted``, ``aborted``, ``failed`` or
            ``suspended``.
    """

    session_id: Id
    turn: int
    status: RunStatus = RunStatus.RUNNING
    step_count: Count = 0
    completion_reason: Text | None = None
    error: ErrorInfo | None = None
    started_at: Millis = 0
    ended_at: Millis | None = None


class RunChange(StoredModel):
    """Changes of a run; None leaves a field as it is.  A status that is over ends the run."""

    status: RunStatus | None = None
    step_count: Count | None = None
    completion_reason: Text | None = None
    error: ErrorInfo | None = None


class RunRecorded(StoredModel):
    """The run was recorded and is the session's current one."""

    ok: Literal[True] = True
    run: Run
    new_version: int


class RunStartRefused(StoredModel):
    """Nothing was changed: the session is not where the caller planned from."""

    ok: Literal[False] = False
    reason: Literal["already_running", "other_run", "status"]
    current_run_id: Text | None = None
    current_status: SessionStatus


StopKind = Literal["interrupt", "abort"]


class StopRecord(StoredModel):
    """A durable request to stop one run: after its step, or at once."""

    run_id: Id
    kind: StopKind
    reason: Text | None = None
    requested_at: Millis = 0
    observed_at: Millis | None = None


class StopOutcome(StoredModel):
    """Whether a run was there to stop; ``request`` is what stands for it."""

    recorded: bool
    request: StopRecord | None = None
