"""The façade's sessions in a session store with threads: an adapter."""

from helix_temporal.errors import SessionNotFoundError, StaleStateError
from helix_temporal.models.facade import StoredSession
from helix_temporal.models.messages import Message, Usage
from helix_temporal.models.queries import MAX_LIMIT
from helix_temporal.models.states import CreateSession, ForkOrigin, SessionState
from helix_temporal.stores.protocols.locks import LockManager
from helix_temporal.stores.protocols.sessions import SessionStore

_USAGE = "helix_usage"
_TRIES = 10


class StoreSessionStorage:
    """`SessionStorage` over a `SessionStore` with threads: saving appends what is new.

    Attributes:
        locks: For the leases of turns.
    """

    def __init__(self, store: SessionStore, locks: LockManager) -> None:
        self._store, self.locks = store, locks

    async def save(self, session: StoredSession) -> None:
        """See `SessionStorage.save`; messages that differ from the stored ones replace them."""
        state = await self._store.load_state(session.id)
        if state is None:
            origin = None if session.parent_id is None else ForkOrigin(session_id=session.parent_id)
            options = CreateSession(forked_from=origin)
            state = await self._store.create_session(session.id, options, if_not_exists=True)
        stored = await self._messages(session.id)
        same = _common(stored, session.messages)
        if same < len(stored):
            await self._store.truncate_messages(session.id, same)
        if same < len(session.messages):
            await self._store.append_messages(session.id, session.messages[same:])
        await self._save_state(session)

    async def load(self, session_id: str) -> StoredSession | None:
        """See `SessionStorage.load`."""
        state = await self._store.load_state(session_id)
        if state is None:
            return None
        return StoredSession(
            id=session_id,
            messages=await self._messages(session_id),
            usage=Usage.model_validate(state.custom_state.get(_USAGE, {})),
            metadata=state.metadata,
            created_at=state.created_at,
            updated_at=state.updated_at,
            parent_id=None if state.forked_from is None else state.forked_from.session_id,
        )

    async def delete(self, session_id: str) -> None:
        """See `SessionStorage.delete`."""
        await self._store.delete_session(session_id)

    async def list(self) -> list[str]:
        """See `SessionStorage.list`."""
        return sorted([each async for each in self._store.iter_session_ids()])

    async def _messages(self, session_id: str) -> tuple[Message, ...]:
        found: tuple[Message, ...] = ()
        while True:
            page = await self._store.get_messages(session_id, offset=len(found), limit=MAX_LIMIT)
            found += page.messages
            if not page.has_more:
                return found

    async def _save_state(self, session: StoredSession) -> None:
        for _ in range(_TRIES):
            state = await self._store.load_state(session.id)
            if state is None:
                raise SessionNotFoundError(f"session {session.id!r} was deleted while it was saved")
            try:
                await self._store.save_state(session.id, _with(state, session))
            except StaleStateError:
                continue
            return
        raise StaleStateError(f"session {session.id!r}: its state changed {_TRIES} times while it was saved")


def _with(state: SessionState, session: StoredSession) -> SessionState:
    custom = {**state.custom_state, _USAGE: session.usage.model_dump(mode="json")}
    return state.model_copy(update={"metadata": dict(session.metadata), "custom_state": custom})


def _common(stored: tuple[Message, ...], wanted: tuple[Message, ...]) -> int:
    at = 0
    while at < min(len(stored), len(wanted)) and stored[at] == wanted[at]:
        at += 1
    return at
