"""A session's life in the store: create, load, save, status, merge, counters."""

from collections.abc import Collection
from typing import Any, Final

from helix_temporal.errors import (
    InvalidRequestError,
    SessionExistsError,
    SessionNotFoundError,
    StaleStateError,
    StateBehindThreadError,
)
from helix_temporal.models.base import JsonObject, only_set
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import (
    CasConflict,
    CasOk,
    CountResult,
    CreateSession,
    MergeChanges,
    MergeResult,
    SaveResult,
    SessionState,
    SessionStatus,
    StateChange,
)
from helix_temporal.models.store_calls import UNSET, Unset
from helix_temporal.stores.protocols.session_rows import STATE_ALONE
from helix_temporal.stores.protocols.sessions import AnyVersion
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.checks import (
    checked_reason,
    checked_status,
    checked_time,
    checked_version,
    revalidate_model,
)
from helix_temporal.stores.sessions.decisions import Call, Decision, SeenSession, next_version

_NO_CHANGES: Final = MergeChanges()


def decide_creation(
    seen: SeenSession,
    options: CreateSession,
    *,
    if_not_exists: bool,
    revive: bool = True,
    buried: bool = False,
) -> Decision[SessionState]:
    """See `SessionStore.create_session`; ``buried``: an archive knows that it was deleted."""
    if seen.state is not None:
        if if_not_exists:
            return Decision(seen.state)
        raise SessionExistsError(
            f"session {seen.session_id!r} exists; continue it or choose another id",
            session_id=seen.session_id,
        )
    if (seen.view.revision or buried) and not revive:
        raise SessionNotFoundError(
            f"Session not found: {seen.session_id!r} was deleted, and this call does not begin it anew",
            session_id=seen.session_id,
        )
    fields = {name: getattr(options, name) for name in CreateSession.model_fields}
    state = SessionState(session_id=seen.session_id, **fields, created_at=seen.now, updated_at=seen.now)
    return Decision(state, state)


def check_version(state: SessionState, expected: int | AnyVersion | None) -> None:
    """Refuse a writer that does not know the present version; None and any version pass.

    Raises:
        StaleStateError: The version is another.
    """
    if expected is None or isinstance(expected, AnyVersion) or expected == state.version:
        return
    raise StaleStateError(
        f"session {state.session_id!r}: version {state.version} is stored, {expected} was expected; "
        "load it again",
        session_id=state.session_id,
        expected_version=expected,
        actual_version=state.version,
    )


def replace_state(
    seen: SeenSession, state: SessionState, expected: int | AnyVersion | None, **changes: Any
) -> SessionState:
    """``state`` as the next version of what is stored.

    Raises:
        InvalidRequestError: It is of another session, or another mode.
        StaleStateError: The version is another.
    """
    stored = seen.present
    if state.session_id != stored.session_id:
        raise InvalidRequestError(
            f"session {stored.session_id!r}: the state is of session {state.session_id!r}"
        )
    check_version(stored, state.version if expected is None else expected)
    if stored.mode is not None and state.mode not in {None, stored.mode}:
        raise InvalidRequestError(
            f"session {stored.session_id!r}: mode is {stored.mode!r} for good, not {state.mode!r}"
        )
    return next_version(state, stored, seen.now, mode=state.mode or stored.mode, **changes)


def decide_save(
    seen: SeenSession, state: SessionState, expected: int | AnyVersion | None
) -> Decision[SaveResult]:
    """See `SessionStore.save_state`."""
    after = replace_state(seen, state, expected)
    return Decision(SaveResult(new_version=after.version), after)


def decide_status(
    seen: SeenSession, status: SessionStatus, failure_reason: str | None
) -> Decision[SaveResult]:
    """See `SessionStore.update_status`."""
    after = seen.next_state(status=status, failure_reason=failure_reason)
    return Decision(SaveResult(new_version=after.version), after)


def decide_compare_and_set(
    seen: SeenSession,
    expected: Collection[SessionStatus],
    new: SessionStatus,
    expected_version: int | None,
    changes: dict[str, Any],
) -> Decision[CasOk | CasConflict]:
    """See `SessionStore.compare_and_set_status`; ``changes`` are set with the status."""
    stored = seen.present
    if stored.status not in expected or expected_version not in {None, stored.version}:
        return Decision(CasConflict(current_status=stored.status, current_version=stored.version))
    after = seen.next_state(status=new, **changes)
    return Decision(CasOk(new_version=after.version, previous_status=stored.status), after)


def fields_to_set(
    failure_reason: str | None, expires_at: int | Unset | None, cleanup_pending: bool | None
) -> dict[str, Any]:
    """The fields that a compare-and-set changes beside the status."""
    changes: dict[str, Any] = {"failure_reason": failure_reason}
    if not isinstance(expires_at, Unset):
        changes["expires_at"] = expires_at
    if cleanup_pending is not None:
        changes["cleanup_pending"] = cleanup_pending
    return changes


def decide_merge(seen: SeenSession, changes: MergeChanges) -> Decision[MergeResult]:
    """See `SessionStore.merge_custom_state`."""
    custom, warnings = apply_merge(seen.present.custom_state, changes)
    after = seen.next_state(custom_state=custom)
    return Decision(MergeResult(new_version=after.version, warnings=warnings), after)


def apply_merge(state: JsonObject, changes: MergeChanges) -> tuple[JsonObject, tuple[str, ...]]:
    """A custom state after changes by key, and which keys were not what was expected."""
    custom, warnings = dict(state), []
    for key in changes.removes:
        if key not in custom:
            warnings.append(f"{key}: was not there")
        custom.pop(key, None)
    custom.update(changes.values)
    for key, items in changes.appends.items():
        there = custom.get(key, [])
        if isinstance(there, list):
            custom[key] = [*there, *items]
        else:
            warnings.append(f"{key}: is no list; nothing was added")
    return custom, tuple(warnings)


def apply_state_change(seen: SeenSession, change: StateChange) -> tuple[SessionState, tuple[str, ...]]:
    """The next version of a state after a change by one that has not read it, and the merges' warnings.

    Raises:
        StateBehindThreadError: The state's head is before what the change ``follows``.
    """
    stored = seen.present
    _check_place(stored, change)
    names = ("head", "title", "status", "failure_reason", "error", "output", "agent_type")
    changes = only_set(**{name: getattr(change, name) for name in names})
    custom, warnings = apply_merge(stored.custom_state, change.merge or _NO_CHANGES)
    metadata, others = apply_merge(stored.metadata, change.metadata or _NO_CHANGES)
    changes |= {
        "custom_state": custom,
        "metadata": metadata,
        "step_count": stored.step_count + change.steps,
    }
    return seen.next_state(**changes), (*warnings, *(f"metadata: {each}" for each in others))


def _check_place(stored: SessionState, change: StateChange) -> None:
    if change.follows is not None and stored.head.position < change.follows:
        raise StateBehindThreadError(
            f"session {stored.session_id!r}: the state stands at {stored.head.position}, and the change "
            f"builds on one at {change.follows} or beyond; bring it forward first",
            session_id=stored.session_id,
            position=stored.head.position,
            expected=change.follows,
        )


def decide_increment(seen: SeenSession, field: str) -> Decision[CountResult]:
    """One more of ``step_count`` or ``resume_count``."""
    value = getattr(seen.present, field) + 1
    after = seen.next_state(**{field: value})
    return Decision(CountResult(value=value, new_version=after.version), after)


def decide_cleanup(seen: SeenSession) -> Decision[SaveResult]:
    """See `SessionStore.finish_cleanup`."""
    stored = seen.present
    if not stored.cleanup_pending:
        return Decision(SaveResult(new_version=stored.version))
    after = seen.next_state(cleanup_pending=False)
    return Decision(SaveResult(new_version=after.version), after)


_NEW: Final = CreateSession()


async def create_session(
    store: SessionStoreBase,
    session_id: str,
    options: CreateSession = _NEW,
    *,
    if_not_exists: bool = False,
    revive: bool = True,
    epoch: int | None = None,
    operation_id: str | None = None,
) -> SessionState:
    """See `SessionStore.create_session`."""
    options = revalidate_model(options, CreateSession)
    content = (options, if_not_exists) if revive else (options, if_not_exists, revive)
    call = Call("create_session", session_id, content, epoch, operation_id)

    async def decide(seen: SeenSession) -> Decision[SessionState]:
        asks = seen.state is None and not seen.view.revision and not revive
        buried = asks and await store.threads.is_buried(session_id)
        decision = decide_creation(seen, options, if_not_exists=if_not_exists, revive=revive, buried=buried)
        if seen.state is None and seen.view.revision:
            await store.threads.delete_left(seen)
        return decision

    return await store.make_change(call, STATE_ALONE, decide, SessionState)


async def load_state(store: SessionStoreBase, session_id: str) -> SessionState | None:
    """See `SessionStore.load_state`."""
    return (await store.view_session(session_id)).state


async def session_exists(store: SessionStoreBase, session_id: str) -> bool:
    """See `SessionStore.session_exists`."""
    return (await store.loop.view_rows(validate_id(session_id, "session id"))).state is not None


async def save_state(
    store: SessionStoreBase,
    session_id: str,
    state: SessionState,
    *,
    expected_version: int | AnyVersion | None = None,
    epoch: int | None = None,
    operation_id: str | None = None,
) -> SaveResult:
    """See `SessionStore.save_state`."""
    state = revalidate_model(state, SessionState)
    expected = checked_version(expected_version)
    call = Call("save_state", session_id, (state, _plain_version(expected)), epoch, operation_id)
    saved: SaveResult = await store.make_change(
        call, STATE_ALONE, lambda seen: decide_save(seen, state, expected), SaveResult
    )
    await store.threads.save_outline(session_id)
    return saved


async def update_status(
    store: SessionStoreBase,
    session_id: str,
    status: SessionStatus,
    *,
    failure_reason: str | None = None,
    epoch: int | None = None,
    operation_id: str | None = None,
) -> SaveResult:
    """See `SessionStore.update_status`."""
    status, reason = checked_status(status), checked_reason(failure_reason)
    call = Call("update_status", session_id, (status, reason), epoch, operation_id)
    return await store.make_change(
        call, STATE_ALONE, lambda seen: decide_status(seen, status, reason), SaveResult
    )


async def compare_and_set_status(
    store: SessionStoreBase,
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
    """See `SessionStore.compare_and_set_status`; a reason that is not given is taken away."""
    expected = sorted({checked_status(each) for each in expected})
    new, version = checked_status(new), checked_version(expected_version)
    changes = fields_to_set(checked_reason(failure_reason), checked_time(expires_at), cleanup_pending)
    call = Call("compare_and_set_status", session_id, (expected, new, version, changes), epoch, operation_id)
    return await store.make_change(
        call,
        STATE_ALONE,
        lambda seen: decide_compare_and_set(seen, expected, new, expected_version, changes),
        CasOk | CasConflict,
    )


async def merge_custom_state(
    store: SessionStoreBase,
    session_id: str,
    changes: MergeChanges,
    *,
    epoch: int | None = None,
    operation_id: str | None = None,
) -> MergeResult:
    """See `SessionStore.merge_custom_state`: first removes, then values, then appends."""
    changes = revalidate_model(changes, MergeChanges)
    call = Call("merge_custom_state", session_id, (changes,), epoch, operation_id)
    merged: MergeResult = await store.make_change(
        call, STATE_ALONE, lambda seen: decide_merge(seen, changes), MergeResult
    )
    await store.threads.save_outline(session_id)
    return merged


async def increment_step_count(
    store: SessionStoreBase, session_id: str, *, epoch: int | None = None, operation_id: str | None = None
) -> CountResult:
    """See `SessionStore.increment_step_count`."""
    call = Call("increment_step_count", session_id, (), epoch, operation_id)
    return await store.make_change(
        call, STATE_ALONE, lambda seen: decide_increment(seen, "step_count"), CountResult
    )


async def increment_resume_count(
    store: SessionStoreBase, session_id: str, *, epoch: int | None = None, operation_id: str | None = None
) -> CountResult:
    """See `SessionStore.increment_resume_count`."""
    call = Call("increment_resume_count", session_id, (), epoch, operation_id)
    return await store.make_change(
        call, STATE_ALONE, lambda seen: decide_increment(seen, "resume_count"), CountResult
    )


async def finish_cleanup(
    store: SessionStoreBase, session_id: str, *, operation_id: str | None = None
) -> SaveResult:
    """See `SessionStore.finish_cleanup`."""
    call = Call("finish_cleanup", session_id, (), None, operation_id, fenced=False)
    return await store.make_change(call, STATE_ALONE, decide_cleanup, SaveResult)


async def now(store: SessionStoreBase) -> int:
    """See `SessionStore.now`."""
    return await store.loop.rows.now()


def _plain_version(expected: int | AnyVersion | None) -> int | str | None:
    return expected.value if isinstance(expected, AnyVersion) else expected
