"""Pure: runs, one at a time, and requests to stop one."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Literal

from helix_temporal.errors import InvalidRequestError
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
from helix_temporal.models.states import SessionState, SessionStatus
from helix_temporal.stores.protocols.session_records import RecordKey, RecordKind, SessionRecord, Wanted
from helix_temporal.stores.sessions._codec import decode, encode
from helix_temporal.stores.sessions._decisions import Decision, Seen

STARTABLE: Final = frozenset(SessionStatus) - {SessionStatus.FAILED}
"""A turn starts in these, unless the caller says otherwise."""


class _StoredRun(Run):
    """A run, and the version of the state that its start made, for repeats of it."""

    started_version: int = 0

    def public(self) -> Run:
        return Run.model_validate(self.model_dump(exclude={"started_version"}))


def run_of(record: SessionRecord) -> Run:
    """A run as callers see it."""
    return decode(Run, record.body, "run")


def find(seen: Seen, run_id: str) -> Run | None:
    """A run that was wanted."""
    record = seen.view.find(RecordKind.RUN, run_id)
    return None if record is None else run_of(record)


def wanted_for_start(run_id: str) -> Wanted:
    """What a start looks at."""
    return Wanted(keys=(RecordKey(RecordKind.RUN, run_id),), newest=(RecordKind.RUN,))


def start(
    seen: Seen, new: NewRun, expect_current_run: str | None, expect_status: Collection[SessionStatus]
) -> Decision[RunStarted | RunStartRefused]:
    """See `RunStore.start_run`."""
    state = seen.present
    again = seen.view.find(RecordKind.RUN, new.run_id)
    if again is not None:
        stored = decode(_StoredRun, again.body, "run")
        return Decision(RunStarted(run=stored.public(), new_version=stored.started_version))
    last = max(
        (run_of(each) for each in seen.view.all(RecordKind.RUN)), key=lambda run: run.turn, default=None
    )
    reason = _refusal(state, last, expect_current_run, expect_status)
    if reason is not None:
        current = last.run_id if last is not None and last.status.live else None
        return Decision(RunStartRefused(reason=reason, current_run_id=current, current_status=state.status))
    after = seen.bumped(status=SessionStatus.ACTIVE, failure_reason=None, current_run_id=new.run_id)
    stored = _StoredRun(
        **new.model_dump(),
        session_id=seen.session_id,
        turn=1 if last is None else last.turn + 1,
        started_at=seen.now,
        started_version=after.version,
    )
    return Decision(
        RunStarted(run=stored.public(), new_version=after.version), after, puts=(_record(stored),)
    )


def _refusal(
    state: SessionState, last: Run | None, expected: str | None, statuses: Collection[SessionStatus]
) -> Literal["already_running", "other_run", "status"] | None:
    if last is not None and last.status.live:
        return "already_running"
    if expected is not None and (last is None or last.run_id != expected):
        return "other_run"
    return None if state.status in statuses else "status"


@dataclass(frozen=True, slots=True)
class ChangedRun:
    """A run after a change, and what to write for it."""

    stored: _StoredRun
    puts: tuple[SessionRecord, ...] = ()
    removes: tuple[RecordKey, ...] = ()
    over: bool = False

    def current(self, run_id: str | None) -> str | None:
        """The session's current run, ``run_id`` before the change."""
        return None if self.over and run_id == self.stored.run_id else run_id

    @property
    def run(self) -> Run:
        """The run as callers see it."""
        return self.stored.public()


def wanted_for_change(run_id: str) -> tuple[RecordKey, ...]:
    """What a change of a run looks at."""
    return (RecordKey(RecordKind.RUN, run_id),)


def changed(seen: Seen, run_id: str, change: RunChange) -> ChangedRun:
    """A run after a change.

    Raises:
        InvalidRequestError: There is no such run, or it is over and the change says otherwise.
    """
    record = seen.view.find(RecordKind.RUN, run_id)
    if record is None:
        raise InvalidRequestError(
            f"session {seen.session_id!r} has no run {run_id!r}; start it first", run_id=run_id
        )
    before = decode(_StoredRun, record.body, "run")
    status = change.status or before.status
    if not before.status.live and status is not before.status:
        raise InvalidRequestError(
            f"run {run_id!r} is {before.status.value}; it cannot become {status.value}", run_id=run_id
        )
    given: dict[str, Any] = {name: getattr(change, name) for name in RunChange.model_fields}
    fields = {name: value for name, value in given.items() if value is not None}
    if before.status.live and not status.live:
        fields["ended_at"] = seen.now
    after = before.model_copy(update=fields)
    if after == before:
        return ChangedRun(before, over=not status.live)
    settled = () if status.live else (RecordKey(RecordKind.STOP, run_id),)
    return ChangedRun(after, (_record(after),), settled, over=not status.live)


def update(seen: Seen, run_id: str, change: RunChange) -> Decision[Run]:
    """See `RunStore.update_run`."""
    state = seen.present
    made = changed(seen, run_id, change)
    if not made.puts:
        return Decision(made.run)
    after = seen.bumped(current_run_id=made.current(state.current_run_id))
    return Decision(made.run, after, puts=made.puts, removes=made.removes)


def wanted_for_stop(run_id: str) -> Wanted:
    """What a request looks at."""
    return Wanted(keys=(RecordKey(RecordKind.RUN, run_id), RecordKey(RecordKind.STOP, run_id)))


def request_stop(
    seen: Seen, run_id: str, kind: StopKind, reason: str | None, *, only_current: bool
) -> Decision[StopOutcome | None]:
    """See `RunStore.request_stop`; None if the run was to be the current one and is no more."""
    current = seen.present.current_run_id
    if only_current and current != run_id:
        return Decision(None)
    run = find(seen, run_id)
    if run is None or not run.status.live:
        return Decision(StopOutcome(recorded=False))
    stored = stop_of(seen, run_id)
    if stored is not None and (stored.kind == "abort" or kind == "interrupt"):
        return Decision(StopOutcome(recorded=True, request=stored))
    request = StopRecord(run_id=run_id, kind=kind, reason=reason, requested_at=seen.now)
    record = SessionRecord(RecordKind.STOP, run_id, encode(request, "stop request"))
    return Decision(StopOutcome(recorded=True, request=request), puts=(record,))


def stop_of(seen: Seen, run_id: str) -> StopRecord | None:
    """The request that stands for a run."""
    record = seen.view.find(RecordKind.STOP, run_id)
    return None if record is None else decode(StopRecord, record.body, "stop request")


def _record(run: _StoredRun) -> SessionRecord:
    return SessionRecord(RecordKind.RUN, run.run_id, encode(run, "run"), order=run.turn)
