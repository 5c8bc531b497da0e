"""The state of an ADK session as the store keeps it, and where a session stands."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from pydantic_core import to_jsonable_python

from helix_temporal.errors import HelixError, StoreCorruptError
from helix_temporal.models.base import JsonObject, check_json
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import SessionSummary
from helix_temporal.models.stored_messages import Head

_PREFIX: Final = "state:"
"""Stands before ADK's keys in a session's custom state, beside which is `_LAST`."""
_LAST: Final = "last_event"
_ESCAPED: Final = "google-adk/json"
"""The one key of a value that is kept as JSON text."""


class StateParts(NamedTuple):
    """A state, or a change of one, by whom it belongs to; keys without their prefixes."""

    session: dict[str, Any]
    app: dict[str, Any]
    user: dict[str, Any]


def split_state(state: Mapping[str, Any] | None) -> StateParts:
    """The parts of a state that are kept: ``temp:`` is left out; values are plain JSON."""
    parts = StateParts({}, {}, {})
    for key, value in (state or {}).items():
        if key.startswith(State.APP_PREFIX):
            parts.app[key.removeprefix(State.APP_PREFIX)] = _make_plain(value)
        elif key.startswith(State.USER_PREFIX):
            parts.user[key.removeprefix(State.USER_PREFIX)] = _make_plain(value)
        elif not key.startswith(State.TEMP_PREFIX):
            parts.session[key] = _make_plain(value)
    return parts


def join_state(parts: StateParts) -> dict[str, Any]:
    """The state as a session shows it: the inverse of `split_state`."""
    return {
        **parts.session,
        **{State.APP_PREFIX + key: value for key, value in parts.app.items()},
        **{State.USER_PREFIX + key: value for key, value in parts.user.items()},
    }


def keep_values(values: Mapping[str, Any]) -> JsonObject:
    """Values of a state as a custom state keeps them."""
    return {_PREFIX + key: _keep_value(value) for key, value in values.items()}


def read_values(custom: Mapping[str, Any] | None) -> dict[str, Any]:
    """The inverse of `keep_values`."""
    return {
        key.removeprefix(_PREFIX): _read_value(value)
        for key, value in (custom or {}).items()
        if key.startswith(_PREFIX)
    }


@dataclass(frozen=True, slots=True)
class EventPlace:
    """Where a session stands; whoever appends says where it was read.

    Attributes:
        life: The epoch of the session: another one if it was deleted and begun anew.
        version: Of its state: another one after every event.
        events: How many there are.
        event_id: Of the last one; empty if there is none.
        time: Of the last one, or of the beginning, in seconds.
    """

    life: int
    version: int
    events: int
    event_id: str
    time: float

    @property
    def head(self) -> Head:
        """The end of its thread."""
        return Head(position=self.events, last_id=self.event_id)

    def as_marker(self) -> str:
        """The place as a session carries it while it is in memory."""
        return json.dumps([self.life, self.version, self.events, self.event_id, self.time])

    @staticmethod
    def of_marker(marker: str | None) -> "EventPlace | None":
        """The place of a marker; None where there is none of ours."""
        try:
            place = EventPlace(*json.loads(marker or "null"))
        except (TypeError, ValueError):
            return None
        return place

    def keep(self) -> JsonObject:
        """What the custom state has of it, beside the version."""
        return {_LAST: [self.life, self.events, self.event_id, self.time]}

    @staticmethod
    def read_from(stored: SessionState | SessionSummary) -> "EventPlace":
        """Where a stored session stands.

        Raises:
            StoreCorruptError: It does not say.
        """
        try:
            kept: Any = (stored.custom_state or {})[_LAST]
            life, events, event_id, time = kept
        except (KeyError, TypeError, ValueError):
            raise StoreCorruptError(
                f"session {stored.session_id!r} does not say where its events end; is it one of Google's ADK?"
            ) from None
        return EventPlace(life, stored.version, events, event_id, time)


def find_place(session: Session) -> EventPlace | None:
    """Where a session in memory was read, or appended to last; None if that was not here."""
    return EventPlace.of_marker(session._storage_update_marker)  # noqa: SLF001 (ADK has it for its services)


def mark_place(session: Session, place: EventPlace) -> None:
    """Note in a session in memory where it stands."""
    session._storage_update_marker = place.as_marker()  # noqa: SLF001 (ADK has it for its services)


def _make_plain(value: Any) -> Any:
    return to_jsonable_python(value, bytes_mode="base64", fallback=_name_type)


def _name_type(value: Any) -> str:
    # As ADK's own services: what is no data must not keep the event from being stored.
    return f"<not serializable: {type(value).__name__}>"


def _keep_value(value: Any) -> Any:
    """A value that not every store can hold, as one with NUL or NaN, becomes escaped JSON text."""
    if not (isinstance(value, dict) and value.keys() == {_ESCAPED}):
        try:
            check_json(value)
        except HelixError:
            pass
        else:
            return value
    return {_ESCAPED: json.dumps(value)}


def _read_value(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {_ESCAPED}:
        return json.loads(value[_ESCAPED])
    return value
