"""helix_temporal: a turn is one commit of state, messages and checkpoint."""

import sys

from _speak import RefusedError, Turn, serve

from helix_temporal.errors import HeadMovedError
from helix_temporal.models.checkpoints import StepCommit
from helix_temporal.models.messages import Message, encode_message
from helix_temporal.models.states import MergeChanges, StateChange
from helix_temporal.models.store_calls import MAX_LIMIT
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import Create, OpenThread
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads

_EPOCH = 1_800_000_000_000_000


class Ours:
    """A session in our session store, where its messages lie as well."""

    def __init__(self, backend: PostgresBackend, session_id: str) -> None:
        self._backend, self._session_id = backend, session_id
        # As `Backends` has it.
        self._store = RowSessions(backend.sessions, HotThreads(backend.threads), recalls=True)
        self._head: Head = EMPTY
        self._found: Head | None = None

    @classmethod
    async def open(cls, dsn: str, session_id: str) -> "Ours":
        """The session, where it is."""
        backend = PostgresBackend(dsn, max_connections=2)
        await backend.migrations.run()
        writer = cls(backend, session_id)
        await writer._store.create_session(session_id, if_not_exists=True)
        threads = HotThreads(backend.threads)
        if await backend.threads.read_header(session_id) is None:
            await threads.open(OpenThread(session_id, _EPOCH, "bench", Create.AUTO))
        await writer.refresh()
        return writer

    async def write(self, turn: Turn) -> None:
        """One commit."""
        user = encode_message(Message(id=f"{turn.name}-user", role="user", content=turn.user))
        answer = encode_message(Message(id=f"{turn.name}-answer", role="assistant", content=turn.answer))
        try:
            result, _ = await self._store.save_state_and_promote_staging(
                self._session_id,
                StateChange(merge=MergeChanges(values={"note": turn.note}), steps=1),
                StepCommit(step_id=turn.name),
                append=StepAppend(self._session_id, _EPOCH, self._head, (user,), answer, commits=True),
                epoch=_EPOCH,
            )
        except HeadMovedError as error:
            self._found = _head_of(error)
            raise RefusedError from error
        self._head = result.head

    async def hydrate(self) -> list[str]:
        """State and all messages."""
        await self._store.load_state(self._session_id)
        texts: list[str] = []
        while True:
            page = await self._store.get_messages(self._session_id, offset=len(texts), limit=MAX_LIMIT)
            texts += [message.text for message in page.messages]
            if not page.has_more:
                return texts

    async def refresh(self) -> None:
        """Where the thread is now."""
        self._head, self._found = self._found or (await self._load_head()), None

    async def _load_head(self) -> Head:
        state = await self._store.load_state(self._session_id)
        assert state is not None
        return state.head

    async def close(self) -> None:
        """Close the connections."""
        await self._backend.close()


class Appending(Ours):
    """Messages alone, at the end of the thread wherever that is: several writers, and nobody is fenced."""

    async def write(self, turn: Turn) -> None:
        """Both messages at once."""
        user = Message(id=f"{turn.name}-user", role="user", content=turn.user)
        answer = Message(id=f"{turn.name}-answer", role="assistant", content=turn.answer)
        await self._store.append_messages(self._session_id, [user, answer])


def _head_of(error: HeadMovedError) -> Head | None:
    """Where the thread stands, as the refusal tells."""
    position, last_id = error.facts.get("found_position"), error.facts.get("found_last_id")
    return None if position is None else Head(position=int(position), last_id=str(last_id))


if __name__ == "__main__":
    serve((Appending if "append" in sys.argv else Ours).open, "asyncpg")
