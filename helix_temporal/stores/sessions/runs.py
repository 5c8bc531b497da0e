"""Runs, stop requests and sub-sessions."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from helix_temporal.errors import InvalidRequestError, RemoteClientToolUnsupportedError, SessionNotFoundError
from helix_temporal.models.base import only_set
from helix_temporal.models.checkpoints import (
    NewRun,
    Run,
    RunChange,
    RunRecorded,
    RunStartRefused,
    StopKind,
    StopOutcome,
    StopRecord,
)
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import SessionState, SessionStatus, SubSessionRef
from helix_temporal.models.store_calls import DEFAULT_LIMIT, Page
from helix_temporal.stores.protocols.session_rows import (
    RowKey,
    RowKind,
    SessionRow,
    WantedRows,
)
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.checks import (
    checked_count,
    checked_reason,
    checked_status,
    revalidate_model,
)
from helix_temporal.stores.sessions.decisions import Call, Decision, SeenSession, decode_model, encode_model
from helix_temporal.stores.sessions.loop import with_step_rows

STARTABLE: Final = frozenset(SessionStatus) - {SessionStatus.FAILED}
"""A turn starts in these, unless the caller says otherwise."""


class _StoredRun(Run):
    """A run, and the version of the state that its start made, for repeats of it."""

    started_version: int = 0

    def as_run(self) -> Run:
        return Run.model_validate(self.model_dump(exclude={"started_version"}))


def run_of(row: SessionRow) -> Run:
    """A run as callers see it."""
    return decode_model(Run, row.body, "run")


def find_run(seen: SeenSession, run_id: str) -> Run | None:
    """A run that was wanted."""
    row = seen.view.find_row(RowKind.RUN, run_id)
    return None if row is None else run_of(row)


def wanted_for_start(run_id: str) -> WantedRows:
    """What a start looks at."""
    return WantedRows(keys=(RowKey(RowKind.RUN, run_id),), newest=(RowKind.RUN,))


def decide_start(
    seen: SeenSession, new: NewRun, expect_current_run: str | None, expect_status: Collection[SessionStatus]
) -> Decision[RunRecorded | RunStartRefused]:
    """See `RunStore.start_run`."""
    state = seen.present
    again = seen.view.find_row(RowKind.RUN, new.run_id)
    if again is not None:
        stored = decode_model(_StoredRun, again.body, "run")
        return Decision(RunRecorded(run=stored.as_run(), new_version=stored.started_version))
    last = max(
        (run_of(each) for each in seen.view.list_rows(RowKind.RUN)),
        key=lambda run: run.turn,
        default=None,
    )
    reason = _refusal_reason(state, last, expect_current_run, expect_status)
    if reason is not None:
        current = last.run_id if last is not None and last.status.live else None
        return Decision(RunStartRefused(reason=reason, current_run_id=current, current_status=state.status))
    after = seen.next_state(status=SessionStatus.ACTIVE, failure_reason=None, current_run_id=new.run_id)
    stored = _StoredRun(
        **new.model_dump(),
        session_id=seen.session_id,
        turn=1 if last is None else last.turn + 1,
        started_at=seen.now,
        started_version=after.version,
    )
    return Decision(
        RunRecorded(run=stored.as_run(), new_version=after.version), after, puts=(_run_row(stored),)
    )


def _refusal_reason(
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
    puts: tuple[SessionRow, ...] = ()
    removes: tuple[RowKey, ...] = ()
    over: bool = False

    def current_after(self, run_id: str | None) -> str | None:
        """The session's current run, ``run_id`` before the change."""
        return None if self.over and run_id == self.stored.run_id else run_id

    @property
    def run(self) -> Run:
        """The run as callers see it."""
        return self.stored.as_run()


def wanted_for_change(run_id: str) -> tuple[RowKey, ...]:
    """What a change of a run looks at."""
    return (RowKey(RowKind.RUN, run_id),)


def change_run(seen: SeenSession, run_id: str, change: RunChange) -> ChangedRun:
    """A run after a change.

    Raises:
        InvalidRequestError: There is no such run, or it is over and the change says otherwise.
    """
    row = seen.view.find_row(RowKind.RUN, run_id)
    if row is None:
        raise InvalidRequestError(
            f"session {seen.session_id!r} has no run {run_id!r}; start it first", run_id=run_id
        )
    before = decode_model(_StoredRun, row.body, "run")
    status = change.status or before.status
    if not before.status.live and status is not before.status:
        raise InvalidRequestError(
            f"run {run_id!r} is {before.status.value}; it cannot become {status.value}", run_id=run_id
        )
    fields = only_set(**{name: getattr(change, name) for name in RunChange.model_fields})
    if before.status.live and not status.live:
        fields["ended_at"] = seen.now
    after = before.model_copy(update=fields)
    if after == before:
        return ChangedRun(before, over=not status.live)
    stop_request = () if status.live else (RowKey(RowKind.STOP, run_id),)
    return ChangedRun(after, (_run_row(after),), stop_request, over=not status.live)


def decide_update(seen: SeenSession, run_id: str, change: RunChange) -> Decision[Run]:
    """See `RunStore.update_run`."""
    state = seen.present
    made = change_run(seen, run_id, change)
    if not made.puts:
        return Decision(made.run)
    after = seen.next_state(current_run_id=made.current_after(state.current_run_id))
    return Decision(made.run, after, puts=made.puts, removes=made.removes)


def wanted_for_stop(run_id: str) -> WantedRows:
    """What a request looks at."""
    return WantedRows(keys=(RowKey(RowKind.RUN, run_id), RowKey(RowKind.STOP, run_id)))


def decide_stop(
    seen: SeenSession, run_id: str, kind: StopKind, reason: str | None, *, only_current: bool
) -> Decision[StopOutcome | None]:
    """See `RunStore.request_stop`; None if the run was to be the current one and is no more."""
    current = seen.present.current_run_id
    if only_current and current != run_id:
        return Decision(None)
    run = find_run(seen, run_id)
    if run is None or not run.status.live:
        return Decision(StopOutcome(recorded=False))
    stored = stop_of(seen, run_id)
    if stored is not None and (stored.kind == "abort" or kind == "interrupt"):
        return Decision(StopOutcome(recorded=True, request=stored))
    request = StopRecord(run_id=run_id, kind=kind, reason=reason, requested_at=seen.now)
    row = SessionRow(RowKind.STOP, run_id, encode_model(request, "stop request"))
    return Decision(StopOutcome(recorded=True, request=request), puts=(row,))


def stop_of(seen: SeenSession, run_id: str) -> StopRecord | None:
    """The request that stands for a run."""
    row = seen.view.find_row(RowKind.STOP, run_id)
    return None if row is None else decode_model(StopRecord, row.body, "stop request")


def row_of_run(run: Run, started_version: int) -> SessionRow:
    """A run of another store as this one keeps it.

    Args:
        run: As callers see it.
        started_version: What a repeat of its start is told of the state.
    """
    return _run_row(_StoredRun(**run.model_dump(), started_version=started_version))


def row_of_child(ref: SubSessionRef, order: int) -> SessionRow:
    """A child of a session of another store as this one keeps it, at a place in the order of children."""
    return _child_row(ref, order)


def _run_row(run: _StoredRun) -> SessionRow:
    return SessionRow(RowKind.RUN, run.run_id, encode_model(run, "run"), order=run.turn)


def wanted_children(names: Sequence[str]) -> WantedRows:
    """What adding or changing these children looks at."""
    keys = tuple(RowKey(RowKind.REF, name) for name in names)
    return WantedRows(keys=keys, newest=(RowKind.REF,))


def decide_child_refs(seen: SeenSession, refs: Sequence[SubSessionRef]) -> Decision[None]:
    """See `RunStore.add_sub_session_refs`: new ones after all others, known ones in their old place."""
    _ = seen.present
    place = max((each.order for each in seen.view.list_rows(RowKind.REF)), default=0)
    puts: dict[str, SessionRow] = {}
    for ref in refs:
        before = seen.view.find_row(RowKind.REF, ref.sub_session_id) or puts.get(ref.sub_session_id)
        if before is None:
            place += 1
        since = decode_model(SubSessionRef, before.body, "child").created_at if before else seen.now
        stamped = ref.model_copy(
            update={"created_at": ref.created_at or since, "updated_at": ref.updated_at or seen.now}
        )
        puts[ref.sub_session_id] = _child_row(stamped, before.order if before else place)
    return Decision(None, puts=tuple(puts.values()))


def decide_child_status(seen: SeenSession, name: str, status: SessionStatus) -> Decision[SubSessionRef]:
    """See `RunStore.update_sub_session_ref`."""
    _ = seen.present
    before = seen.view.find_row(RowKind.REF, name)
    if before is None:
        raise SessionNotFoundError(
            f"session {seen.session_id!r} has no sub-session {name!r}", session_id=seen.session_id, child=name
        )
    ref = ref_of(before)
    if ref.status is status:
        return Decision(ref)
    after = ref.model_copy(update={"status": status, "updated_at": max(seen.now, ref.updated_at)})
    return Decision(after, puts=(_child_row(after, before.order),))


def decide_child_removal(seen: SeenSession, name: str) -> Decision[bool]:
    """See `RunStore.remove_sub_session_ref`."""
    _ = seen.present
    if seen.view.find_row(RowKind.REF, name) is None:
        return Decision(False)
    return Decision(True, removes=(RowKey(RowKind.REF, name),))


def check_here(seen: SeenSession, name: str) -> None:
    """Refuse what can't be handed to a child that runs elsewhere.

    Raises:
        RemoteClientToolUnsupportedError: The child is such a one.
    """
    found = seen.view.find_row(RowKind.REF, name)
    remote = None if found is None else ref_of(found).remote
    if remote is not None:
        raise RemoteClientToolUnsupportedError(
            f"session {seen.session_id!r}: sub-session {name!r} runs elsewhere, at {remote.endpoint_id!r}; "
            "its calls are answered there, or must be of tools that it executes itself",
            session_id=seen.session_id,
            child=name,
        )


def ref_of(row: SessionRow) -> SubSessionRef:
    """A child as it was added."""
    return decode_model(SubSessionRef, row.body, "child")


def _child_row(ref: SubSessionRef, order: int) -> SessionRow:
    return SessionRow(RowKind.REF, ref.sub_session_id, encode_model(ref, "child"), order=order)


_TRIES: Final = 20
_MANY: Final = 1_000
_LAST_TURN: Final = 2**53 - 2
"""All stores can compare this number, and the next one."""


async def start_run(
    store: SessionStoreBase,
    session_id: str,
    run: NewRun,
    *,
    expect_current_run: str | None = None,
    expect_status: Collection[SessionStatus] = STARTABLE,
    epoch: int | None = None,
    operation_id: str | None = None,
) -> RunRecorded | RunStartRefused:
    """See `RunStore.start_run`; a session that starts a run becomes active.

    Unless told otherwise it starts in every status but ``failed``.
    """
    run, statuses = (
        revalidate_model(run, NewRun),
        sorted({checked_status(each) for each in expect_status}),
    )
    call = Call("start_run", session_id, (run, expect_current_run, statuses), epoch, operation_id)
    wanted = wanted_for_start(run.run_id)
    if store.loop.recall is not None:
        # The session workflow commits a turn as a step of its run's name.
        wanted = with_step_rows(wanted, run.run_id)
    done = await store.loop.make_change(
        call,
        wanted,
        lambda seen: decide_start(seen, run, expect_current_run, statuses),
        RunRecorded | RunStartRefused,
        keeps=True,
        new_at=run.start_head,
    )
    return done.answer


async def update_run(
    store: SessionStoreBase,
    session_id: str,
    run_id: str,
    change: RunChange,
    *,
    epoch: int | None = None,
    operation_id: str | None = None,
) -> Run:
    """See `RunStore.update_run`."""
    run_id, change = validate_id(run_id, "run id"), revalidate_model(change, RunChange)
    call = Call("update_run", session_id, (run_id, change), epoch, operation_id)
    wanted = WantedRows(keys=wanted_for_change(run_id))
    return await store.make_change(call, wanted, lambda seen: decide_update(seen, run_id, change), Run)


async def get_run(store: SessionStoreBase, session_id: str, run_id: str) -> Run | None:
    """See `RunStore.get_run`."""
    wanted = WantedRows(keys=wanted_for_change(validate_id(run_id, "run id")))
    return find_run(await store.view_session(session_id, wanted), run_id)


async def get_current_run(store: SessionStoreBase, session_id: str) -> Run | None:
    """See `RunStore.get_current_run`."""
    seen = await store.view_session(session_id, WantedRows(newest=(RowKind.RUN,)))
    live = [run for run in map(run_of, seen.view.list_rows(RowKind.RUN)) if run.status.live]
    return live[-1] if live else None


async def list_runs(
    store: SessionStoreBase,
    session_id: str,
    *,
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
    through_turn: int | None = None,
    count: bool = True,
) -> Page[Run]:
    """See `RunStore.list_runs`."""
    after = None
    if through_turn is not None:
        # No key sorts before the empty one: the page goes on with the turn below.
        after = min(checked_count(through_turn, "through_turn"), _LAST_TURN) + 1, ""
    return await store.read_page(
        session_id,
        RowKind.RUN,
        run_of,
        limit=limit,
        cursor=cursor,
        descending=True,
        after=after,
        count=count,
    )


async def request_stop(
    store: SessionStoreBase,
    session_id: str,
    *,
    kind: StopKind,
    run_id: str | None = None,
    reason: str | None = None,
) -> StopOutcome:
    """See `RunStore.request_stop`."""
    if kind not in {"interrupt", "abort"}:
        raise InvalidRequestError("kind: interrupt or abort expected")
    reason = checked_reason(reason)
    call = Call("request_stop", session_id, fenced=False)
    for _ in range(_TRIES):
        name = run_id or (await store.view_session(session_id)).present.current_run_id
        if name is None:
            break
        wanted = wanted_for_stop(validate_id(name, "run id"))
        outcome = await store.make_change(
            call,
            wanted,
            lambda seen, name=name: decide_stop(  # type: ignore[misc]
                seen, name, kind, reason, only_current=run_id is None
            ),
            StopOutcome | None,
        )
        if outcome is not None:
            return outcome
    return StopOutcome(recorded=False)


async def get_stop_request(store: SessionStoreBase, session_id: str, run_id: str) -> StopRecord | None:
    """See `RunStore.get_stop_request`."""
    wanted = wanted_for_stop(validate_id(run_id, "run id"))
    return stop_of(await store.view_session(session_id, wanted), run_id)


async def add_sub_session_refs(
    store: SessionStoreBase, session_id: str, refs: Sequence[SubSessionRef], *, epoch: int | None = None
) -> None:
    """See `RunStore.add_sub_session_refs`."""
    added = [revalidate_model(ref, SubSessionRef) for ref in refs]
    call = Call("add_sub_session_refs", session_id, epoch=epoch)
    wanted = wanted_children([ref.sub_session_id for ref in added])
    await store.make_change(call, wanted, lambda seen: decide_child_refs(seen, added), type(None))


async def update_sub_session_ref(
    store: SessionStoreBase,
    session_id: str,
    sub_session_id: str,
    status: SessionStatus,
    *,
    epoch: int | None = None,
) -> SubSessionRef:
    """See `RunStore.update_sub_session_ref`."""
    name, status = validate_id(sub_session_id, "sub-session id"), checked_status(status)
    call = Call("update_sub_session_ref", session_id, epoch=epoch)
    return await store.make_change(
        call,
        wanted_children([name]),
        lambda seen: decide_child_status(seen, name, status),
        SubSessionRef,
    )


async def remove_sub_session_ref(
    store: SessionStoreBase, session_id: str, sub_session_id: str, *, epoch: int | None = None
) -> bool:
    """See `RunStore.remove_sub_session_ref`."""
    name = validate_id(sub_session_id, "sub-session id")
    call = Call("remove_sub_session_ref", session_id, epoch=epoch)
    return await store.make_change(
        call, wanted_children([name]), lambda seen: decide_child_removal(seen, name), bool
    )


async def list_sub_session_refs(store: SessionStoreBase, session_id: str) -> list[SubSessionRef]:
    """See `RunStore.list_sub_session_refs`."""
    session_id, found, after = validate_id(session_id, "session id"), [], None
    while True:
        page = await store.loop.rows.read_page(session_id, RowKind.REF, limit=_MANY, after=after, count=False)
        found += [ref_of(each) for each in page.rows]
        if len(page.rows) < _MANY:
            return found
        after = (page.rows[-1].order, page.rows[-1].key)
