"""Sessions whose store has lost them, with an archive that has their threads."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from helix_temporal.errors import SessionNotFoundError
from helix_temporal.models.states import CreateSession, MergeChanges, StateChange
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import FlushThread, ThreadStore
from helix_temporal.testing.builders import an_id
from helix_temporal.testing.contracts._sessions_base import loaded, messages_of, talk


class ArchivedSessions(NamedTuple):
    """A session store whose threads have an archive, and its thread store."""

    sessions: SessionStore
    threads: ThreadStore

    async def archive(self, session_id: str) -> None:
        """As a sweep does."""
        epoch = (await self.threads.read_facts(session_id)).epoch
        await self.threads.flush(FlushThread(session_id, epoch))


Wipe = Callable[[], Awaitable[ArchivedSessions]]
"""Loses all sessions and hot threads; the stores as they are opened then, over the same archive."""


class LostSessionsContract:
    """A session that the store does not know, and whose thread the archive has, is there."""

    @pytest.fixture
    async def wipe(self) -> Wipe:
        """How to lose everything but the archive."""
        raise NotImplementedError("bind the contract: override the fixture `wipe`")

    @pytest.fixture
    async def opened(self, wipe: Wipe) -> ArchivedSessions:
        """Empty stores, over an empty archive."""
        return await wipe()

    @pytest.fixture
    def session_id(self) -> str:
        """An id of this test's own."""
        return f"session-{an_id()}"

    async def test_its_messages_are_there(
        self, opened: ArchivedSessions, wipe: Wipe, session_id: str
    ) -> None:
        """Read, counted, taken back, and appended to, by whoever comes first."""
        await opened.sessions.create_session(session_id)
        await opened.sessions.append_messages(session_id, talk(6))
        await opened.archive(session_id)
        assert await messages_of((await wipe()).sessions, session_id) == talk(6)
        assert await (await wipe()).sessions.get_message_count(session_id) == 6
        cut = await (await wipe()).sessions.cut_messages(session_id, 1)
        assert list(cut.messages) == talk(6)[5:]
        store = (await wipe()).sessions
        assert (await store.append_messages(session_id, talk(1, "n"))).first_index == 5
        assert await messages_of(store, session_id) == talk(5) + talk(1, "n")

    async def test_it_is_what_it_was(self, opened: ArchivedSessions, wipe: Wipe, session_id: str) -> None:
        """What it began with, and its custom state as of its newest change."""
        options = CreateSession(
            agent_type="clerk", user_id="u", tags=("a",), metadata={"b": 1}, parent_session_id="above"
        )
        await opened.sessions.create_session(session_id, options)
        change = StateChange(title="t", merge=MergeChanges(values={"n": 1}))
        await opened.sessions.append_messages(session_id, talk(1), change=change)
        await opened.sessions.merge_custom_state(session_id, MergeChanges(values={"m": 2}))
        await opened.archive(session_id)
        before = await loaded(opened.sessions, session_id)
        after = await loaded((await wipe()).sessions, session_id)
        assert after.model_copy(update={"updated_at": before.updated_at}) == before

    async def test_it_is_cleared(self, opened: ArchivedSessions, wipe: Wipe, session_id: str) -> None:
        """Nothing of it returns, neither with the next append nor after another loss."""
        await opened.sessions.create_session(session_id)
        await opened.sessions.append_messages(session_id, talk(4))
        await opened.archive(session_id)
        await (await wipe()).sessions.truncate_messages(session_id, 0)
        assert await messages_of((await wipe()).sessions, session_id) == []

    async def test_it_is_deleted(self, opened: ArchivedSessions, wipe: Wipe, session_id: str) -> None:
        """For good where ids are never used twice; elsewhere it begins anew."""
        await opened.sessions.create_session(session_id)
        await opened.sessions.append_messages(session_id, talk(4))
        await opened.archive(session_id)
        assert await (await wipe()).sessions.delete_session(session_id)
        store = (await wipe()).sessions
        assert not await store.session_exists(session_id)
        assert await messages_of(store, session_id) == []
        with pytest.raises(SessionNotFoundError, match="was deleted"):
            await store.create_session(session_id, if_not_exists=True, revive=False)
        await store.create_session(session_id)
        await store.append_messages(session_id, talk(1, "n"))
        assert await messages_of(store, session_id) == talk(1, "n")

    async def test_one_that_never_was_is_none(self, opened: ArchivedSessions, session_id: str) -> None:
        """Looking for it makes none."""
        assert await opened.sessions.load_state(session_id) is None
        assert await messages_of(opened.sessions, session_id) == []
        assert not await opened.sessions.delete_session(session_id)
        with pytest.raises(SessionNotFoundError):
            await opened.sessions.append_messages(session_id, talk(1))
