"""Pure: what the end of a turn means to the session store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helix_temporal.models.records import Head
from helix_temporal.models.runs import RunChange, RunStatus
from helix_temporal.models.sessions import ExitReason, SliceState
from helix_temporal.models.states import MergeChanges, SessionStatus, StateChange
from helix_temporal.models.steps import EndTurnInput, RunStepInput
from helix_temporal.stores.protocols.hot import StepAppend


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn to commit: where it ends, the slice that says what it changed, and how its run ended."""

    session_id: str
    epoch: int
    head: Head | None
    kept: SliceState
    status: RunStatus = RunStatus.COMPLETED
    reason: str | None = None
    append: StepAppend | None = None

    @property
    def step_id(self) -> str:
        """The turn's name in the session store; sessions from before the runs only count theirs."""
        return self.kept.run or f"turn-{self.kept.turns}"

    @property
    def run(self) -> RunChange | None:
        """What becomes of the run; None where it has none."""
        if self.kept.run is None:
            return None
        reason = self.reason or self.status.value
        return RunChange(status=self.status, step_count=self.kept.turn_steps, completion_reason=reason)

    @property
    def change(self) -> StateChange:
        """What the turn changes of the state."""
        kept = self.kept
        changed = {key: kept.values[key] for key in kept.changed if key in kept.values}
        removed = tuple(key for key in kept.changed if key not in kept.values)
        return StateChange(
            head=self.head,
            merge=MergeChanges(values=changed, removes=removed) if kept.changed else None,
            status=SessionStatus.ACTIVE,
            steps=kept.turn_steps,
        )


def with_changes(
    custom: Mapping[str, Any], values: Mapping[str, Any], changed: Sequence[str] | None
) -> dict[str, Any]:
    """A custom state with the application's changes in it; what it did not change is others'."""
    if changed is None:
        return dict(values)
    kept = {key: value for key, value in custom.items() if key not in changed}
    return kept | {key: values[key] for key in changed if key in values}


def ending(request: RunStepInput | EndTurnInput) -> tuple[RunStatus, str | None]:
    """How the run of a turn ends, and why."""
    if isinstance(request, RunStepInput) or request.reason is None:
        return RunStatus.COMPLETED, None
    interrupted = request.reason is ExitReason.INTERRUPTED
    return RunStatus.INTERRUPTED if interrupted else RunStatus.COMPLETED, request.reason.value
