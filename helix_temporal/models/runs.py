"""Runs, one a turn, and requests to stop one."""

from enum import StrEnum
from typing import Literal

from helix_temporal.models.ids import Id
from helix_temporal.models.records import EMPTY, Head
from helix_temporal.models.states import Count, ErrorInfo, Millis, SessionStatus, StoredModel, Text


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


class NewRun(StoredModel):
    """A run to start.

    Attributes:
        start_sequence: After this sequence of the session's stream the run's chunks come; 0 where that is
            not known.
    """

    run_id: Id
    start_sequence: Count = 0
    start_head: Head = EMPTY
    workflow_id: Text | None = None
    workflow_run_id: Text | None = None


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


class RunStarted(StoredModel):
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
