"""What a worker has for ADK's sessions in workflows: `HelixGoogleAdkPlugin`, and its activities."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from google.adk.events.event import Event
from google.adk.models import LLMRegistry
from google.adk.models.llm_response import LlmResponse
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from helix_temporal.activities._runtime import raise_application_errors
from helix_temporal.frameworks.google_adk.contents import ContentLanes
from helix_temporal.frameworks.google_adk.events import encode_event
from helix_temporal.frameworks.google_adk.lanes import INVOKE_MODEL, InvokeModelInput
from helix_temporal.frameworks.google_adk.sessions import HelixSessionService
from helix_temporal.frameworks.google_adk.state import EventPlace, find_place, mark_place
from helix_temporal.frameworks.google_adk.workflow import (
    ADK_ERRORS,
    APPEND,
    CREATE,
    DELETE,
    LIST,
    READ,
    READ_USER,
    AdkSessionList,
    AdkSessionNews,
    AdkUserState,
    AppendAdkEventInput,
    AppendedAdkEvent,
    CreateAdkSessionInput,
    ListAdkSessionsInput,
    ReadAdkSessionInput,
    SessionName,
)
from helix_temporal.frameworks.store_plugin import HEARTBEAT_EVERY, StorePlugin, with_heartbeats
from helix_temporal.settings import Settings

MODEL_HEARTBEAT_EVERY: Final = 10.0
"""Seconds, in a call of the model: most calls end before the first heartbeat, which costs an action."""

if TYPE_CHECKING:
    from helix_temporal.backends import Backends


class HelixGoogleAdkPlugin(StorePlugin):
    """Sessions of `HelixWorkflowSessionService` in our stores; stands beside ``GoogleAdkPlugin``.

    A guest: it adds activities of its own, and leaves data converter, models and tools alone.  A process that
    has a client alone opens no store.

    Args:
        settings: Where the stores are.
        backends: Stores from elsewhere, as `helix_temporal.Backends`; whoever made them closes them.
    """

    def __init__(self, settings: Settings, *, backends: "Backends | None" = None) -> None:
        self._service: HelixSessionService | None = None
        self._contents: ContentLanes | None = None
        mine = AdkSessionActivities(self)
        super().__init__(
            "helix.HelixGoogleAdkPlugin",
            settings,
            backends,
            failures=list(ADK_ERRORS.values()),
            activities=[
                mine.create_session,
                mine.read_session,
                mine.append_event,
                mine.delete_session,
                mine.list_sessions,
                mine.read_user_state,
                mine.invoke_model,
            ],
        )

    @property
    def service(self) -> HelixSessionService:
        """The sessions, whose stores are opened by the first call that needs them.

        Raises:
            InvalidConfigError: The settings have no session store.
        """
        if self._service is None:
            self._service = HelixSessionService(self.backends.sessions)
        return self._service

    @property
    def contents(self) -> ContentLanes:
        """What is kept of the contents of model calls; opened as `service`."""
        if self._contents is None:
            self._contents = ContentLanes(self.backends.records, self.backends.sessions)
        return self._contents

    def forget_stores(self) -> None:
        """See `StorePlugin.forget_stores`."""
        self._service = self._contents = None


class AdkSessionActivities:
    """The session service for workflows.

    Args:
        plugin: Whose sessions.
    """

    def __init__(self, plugin: HelixGoogleAdkPlugin) -> None:
        self._plugin = plugin

    @activity.defn(name=CREATE)
    @raise_application_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def create_session(self, request: CreateAdkSessionInput) -> AdkSessionNews:
        """Begin a session, once for all attempts."""
        with _carry_adk_errors():
            session = await self._plugin.service.begin_session(
                request.key, json.loads(request.state), operation=request.operation
            )
        return _tell_news(session, anew=True)

    @activity.defn(name=READ)
    @raise_application_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def read_session(self, request: ReadAdkSessionInput) -> AdkSessionNews:
        """Read what the workflow does not have."""
        known, service = EventPlace.of_marker(request.known), self._plugin.service
        if known is not None:
            news = await service.read_news(request.key, known)
            if news is not None:
                return _tell_news(news, known=known, shared=request.shared)
        config = GetSessionConfig(num_recent_events=request.newest, after_timestamp=request.since)
        session = await service.get_session(
            app_name=request.app, user_id=request.user, session_id=request.session, config=config
        )
        return AdkSessionNews() if session is None else _tell_news(session, anew=True)

    @activity.defn(name=APPEND)
    @raise_application_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def append_event(self, request: AppendAdkEventInput) -> AppendedAdkEvent:
        """Append an event, once for all attempts."""
        session = Session(id=request.session, app_name=request.app, user_id=request.user)
        place = EventPlace.of_marker(request.place)
        if place is not None:
            mark_place(session, place)
        elif request.last_event_id is not None:
            session.events = [Event(id=request.last_event_id)]
        with _carry_adk_errors():
            await self._plugin.service.append_event(session, Event.model_validate_json(request.event))
        after = find_place(session)
        return AppendedAdkEvent(place=None if after in {None, place} else session_marker(after))

    @activity.defn(name=DELETE)
    @raise_application_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def delete_session(self, request: SessionName) -> None:
        """Delete a session."""
        await self._plugin.service.delete_session(
            app_name=request.app, user_id=request.user, session_id=request.session
        )

    @activity.defn(name=LIST)
    @raise_application_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def list_sessions(self, request: ListAdkSessionsInput) -> AdkSessionList:
        """List sessions without their events."""
        found = await self._plugin.service.list_sessions(app_name=request.app, user_id=request.user)
        return AdkSessionList(sessions=tuple(each.model_dump_json() for each in found.sessions))

    @activity.defn(name=READ_USER)
    @raise_application_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def read_user_state(self, request: SessionName) -> AdkUserState:
        """Read a user's state."""
        state = await self._plugin.service.get_user_state(app_name=request.app, user_id=request.user)
        return AdkUserState(state=json.dumps(state))

    @activity.defn(name=INVOKE_MODEL)
    @raise_application_errors
    @with_heartbeats(MODEL_HEARTBEAT_EVERY)
    async def invoke_model(self, call: InvokeModelInput) -> list[LlmResponse]:
        """The model's answers to what a worker has of the contents, and what came with the call."""
        lanes, info = self._plugin.contents, activity.info()
        name = f"{info.workflow_id}/{info.workflow_run_id}/{info.activity_id}"
        if info.attempt > 1 and (known := await lanes.find_answers(call.place, name)) is not None:
            return known
        contents = await lanes.complete(call.place, call.request.contents)
        request = call.request.model_copy(update={"contents": contents})
        model = LLMRegistry.new_llm(request.model)
        answers = [answer async for answer in model.generate_content_async(request)]
        await lanes.keep_answers(call.place, name, answers)
        return answers


def session_marker(place: EventPlace | None) -> str | None:
    """A place as it travels."""
    return None if place is None else place.as_marker()


def _tell_news(
    session: Session, *, known: EventPlace | None = None, shared: str = "", anew: bool = False
) -> AdkSessionNews:
    place = find_place(session)
    own = {key: value for key, value in session.state.items() if not _is_shared(key)}
    others = json.dumps({key: session.state[key] for key in sorted(session.state.keys() - own.keys())})
    digest = hashlib.sha256(others.encode()).hexdigest()[:16]
    is_same = known is not None and place is not None and known.version == place.version
    return AdkSessionNews(
        place=session_marker(place),
        events=tuple(encode_event(each).text for each in session.events),
        anew=anew,
        state=None if is_same else json.dumps(own),
        shared_state=None if digest == shared else others,
        shared=digest,
    )


def _is_shared(key: str) -> bool:
    return key.startswith((State.APP_PREFIX, State.USER_PREFIX))


@contextlib.contextmanager
def _carry_adk_errors() -> Iterator[None]:
    """Let ADK's errors leave the activity by the names that the workflow knows them by."""
    try:
        yield
    except tuple(ADK_ERRORS.values()) as error:
        name = next(name for name, kind in ADK_ERRORS.items() if isinstance(error, kind))
        raise ApplicationError(
            str(error), type=name, non_retryable=True, category=ApplicationErrorCategory.BENIGN
        ) from None
