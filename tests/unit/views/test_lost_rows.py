"""Sessions whose rows are lost: views show what the store itself would make again, and write nothing."""

from dataclasses import dataclass

import pytest

from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.client import SessionStores
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import SessionNotFoundError
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.stores.protocols.session_rows import STATE_ALONE
from helix_temporal.stores.protocols.threads import FlushThread, OpenThread
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.testing.builders import EPOCH
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._scene import user


@dataclass
class Lost:
    """A new and empty database for sessions, over the archive that the old one left."""

    rows: MemorySessions
    threads: TieredThreads

    @property
    def sessions(self) -> RowSessions:
        """The store of a worker, which makes lost rows again."""
        return RowSessions(self.rows, self.threads, together=False)

    @property
    def stores(self) -> SessionStores:
        """As a worker has them."""
        return SessionStores(threads=self.threads, usage=MemoryUsage(), sessions=self.sessions)


@pytest.fixture
async def lost() -> Lost:
    """Ann's session, used without a workflow; Redis, which had its row, was lost."""
    blobs = MemoryBlobs()
    threads = TieredThreads(MemoryThreads(), blobs)
    sessions = RowSessions(MemorySessions(), threads, together=False)
    options = CreateSession(user_id="ann", title="Returns", agent_type="clerk", metadata={"tenant": "a"})
    await sessions.create_session("s", options)
    await sessions.append_messages("s", [user("u1")])
    await threads.flush(FlushThread("s", (await threads.read_facts("s")).epoch))
    return Lost(MemorySessions(), TieredThreads(MemoryThreads(), blobs))


async def test_a_session_without_its_row_is_shown_as_its_store_makes_it_again(lost: Lost) -> None:
    """Without title, user and metadata, and from 1970, nobody would recognise the conversation."""
    found = (await SessionViews(lost.stores).get_session("s")).overview
    assert (await lost.rows.view("s", STATE_ALONE)).revision == 0
    again = await lost.sessions.load_state("s")
    assert again is not None
    assert (found.title, found.user_id, found.agent, found.metadata) == (
        "Returns",
        "ann",
        "clerk",
        {"tenant": "a"},
    )
    assert found.created_at == again.created_at > 0


@pytest.mark.parametrize("reads", [SessionFilter(user_id="ann"), SessionFilter(metadata={"tenant": "a"})])
async def test_whose_it_is_may_still_see_it_and_nobody_else(lost: Lost, reads: SessionFilter) -> None:
    """The rights of a viewer hang on what the row said."""
    found = await SessionViews(lost.stores, admits=reads).get_session("s")
    assert found.overview.session_id == "s"
    with pytest.raises(SessionNotFoundError):
        await SessionViews(lost.stores, admits=SessionFilter(user_id="bob")).get_session("s")


async def test_a_deleted_session_does_not_come_back_by_its_thread(lost: Lost) -> None:
    """Its row is gone on purpose: nothing of it is shown while its thread still goes."""
    sessions = lost.sessions
    assert await sessions.load_state("s") is not None
    facts = await lost.threads.read_facts("s")
    await sessions.delete_session("s")
    left = MemoryThreads()
    threads = TieredThreads(left, MemoryBlobs())
    await threads.open(OpenThread("s", EPOCH, facts.owner, slice=facts.slice))
    stores = SessionStores(
        threads=threads, usage=MemoryUsage(), sessions=RowSessions(lost.rows, threads, together=False)
    )
    with pytest.raises(SessionNotFoundError):
        await SessionViews(stores).get_session("s")
