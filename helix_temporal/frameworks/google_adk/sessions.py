"""`HelixSessionService`: the sessions of ADK's runner in a session store."""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError as AdkSessionNotFoundError
from google.adk.events.event import Event
from google.adk.platform.time import get_time
from google.adk.platform.uuid import new_uuid
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session
from google.adk.sessions.state import State

from helix_temporal._retries import repeat_unanswered
from helix_temporal.errors import (
    ConflictError,
    FencedError,
    HeadMovedError,
    IdempotencyConflictError,
    SessionExistsError,
    SessionNotFoundError,
    StaleStateError,
)
from helix_temporal.frameworks.given_stores import check_sessions
from helix_temporal.frameworks.google_adk.events import EventFacts, EventRows, encode_event, is_same_event
from helix_temporal.frameworks.google_adk.keys import SESSION_TYPE, Scope, UserSessionKey
from helix_temporal.frameworks.google_adk.state import (
    EventPlace,
    StateParts,
    find_place,
    join_state,
    keep_values,
    mark_place,
    read_values,
    split_state,
)
from helix_temporal.models.messages import Message
from helix_temporal.models.states import CreateSession, MergeChanges, SessionState, StateChange
from helix_temporal.models.store_calls import OrderBy, SessionQuery, SessionSummary
from helix_temporal.stores.protocols.sessions import SessionStore

logger = logging.getLogger(__name__)

_LISTED: Final = 200
_BEGUN_BY: Final = "begun_by"
"""In the metadata: whoever asks again, since the answer was lost, finds its own session."""
_TRIES: Final = 3


class HelixSessionService(BaseSessionService):
    """A `BaseSessionService` of ADK over a session store; several processes may share one.

    An event stands once, under its id, however often it is appended.  Of two that append to the same
    session without having seen each other's event, the second one is told so (`StaleSessionError`).

    Args:
        store: `Backends.sessions`, or another session store.
    """

    def __init__(self, store: SessionStore) -> None:
        check_sessions(store)
        self._store = store
        self._rows = EventRows(store)
        # Agents that run side by side share one session object: each append waits for the place that the
        # one before it leaves there.  Between processes the store decides.
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = (
            WeakKeyDictionary()
        )

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Begin a session; a blank id is replaced by a new one.

        Raises:
            AlreadyExistsError: There is one of this id.
            InvalidRequestError, InvalidMessageError: A name or a key is no text that every store can hold.
        """
        key = UserSessionKey.of(app_name, user_id, session_id or "")
        if not key.session:
            key = UserSessionKey(app_name, user_id, new_uuid())
        return await self.begin_session(key, state, operation=secrets.token_hex(12))

    async def begin_session(
        self, key: UserSessionKey, state: Mapping[str, Any] | None, *, operation: str
    ) -> Session:
        """As `create_session`; a repeat with the same operation finds the session that it began."""
        parts = split_state(state)
        stored = await self._create(key, parts, operation)
        await self._merge_scopes(key, parts, operation)
        return await self._make_session(key, stored, [])

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """A session with its events, or those that ``config`` asks for; None if there is none.

        Only the pages that hold these events are read, wherever they are.
        """
        key = UserSessionKey.of(app_name, user_id, session_id)
        limit = config.num_recent_events if config else None
        since = config.after_timestamp if config else None
        return await self.read_session(key, lambda: self._rows.read_newest(key.store_id, limit, since))

    async def read_news(self, key: UserSessionKey, known: EventPlace) -> Session | None:
        """A session with the events behind a place; None if there is none, or another one has its id."""
        found = await self.read_session(key, lambda: self._rows.read_behind(key.store_id, known.events))
        return found if found is not None and _life_of(found) == known.life else None

    async def read_session(
        self, key: UserSessionKey, read: Callable[[], Awaitable[tuple[int | None, list[Event]]]]
    ) -> Session | None:
        """A session with the events that ``read`` finds; None if there is none.

        State and events are of one instant, unless others append faster than it is read.

        Args:
            key: Which.
            read: Tells how many events there are in all, and those that are wanted.
        """
        stored, events = await self._store.load_state(key.store_id), list[Event]()
        for _ in range(_TRIES):
            if stored is None:
                return None
            place = EventPlace.read_from(stored)
            total, events = await read()
            if total in {None, place.events}:
                break
            stored = await self._join_state_and_events(key, stored)
        return None if stored is None else await self._make_session(key, stored, events)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of a user, or of all, with their states and without events; oldest update first."""
        scope = Scope(app_name, user_id)
        listed = [each async for each in self._list_tagged(scope.tag)]
        app_state = await self._read_scope(Scope(app_name))
        user_states = await self._read_users(app_name, user_id)
        sessions = []
        for each in listed:
            key = UserSessionKey.read_from(each)
            parts = StateParts(read_values(each.custom_state), app_state, user_states.get(key.user, {}))
            sessions.append(_build_session(key, EventPlace.read_from(each), parts, []))
        return ListSessionsResponse(
            sessions=sorted(sessions, key=lambda each: (each.last_update_time, each.user_id, each.id))
        )

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session, with its events, artifacts and contents of model calls; nothing if there is none.

        Whoever still appends to it gets `SessionNotFoundError`, and brings nothing back.
        """
        key = UserSessionKey.of(app_name, user_id, session_id)
        for each in (key.store_id, key.files_id, key.contents_id):
            await repeat_unanswered(lambda each=each: self._store.delete_session(each))  # type: ignore[misc]

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """A user's state, by keys without ``user:``."""
        return await self._read_scope(Scope(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event, with its change of the state; one that is partial is not stored.

        ``app:`` and ``user:`` follow in changes of their own, and a repeat ends what an earlier call began.

        Raises:
            StaleSessionError: The session was changed since it was read; the event does not stand.
            SessionNotFoundError: ADK's: there is no such session, or it was deleted.
            IdempotencyConflictError: Another event stands there under this id.
            StoreUnavailableError: The store did not answer; append the same event again.
            InvalidRequestError, TooLargeError: The event is no JSON, or too large.
        """
        if event.partial:
            return event
        key = UserSessionKey.of(session.app_name, session.user_id, session.id)
        kept = without_temporary(event)
        row = encode_event(kept)
        facts = EventFacts.read_from(row)
        async with self._lock_session(key):
            place = await self._append(session, key, row, facts)
        await self._merge_scopes(key, facts.delta, event.id)
        if place is None:
            return kept
        appended = await super().append_event(session, event)
        session.last_update_time = place.time
        return appended

    async def flush(self) -> None:
        """Nothing is buffered: an event that was appended is stored."""

    # -- writes

    async def _create(self, key: UserSessionKey, parts: StateParts, operation: str) -> SessionState:
        place = EventPlace(await self._store.now() * 1000 + secrets.randbelow(1000), 1, 0, "", get_time())

        async def create() -> SessionState:
            options = CreateSession(
                agent_type=SESSION_TYPE,
                user_id=key.user,
                tags=tuple(each.tag for each in key.scopes),
                metadata=key.metadata | {_BEGUN_BY: operation},
                custom_state=keep_values(parts.session) | place.keep(),
            )
            return await self._store.create_session(key.store_id, options, epoch=place.life)

        for _ in range(_TRIES):
            try:
                return await repeat_unanswered(create)
            except SessionExistsError:
                stored = await self._store.load_state(key.store_id)
                if stored is not None and stored.metadata.get(_BEGUN_BY) == operation:
                    return stored
                raise AlreadyExistsError(f"Session with id {key.session} already exists.") from None
            except FencedError as error:
                # The clock went back since a session of this id was begun that is deleted by now.
                place = replace(place, life=int(error.facts["current"] or 0) + 1)
        raise AlreadyExistsError(f"Session with id {key.session} was begun by others again and again.")

    async def _append(
        self, session: Session, key: UserSessionKey, row: Message, facts: EventFacts
    ) -> EventPlace | None:
        """Append the row; None if it stood there before, so that the state is not to be changed again."""
        if any(each.id == row.id for each in session.events) and await self._stands(key, row):
            return None
        at = find_place(session) or await self._find_place(session, key)
        if at is None:
            return await self._refuse_unless_repeated(key, row)
        try:
            after = await self._append_row(key, at, row, facts)
        except SessionNotFoundError:
            raise _no_session(key) from None
        except IdempotencyConflictError:
            # From another place, or with other content.
            if not await self._stands(key, row):
                raise
            return None
        except HeadMovedError:
            await self._join_if_apart(key)
            return await self._refuse_unless_repeated(key, row)
        except (StaleStateError, FencedError):
            return await self._refuse_unless_repeated(key, row)
        mark_place(session, after)
        return after

    async def _append_row(
        self, key: UserSessionKey, at: EventPlace, row: Message, facts: EventFacts
    ) -> EventPlace:
        """Append a row at its place, with what it changes; repeated, by whomever, it is the same request."""
        after = EventPlace(at.life, at.version + 1, at.events + 1, facts.event_id, facts.time)
        change = StateChange(merge=MergeChanges(values=keep_values(facts.delta.session) | after.keep()))
        await repeat_unanswered(
            lambda: self._store.append_messages(
                key.store_id,
                [row],
                change=change,
                head=at.head,
                expected_version=at.version,
                epoch=at.life,
                operation_id=row.id,
            )
        )
        return after

    async def _join_state_and_events(self, key: UserSessionKey, stored: SessionState) -> SessionState | None:
        """Bring a session's state and its events together; the state as it is then.

        Somebody appends just now, or has ended between an event and its state; or the thread has lost events,
        which were not archived, with its store.
        """
        await self._finish_append(key, EventPlace.read_from(stored))
        found = await self._store.load_state(key.store_id)
        if found is None or found.version != stored.version:
            return found
        await self._follow_thread(key, found)
        return await self._store.load_state(key.store_id)

    async def _follow_thread(self, key: UserSessionKey, stored: SessionState) -> None:
        """Let the state say where the thread ends; what lost events have changed of it stays."""
        before, total = EventPlace.read_from(stored), await self._store.get_message_count(key.store_id)
        row = await self._rows.read_row(key.store_id, total - 1) if total else None
        time = before.time if row is None else EventFacts.read_from(row).time
        after = replace(before, events=total, event_id="" if row is None else row.id, time=time)
        if after.head == before.head:
            return
        custom = {**(stored.custom_state or {}), **after.keep()}
        state = stored.model_copy(update={"custom_state": custom})
        try:
            await self._store.save_state(
                key.store_id, state, expected_version=stored.version, epoch=before.life
            )
        except (ConflictError, SessionNotFoundError):
            return  # somebody else has done it, or has gone on, or it is no longer there
        logger.warning(
            "session %r had %d events and has %d: its thread's store has lost what was not archived",
            key.session,
            before.events,
            total,
        )

    async def _finish_append(self, key: UserSessionKey, at: EventPlace) -> None:
        """Bring the state up to an event that stands behind its place, if there is one.

        Where threads lie in another store than states, or have an archive, a process can end between the two.
        """
        row = await self._rows.read_row(key.store_id, at.events)
        if row is None:
            return
        facts = EventFacts.read_from(row)
        try:
            await self._append_row(key, at, row, facts)
        except (ConflictError, SessionNotFoundError):
            return  # somebody else has done it, or has gone on, or it is no longer there
        await self._merge_scopes(key, facts.delta, row.id)

    async def _join_if_apart(self, key: UserSessionKey) -> None:
        """Join state and events that do not go together, so that who reads the session again can append."""
        stored = await self._store.load_state(key.store_id)
        if stored is not None:
            newest = await self._rows.read_newest_rows(key.store_id, 1)
            if EventPlace.read_from(stored).event_id != (newest[0].id if newest else ""):
                await self._join_state_and_events(key, stored)

    async def _find_place(self, session: Session, key: UserSessionKey) -> EventPlace | None:
        """The place of a session that was not read from here, if it has the last event; None if not."""
        stored = await self._store.load_state(key.store_id)
        if stored is None:
            raise _no_session(key)
        place, last = EventPlace.read_from(stored), session.events[-1].id if session.events else ""
        return place if place.event_id == last else None

    async def _stands(self, key: UserSessionKey, row: Message) -> bool:
        """Whether the row's event is among the newest ones."""
        return any(is_same_event(row, each) for each in await self._rows.read_newest_rows(key.store_id))

    async def _refuse_unless_repeated(self, key: UserSessionKey, row: Message) -> EventPlace | None:
        if await self._stands(key, row):
            return None
        if not await self._store.session_exists(key.store_id):
            raise _no_session(key)
        raise StaleSessionError(
            f"The session {key.session!r} has been modified in storage since it was loaded; load it again "
            "before appending more events."
        )

    async def _merge_scopes(self, key: UserSessionKey, parts: StateParts, operation: str) -> None:
        for scope, values in zip(key.scopes, (parts.app, parts.user), strict=True):
            if values:
                # Of the session, too: ids of events are unique in it alone.
                name = hashlib.sha256(f"{key.store_id}\0{operation}".encode()).hexdigest()
                await self._merge_scope(scope, values, name)

    async def _merge_scope(self, scope: Scope, values: Mapping[str, Any], operation: str) -> None:
        changes = MergeChanges(values=keep_values(values))

        async def merge() -> None:
            await self._store.merge_custom_state(scope.store_id, changes, operation_id=operation)

        try:
            await repeat_unanswered(merge)
        except SessionNotFoundError:
            options = CreateSession(
                agent_type=f"{SESSION_TYPE}/state",
                user_id=scope.user,
                tags=() if scope.user is None else (scope.users_tag,),
                metadata={"app_name": scope.app, "user_id": scope.user},
            )
            await repeat_unanswered(
                lambda: self._store.create_session(scope.store_id, options, if_not_exists=True)
            )
            await repeat_unanswered(merge)

    def _lock_session(self, key: UserSessionKey) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        queues = self._queues.setdefault(loop, WeakValueDictionary())
        return queues.setdefault(key.store_id, asyncio.Lock())

    # -- reads

    async def _make_session(
        self, key: UserSessionKey, stored: SessionState, events: Iterable[Event]
    ) -> Session:
        app, user = await asyncio.gather(*(self._read_scope(each) for each in key.scopes))
        parts = StateParts(read_values(stored.custom_state), app, user)
        return _build_session(UserSessionKey.read_from(stored), EventPlace.read_from(stored), parts, events)

    async def _read_scope(self, scope: Scope) -> dict[str, Any]:
        stored = await self._store.load_state(scope.store_id)
        return {} if stored is None else read_values(stored.custom_state)

    async def _read_users(self, app: str, user: str | None) -> dict[str, dict[str, Any]]:
        """The states of a user, or of all users of an application."""
        if user is not None:
            return {user: await self._read_scope(Scope(app, user))}
        return {
            str(each.metadata["user_id"]): read_values(each.custom_state)
            async for each in self._list_tagged(Scope(app).users_tag)
        }

    async def _list_tagged(self, tag: str) -> AsyncIterator[SessionSummary]:
        # By the time of creation, which never changes: a session that is used meanwhile is seen once.
        query = SessionQuery(
            tags=(tag,),
            order_by=OrderBy(field="created_at", direction="asc"),
            include=("custom_state",),
            limit=_LISTED,
        )
        while True:
            page = await self._store.list_sessions(query)
            for each in page.sessions:
                yield each
            if page.next_cursor is None:
                return
            query = query.model_copy(update={"cursor": page.next_cursor})


def _build_session(
    key: UserSessionKey, place: EventPlace, parts: StateParts, events: Iterable[Event]
) -> Session:
    session = Session(
        id=key.session,
        app_name=key.app,
        user_id=key.user,
        state=join_state(parts),
        events=list(events),
        last_update_time=place.time,
    )
    mark_place(session, place)
    return session


def _life_of(session: Session) -> int | None:
    place = find_place(session)
    return None if place is None else place.life


def without_temporary(event: Event) -> Event:
    """The event as it is stored: ``temp:`` belongs to the run alone."""
    delta = event.actions.state_delta
    if not any(key.startswith(State.TEMP_PREFIX) for key in delta):
        return event
    left = {key: value for key, value in delta.items() if not key.startswith(State.TEMP_PREFIX)}
    return event.model_copy(update={"actions": event.actions.model_copy(update={"state_delta": left})})


def _no_session(key: UserSessionKey) -> AdkSessionNotFoundError:
    return AdkSessionNotFoundError(f"Session {key.session} not found.")
