"""Pure: what creating, saving and the small changes make of a state."""

from collections.abc import Collection
from typing import Any

from helix_temporal.errors import InvalidRequestError, SessionExistsError, StaleStateError
from helix_temporal.models._json import JsonObject
from helix_temporal.models.queries import Unset
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
)
from helix_temporal.stores.protocols.checkpoints import AnyVersion
from helix_temporal.stores.sessions._decisions import Decision, Seen, next_version


def create(seen: Seen, options: CreateSession, *, if_not_exists: bool) -> Decision[SessionState]:
    """See `SessionStore.create_session`."""
    if seen.state is not None:
        if if_not_exists:
            return Decision(seen.state)
        raise SessionExistsError(
            f"session {seen.session_id!r} exists; continue it or choose another id",
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


def replaced(
    seen: Seen, state: SessionState, expected: int | AnyVersion | None, **changes: Any
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


def save(seen: Seen, state: SessionState, expected: int | AnyVersion | None) -> Decision[SaveResult]:
    """See `SessionStore.save_state`."""
    after = replaced(seen, state, expected)
    return Decision(SaveResult(new_version=after.version), after)


def set_status(seen: Seen, status: SessionStatus, failure_reason: str | None) -> Decision[SaveResult]:
    """See `SessionStore.update_status`."""
    after = seen.bumped(status=status, failure_reason=failure_reason)
    return Decision(SaveResult(new_version=after.version), after)


def compare_and_set(
    seen: Seen,
    expected: Collection[SessionStatus],
    new: SessionStatus,
    expected_version: int | None,
    changes: dict[str, Any],
) -> Decision[CasOk | CasConflict]:
    """See `SessionStore.compare_and_set_status`; ``changes`` are set with the status."""
    stored = seen.present
    if stored.status not in expected or expected_version not in {None, stored.version}:
        return Decision(CasConflict(current_status=stored.status, current_version=stored.version))
    after = seen.bumped(status=new, **changes)
    return Decision(CasOk(new_version=after.version, previous_status=stored.status), after)


def with_status(
    failure_reason: str | None, expires_at: int | Unset | None, cleanup_pending: bool | None
) -> dict[str, Any]:
    """The fields that a compare-and-set changes beside the status."""
    changes: dict[str, Any] = {"failure_reason": failure_reason}
    if not isinstance(expires_at, Unset):
        changes["expires_at"] = expires_at
    if cleanup_pending is not None:
        changes["cleanup_pending"] = cleanup_pending
    return changes


def merge(seen: Seen, changes: MergeChanges) -> Decision[MergeResult]:
    """See `SessionStore.merge_custom_state`."""
    custom, warnings = merged(seen.present.custom_state, changes)
    after = seen.bumped(custom_state=custom)
    return Decision(MergeResult(new_version=after.version, warnings=warnings), after)


def merged(state: JsonObject, changes: MergeChanges) -> tuple[JsonObject, tuple[str, ...]]:
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


def count(seen: Seen, field: str) -> Decision[CountResult]:
    """One more of ``step_count`` or ``resume_count``."""
    value = getattr(seen.present, field) + 1
    after = seen.bumped(**{field: value})
    return Decision(CountResult(value=value, new_version=after.version), after)


def finish_cleanup(seen: Seen) -> Decision[SaveResult]:
    """See `SessionStore.finish_cleanup`."""
    stored = seen.present
    if not stored.cleanup_pending:
        return Decision(SaveResult(new_version=stored.version))
    after = seen.bumped(cleanup_pending=False)
    return Decision(SaveResult(new_version=after.version), after)
