"""ADK's runner inside a workflow: its sessions are in our stores, and their I/O is done by activities."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.platform.uuid import new_uuid
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from helix_temporal.frameworks.google_adk.events import encode_event
from helix_temporal.frameworks.google_adk.keys import UserSessionKey
from helix_temporal.frameworks.google_adk.lanes import Lanes, enter_session
from helix_temporal.frameworks.google_adk.sessions import without_temporary
from helix_temporal.frameworks.google_adk.state import EventPlace, find_place, mark_place, split_state
from helix_temporal.models.base import WireModel

CREATE: Final = "helix.google_adk.create_session"
READ: Final = "helix.google_adk.read_session"
APPEND: Final = "helix.google_adk.append_event"
DELETE: Final = "helix.google_adk.delete_session"
LIST: Final = "helix.google_adk.list_sessions"
READ_USER: Final = "helix.google_adk.read_user_state"

ADK_ERRORS: Final[Mapping[str, type[Exception]]] = {
    "google.adk.StaleSessionError": StaleSessionError,
    "google.adk.SessionNotFoundError": SessionNotFoundError,
    "google.adk.AlreadyExistsError": AlreadyExistsError,
}
"""Errors that ADK's callers look for, by their types on the wire."""

R = TypeVar("R")
_HEARTBEAT_TIMEOUT: Final = timedelta(seconds=10)


class SessionName(WireModel):
    """Names a session of ADK."""

    app: str
    user: str
    session: str = ""

    @property
    def key(self) -> UserSessionKey:
        """As stores name it."""
        return UserSessionKey(self.app, self.user, self.session)


class CreateAdkSessionInput(SessionName):
    """Begin a session.

    Attributes:
        state: As JSON text, which carries what a payload cannot.
        operation: Minted in the workflow; all attempts with it find the same session.
    """

    state: str
    operation: str


class ReadAdkSessionInput(SessionName):
    """Read a session, or what is new of it.

    Attributes:
        known: The place that the workflow has; only events behind it come back.
        shared: What the workflow has of the states of application and user, as a digest.
        newest, since: With nothing known, as `GetSessionConfig`.
    """

    known: str | None = None
    shared: str = ""
    newest: int | None = None
    since: float | None = None


class AdkSessionNews(WireModel):
    """What the workflow does not have of a session.

    Attributes:
        place: Where it stands; None if there is none.
        events: As JSON texts, oldest first.
        anew: It holds the session, and not what is new of it: the workflow knew another one.
        state: Its own state, as JSON text; None if it is as known.
        shared_state: That of application and user; None if it is as known.
    """

    place: str | None = None
    events: tuple[str, ...] = ()
    anew: bool = False
    state: str | None = None
    shared_state: str | None = None
    shared: str = ""


class AppendAdkEventInput(SessionName):
    """Append an event at a place; ``last_event_id`` stands for a place that is not known."""

    place: str | None = None
    last_event_id: str | None = None
    event: str


class AppendedAdkEvent(WireModel):
    """Where the session stands then; None: the event had been appended from another place."""

    place: str | None = None


class ListAdkSessionsInput(WireModel):
    """The sessions of a user, or of all."""

    app: str
    user: str | None = None


class AdkSessionList(WireModel):
    """Sessions as JSON texts, without events."""

    sessions: tuple[str, ...] = ()


class AdkUserState(WireModel):
    """A user's state as JSON text."""

    state: str


@dataclass(slots=True)
class _Known:
    """What the workflow has of a session.

    Attributes:
        events: Those up to the place, from ``first`` on.
        state, shared_state: The session's own; that of application and user, with its digest.
    """

    place: EventPlace
    first: int
    events: list[Event]
    state: dict[str, Any]
    shared_state: dict[str, Any]
    shared: str

    def has_window(self, config: GetSessionConfig | None) -> bool:
        """Whether the events that are asked for are among them."""
        if self.first == 0:
            return True
        if config is None or config.num_recent_events is None:
            since = None if config is None else config.after_timestamp
            return since is not None and any(each.timestamp < since for each in self.events)
        newest: int = config.num_recent_events
        return len(self.events) >= newest

    def make_session(self, key: UserSessionKey, config: GetSessionConfig | None) -> Session:
        """A session with the events that are asked for."""
        session = Session(
            id=key.session,
            app_name=key.app,
            user_id=key.user,
            # Texts in between: nobody who changes a value in place changes what is known.
            state=json.loads(json.dumps(self.state | self.shared_state)),
            events=[each.model_copy(deep=True) for each in _select_events(self.events, config)],
            last_update_time=self.place.time,
        )
        mark_place(session, self.place)
        return session


class HelixWorkflowSessionService(BaseSessionService):
    """A `BaseSessionService` for ADK's runner inside a workflow, over `HelixGoogleAdkPlugin` of the worker.

    Each append is an activity with the one event; ids of events are the workflow's, so that no attempt adds a
    second one.  What was read and appended stays in the workflow: a later read brings what is new.

    Args:
        timeout: Of one attempt of an activity.
        retry_policy: Of activities; by default they are tried until the store answers.
    """

    def __init__(
        self, *, timeout: timedelta = timedelta(seconds=30), retry_policy: RetryPolicy | None = None
    ) -> None:
        self._timeout, self._retry_policy = timeout, retry_policy
        self._known: dict[UserSessionKey, _Known] = {}
        self._lanes: dict[UserSessionKey, Lanes] = {}

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """See `HelixSessionService.create_session`."""
        key = UserSessionKey.of(app_name, user_id, session_id or "")
        if not key.session:
            key = UserSessionKey(app_name, user_id, new_uuid())
        enter_session(self._lanes.setdefault(key, Lanes(key)))
        parts = split_state(state)
        plain = parts.session | _with_prefixes(parts.app, parts.user)
        request = CreateAdkSessionInput(
            **_name(key), state=json.dumps(plain), operation=str(workflow.uuid4())
        )
        news = await self._execute(CREATE, request, AdkSessionNews)
        return self._take_news(key, news).make_session(key, None)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """See `HelixSessionService.get_session`; what the workflow has of it does not come again."""
        key = UserSessionKey.of(app_name, user_id, session_id)
        enter_session(self._lanes.setdefault(key, Lanes(key)))
        known = self._known.get(key)
        if known is not None and not known.has_window(config):
            known = None
        request = ReadAdkSessionInput(
            **_name(key),
            known=None if known is None else known.place.as_marker(),
            shared="" if known is None else known.shared,
            newest=None if config is None else config.num_recent_events,
            since=None if config is None else config.after_timestamp,
        )
        news = await self._execute(READ, request, AdkSessionNews)
        if news.place is None:
            self._known.pop(key, None)
            return None
        return self._take_news(key, news).make_session(key, config)

    async def append_event(self, session: Session, event: Event) -> Event:
        """See `HelixSessionService.append_event`."""
        if event.partial:
            return event
        key = UserSessionKey.of(session.app_name, session.user_id, session.id)
        kept, place = without_temporary(event), find_place(session)
        request = AppendAdkEventInput(
            **_name(key),
            place=None if place is None else place.as_marker(),
            last_event_id=session.events[-1].id if session.events else None,
            event=encode_event(kept).text,
        )
        answer = await self._execute(APPEND, request, AppendedAdkEvent)
        after = EventPlace.of_marker(answer.place)
        if after is None:
            return kept
        appended = cast("Event", await super().append_event(session, event))
        mark_place(session, after)
        session.last_update_time = after.time
        self._take_event(key, place, after, appended)
        return appended

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """See `HelixSessionService.list_sessions`; all of them travel."""
        request = ListAdkSessionsInput(app=app_name, user=user_id)
        answer = await self._execute(LIST, request, AdkSessionList)
        return ListSessionsResponse(sessions=[Session.model_validate_json(each) for each in answer.sessions])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """See `HelixSessionService.delete_session`."""
        key = UserSessionKey.of(app_name, user_id, session_id)
        self._known.pop(key, None)
        self._lanes.pop(key, None)
        await self._execute(DELETE, SessionName(**_name(key)), None)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """See `HelixSessionService.get_user_state`."""
        answer = await self._execute(READ_USER, SessionName(app=app_name, user=user_id), AdkUserState)
        state: dict[str, Any] = json.loads(answer.state)
        return state

    async def flush(self) -> None:
        """Nothing is buffered: an event that was appended is stored."""

    # -- inside

    async def _execute(self, name: str, request: WireModel, answer: type[R] | None) -> R:
        # No local activities: one that is run again, since its worker died, would append the same event with
        # another time.
        try:
            done: R = await workflow.execute_activity(
                name,
                request,
                result_type=answer,
                start_to_close_timeout=self._timeout,
                heartbeat_timeout=_HEARTBEAT_TIMEOUT,
                retry_policy=self._retry_policy,
            )
        except ActivityError as error:
            cause = error.cause
            if not isinstance(cause, ApplicationError) or cause.type not in ADK_ERRORS:
                raise
            raise ADK_ERRORS[str(cause.type)](cause.message) from None
        return done

    def _take_news(self, key: UserSessionKey, news: AdkSessionNews) -> _Known:
        place, known = EventPlace.of_marker(news.place), self._known.get(key)
        assert place is not None
        events = [Event.model_validate_json(each) for each in news.events]
        if known is None or news.anew:
            known = _Known(place, place.events - len(events), [], {}, {}, "")
            self._known[key] = known
        known.place, known.events = place, [*known.events, *events]
        if news.state is not None:
            known.state = json.loads(news.state)
        if news.shared_state is not None:
            known.shared_state = json.loads(news.shared_state)
        known.shared = news.shared
        return known

    def _take_event(
        self, key: UserSessionKey, before: EventPlace | None, after: EventPlace, event: Event
    ) -> None:
        known = self._known.get(key)
        if known is None or known.place != before:
            self._known.pop(key, None)  # read anew
            return
        parts = split_state(event.actions.state_delta)
        known.place = after
        known.events.append(event.model_copy(deep=True))
        known.state |= parts.session
        known.shared_state |= _with_prefixes(parts.app, parts.user)
        if parts.app or parts.user:
            known.shared = ""


def _name(key: UserSessionKey) -> dict[str, Any]:
    return {"app": key.app, "user": key.user, "session": key.session}


def _with_prefixes(app: Mapping[str, Any], user: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{State.APP_PREFIX + name: value for name, value in app.items()},
        **{State.USER_PREFIX + name: value for name, value in user.items()},
    }


def _select_events(events: list[Event], config: GetSessionConfig | None) -> list[Event]:
    if config is None:
        return list(events)
    if config.num_recent_events is not None:
        events = events[len(events) - min(config.num_recent_events, len(events)) :]
    since = config.after_timestamp
    if since is not None:
        first = max((at for at, each in enumerate(events) if each.timestamp < since), default=-1) + 1
        events = events[first:]
    return list(events)
