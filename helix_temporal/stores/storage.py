"""`SessionStorage`, the façade's protocol, on a session store with threads."""

from helix_temporal.errors import SessionNotFoundError, StaleStateError
from helix_temporal.models.facade import StoredSession, UnfinishedTurn
from helix_temporal.models.messages import Message, Usage
from helix_temporal.models.states import CreateSession, ForkOrigin, SessionProperties, SessionState
from helix_temporal.models.store_calls import MAX_LIMIT
from helix_temporal.stores.protocols.locks import LockManager
from helix_temporal.stores.protocols.sessions import SessionStore

_USAGE = "helix_usage"
_SAVING = "helix_saving"
"""How many messages count while a save is under way; `_NEW` until a session was saved for the first time."""
_NEW = -1
_UNFINISHED = "helix_unfinished"
"""The unfinished turn as JSON: it counts as long as the state says so, also while its end is being saved."""
_OURS = frozenset({_USAGE, _SAVING, _UNFINISHED})
_TRIES = 10
_STEP = 500


class StoreSessionStorage:
    """`SessionStorage` over a `SessionStore` with threads: saving appends what is new.

    Times are the store's: those of a session that is saved do not count.  A save that replaces stored
    messages cuts them off first: a reader may then see the messages that both have and none after them.

    Attributes:
        locks: For the leases of turns.
    """

    def __init__(self, store: SessionStore, locks: LockManager) -> None:
        self._store, self.locks = store, locks

    async def save(self, session: StoredSession) -> None:
        """See `SessionStorage.save`; messages that differ from the stored ones replace them.

        The state says how many messages count until all of them are there, so that a save that does not
        come to its end is not seen, and the next one takes what it left away.

        Raises:
            SessionNotFoundError: It was deleted meanwhile.
            StaleStateError: Others changed it all the time.
        """
        state = await self._store.load_state(session.id)
        if state is None:
            origin = None if session.parent_id is None else ForkOrigin(session_id=session.parent_id)
            options = CreateSession(forked_from=origin, custom_state={_SAVING: _NEW})
            state = await self._store.create_session(session.id, options, if_not_exists=True)
        stored = await self._load_messages(session.id)
        same = _common_length(stored, session.messages)
        if same < max(len(stored), len(session.messages)):
            if _SAVING not in state.custom_state:
                await self._mark_saving(session.id, same)
            if same < len(stored):
                await self._store.truncate_messages(session.id, same)
            for start in range(same, len(session.messages), _STEP):
                # The state is saved after them.
                part = session.messages[start : start + _STEP]
                await self._store.append_messages(session.id, part, touch=False)
        await self._save_state(session)

    async def load(self, session_id: str) -> StoredSession | None:
        """See `SessionStorage.load`.

        Raises:
            StaleStateError: Others changed it all the time.
        """
        for _ in range(_TRIES):
            state = await self._store.load_state(session_id)
            if state is None or state.custom_state.get(_SAVING) == _NEW:
                return None
            messages = _messages_that_count(state, await self._load_messages(session_id))
            now = await self._store.load_state(session_id)
            if now is not None and (now.version, now.created_at) == (state.version, state.created_at):
                return _stored_session(state, messages)
        raise StaleStateError(f"session {session_id!r}: its state changed {_TRIES} times while it was read")

    async def delete(self, session_id: str) -> None:
        """See `SessionStorage.delete`."""
        await self._store.delete_session(session_id)

    async def list(self) -> list[str]:
        """See `SessionStorage.list`; those whose first save is under way among them."""
        return sorted([each async for each in self._store.iter_session_ids()])

    async def _load_messages(self, session_id: str) -> tuple[Message, ...]:
        found: list[Message] = []
        while True:
            page = await self._store.get_messages(session_id, offset=len(found), limit=MAX_LIMIT)
            found += page.messages
            if not page.has_more:
                return tuple(found)

    async def _mark_saving(self, session_id: str, count: int) -> None:
        for _ in range(_TRIES):
            state = await self._require_state(session_id)
            marked = state.model_copy(update={"custom_state": {**state.custom_state, _SAVING: count}})
            if await self._try_save(marked):
                return
        raise _always_changed(session_id)

    async def _save_state(self, session: StoredSession) -> None:
        for _ in range(_TRIES):
            if await self._try_save(_state_with_session(await self._require_state(session.id), session)):
                return
        raise _always_changed(session.id)

    async def _require_state(self, session_id: str) -> SessionState:
        state = await self._store.load_state(session_id)
        if state is None:
            raise SessionNotFoundError(f"session {session_id!r} was deleted while it was saved")
        return state

    async def _try_save(self, state: SessionState) -> bool:
        try:
            await self._store.save_state(state.session_id, state)
        except StaleStateError:
            return False
        return True


def _always_changed(session_id: str) -> StaleStateError:
    return StaleStateError(f"session {session_id!r}: its state changed {_TRIES} times while it was saved")


def _stored_session(state: SessionState, messages: tuple[Message, ...]) -> StoredSession:
    unfinished = state.custom_state.get(_UNFINISHED)
    return StoredSession(
        id=state.session_id,
        messages=messages,
        unfinished=UnfinishedTurn.model_validate_json(unfinished) if isinstance(unfinished, str) else None,
        usage=Usage.model_validate(state.custom_state.get(_USAGE, {})),
        metadata=state.metadata,
        state={name: value for name, value in state.custom_state.items() if name not in _OURS},
        created_at=state.created_at,
        updated_at=state.updated_at,
        parent_id=None if state.forked_from is None else state.forked_from.session_id,
        properties=SessionProperties.of(state),
    )


def _messages_that_count(state: SessionState, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    counted = state.custom_state.get(_SAVING)
    return messages[:counted] if isinstance(counted, int) else messages


def _state_with_session(state: SessionState, session: StoredSession) -> SessionState:
    custom = {**session.state, _USAGE: session.usage.model_dump(mode="json")}
    if session.unfinished is not None:
        custom[_UNFINISHED] = session.unfinished.model_dump_json(exclude_defaults=True)
    changes: dict[str, object] = {"metadata": dict(session.metadata), "custom_state": custom}
    changes |= session.properties.changes()
    if session.parent_id is not None and state.forked_from is None:
        changes["forked_from"] = ForkOrigin(session_id=session.parent_id)
    return state.model_copy(update=changes)


def _common_length(stored: tuple[Message, ...], wanted: tuple[Message, ...]) -> int:
    at = 0
    while at < min(len(stored), len(wanted)) and stored[at] == wanted[at]:
        at += 1
    return at
