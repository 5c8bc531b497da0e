"""Pure: what the end of a turn means to the session store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic import JsonValue

from helix_temporal.errors import InvalidMessageError
from helix_temporal.models.base import check_json
from helix_temporal.models.checkpoints import RunChange, RunStatus
from helix_temporal.models.messages import from_record
from helix_temporal.models.records import Head, Kind, Record
from helix_temporal.models.sessions import ExitReason
from helix_temporal.models.states import MergeChanges, SessionStatus, StateChange
from helix_temporal.models.steps import EndTurnInput, RunStepInput
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.protocols.hot import StepAppend

MAX_OUTPUT: Final = 8 * 1024
"""Bytes of an answer that the state has itself."""


class FinalAnswer(NamedTuple):
    """The answer that a turn ends with, and where it stands in the thread."""

    record: Record
    position: int

    @classmethod
    def at(cls, record: Record | None, position: int) -> "FinalAnswer | None":
        """That of a step; None where it asks for tools, or ends the turn without one."""
        return cls(record, position) if record is not None and record.kind == Kind.ANSWER else None


@dataclass(frozen=True, slots=True)
class Behind:
    """What a state that stands at ``at`` lacks, up to the end of the newest turn."""

    at: int
    keys: tuple[str, ...]
    steps: int


@dataclass(frozen=True, slots=True)
class TurnToCommit:
    """A turn to commit: where it ends, the slice that says what it changed, and how its run ended.

    Attributes:
        behind: The state lacks turns before it, too.
        answer: That it ends with, if it ends with one.
    """

    session_id: str
    thread_id: str
    epoch: int
    head: Head | None
    kept: SessionRecord
    status: RunStatus = RunStatus.COMPLETED
    reason: str | None = None
    append: StepAppend | None = None
    behind: Behind | None = None
    answer: FinalAnswer | None = None

    @property
    def _was_cut(self) -> bool:
        """The newest turn that the slice knows is not in the thread any more."""
        changes = self.kept.changes
        return changes is not None and self.head is not None and self.head.position <= changes.turn

    @property
    def run_id(self) -> str | None:
        """The turn's run; sessions from before the runs have none."""
        return None if self._was_cut else self.kept.run

    @property
    def step_id(self) -> str:
        """The turn's name in the session store; sessions from before the runs only count theirs."""
        return self.run_id or (f"forward/{self.epoch}" if self._was_cut else f"turn-{self.kept.turns}")

    @property
    def run(self) -> RunChange | None:
        """What becomes of the run; None where it has none."""
        if self.run_id is None:
            return None
        reason = self.reason or self.status.value
        return RunChange(status=self.status, step_count=self.kept.turn_steps, completion_reason=reason)

    @property
    def results(self) -> tuple[str, ...] | None:
        """Results of tools in the thread that came with changes of the state; None where nobody knows."""
        return None if self.kept.changes is None or self.run_id is None else self.kept.changes.staged

    @property
    def change(self) -> StateChange:
        """What the turn changes of the state."""
        kept, behind = self.kept, self.behind
        keys = kept.changed if behind is None else behind.keys
        changed = {key: kept.values[key] for key in keys if key in kept.values}
        removed = tuple(key for key in keys if key not in kept.values)
        return StateChange(
            head=self.head,
            follows=self._follows,
            merge=MergeChanges(values=changed, removes=removed) if keys else None,
            status=SessionStatus.ACTIVE,
            steps=kept.turn_steps if behind is None else behind.steps,
            output=None if self.answer is None else output_of(self.answer),
        )

    @property
    def _follows(self) -> int | None:
        if self.behind is not None:
            return self.behind.at
        return None if self.kept.changes is None else self.kept.changes.turn


def output_of(answer: FinalAnswer) -> JsonValue:
    """What the state says of a turn's answer: its text, or of a long one where it is in the thread."""
    text = from_record(answer.record).text
    if len(text.encode(errors="surrogatepass")) <= MAX_OUTPUT and _is_storable(text):
        return text
    return {"message_id": answer.record.id, "position": answer.position}


def _is_storable(text: str) -> bool:
    try:
        check_json(text)
    except InvalidMessageError:
        return False
    return True


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
